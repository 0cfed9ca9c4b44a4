package sshserver

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"go.uber.org/goleak"
	gossh "golang.org/x/crypto/ssh"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

// A program's pending tick outlives it by up to a second; the library offers
// no way to wait for it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("charm.land/bubbletea/v2.Tick.func1"),
		goleak.IgnoreAnyFunction("charm.land/bubbletea/v2.(*Program).execBatchMsg"))
}

const patience = 20 * time.Second // far above what any wait takes

// place is a server on the loopback with a scripted engine behind.
type place struct {
	t      testing.TB
	engine *enginetest.Engine
	server *Server
	people map[string]Caller // by the key's wire form
	mu     sync.Mutex
	dials  []Caller
}

func newPlace(t testing.TB, limits Limits) *place {
	t.Helper()
	p := &place{
		t:      t,
		engine: enginetest.New(enginetest.Options{}),
		people: map[string]Caller{},
	}
	behind := p.engine.ServeInMemory()
	var err error
	p.server, err = Listen(Config{
		Address:  "127.0.0.1:0",
		HostKey:  filepath.Join(t.TempDir(), "host_key"),
		Limits:   limits,
		Identify: p.identify,
		Dial: func(who Caller) (Engine, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.dials = append(p.dials, who)
			cc, err := behind.Dial()
			if err != nil {
				return Engine{}, err
			}
			return Engine{falconv1.NewConsoleClient(cc), func() {
				_ = cc.Close()
			}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.server.Close()
		behind.Close()
	})
	return p
}

func (p *place) identify(key gossh.PublicKey, from net.Addr) (Caller, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	who, ok := p.people[string(key.Marshal())]
	if !ok {
		return who, errors.New("nobody")
	}
	who.From = "ssh " + from.String()
	return who, nil
}

// person makes a key that lets somebody in.
func (p *place) person(name, role string) gossh.Signer {
	s := newKey(p.t)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.people[string(s.PublicKey().Marshal())] = Caller{Name: name, Role: role}
	return s
}

func (p *place) forget(s gossh.Signer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.people, string(s.PublicKey().Marshal()))
}

func newKey(t testing.TB) gossh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := gossh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (p *place) try(s gossh.Signer) (*gossh.Client, error) {
	return gossh.Dial("tcp", p.server.Address(), clientConfig(s))
}

func clientConfig(s gossh.Signer) *gossh.ClientConfig {
	return &gossh.ClientConfig{
		User:            "someone",
		Auth:            []gossh.AuthMethod{gossh.PublicKeys(s)},
		HostKeyCallback: gossh.InsecureIgnoreHostKey(),
		Timeout:         patience,
	}
}

func (p *place) dial(s gossh.Signer) *gossh.Client {
	p.t.Helper()
	c, err := p.try(s)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close() })
	return c
}

