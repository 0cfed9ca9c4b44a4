package tui

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"go.uber.org/goleak"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/keyguard"
)

// A program's pending tick outlives it by up to a second, and its input reader
// until it reads again; the library offers no way to wait for them.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("charm.land/bubbletea/v2.Tick.func1"),
		goleak.IgnoreAnyFunction("charm.land/bubbletea/v2.(*Program).readLoop"),
		goleak.IgnoreAnyFunction("charm.land/bubbletea/v2.(*Program).execBatchMsg"))
}

const patience = 10 * time.Second // far above what any wait takes

// clock is a hand-driven clock.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock {
	return &clock{t: time.Date(2026, 11, 21, 14, 0, 30, 0, time.UTC)}
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// term is a console on an emulated terminal, with a scripted engine behind.
type term struct {
	t      *testing.T
	engine *enginetest.Engine
	clock  *clock
	prog   *tea.Program
	emu    *vt.SafeEmulator
	wrote  chan struct{}
	ended  chan error
	raw    *lockedBuffer
	hands  *clock // of keys and reports
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// screenWriter feeds the emulator and signals that something was drawn.
type screenWriter struct{ *term }

func (w screenWriter) Write(p []byte) (int, error) {
	// Input is no tty here, so the renderer relies on the tty's newline mapping.
	_, err := w.emu.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n")))
	_, _ = w.raw.Write(p)
	select {
	case w.wrote <- struct{}{}:
	default:
	}
	return len(p), err
}

// newEmulator makes a terminal. A frame for the size before may still be under way when
// it has shrunk: terminals take no margins beyond their last line; the emulator does, and
// then scrolls lines that it does not have.
func newEmulator(w, h int) *vt.SafeEmulator {
	emu := vt.NewSafeEmulator(w, h)
	emu.RegisterCsiHandler('r', func(p ansi.Params) bool {
		bottom, _, _ := p.Param(1, 0)
		return bottom > emu.Emulator.Height() // within Write, which holds the lock
	})
	return emu
}

func openTerm(t *testing.T, e *enginetest.Engine, w, h int) *term {
	t.Helper()
	srv := e.ServeInMemory()
	cc, err := srv.Dial()
	if err != nil {
		t.Fatal(err)
	}
	x := &term{
		t:      t,
		engine: e,
		clock:  newClock(),
		emu:    newEmulator(w, h),
		wrote:  make(chan struct{}, 1),
		ended:  make(chan error, 1),
		raw:    &lockedBuffer{},
	}
	f := feed.New(falconv1.NewConsoleClient(cc), nil)
	m, err := New(f, Options{Theme: "dark", Now: x.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	x.hands = newClock()
	m.decisions.keyTime = x.hands.now
	in, keys := io.Pipe()
	x.prog = newProgram(context.Background(), asked{m}, Terminal{
		In:  in,
		Out: screenWriter{x},
		Env: []string{"TERM=xterm-256color"},
	},
		tea.WithWindowSize(w, h), tea.WithColorProfile(colorprofile.TrueColor), tea.WithoutSignals())
	drained := make(chan struct{})
	go func() { // the terminal's replies come back as input
		defer close(drained)
		_, _ = io.Copy(keys, x.emu)
	}()
	go func() {
		_, err := x.prog.Run()
		x.ended <- err
	}()
	t.Cleanup(func() {
		x.prog.Kill()
		_ = keys.Close()
		_ = in.Close()
		if pipe, ok := x.emu.InputPipe().(io.Closer); ok { // Close of the emulator itself races with its Read
			_ = pipe.Close()
		}
		<-drained
		f.Close()
		_ = cc.Close()
		srv.Close()
	})
	return x
}

func (x *term) screen() string {
	return ansi.Strip(x.emu.Render())
}

// until waits for the screen to satisfy ok; it looks after every write.
func (x *term) until(what string, ok func(string) bool) string {
	x.t.Helper()
	deadline := time.After(patience)
	for {
		if s := x.screen(); ok(s) {
			return s
		}
		select {
		case <-x.wrote:
		case <-deadline:
			x.t.Fatalf("waited in vain for %s; the screen is:\n%s", what, x.screen())
		}
	}
}

func (x *term) shows(text string) string {
	x.t.Helper()
	return x.until(text, func(s string) bool {
		return strings.Contains(s, text)
	})
}

func (x *term) gone(text string) {
	x.t.Helper()
	x.until("no more "+text, func(s string) bool {
		return !strings.Contains(s, text)
	})
}

func (x *term) press(code rune) {
	k := tea.Key{Code: code}
	if code < 0x110000 && code >= ' ' && code != tea.KeyBackspace {
		k.Text = string(code)
	}
	x.hands.pass(personGap)
	x.prog.Send(tea.KeyPressMsg(k))
	held := false
	x.ask(func(m *Model) {
		why, _ := m.decisions.guard.Block(x.hands.now())
		held = why == keyguard.Held
	})
	if held {
		x.hands.pass(keyguard.Rest) // nobody presses a key meanwhile
	}
}

// asked is a model that a test may look into.
type asked struct{ *Model }

type askMsg struct {
	look func(*Model)
	done chan struct{}
}

func (a asked) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if q, ok := msg.(askMsg); ok {
		q.look(a.Model)
		close(q.done)
		return a, nil
	}
	_, cmd := a.Model.Update(msg)
	return a, cmd
}

// ask looks into the model, after all that was sent before.
func (x *term) ask(look func(*Model)) {
	q := askMsg{look, make(chan struct{})}
	x.prog.Send(q)
	select {
	case <-q.done:
	case <-time.After(patience):
	}
}

func (x *term) types(s string) {
	for _, r := range s {
		x.press(r)
	}
}

// armed waits until the terminal has told that the dialog is drawn, and lets its guard pass.
func (x *term) armed() {
	x.t.Helper()
	why := keyguard.Unseen
	for end := time.Now().Add(patience); why == keyguard.Unseen; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			x.t.Fatal("the terminal has not told that the dialog is drawn")
		}
		x.ask(func(m *Model) {
			why, _ = m.decisions.guard.Block(x.hands.now())
		})
	}
	x.hands.pass(decision.Guard + time.Millisecond)
}

