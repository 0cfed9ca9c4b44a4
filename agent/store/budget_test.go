package store

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"
)

func with(t *testing.T, u *upstream, o Options) *Proxy {
	t.Helper()
	o.Listen = "127.0.0.1:0"
	o.Upstream = u.l.Addr().String()
	p, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// holds waits until so much of a budget is used, at least and at most.
func holds(t *testing.T, p *Proxy, least, most int64) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		used := p.b.used.Load()
		if used >= least && used <= most {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d bytes are held, wants %d to %d", used, least, most)
		}
	}
}

// Requests that don't fit end their own connection; small ones always fit, and what
// a client held is free when it has left.
func TestRequestsShareABudget(t *testing.T) {
	const mib = 1 << 20
	up := newUpstream(t)
	p := with(t, up, Options{Budget: mib})
	value := func(n int) []byte {
		return append(
			append(vec("k"), binary.LittleEndian.AppendUint64(nil, uint64(n))...),
			make([]byte, n/2)...,
		)
	}
	slow := dial(t, p, true)
	slow.ask(0, value(900<<10))
	holds(t, p, 400<<10, mib)
	greedy := dial(t, p, true)
	greedy.ask(0, value(1800<<10))
	greedy.ends()
	small := dial(t, p, true)
	small.set("a", "b")
	if got := small.get("a"); got != "b" {
		t.Errorf("got %q", got)
	}
	_ = slow.nc.Close()
	holds(t, p, 0, 0)
}

// An answer that does not fit ends its client, not those who share its connection.
func TestAnswerThatDoesNotFit(t *testing.T) {
	up := newUpstream(t)
	up.values["big"], up.values["small"] = []byte(strings.Repeat("x", 1<<20)), []byte("v")
	p := with(t, up, Options{Budget: 100 << 10})
	var users []*user
	for range 2 * SharedMax {
		u := dial(t, p, true)
		if got := u.get("small"); got != "v" {
			t.Fatalf("got %q", got)
		}
		users = append(users, u)
	}
	users[0].ask(2, vec("big"))
	users[0].ends()
	for _, u := range users[1:] {
		if got := u.get("small"); got != "v" {
			t.Errorf("got %q", got)
		}
	}
	if _, ever := up.open(); ever != SharedMax {
		t.Errorf("%d connections to the store were made, wants %d", ever, SharedMax)
	}
	holds(t, p, 0, 0)
}

// A wait's keys are held while it lasts, and no longer.
func TestWaitIsCharged(t *testing.T) {
	up := newUpstream(t)
	p := open(t, up)
	var keys []string
	for range 100 {
		keys = append(keys, strings.Repeat("k", 1000))
	}
	u := dial(t, p, true)
	u.wait(keys...)
	holds(t, p, 200<<10, 1<<20)
	dial(t, p, true).set(keys[0], "")
	u.bytes(1)
	holds(t, p, 0, 0)
}

// Clients that say nothing, and requests that don't end, are given up; a client
// that has made a request may be silent.
func TestLateClientsAreEnded(t *testing.T) {
	up := newUpstream(t)
	p := with(t, up, Options{
		FirstRequest: 50 * time.Millisecond,
		OneRequest:   50 * time.Millisecond,
	})
	good := dial(t, p, true)
	good.set("a", "b")
	dial(t, p, true).ends()
	dial(t, p, false).ends()
	amid := dial(t, p, true)
	amid.set("a", "c")
	amid.ask(0, vec("a")[:5])
	amid.ends()
	if got := good.get("a"); got != "c" {
		t.Errorf("got %q", got)
	}
}
