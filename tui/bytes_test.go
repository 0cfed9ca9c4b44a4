package tui

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
)

// Budgets of what a terminal is sent.
const (
	repaintBytes   = 80 << 10 // 200×60, whole
	idleBytes      = 2 << 10  // a second of 120×40 while all is well
	fewChangeBytes = 1 << 10  // a frame in which 0.06 % of the pixels change
	changeBytes    = 8 << 10  // a frame in which 0.6 % do
)

// huge is 100,000 ranks.
var huge = enginetest.Options{
	TP:      8,
	DP:      1250,
	PP:      10,
	Healthy: true,
}

// meter is an emulated terminal that counts what it is sent.
type meter struct {
	mu  sync.Mutex
	n   int
	emu *vt.Emulator
}

func (m *meter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n += len(p)
	_, err := m.emu.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n")))
	return len(p), err
}

func (m *meter) take() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.n
	m.n = 0
	return n
}

func (m *meter) screen() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return ansi.Strip(m.emu.Render())
}

// script is a source that a test moves on.
type script struct {
	still
	latest  atomic.Pointer[feed.State]
	changed chan struct{}
	done    chan struct{}
	decided func(*falconv1.DecideRequest) // called before a decision is answered; may be nil
}

func newScript() *script {
	return &script{changed: make(chan struct{}), done: make(chan struct{})}
}

func (s *script) Done() <-chan struct{}    { return s.done }
func (s *script) Latest() *feed.State      { return s.latest.Load() }
func (s *script) Changed() <-chan struct{} { return s.changed }

func (s *script) put(f *feed.State) {
	f.Memo = &feed.Memo{}
	s.latest.Store(f)
	s.changed <- struct{}{}
}

// metered is a real program on a metered terminal, in a bubble whose clock
// moves only when every goroutine waits: each count is exact.
type metered struct {
	*meter
	t      *testing.T
	engine *enginetest.Engine
	src    *script
	prog   *tea.Program
	model  *Model
	now    func() time.Time
}

const firstIteration = 300 // charts are full

func onMeter(
	t *testing.T,
	o enginetest.Options,
	p key.Scope,
	w, h int,
	now func() time.Time,
	test func(x *metered),
) {
	t.Helper()
	startSignals()
	synctest.Test(t, func(t *testing.T) {
		x := &metered{
			t:      t,
			meter:  &meter{emu: vt.NewEmulator(w, h)},
			engine: enginetest.New(o),
			src:    newScript(),
			now:    now,
		}
		if x.now == nil {
			x.now = time.Now
		}
		x.engine.AdvanceTo(firstIteration)
		x.src.latest.Store(x.picture())
		profile := colorprofile.TrueColor
		m, err := New(x.src, Options{Theme: "dark", Profile: &profile, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		m.work.current, x.model = p, m
		in, keys := io.Pipe()
		x.prog = newProgram(t.Context(), m, Terminal{
			In:  in,
			Out: x.meter,
			Env: []string{"TERM=xterm-256color"},
		},
			tea.WithWindowSize(w, h), tea.WithColorProfile(profile), tea.WithoutSignals())
		drained := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(drained)
			_, _ = io.Copy(io.Discard, x.emu)
		}()
		go func() {
			defer close(ended)
			_, _ = x.prog.Run()
		}()
		settle()
		test(x)
		close(x.src.done)
		x.prog.Kill()
		_ = keys.Close()
		<-ended
		if pipe, ok := x.emu.InputPipe().(io.Closer); ok {
			_ = pipe.Close()
		}
		<-drained
		time.Sleep(2 * noteLife) // pending ticks outlive the program
	})
}

// startSignals starts the process's signal delivery outside any bubble.
func startSignals() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	signal.Stop(c)
}

// settle lets a few frames pass.
func settle() {
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
}

func (x *metered) picture() *feed.State {
	s := pictureOf(x.t, x.engine, feed.Want{Rank: -1, Columns: 120, RunLengths: 64})
	// not pulled for these pages
	s.Received = x.now()
	s.Recoveries = nil
	return s
}