// seat is one session with an emulated terminal.
type seat struct {
	t     testing.TB
	sess  *gossh.Session
	keys  io.WriteCloser
	emu   *vt.SafeEmulator
	wrote chan struct{}
	errs  *buffer
	mu    sync.Mutex
	bytes int
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (x *seat) Write(p []byte) (int, error) {
	_, _ = x.emu.Write(p)
	x.mu.Lock()
	x.bytes += len(p)
	x.mu.Unlock()
	select {
	case x.wrote <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (x *seat) received() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.bytes
}

// sit opens a session with a terminal; command "" asks for the screen.
func sit(t testing.TB, c *gossh.Client, w, h int, command string) *seat {
	t.Helper()
	sess, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	x := &seat{
		t:     t,
		sess:  sess,
		emu:   vt.NewSafeEmulator(w, h),
		wrote: make(chan struct{}, 1),
		errs:  &buffer{},
	}
	sess.Stdout, sess.Stderr = x, x.errs
	if x.keys, err = sess.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() { // the terminal's replies come back as input
		defer close(drained)
		_, _ = io.Copy(x.keys, x.emu)
	}()
	t.Cleanup(func() {
		_ = sess.Close()
		if pipe, ok := x.emu.InputPipe().(io.Closer); ok {
			_ = pipe.Close()
		}
		<-drained
	})
	if err := sess.RequestPty("xterm-256color", h, w, gossh.TerminalModes{}); err != nil {
		t.Fatal(err)
	}
	if command == "" {
		err = sess.Shell()
	} else {
		err = sess.Start(command)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *seat) screen() string {
	return ansi.Strip(x.emu.Render())
}

func (x *seat) shows(text string) string {
	x.t.Helper()
	return x.until(text, func(s string) bool {
		return strings.Contains(s, text)
	})
}

func (x *seat) until(what string, ok func(string) bool) string {
	x.t.Helper()
	deadline := time.After(patience)
	for {
		if s := x.screen(); ok(s) {
			return s
		}
		select {
		case <-x.wrote:
		case <-deadline:
			x.t.Fatalf("waited in vain for %s; the screen is:\n%s\n%s", what, x.screen(), x.errs)
		}
	}
}

func (x *seat) press(keys string) {
	x.t.Helper()
	if _, err := io.WriteString(x.keys, keys); err != nil {
		x.t.Fatal(err)
	}
}

// ended waits for the session's end and returns its exit code, -1 without one.
func (x *seat) ended() int {
	x.t.Helper()
	got := make(chan error, 1)
	go func() { got <- x.sess.Wait() }()
	select {
	case err := <-got:
		return exitCode(err)
	case <-time.After(patience):
		x.t.Fatalf("the session goes on; the screen is:\n%s", x.screen())
	}
	return 0
}

func exitCode(err error) int {
	var exit *gossh.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitStatus()
	}
	return -1
}

// exec runs a command without a terminal, with nothing to type.
func exec(t testing.TB, c *gossh.Client, command string) (out, errs string, code int) {
	t.Helper()
	sess, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer sess.Close()
	var o, e buffer
	sess.Stdout, sess.Stderr = &o, &e
	code = exitCode(sess.Run(command))
	return o.String(), e.String(), code
}

func TestAnOperatorSeesTheJobAndLeaves(t *testing.T) {
	p := newPlace(t, Limits{})
	p.engine.AdvanceTo(enginetest.Proposed + 2)
	x := sit(t, p.dial(p.person("maria", "approver")), 80, 24, "")
	x.shows("S2 PROPOSED")
	if !x.emu.IsAltScreen() {
		t.Error("not on the alternate screen")
	}
	x.press("2")
	x.shows("RANKS")
	x.emu.Resize(120, 40)
	if err := x.sess.WindowChange(40, 120); err != nil {
		t.Fatal(err)
	}
	x.until("the larger screen", func(s string) bool {
		rows := strings.Split(s, "\n")
		return len(rows) == 40 && strings.Contains(rows[39], "?")
	})
	x.press("q")
	if code := x.ended(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if x.emu.IsAltScreen() {
		t.Error("the terminal was not given back")
	}
	if len(p.dials) != 2 ||
		p.dials[0].Role != "viewer" ||
		p.dials[1].Name != "maria" ||
		p.dials[1].Role != "approver" {
		t.Errorf("the engine was dialled as %v", p.dials)
	}
}

func TestWrongKeyIsRefused(t *testing.T) {
	p := newPlace(t, Limits{})
	if c, err := p.try(newKey(t)); err == nil {
		_ = c.Close()
		t.Error("a stranger came in")
	}
	c, err := gossh.Dial("tcp", p.server.Address(), &gossh.ClientConfig{
		User:            "x",
		Auth:            []gossh.AuthMethod{gossh.Password("x")},
		HostKeyCallback: gossh.InsecureIgnoreHostKey(),
	})
	if err == nil {
		_ = c.Close()
		t.Error("a password came in")
	}
	c, err = gossh.Dial("tcp", p.server.Address(), &gossh.ClientConfig{
		User:            "x",
		HostKeyCallback: gossh.InsecureIgnoreHostKey(),
	})
	if err == nil {
		_ = c.Close()
		t.Error("nothing at all came in")
	}
}
