package sshserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/failslow/falcon/tui/internal/enginetest"
)

// Nothing but a session with Falcon's own words is to be had.
func TestThereIsNothingButTheConsole(t *testing.T) {
	p := newPlace(t, Limits{})
	c := p.dial(p.person("maria", "admin"))
	for _, kind := range []string{
		"direct-tcpip", "direct-streamlocal@openssh.com", "x11", "auth-agent@openssh.com",
		"tun@openssh.com",
	} {
		if ch, _, err := c.OpenChannel(kind, gossh.Marshal(struct {
			Host  string
			Port  uint32
			From  string
			FPort uint32
		}{"127.0.0.1", 22, "127.0.0.1", 1})); err == nil {
			_ = ch.Close()
			t.Errorf("a channel of kind %s was opened", kind)
		}
	}
	if conn, err := c.Dial("tcp", p.server.Address()); err == nil {
		_ = conn.Close()
		t.Error("a port was forwarded")
	}
	if l, err := c.Listen("tcp", "127.0.0.1:0"); err == nil {
		_ = l.Close()
		t.Error("a port is listened on")
	}
	for _, req := range []string{"tcpip-forward", "streamlocal-forward@openssh.com", "no-more@x"} {
		if ok, _, err := c.SendRequest(req, true, nil); ok || err != nil {
			t.Errorf("request %s: %v, %v", req, ok, err)
		}
	}
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, req := range []string{"auth-agent-req@openssh.com", "x11-req", "subsystem", "signal", "break"} {
		if ok, _ := s.SendRequest(req, true, gossh.Marshal(struct{ Name string }{"sftp"})); ok {
			t.Errorf("request %s was agreed to", req)
		}
	}
	if err := s.Setenv("LD_PRELOAD", "/tmp/x.so"); err == nil {
		t.Error("any variable is taken")
	}
	if err := s.Setenv("COLORTERM", "truecolor"); err != nil {
		t.Errorf("COLORTERM: %v", err)
	}
	if err := s.RequestPty("../../etc/passwd", 24, 80, gossh.TerminalModes{}); err == nil {
		t.Error("a path is taken for a terminal's name")
	}
	for _, command := range []string{
		"/bin/sh -c id", "--shell", "--once --json --theme", "scp -t .", "ls", "sh", "inc/../../x",
		"--json", "--color red", "a\x1bb",
	} {
		out, errs, code := exec(t, c, command)
		if out != "" ||
			code == 0 ||
			strings.Contains(errs, "uid=") ||
			strings.Contains(errs, "\x1b") {
			t.Errorf("%q: %d, %q, %q", command, code, out, errs)
		}
	}
}

func TestUsageAndOnce(t *testing.T) {
	p := newPlace(t, Limits{})
	p.engine.AdvanceTo(enginetest.Proposed + 1)
	c := p.dial(p.person("dana", "viewer"))
	if out, _, code := exec(t, c, "help"); code != 0 || !strings.Contains(out, "inc/INC-0001") {
		t.Errorf("help: %d %q", code, out)
	}
	out, errs, code := exec(t, c, "--once --json")
	var doc struct {
		Job struct {
			Name  string
			World int
		}
		Incidents []struct{ Id string }
	}
	err := json.Unmarshal([]byte(out), &doc)
	if code != 0 || err != nil || doc.Job.World != 8 || len(doc.Incidents) != 1 {
		t.Errorf("--once --json: %d %q, %v, %+v", code, errs, err, doc)
	}
	out, errs, code = exec(t, c, "--once")
	if code != 0 ||
		!strings.Contains(out, "INC-0001: GPU degradation on n1.g0") ||
		strings.Contains(out, "\x1b") {
		t.Errorf("--once: %d %q %q", code, out, errs)
	}
}