// step is the next iteration, as a pull a fifth of a second later brings it.
func (x *metered) step() int {
	x.take()
	x.engine.Advance(1)
	x.src.put(x.picture())
	time.Sleep(feed.ActivePeriod)
	synctest.Wait()
	return x.take()
}

// showsItAll wants the terminal to show what the model composed: few bytes are
// worth nothing if they don't draw it.
func (x *metered) showsItAll() {
	x.t.Helper()
	settle()
	got := trimRows(x.screen())
	want := trimRows(ansi.Strip(x.model.screen.cached))
	if got != want {
		x.t.Errorf("the terminal shows\n%s\nand not\n%s", got, want)
	}
}

func TestNothingIsWrittenWhenNothingHasChanged(t *testing.T) {
	still := newClock()
	for _, p := range []key.Scope{key.Overview, key.Ranks, key.Posterior, key.Events} {
		onMeter(t, enginetest.Options{Healthy: true}, p, 120, 40, still.now, func(x *metered) {
			x.take()
			time.Sleep(time.Minute) // 60 ticks, 3,600 frames
			synctest.Wait()
			if n := x.take(); n != 0 {
				t.Errorf("%s: %d bytes while nothing happened", p, n)
			}
			drawn := x.model.screen.drawn
			for range 25 { // pulls that bring what is there already
				x.src.put(x.picture())
				settle()
			}
			if n := x.take(); n != 0 {
				t.Errorf("%s: %d bytes for a picture that is the same", p, n)
			}
			if x.model.screen.drawn == drawn {
				t.Error("the new pictures were not looked at")
			}
			x.showsItAll()
		})
	}
}

func TestIdleBytes(t *testing.T) {
	drawsAlone(t)
	const seconds = 4
	for _, o := range []enginetest.Options{{Healthy: true}, huge} {
		for _, p := range []key.Scope{key.Overview, key.Ranks, key.Grid} {
			onMeter(t, o, p, 120, 40, nil, func(x *metered) {
				n := 0
				time.Sleep(calmAfter)
				for range seconds * int(time.Second/feed.ActivePeriod) {
					n += x.step()
				}
				t.Logf("%d ranks, %s: %d B/s", x.model.work.live.Roster.World(), p, n/seconds)
				if n/seconds > idleBytes {
					t.Errorf("%d ranks, %s: %d B/s while all is well, want at most %d",
						x.model.work.live.Roster.World(), p, n/seconds, idleBytes)
				}
				time.Sleep(calmPeriod + tickPeriod)
				x.showsItAll()
			})
		}
	}
}

// A frame of the map of 100,000 ranks in which a few pixels change: of 7,200
// about 4 and 43.
func TestBytesOfAChange(t *testing.T) {
	drawsAlone(t)
	for _, c := range []struct{ flicker, most int }{{2, fewChangeBytes}, {21, changeBytes}} {
		o := huge
		o.Flicker = c.flicker
		onMeter(t, o, key.Ranks, 120, 40, nil, func(x *metered) {
			worst := 0
			for range 10 {
				x.prog.Send(keyMsg("left")) // somebody acts, so that each picture is drawn
				settle()
				worst = max(worst, x.step())
			}
			t.Logf("%d pixels change: %d B a frame at most", 2*c.flicker, worst)
			if worst > c.most || worst < 2*c.flicker {
				t.Errorf("%d pixels change: %d B, want at most %d", 2*c.flicker, worst, c.most)
			}
			x.showsItAll()
		})
	}
}

func TestBytesOfARepaint(t *testing.T) {
	drawsAlone(t)
	o := huge
	o.Flicker = 700 // 97 % of the pixels are healthy
	for _, p := range key.Pages {
		if p == key.Recovery {
			continue // nothing to show without a pull of recoveries
		}
		onMeter(t, o, p, 200, 60, nil, func(x *metered) {
			first := x.take()
			x.prog.Send(tea.ClearScreen())
			settle()
			again := x.take()
			t.Logf("%s: %d B at first, %d B a repaint", p, first, again)
			if first > repaintBytes || again > repaintBytes || again < 1000 {
				t.Errorf("%s: %d B at first, %d B a repaint; want at most %d", p, first, again, repaintBytes)
			}
			x.showsItAll()
		})
	}
}