func TestApprovePath(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed + 3)
	x := openTerm(t, e, 80, 24)
	x.shows("S2 PROPOSED")
	x.press('a')
	s := x.shows("APPROVE S2?")
	for _, want := range []string{
		"Plan: micro-batches a replica 8,8,8,8 → 9,9,5,9",
		"400 ms → 262 ms",
		"reverted after",
		"self time 20.1 ms",
	} {
		if !strings.Contains(s, want) {
			t.Errorf("the dialog lacks %q:\n%s", want, s)
		}
	}
	x.armed()
	x.press(tea.KeyTab)
	x.shows("▸ Approve")
	x.press(tea.KeyEnter)
	x.gone("APPROVE S2?")
	e.Advance(4)
	x.shows("in force since iteration 55")
	e.Advance(10)
	x.shows("kept: 400 ms → 262 ms measured")
	d := e.Decides()
	if len(d) != 1 ||
		!d[0].Approve ||
		d[0].Action != "INC-0001/S2/1" ||
		d[0].PlanHash != "9f2c41d0" ||
		d[0].JobEpoch != 1 {
		t.Errorf("decisions: %v", d)
	}
}

func TestVetoPathWithReason(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed)
	x := openTerm(t, e, 120, 40)
	x.shows("S2 PROPOSED")
	x.press('v')
	x.shows("VETO S2?")
	x.armed()
	x.types("maintenance at ten")
	x.shows("maintenance at ten")
	x.press(tea.KeyEnter)
	x.gone("VETO S2?")
	e.Advance(20)
	x.shows("vetoed by maria: maintenance at ten")
	d := e.Decides()
	if len(d) != 1 || d[0].Approve || d[0].Reason != "maintenance at ten" {
		t.Errorf("decisions: %v", d)
	}
}

func TestEnterAloneCancels(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed)
	x := openTerm(t, e, 80, 24)
	x.shows("S2 PROPOSED")
	x.press('a')
	x.shows("▸ Cancel")
	x.armed()
	x.press(tea.KeyEnter)
	x.gone("APPROVE S2?")
	if d := e.Decides(); len(d) != 0 {
		t.Errorf("decisions: %v", d)
	}
}

func TestRefusalIsShown(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed)
	e.Refuse("another operator decided first\x1b[2J")
	x := openTerm(t, e, 80, 24)
	x.shows("S2 PROPOSED")
	x.press('a')
	x.shows("APPROVE S2?")
	x.armed()
	x.press(tea.KeyTab)
	x.press(tea.KeyEnter)
	x.shows("another operator decided first")
	x.press(tea.KeyEscape)
	x.gone("APPROVE S2?")
}

func TestViewerSeesWhyNot(t *testing.T) {
	e := enginetest.New(enginetest.Options{Role: "viewer"})
	e.AdvanceTo(enginetest.Proposed)
	x := openTerm(t, e, 80, 24)
	x.shows("needs role approver")
	x.press('a')
	x.shows("approving needs the role approver; yours is viewer")
	x.press('F')
	x.shows("freezing needs the role operator; yours is viewer")
}

func TestFreezeAndUnfreeze(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	x := openTerm(t, e, 80, 24)
	x.shows("APPROVE")
	x.press('F')
	x.shows("FREEZE?")
	x.armed()
	x.press(tea.KeyEnter)
	x.shows("nothing new is dispatched; F") // the answer alone comes before the picture
	if !e.Policy().Frozen {
		t.Fatal("not frozen")
	}
	x.press('F')
	x.shows("UNFREEZE?")
	x.armed()
	x.shows("▸ Cancel")
	x.press(tea.KeyEnter)
	x.shows("cancelled: nothing was done")
	if !e.Policy().Frozen {
		t.Fatal("unfrozen by enter alone")
	}
	x.press('F')
	x.shows("UNFREEZE?")
	x.armed()
	x.press(tea.KeyTab)
	x.press(tea.KeyEnter)
	x.gone("UNFREEZE?")
	if e.Policy().Frozen {
		t.Error("still frozen")
	}
}

