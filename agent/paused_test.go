package agent

import (
	"math"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/ring"
)

// An iteration with a pause inside counts it apart, by marks and by calls.
func TestPausedTimeIsToldApart(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 0, "n1.g0")
		for i, at := range []float64{1000, 1100, 1700, 1800} {
			s.set(func() {
				held := int64(0)
				if i >= 2 {
					held = 500e6
				}
				s.marks = append(s.marks, ring.Mark{
					Iteration: int64(i),
					StartNs:   int64(at * 1e6),
					PausedNs:  held,
				})
				s.control.Iteration = int64(i)
			})
		}
		wait(time.Second)
		for i, g := range n.ship.samples() {
			run := g.Ms - g.PausedMs
			if math.Abs(run-100) > 1e-6 || (g.PausedMs > 0) != (i == 1) {
				t.Errorf("sample %d: %v", i, g)
			}
		}
	})
}

func TestPausedTimeOfInferredIterations(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 1, "")
		const pausedAt, heldNs = 20, int64(700e6)
		iterationNs := int64(100e6)
		from := int64(1e9) + pausedAt*iterationNs + 30e6 // inside of iteration 20
		feed(s, 0, 40, 4, func(int) float64 { return 100 })
		s.set(func() {
			for i := range s.records { // all later calls are later by the pause
				if s.records[i].EnterNs > from {
					s.records[i].EnterNs += heldNs
				}
			}
			s.pause = ring.Pause{
				Seen:       1,
				State:      ring.PauseReleased,
				TrappedNs:  from,
				ReleasedNs: from + heldNs,
			}
		})
		wait(2 * time.Second)
		got := n.ship.samples()
		paused := 0
		for _, g := range got {
			if math.Abs(g.Ms-g.PausedMs-100) > 1e-6 {
				t.Errorf("an iteration ran %v ms: %v", g.Ms-g.PausedMs, g)
			}
			if g.PausedMs > 0 {
				paused++
			}
		}
		if len(got) < 30 || paused != 1 {
			t.Fatalf("%d samples, %d with a pause", len(got), paused)
		}
	})
}

// A pause that goes on, or two of them, are cut to the iteration.
func TestPausedSpans(t *testing.T) {
	s := &fakeSegment{}
	p := &process{seg: s}
	s.pause = ring.Pause{
		Seen:       1,
		State:      ring.PauseReleased,
		TrappedNs:  10e6,
		ReleasedNs: 30e6,
	}
	p.notePause()
	s.pause = ring.Pause{Seen: 2, State: ring.PauseQuiet, TrappedNs: 50e6}
	for _, c := range []struct{ from, to, want float64 }{
		{0, 40, 20},
		{0, 20, 10},
		{20, 60, 20},
		{30, 50, 0},
		{55, 60, 5},
	} {
		got := p.pausedMsWithin(int64(c.from*1e6), int64(c.to*1e6))
		if got != c.want {
			t.Errorf("%v to %v: %v ms, want %v", c.from, c.to, got, c.want)
		}
	}
	for i := range uint64(3 * spansMax) {
		s.pause.Seen = 10 + i
		p.notePause()
	}
	if len(p.pauses.spans) != spansMax {
		t.Errorf("%d pauses are remembered", len(p.pauses.spans))
	}
}

// The window that is open when a pause comes ends with what it has: the time
// of the pause must not count as computation.
func TestPauseEndsAProfileWindow(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 0, "n1.g0")
		s.set(func() { s.control.MicroBatches = 4 })
		run(s, 0, 3, 4, 15, 30, 60)
		n.Command(profileCommand(1, 50))
		wait(200 * time.Millisecond)
		run(s, 3, 4, 4, 15, 30, 60)
		n.Command(pauseCommand(2, 5, arm1, 0))
		wait(200 * time.Millisecond)
		if s.open || n.last(t, 1, done) == nil {
			t.Fatal("the window is still open")
		}
		got := n.ship.profiles()[0].Ranks[0]
		if math.Abs(got.SelfMs-15) > 1e-6 {
			t.Fatalf("self %v", got.SelfMs)
		}
	})
}
