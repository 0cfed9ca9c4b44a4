package tui

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"

	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
)

// line is one direction of a link in virtual time: bytes a second, a delay, and freezes in
// which nothing moves.
type line struct {
	rate  int // 0 = any
	delay time.Duration
	from  time.Time // freezes are counted from here
	ice   [][2]time.Duration
	in    chan []byte
	to    func([]byte)
	ended chan struct{}
}

func (l *line) start() {
	l.in = make(chan []byte, 1<<16)
	l.ended = make(chan struct{})
	type parcel struct {
		b   []byte
		due time.Time
	}
	sent := make(chan parcel, 1<<16)
	go func() {
		defer close(sent)
		for b := range l.in {
			for len(b) > 0 {
				n := len(b)
				if l.rate > 0 {
					n = min(n, max(1, l.rate/20))
					time.Sleep(time.Duration(n) * time.Second / time.Duration(l.rate))
				}
				l.waitForThaw()
				sent <- parcel{b[:n], time.Now().Add(l.delay)}
				b = b[n:]
			}
		}
	}()
	go func() {
		defer close(l.ended)
		for p := range sent {
			time.Sleep(time.Until(p.due))
			l.waitForThaw()
			l.to(p.b)
		}
	}()
}

func (l *line) waitForThaw() {
	for _, f := range l.ice {
		if at := time.Since(l.from); at >= f[0] && at < f[1] {
			time.Sleep(f[1] - at)
		}
	}
}

// farTerm is a console whose terminal is at the far end of a link, in a bubble.
type farTerm struct {
	src   *script
	model *Model
	prog  *tea.Program
	ended chan struct{}
	down  *line // to the terminal
	up    *line // from it

	mu     sync.Mutex
	cursor struct { // an unfinished sequence, and where the cursor was last put
		seq  []byte
		x, y int
	}
	emu   *vt.Emulator // nil = it only answers
	wants []string     // what the dialog is known by, all of it at once
	shown time.Time    // when all of that was on it first
}

// startFar plays one console in a bubble; a test runs within it.
func startFar(
	t *testing.T,
	state *feed.State,
	p key.Scope,
	down, up line,
	draws bool,
	test func(x *farTerm),
) {
	t.Helper()
	startSignals()
	synctest.Test(t, func(t *testing.T) {
		x := &farTerm{
			src:   newScript(),
			ended: make(chan struct{}),
			down:  &down,
			up:    &up,
		}
		state.Received = time.Now()
		x.src.latest.Store(state)
		if draws {
			x.emu = vt.NewEmulator(80, 24)
			drained := make(chan struct{})
			// it is asked beside it
			go func() {
				defer close(drained)
				_, _ = io.Copy(io.Discard, x.emu)
			}()
			defer func() {
				if pipe, ok := x.emu.InputPipe().(io.Closer); ok {
					_ = pipe.Close()
				}
				<-drained
			}()
		}
		profile := colorprofile.ASCII
		m, err := New(x.src, Options{
			Theme:    "dark",
			Profile:  &profile,
			QuitNote: "the job ends too",
		})
		if err != nil {
			t.Fatal(err)
		}
		m.work.live.Update(state)
		m.work.showPage(p)
		x.model = m
		in, keys := io.Pipe()
		x.up.from = time.Now()
		x.down.from = time.Now()
		x.up.to = func(b []byte) { _, _ = keys.Write(b) }
		x.down.to = x.show
		x.up.start()
		x.down.start()
		x.prog = newProgram(t.Context(), m, Terminal{
			In:  in,
			Out: x,
			Env: []string{"TERM=xterm-256color"},
		},
			tea.WithWindowSize(80, 24), tea.WithColorProfile(profile), tea.WithoutSignals())
		go func() {
			defer close(x.ended)
			_, _ = x.prog.Run()
		}()
		time.Sleep(time.Second)
		test(x)
		close(x.src.done)
		x.prog.Kill()
		_ = in.Close()
		<-x.ended
		close(x.down.in)
		<-x.down.ended
		close(x.up.in) // what came down last was answered before
		<-x.up.ended
		time.Sleep(time.Minute) // pending ticks outlive the program
	})
}

// Write is the program's output: it goes down the link.
func (x *farTerm) Write(p []byte) (int, error) {
	x.down.in <- bytes.Clone(p)
	return len(p), nil
}

// show is what arrives at the terminal. It answers what it is asked, in order, as a terminal
// does, once all before has been drawn.
func (x *farTerm) show(b []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.emu != nil {
		_, _ = x.emu.Write(bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n"))) // as the tty's newline mapping
	}
	for _, c := range b {
		x.take(c)
	}
	if x.emu == nil || !x.shown.IsZero() || len(x.wants) == 0 {
		return
	}
	screen := ansi.Strip(x.emu.Render())
	if !slices.ContainsFunc(x.wants, func(s string) bool {
		return !strings.Contains(screen, s)
	}) {
		x.shown = time.Now()
	}
}

// whenShown is when the dialog was on the terminal, zero = not yet.
func (x *farTerm) whenShown() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shown
}

var _ io.Writer = (*farTerm)(nil)

// effects is what has been decided.
func (x *farTerm) effects() int {
	x.src.mu.Lock()
	defer x.src.mu.Unlock()
	n := len(x.src.decides) + len(x.src.words) + len(x.src.tests) + len(x.src.policies) + x.src.freezes
	select {
	case <-x.ended:
		n++ // it was left, and the job with it
	default:
	}
	return n
}

// types sends bytes up the link at a speed, by chunks of 20 ms.
func (x *farTerm) types(text []byte, speed int) {
	for len(text) > 0 {
		n := min(len(text), max(1, speed/50))
		x.up.in <- text[:n]
		text = text[n:]
		time.Sleep(time.Duration(n) * time.Second / time.Duration(speed))
	}
}

func pick[T any](r *rand.Rand, list []T) T {
	return list[r.IntN(len(list))]
}

// take takes one byte: positions and questions for them are followed, and all is drawn where
// the terminal draws.
func (x *farTerm) take(c byte) {
	p := &x.cursor
	p.seq = append(p.seq, c)
	if i := bytes.LastIndexByte(p.seq, 0x1b); i > 0 {
		p.seq = append(p.seq[:0], p.seq[i:]...)
	}
	if !bytes.HasPrefix(p.seq, []byte("\x1b[")) ||
		c < 0x40 ||
		c > 0x7e ||
		c == '[' {
		return
	}
	switch {
	case c == 'H':
		p.x, p.y = position(p.seq)
	case bytes.Equal(p.seq, []byte(ansi.RequestCursorPositionReport)):
		x.up.in <- []byte(ansi.CursorPositionReport(p.y, p.x))
	}
	p.seq = p.seq[:0]
}

// position reads "ESC [ row ; column H".
func position(seq []byte) (x, y int) {
	row, column, _ := bytes.Cut(seq[2:len(seq)-1], []byte(";"))
	number := func(b []byte) int {
		n := 0
		for _, c := range b {
			n = 10*n + int(c-'0')
		}
		return max(1, n)
	}
	return number(column), number(row)
}