func TestAutomaticCap(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	x := openTerm(t, e, 80, 24)
	x.shows("APPROVE")
	x.press('c')
	x.shows("WHO MAY ACT?")
	x.armed()
	x.press(tea.KeyDown)
	x.press(tea.KeyTab)
	x.press(tea.KeyEnter)
	x.shows("mode is now AUTO ≤ S2")
	if p := e.Policy(); p.Mode != "auto" || p.Cap != "S2" {
		t.Errorf("policy %v", p)
	}
	e.AdvanceTo(enginetest.Proposed + 12)
	x.shows("kept")
}

func TestResizeStormAndPages(t *testing.T) {
	e := enginetest.New(enginetest.Options{TP: 2, DP: 16, PP: 4})
	e.AdvanceTo(120)
	x := openTerm(t, e, 80, 24)
	x.shows("INC-0001")
	sizes := [][2]int{{200, 60}, {10, 3}, {1, 1}, {61, 17}, {120, 40}, {59, 15}, {300, 90}, {80, 24}}
	for i := range 64 {
		s := sizes[i%len(sizes)]
		x.emu.Resize(s[0], s[1])
		x.prog.Send(tea.WindowSizeMsg{Width: s[0], Height: s[1]})
		x.press(rune("1234582"[i%7]))
	}
	x.press('2')
	x.shows("RANKS")
}

func TestTinyScreenSaysTheEssentials(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed)
	x := openTerm(t, e, 50, 12)
	x.shows("enlarge to 60×16")
	s := x.shows("S2 for INC-0001 WAITS") // the first picture may come before the first data
	if !strings.Contains(s, "enlarge to 60×16") || !strings.Contains(s, "INC-0001") {
		t.Errorf("summary:\n%s", s)
	}
}

func TestLeavingRestoresTheTerminal(t *testing.T) {
	x := openTerm(t, enginetest.New(enginetest.Options{}), 80, 24)
	x.shows("gpt-lab")
	if !x.emu.IsAltScreen() {
		t.Error("not on the alternate screen")
	}
	x.press('q')
	select {
	case err := <-x.ended:
		if err != nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("q does not leave")
	}
	raw := x.raw.String()
	for _, seq := range []string{
		ansi.ResetModeAltScreenSaveCursor,
		ansi.SetModeTextCursorEnable,
		ansi.ResetModeBracketedPaste,
	} {
		if strings.LastIndex(raw, seq) < len(raw)/2 {
			t.Errorf("the terminal is not restored: %q is missing at the end", seq)
		}
	}
}

func TestHostileTextNeverReachesTheTerminal(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.Hostile("\x1b]0;owned\x07\x1b[2J\u202e")
	e.AdvanceTo(enginetest.Proposed)
	x := openTerm(t, e, 120, 40)
	x.shows("S2 PROPOSED")
	for _, k := range "234581" {
		x.press(k)
	}
	x.press('a')
	x.shows("APPROVE S2?")
	raw := x.raw.String()
	for _, bad := range []string{"owned", "\x1b[2J\u202e", "\u202e"} {
		if strings.Contains(raw, bad) {
			t.Errorf("%q was written", bad)
		}
	}
}

func TestEngineLossIsSaidWithoutBlocking(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(enginetest.Proposed)
	srv := e.ServeInMemory()
	cc, err := srv.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	f := feed.New(falconv1.NewConsoleClient(cc), nil)
	defer f.Close()
	m, err := New(f, Options{Theme: "dark", Now: newClock().now})
	if err != nil {
		t.Fatal(err)
	}
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	feedUntil(t, m, f, func(s *feed.State) bool {
		return s.Conn == feed.Live
	})
	srv.Close()
	feedUntil(t, m, f, func(s *feed.State) bool {
		return s.Conn == feed.Lost
	})
	s := ansi.Strip(m.View().Content)
	if !strings.Contains(s, "engine unreachable since") || !strings.Contains(s, "INC-0001") {
		t.Errorf("a lost engine must be said over the last picture:\n%s", s)
	}
	m.handleKey(tea.KeyPressMsg{Code: 'a', Text: "a"})
	if m.decisions.dialog != nil {
		t.Error("an approval was offered without an engine")
	}
}

// feedUntil hands feed states to the model as the program would.
func feedUntil(t *testing.T, m *Model, f *feed.Feed, ok func(*feed.State) bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		s := f.Latest()
		m.Update(updateMsg{s})
		if ok(s) {
			return
		}
		select {
		case <-f.Changed():
		case <-deadline:
			t.Fatal("waited in vain for the feed")
		}
	}
}

func TestTerminalThatHasShrunk(t *testing.T) {
	emu := newEmulator(80, 24)
	emu.Resize(60, 15)
	if _, err := emu.Write([]byte("\x1b[4;22r\x1b[3T\x1b[r")); err != nil {
		t.Error(err)
	}
}