// Without a terminal lines come, and end with the job.
func TestLinesWithoutATerminal(t *testing.T) {
	p := newPlace(t, Limits{})
	p.engine.AdvanceTo(enginetest.End)
	out, errs, code := exec(t, p.dial(p.person("dana", "viewer")), "")
	if code != 0 || !strings.Contains(out, "finished, at iteration 240") || strings.Contains(out, "\x1b") {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

// On a terminal that is dumb the server echoes what is typed, and ctrl-C ends.
func TestLinesOnATerminal(t *testing.T) {
	p := newPlace(t, Limits{})
	p.engine.AdvanceTo(enginetest.Proposed + 1)
	x := sit(t, p.dial(p.person("maria", "approver")), 100, 40, "--plain")
	x.shows("1) approve  2) veto  3) show evidence")
	x.press("helq\x7fp\r")
	x.shows("help ")
	x.shows("words: status, help, quit, freeze")
	x.press("\x03")
	if code := x.ended(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestSeveralOperatorsSeeOneJob(t *testing.T) {
	p := newPlace(t, Limits{})
	p.engine.AdvanceTo(enginetest.Proposed)
	a := sit(t, p.dial(p.person("maria", "approver")), 80, 24, "")
	b := sit(
		t,
		p.dial(p.person("omar", "approver")),
		120,
		40,
		"--color none --theme light",
	)
	a.shows("S2 PROPOSED")
	b.shows("S2 PROPOSED")
	p.engine.Refuse("omar decided first")
	a.press("v")
	a.shows("VETO S2?")
	if strings.Contains(b.screen(), "VETO S2?") {
		t.Error("one operator's dialog stands on another's screen")
	}
	a.press("q")
	b.press("q")
	if code := b.ended(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAKeyThatIsTakenAwayEndsItsSession(t *testing.T) {
	p := newPlace(t, Limits{Recheck: 20 * time.Millisecond})
	k := p.person("maria", "approver")
	x := sit(t, p.dial(k), 80, 24, "")
	x.shows("gpt-lab")
	p.forget(k)
	code := x.ended()
	if code != 1 || !strings.Contains(x.errs.String(), "your key no longer lets you in") {
		t.Errorf("exit code %d, %q", code, x.errs)
	}
	if x.emu.IsAltScreen() {
		t.Error("the terminal was not given back")
	}
}

func TestAnIdleScreenIsClosed(t *testing.T) {
	p := newPlace(t, Limits{
		Recheck: 20 * time.Millisecond,
		Idle:    300 * time.Millisecond,
	})
	x := sit(t, p.dial(p.person("maria", "approver")), 80, 24, "")
	code := x.ended()
	if code != 1 || !strings.Contains(x.errs.String(), "no key for a while") {
		t.Errorf("exit code %d, %q", code, x.errs)
	}
}

func TestClosingGivesTerminalsBack(t *testing.T) {
	p := newPlace(t, Limits{})
	x := sit(t, p.dial(p.person("maria", "approver")), 80, 24, "")
	x.shows("gpt-lab")
	p.server.Close()
	x.ended()
	if x.emu.IsAltScreen() {
		t.Error("the terminal was not given back")
	}
	if !strings.Contains(x.errs.String(), "Falcon is stopping") {
		t.Errorf("said: %q", x.errs)
	}
	if _, err := net.DialTimeout("tcp", p.server.Address(), time.Second); err == nil {
		t.Error("it still listens")
	}
}

func TestSeatsAndDoorAreBounded(t *testing.T) {
	p := newPlace(t, Limits{Sessions: 2})
	k := p.person("maria", "viewer")
	a := sit(t, p.dial(k), 80, 24, "")
	b := sit(t, p.dial(k), 80, 24, "")
	a.shows("gpt-lab")
	b.shows("gpt-lab")
	if s, err := p.dial(k).NewSession(); err == nil {
		_ = s.Close()
		t.Error("a third session of two was let in")
	}
	r := newPlace(t, Limits{Connections: 1})
	first := r.dial(r.person("maria", "viewer"))
	other := r.person("omar", "viewer")
	if c, err := r.try(other); err == nil {
		_ = c.Close()
		t.Error("a second connection of one was let in")
	}
	_ = first.Close()
	for deadline := time.Now().Add(patience); ; { // its place is free once the server has noticed
		if c, err := r.try(other); err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the place of a connection that has gone stays taken")
		}
	}
}

// Connections without a login, as many as an attacker likes and whatever they have sent, keep
// nobody out who has a key, also not who comes from the same address.
func TestNobodyIsLockedOut(t *testing.T) {
	for what, sends := range map[string]string{
		"nothing":   "",
		"a version": "SSH-2.0-x\r\n",
		"no SSH":    "GET / HTTP/1.1\r\n",
	} {
		p := newPlace(t, Limits{Handshake: time.Hour})
		k := p.person("maria", "viewer")
		for range 64 {
			p.hold(sends)
		}
		for i := range 8 {
			if c, err := p.try(k); err != nil {
				t.Errorf("64 that send %s: login %d of 8: %v", what, i+1, err)
			} else {
				_ = c.Close()
			}
		}
	}
}

// More than there is room for: the oldest that have proven nothing go.
func TestUnprovenOnesMakePlace(t *testing.T) {
	p := newPlace(t, Limits{Handshake: time.Hour, Unproven: 8, PerSource: 4})
	k := p.person("maria", "viewer")
	c := p.dial(k)
	for range 3 {
		for range 6 {
			p.hold("")
		}
		p.dial(k)
	}
	if n := p.server.door.unproven.Len(); n > 4 {
		t.Errorf("%d of one address have proven nothing", n)
	}
	if _, _, err := c.SendRequest("still-there", true, nil); err != nil {
		t.Errorf("a person's connection went for theirs: %v", err)
	}
}

// hold opens a connection that proves nothing and stays.
func (p *place) hold(sends string) {
	p.t.Helper()
	c, err := net.Dial("tcp", p.server.Address())
	if err == nil {
		p.t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, sends)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// One person's newest connections stay.
func TestOnePersonsConnectionsAreBounded(t *testing.T) {
	p := newPlace(t, Limits{})
	k := p.person("maria", "viewer")
	first := p.dial(k)
	for range perPersonConnections {
		p.dial(k)
	}
	if err := first.Wait(); err == nil {
		t.Error("the oldest ended in order")
	}
	other := p.dial(p.person("omar", "viewer"))
	if _, _, err := other.SendRequest("still-there", true, nil); err != nil {
		t.Errorf("another person's: %v", err)
	}
}

// Who connects and says nothing is closed at the deadline.
func TestHandshakeHasADeadline(t *testing.T) {
	p := newPlace(t, Limits{Handshake: 50 * time.Millisecond})
	c, err := net.Dial("tcp", p.server.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("not closed: %v", err)
	}
}

func TestHostKeyIsMadeOnceAndKeptPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "key")
	a, err := loadHostKey(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	b, err := loadHostKey(path)
	if err != nil || !bytes.Equal(a.PublicKey().Marshal(), b.PublicKey().Marshal()) {
		t.Errorf("another key the second time: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := loadHostKey(path); !errors.Is(err, ErrHostKey) ||
		!strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others may read: %v", err)
	}
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := loadHostKey(path); !errors.Is(err, ErrHostKey) {
		t.Errorf("no key at all: %v", err)
	}
}

func TestPastesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 3*pasteMax)
	in := "a\x1b[A" + "\x1b[200~" + long + "\x1b[201~" + "b" + "\x1b[200~y\x1b[20z\x1b[201~c"
	for name, from := range map[string]io.Reader{
		"whole":    strings.NewReader(in),
		"bytewise": iotest.OneByteReader(strings.NewReader(in)),
	} {
		got, err := io.ReadAll(newSessionInput(from, time.Now))
		want := "a\x1b[A" + "\x1b[200~" + long[:pasteMax] + "\x1b[201~" + "b" + "\x1b[200~y\x1b[20z\x1b[201~c"
		if err != nil || string(got) != want {
			t.Errorf("%s: %d bytes instead of %d, %v", name, len(got), len(want), err)
		}
	}
}

func TestCookedLines(t *testing.T) {
	var echo bytes.Buffer
	ended := 0
	c := &lineEditor{
		from: iotest.HalfReader(strings.NewReader(
			"ab\x7fc\r\x1b[A\x1bOP\x1b[1;5Cyé\x7fes\nno\x15ok\r\x03tail\r",
		)),
		echo:  &echo,
		ended: func() { ended++ },
	}
	got, err := io.ReadAll(c)
	if err != nil || string(got) != "ac\nyes\nok\n" || ended != 1 {
		t.Errorf("%q, %v, ended %d", got, err, ended)
	}
	if strings.Contains(echo.String(), "\x1b") {
		t.Errorf("echoed %q", echo.String())
	}
}

// Whatever a client sends as its command, it is understood or refused, and
// what is said of it can be shown.
func FuzzAsk(f *testing.F) {
	for _, s := range []string{
		"", "--once --json", "inc/INC-0001?view=ranks&z=2", "--theme dark rank/12", "-- --plain",
		"--color=16", "help",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseCommand(s)
		switch {
		case err != nil && !errors.Is(err, errAsk):
			t.Fatalf("unmarked: %v", err)
		case err == nil && a.json && !a.once:
			t.Fatalf("%q: %+v", s, a)
		}
	})
}

// FuzzInput: outside pastes nothing is lost, and a paste never grows beyond
// its bound; compared with a second, simple reading of the whole text.
func FuzzInput(f *testing.F) {
	f.Add([]byte("a\x1b[200~paste\x1b[201~b"))
	f.Add([]byte("\x1b[200~\x1b[20\x1b[201~\x1b[200~"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > pasteMax {
			return
		}
		got, err := io.ReadAll(newSessionInput(iotest.OneByteReader(bytes.NewReader(text)), time.Now))
		if err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%q became %q, %v", text, got, err)
		}
	})
}

// A link opens the screen where it points, and is reported as lines elsewhere.
func TestDeepLinks(t *testing.T) {
	p := newPlace(t, Limits{})
	p.engine.AdvanceTo(enginetest.Proposed + 1)
	c := p.dial(p.person("maria", "approver"))
	sit(t, c, 100, 40, "rank/5?view=ranks").shows("rank 5")
	sit(t, c, 100, 40, "events").shows("INC-0001 opened")
	out, _, code := exec(t, c, "--once inc/1")
	if code != 0 ||
		!strings.Contains(out, "INC-0001  located") ||
		!strings.Contains(out, "evidence  +") {
		t.Errorf("--once inc/1: %d %q", code, out)
	}
}
