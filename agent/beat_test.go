package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestBeatsCarryEveryProcess(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.dir.add(100, 0, "n1.g0"), n.dir.add(101, 1, "n1.g1")
		a.set(func() {
			a.control.HeartbeatNs = time.Now().UnixNano()
			a.control.Iteration = 7
			a.control.StepTag = 8
		})
		// its hook never beat
		b.set(func() { b.header.StartMonoNs = time.Now().UnixNano() })
		wait(2 * time.Second)
		n.dir.exits[101].die("exited with status 1")
		wait(2*time.Second + 100*time.Millisecond)
		n.ship.mu.Lock()
		defer n.ship.mu.Unlock()
		if len(n.ship.ranks) != 1 {
			t.Fatalf("a dead process beats: %v", n.ship.ranks)
		}
		got := n.ship.ranks[0]
		if got.Rank != 0 ||
			got.Pid != 100 ||
			got.Iteration != 7 ||
			got.StepTag != 8 ||
			got.HookAgeMs < 3900 ||
			got.HookAgeMs > 4200 {
			t.Fatalf("beat %v", got)
		}
	})
}

func TestHookThatNeverBeatAgesWithItsProcess(t *testing.T) {
	s := &fakeSegment{}
	s.header.StartMonoNs = 5e9
	s.control.Iteration = -9
	s.control.StepTag = -9
	p := newProcess("x", s, nil)
	got := p.rankBeat(7e9)
	if got.HookAgeMs != 2000 || got.Iteration != -1 || got.StepTag != -1 {
		t.Fatalf("beat %v", got)
	}
}

// A hook whose thread only waits for a core is alive; one that is stopped, stuck
// or gone is as old as its last beat, whatever other threads do.
func TestStarvedHookIsAlive(t *testing.T) {
	for name, c := range map[string]struct {
		tasks []string
		old   bool
	}{
		"waits for a core": {[]string{"(python3) S 1", "(falcon-hook) R 1"}, false},
		"stopped":          {[]string{"(python3) T 1", "(falcon-hook) T 1"}, true},
		"in the kernel":    {[]string{"(python3) R 1", "(falcon-hook) D 1"}, true},
		"asleep":           {[]string{"(a (falcon-hook) R) R 1", "(falcon-hook) S 1"}, true},
		"gone":             {[]string{"(python3) R 1"}, true},
		"nothing known":    {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Defaults()
			cfg.Host.Proc = t.TempDir()
			for i, text := range c.tasks {
				dir := filepath.Join(
					cfg.Host.Proc,
					"100",
					"task",
					strconv.Itoa(100+i),
				)
				if err := errors.Join(
					os.MkdirAll(dir, 0o700),
					os.WriteFile(filepath.Join(dir, "stat"), []byte(strconv.Itoa(100+i)+" "+text), 0o600),
				); err != nil {
					t.Fatal(err)
				}
			}
			onNodeWith(t, cfg, Options{}, func(t *testing.T, n *node) {
				p := n.dir.add(100, 0, "n1.g0")
				p.set(func() {
					p.control.HeartbeatNs = time.Now().UnixNano()
				})
				wait(6 * time.Second)
				n.ship.mu.Lock()
				defer n.ship.mu.Unlock()
				if old := n.ship.ranks[0].HookAgeMs > 3000; old != c.old {
					t.Errorf("the hook was last alive %v ms ago", n.ship.ranks[0].HookAgeMs)
				}
			})
		})
	}
}

// An end is reported without waiting for the next look, which is a second away here.
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
		last := states[len(states)-1]
		if last.Alive || time.Since(begun) > 2*time.Millisecond {
			t.Fatalf("state %v after %v", last, time.Since(begun))
		}
	})
}
