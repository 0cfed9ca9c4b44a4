package agent

import (
	"testing"
	"time"
)

func TestBeatsCarryEveryProcess(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.dir.add(100, 0, "n1.g0"), n.dir.add(101, 1, "n1.g1")
		a.set(func() {
			a.control.HeartbeatNs, a.control.Iteration, a.control.StepTag = time.Now().UnixNano(), 7, 8
		})
		b.set(func() { b.header.StartMonoNs = time.Now().UnixNano() }) // its hook never beat
		wait(2 * time.Second)
		n.dir.exits[101].die("exited with status 1")
		wait(2*time.Second + 100*time.Millisecond)
		n.ship.mu.Lock()
		defer n.ship.mu.Unlock()
		if len(n.ship.ranks) != 1 {
			t.Fatalf("a dead process beats: %v", n.ship.ranks)
		}
		got := n.ship.ranks[0]
		if got.Rank != 0 || got.Pid != 100 || got.Iteration != 7 || got.StepTag != 8 || got.HookAgeMs < 3900 || got.HookAgeMs > 4200 {
			t.Fatalf("beat %v", got)
		}
	})
}

func TestHookThatNeverBeatAgesWithItsProcess(t *testing.T) {
	s := &fakeSegment{}
	s.header.StartMonoNs, s.control.Iteration, s.control.StepTag = 5e9, -9, -9
	p := newProcess("x", s, nil)
	if got := p.beat(7e9); got.HookAgeMs != 2000 || got.Iteration != -1 || got.StepTag != -1 {
		t.Fatalf("beat %v", got)
	}
}

// An end is told without waiting for the next look, which is a second away here.
func TestEndIsToldAtOnce(t *testing.T) {
	cfg := Defaults()
	cfg.DrainMs = 1000
	onNodeWith(t, cfg, Options{}, func(t *testing.T, n *node) {
		n.dir.add(100, 0, "n1.g0")
		wait(2*time.Second + 500*time.Millisecond)
		begun := time.Now()
		n.dir.exits[100].die("killed by signal 9 (SIGKILL)")
		wait(time.Millisecond)
		states := n.ship.states()
		if last := states[len(states)-1]; last.Alive || time.Since(begun) > 2*time.Millisecond {
			t.Fatalf("state %v after %v", last, time.Since(begun))
		}
	})
}
