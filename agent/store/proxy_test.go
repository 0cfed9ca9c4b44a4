package store

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// upstream is a deliberately simple store: one lock, waits polled.
type upstream struct {
	l      net.Listener
	mu     sync.Mutex
	values map[string][]byte
	conns  map[net.Conn]bool
	dials  int
	gone   bool
	done   sync.WaitGroup
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{
		l:      l,
		values: map[string][]byte{},
		conns:  map[net.Conn]bool{},
	}
	u.done.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			u.mu.Lock()
			u.conns[nc] = true
			u.dials++
			u.mu.Unlock()
			u.done.Go(func() { u.serve(nc) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		u.mu.Lock()
		u.gone = true
		u.mu.Unlock()
		u.hangUp()
		u.done.Wait()
	})
	return u
}

// hangUp is what a fence does: all connections end.
func (u *upstream) hangUp() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for nc := range u.conns {
		_ = nc.Close()
	}
}

func (u *upstream) open() (now, ever int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.conns), u.dials
}

func (u *upstream) serve(nc net.Conn) {
	defer func() {
		_ = nc.Close()
		u.mu.Lock()
		delete(u.conns, nc)
		u.mu.Unlock()
	}()
	r := bufio.NewReader(nc)
	isCurrent, err := detectLayout(r)
	layout := legacy
	if isCurrent {
		layout = current
	}
	for err == nil {
		var q request
		if q, err = readRequest(r, layout, nil); err == nil {
			_, err = nc.Write(u.answer(nc, r, q))
		}
	}
}

// names are the vectors of a request that has only such parts, after skip bytes.
func names(raw []byte, skip int) (out []string) {
	for b := raw[skip:]; len(b) >= 8; {
		n := int(binary.LittleEndian.Uint64(b))
		if n > len(b)-8 {
			return out
		}
		out = append(out, string(b[8:8+n]))
		b = b[8+n:]
	}
	return out
}

// hungUp looks for a moment whether the other side has gone, as a store must
// while it has one wait.
func hungUp(nc net.Conn, r *bufio.Reader) bool {
	_ = nc.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := r.Peek(1)
	_ = nc.SetReadDeadline(time.Time{})
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

func (u *upstream) answer(nc net.Conn, r *bufio.Reader, q request) []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	has := func(keys []string) bool {
		for _, k := range keys {
			if u.values[k] == nil {
				return false
			}
		}
		return true
	}
	switch q.kind {
	case set:
		kv := names(q.raw, 1)
		u.values[kv[0]] = []byte(kv[1])
		return nil
	case get:
		v := u.values[names(q.raw, 1)[0]]
		return append(binary.LittleEndian.AppendUint64(nil, uint64(len(v))), v...)
	case add:
		k := names(q.raw, 1)[0]
		n := binary.LittleEndian.Uint64(append(bytes.Clone(u.values[k]), make([]byte, 8)...))
		n += binary.LittleEndian.Uint64(q.raw[len(q.raw)-8:])
		u.values[k] = binary.LittleEndian.AppendUint64(nil, n)
		return u.values[k]
	case remove:
		k := names(q.raw, 1)[0]
		n := uint64(0)
		if u.values[k] != nil {
			n = 1
		}
		delete(u.values, k)
		return binary.LittleEndian.AppendUint64(nil, n)
	case check:
		if has(names(q.raw, 9)) {
			return []byte{0}
		}
		return []byte{1}
	case wait:
		for left := false; !left &&
			!has(names(q.raw, 9)) &&
			!u.gone &&
			u.conns[nc]; {
			u.mu.Unlock()
			left = hungUp(nc, r)
			u.mu.Lock()
		}
		return []byte{0}
	}
	return binary.LittleEndian.AppendUint64(nil, 0)
}

// user is a client of the current layout, or of the legacy one.
type user struct {
	t  *testing.T
	nc net.Conn
	by byte // added to legacy opcodes
}

