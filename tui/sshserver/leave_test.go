package sshserver

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	uv "github.com/charmbracelet/ultraviolet"
	gossh "golang.org/x/crypto/ssh"
)

// A session whose channel is closed ends, also when its connection lives on as
// OpenSSH's ControlMaster does: its seat must not be free before its program
// has gone.
func TestASessionEndsWithItsChannel(t *testing.T) {
	for _, command := range []string{"", "--plain"} {
		p := newPlace(t, Limits{})
		c := p.dial(p.person("maria", "viewer"))
		x := sit(t, c, 80, 24, command)
		x.until("the job", func(string) bool {
			return x.received() > 0 && p.server.hub.Sessions() == 1
		})
		_ = x.sess.Close()
		for deadline := time.Now().Add(patience); p.server.hub.Sessions() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("command %q: the session runs on without its channel", command)
			}
		}
		if out, _, code := exec(t, c, "--once"); code != 0 || out == "" {
			t.Errorf("command %q: the connection's next session ended with %d: %q", command, code, out)
		}
	}
}

// A key that was taken away while its connection was open and idle opens no
// session on it, not even for the time until the next look.
func TestAKeyThatIsTakenAwayOpensNoSession(t *testing.T) {
	p := newPlace(t, Limits{Recheck: time.Hour})
	k := p.person("maria", "approver")
	c := p.dial(k)
	p.forget(k)
	out, errs, code := exec(t, c, "--once")
	if code != 1 || out != "" || !strings.Contains(errs, "no longer lets you in") {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	for _, who := range p.dials {
		if who.Name == "maria" {
			t.Error("the engine was dialled for a key that lets nobody in")
		}
	}
}

// What never ends is passed on in pieces: the library gathers a sequence whole.
func TestAnEndlessSequenceIsNotGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flood = 1 << 20
		from := io.MultiReader(
			strings.NewReader("\x1b]52;c;"),
			bytes.NewReader(bytes.Repeat([]byte("a"), flood)),
		)
		events := make(chan uv.Event)
		go func() {
			defer close(events)
			_ = uv.NewTerminalReader(
				newSessionInput(from, time.Now),
				"xterm",
			).StreamEvents(context.Background(), events)
		}()
		largest := 0
		for e := range events {
			if u, ok := e.(uv.UnknownEvent); ok {
				largest = max(largest, len(u))
			}
		}
		if largest > 2*burstMax {
			t.Errorf("%d bytes were gathered as one", largest)
		}
	})
}

// One person's sessions, over however many connections, leave seats for others.
func TestNobodyTakesAllSeats(t *testing.T) {
	p := newPlace(t, Limits{Sessions: 32})
	k := p.person("vera", "viewer")
	taken := 0
	for range 4 {
		c := p.dial(k)
		for range perConnection {
			ch, in, err := c.OpenChannel("session", nil)
			if err != nil {
				continue
			}
			taken++
			go gossh.DiscardRequests(in)
			t.Cleanup(func() { _ = ch.Close() })
		}
	}
	if taken != perPersonLeast {
		t.Errorf("one person took %d seats", taken)
	}
	_, _, code := exec(t, p.dial(p.person("maria", "approver")), "--once")
	if code != 0 {
		t.Errorf("another person is not let in: exit code %d", code)
	}
}