// A storm of sizes costs a frame for each sixtieth of a second, not for each
// size.
func TestBytesOfAResizeStorm(t *testing.T) {
	onMeter(t, huge, key.Ranks, 200, 60, nil, func(x *metered) {
		x.take()
		for i := range 60 {
			x.prog.Send(tea.WindowSizeMsg{Width: 200 - i%7, Height: 60 - i%5})
		}
		x.prog.Send(tea.WindowSizeMsg{Width: 200, Height: 60})
		settle()
		n := x.take()
		t.Logf("61 sizes at once: %d B", n)
		if n > 2*repaintBytes {
			t.Errorf("61 sizes at once: %d B", n)
		}
		x.showsItAll()
	})
}

// The pictures of a busy moment must not grow with the job.
func TestAKeyCostsFewBytes(t *testing.T) {
	onMeter(t, huge, key.Ranks, 120, 40, newClock().now, func(x *metered) {
		for _, k := range strings.Split("j k l h", " ") {
			x.take()
			x.prog.Send(keyMsg(k))
			settle()
			if n := x.take(); n == 0 || n > changeBytes {
				t.Errorf("%s: %d bytes", k, n)
			}
		}
		x.showsItAll()
	})
}

// BenchmarkIdleBytes runs the real program for a second of real time at five
// pictures a second.
func BenchmarkIdleBytes(b *testing.B) {
	e := enginetest.New(huge)
	e.AdvanceTo(firstIteration)
	for b.Loop() {
		n := idleSecond(b, e)
		b.ReportMetric(float64(n), "B/s")
	}
}

func idleSecond(b *testing.B, e *enginetest.Engine) int {
	b.Helper()
	x := startReal(b, e, key.Ranks, 120, 40)
	defer x.stop()
	x.first()
	sent := 0
	for range 5 {
		e.Advance(1)
		s := pictureOf(b, e, feed.Want{Rank: -1, Columns: 120, RunLengths: 64})
		s.Received = time.Now()
		x.src.put(s)
		time.Sleep(feed.ActivePeriod)
		sent += x.out.take()
	}
	return sent
}

// real is a program in real time that only counts.
type real struct {
	src   *script
	prog  *tea.Program
	out   *counter
	keys  *io.PipeWriter
	ended chan struct{}
}

type counter struct {
	mu    sync.Mutex
	n     int
	wrote chan struct{}
}

func (c *counter) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.n += len(p)
	c.mu.Unlock()
	select {
	case c.wrote <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (c *counter) take() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = 0
	return n
}

func startReal(b *testing.B, e *enginetest.Engine, p key.Scope, w, h int) *real {
	b.Helper()
	x := &real{
		src:   newScript(),
		out:   &counter{wrote: make(chan struct{}, 1)},
		ended: make(chan struct{}),
	}
	x.src.latest.Store(pictureOf(b, e, feed.Want{
		Rank:       -1,
		Columns:    120,
		RunLengths: 64,
	}))
	profile := colorprofile.TrueColor
	m, err := New(x.src, Options{Theme: "dark", Profile: &profile})
	if err != nil {
		b.Fatal(err)
	}
	m.work.current = p
	in, keys := io.Pipe()
	x.keys = keys
	x.prog = newProgram(context.Background(), m, Terminal{
		In:  in,
		Out: x.out,
		Env: []string{"TERM=xterm-256color"},
	},
		tea.WithWindowSize(w, h), tea.WithColorProfile(profile), tea.WithoutSignals())
	go func() {
		defer close(x.ended)
		_, _ = x.prog.Run()
	}()
	return x
}

func (x *real) stop() {
	close(x.src.done)
	x.prog.Kill()
	_ = x.keys.Close()
	<-x.ended
}

// first waits for the first picture and lets it go by.
func (x *real) first() {
	<-x.out.wrote
	time.Sleep(200 * time.Millisecond)
	x.out.take()
	select {
	case <-x.out.wrote:
	default:
	}
}