func dial(t *testing.T, p *Proxy, isCurrent bool) *user {
	t.Helper()
	nc, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	u := &user{t: t, nc: nc}
	if isCurrent {
		u.by = 1
		_, err = nc.Write(greetingBytes())
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	return u
}

func vec(s ...string) (b []byte) {
	for _, v := range s {
		b = append(binary.LittleEndian.AppendUint64(b, uint64(len(v))), v...)
	}
	return b
}

func (u *user) ask(op byte, tail []byte) {
	u.t.Helper()
	if _, err := u.nc.Write(append([]byte{op + u.by}, tail...)); err != nil {
		u.t.Fatal(err)
	}
}

func (u *user) bytes(n int) []byte {
	u.t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(u.nc, b); err != nil {
		u.t.Fatal(err)
	}
	return b
}

func (u *user) set(k, v string) {
	u.ask(0, vec(k, v))
}

func (u *user) get(k string) string {
	u.t.Helper()
	u.ask(2, vec(k))
	return string(u.bytes(int(binary.LittleEndian.Uint64(u.bytes(8)))))
}

func (u *user) add(k string, n uint64) uint64 {
	u.t.Helper()
	u.ask(3, binary.LittleEndian.AppendUint64(vec(k), n))
	return binary.LittleEndian.Uint64(u.bytes(8))
}

func (u *user) wait(keys ...string) {
	u.ask(5, append(binary.LittleEndian.AppendUint64(nil, uint64(len(keys))), vec(keys...)...))
}

// ends says that the proxy has ended the connection.
func (u *user) ends() {
	u.t.Helper()
	n, err := u.nc.Read(make([]byte, 1))
	if n != 0 || err == nil || strings.Contains(err.Error(), "timeout") {
		u.t.Fatalf("still connected: %d bytes, %v", n, err)
	}
}

func open(t *testing.T, u *upstream) *Proxy {
	t.Helper()
	p, err := Open(Options{Listen: "127.0.0.1:0", Upstream: u.l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Many clients of both layouts count to a barrier and wait for the last: all are
// released, over a few connections.
func TestManyClientsOverFewConnections(t *testing.T) {
	for _, isCurrent := range []bool{false, true} {
		up := newUpstream(t)
		p := open(t, up)
		const clients = 40
		var all sync.WaitGroup
		for range clients {
			u := dial(t, p, isCurrent)
			all.Go(func() {
				if u.add("count", 1) == clients {
					u.set("go", "now")
				}
				u.wait("go")
				if b := u.bytes(1); b[0] != stopWaiting || u.get("go") != "now" {
					t.Errorf("answer %v", b)
				}
			})
		}
		all.Wait()
		if _, ever := up.open(); ever > 4*SharedMax {
			t.Errorf("%d connections to the store for %d clients", ever, clients)
		}
	}
}

// One client gives its wait up: the others go on, and its next answer is right.
func TestCancelledWait(t *testing.T) {
	up := newUpstream(t)
	p := open(t, up)
	a := dial(t, p, true)
	b := dial(t, p, true)
	a.wait("k")
	b.wait("k")
	a.ask(11, nil) // CANCEL_WAIT
	if got := a.bytes(1); got[0] != waitCanceled {
		t.Fatalf("answer %v", got)
	}
	if a.add("n", 5) != 5 {
		t.Fatal("the answer after a cancellation is another one's")
	}
	a.set("k", "v")
	if got := b.bytes(1); got[0] != stopWaiting {
		t.Fatalf("answer %v", got)
	}
	b.wait("never")
	b.ask(11, nil)
	b.bytes(1)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if now, _ := up.open(); now <= SharedMax {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a wait that nobody wants is still open at the store")
		}
	}
}

// A key that was deleted before a client joined a wait for it does not release
// that client: what the store answered to the first one says nothing to it.
func TestWaitAfterADelete(t *testing.T) {
	up := newUpstream(t)
	p := open(t, up)
	c := &client{p: p, nc: dial(t, p, true).nc, current: true}
	if err := p.sharedConnection(c); err != nil {
		t.Fatal(err)
	}
	q := request{
		kind: wait,
		raw:  append([]byte{6}, append(binary.LittleEndian.AppendUint64(nil, 1), vec("gone")...)...),
		keys: 1,
	}
	old := &waitFor{key: "x", clients: map[*client]bool{c: true}}
	c.w = old
	if err := p.releaseClient(c, old, q); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.w == nil || c.w == old {
		t.Fatal("released, or forgotten, instead of waiting on")
	}
}

// The store ends its connections: all clients are disconnected, and new ones are
// served by new connections.
func TestStoreThatHangsUp(t *testing.T) {
	up := newUpstream(t)
	p := open(t, up)
	idle := dial(t, p, true)
	waits := dial(t, p, true)
	idle.add("n", 1)
	waits.wait("never")
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if now, _ := up.open(); now >= SharedMax+1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the wait did not reach the store")
		}
	}
	up.hangUp()
	waits.ends()
	fresh := dial(t, p, true)
	if fresh.add("n", 1) != 2 {
		t.Fatal("a new client met the old connection")
	}
}

func TestClientsThatAreNoClients(t *testing.T) {
	up := newUpstream(t)
	p := open(t, up)
	for name, b := range map[string][]byte{
		"opcode":   {99},
		"key":      append([]byte{1}, binary.LittleEndian.AppendUint64(nil, MaxKey+1)...),
		"callback": {7},
		"keys":     append([]byte{5}, binary.LittleEndian.AppendUint64(nil, MaxKeys+1)...),
		"http":     []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		u := dial(t, p, false)
		u.by = 0
		if _, err := u.nc.Write(b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		u.ends()
	}
}

func TestWhereItListens(t *testing.T) {
	for _, o := range []Options{
		{Listen: "0.0.0.0:0", Upstream: "a:1"},
		{Listen: "x", Upstream: "a:1"},
		{Listen: "127.0.0.1:0", Upstream: "a"},
	} {
		if _, err := Open(o); !errors.Is(err, ErrListen) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func FuzzNext(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 'k', 0, 0, 0, 0, 0, 0, 0, 0}, false)
	f.Add([]byte{11, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 'k', 0, 0, 0, 0, 0, 0, 0, 0}, true)
	f.Fuzz(func(t *testing.T, b []byte, isCurrent bool) {
		layout := legacy
		if isCurrent {
			layout = current
		}
		r := bufio.NewReader(bytes.NewReader(b))
		var seen []byte
		for {
			q, err := readRequest(r, layout, nil)
			if err != nil {
				return
			}
			if seen = append(seen, q.raw...); !bytes.HasPrefix(b, seen) {
				t.Fatalf("request %q is not what came: %q", seen, b)
			}
		}
	})
}
