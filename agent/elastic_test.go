package agent

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/elastic"
)

// fakeParents is process 50 above all ranks.
type fakeParents struct {
	mu     sync.Mutex
	doubt  error
	ended  bool
	deaf   bool // SIGTERM does not end it
	got    []string
	onTerm func()
}

func (f *fakeParents) Above(int, int) (elastic.Process, error) {
	return elastic.Process{PID: 50, Start: 7}, f.doubt
}

func (f *fakeParents) Runs(p elastic.Process) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return p.PID != 50 || !f.ended
}

// signals are those that were sent so far.
func (f *fakeParents) signals() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

func (f *fakeParents) Below(elastic.Process) []elastic.Process {
	return []elastic.Process{{PID: 60, Start: 8}}
}

func (f *fakeParents) Signal(p elastic.Process, sig unix.Signal) error {
	f.mu.Lock()
	f.got = append(f.got, fmt.Sprintf("%v to %d", sig, p.PID))
	f.ended = f.ended || p.PID == 50 && (sig == unix.SIGKILL || sig == unix.SIGTERM && !f.deaf)
	f.mu.Unlock()
	if sig == unix.SIGTERM && !f.deaf && f.onTerm != nil {
		f.onTerm()
	}
	return nil
}

// elasticRank is a rank whose elastic agent has so many restarts left.
func (n *node) elasticRank(pid, rank, restarts int) *fakeSegment {
	s := n.dir.add(pid, rank, fmt.Sprintf("n1.g%d", rank))
	s.set(func() { s.control.Elastic.Restarts = restarts })
	return s
}

// An elastic agent that would start ranks again is ended, with what it runs, before this agent starts any.
func TestLaunchEndsElasticAgents(t *testing.T) {
	m := &fakeMachine{how: map[int]string{}}
	above := &fakeParents{deaf: true}
	onNodeWith(t, launchConfig(), Options{Launch: m, Parents: above}, func(t *testing.T, n *node) {
		n.elasticRank(100, 0, 2)
		wait(time.Second)
		n.dir.exits[100].die("killed by signal 9 (SIGKILL)")
		wait(time.Second)
		n.Command(launchCommand(1, 2, 0))
		wait(time.Second)
		if !slices.Equal(above.signals(), []string{"terminated to 50"}) || m.starts() > 0 {
			t.Fatalf("signals %v, %d processes started beside the elastic agent", above.signals(), m.starts())
		}
		wait(15*time.Second + time.Second)
		want := []string{"terminated to 50", "stopped (signal) to 50", "killed to 50", "killed to 60"}
		if !slices.Equal(above.signals(), want) || m.starts() != 1 {
			t.Fatalf("signals %v, %d processes started", above.signals(), m.starts())
		}
		n.expect(t, accepted)
	})
}

// One that has no restart left is left alone, and so is what is not proven to be one:
// then nothing is started.
func TestLaunchBesideElasticAgents(t *testing.T) {
	for name, c := range map[string]struct {
		restarts int
		doubt    error
		started  int
		detail   string
	}{
		"no restart left": {0, nil, 1, ""},
		"not proven": {
			2,
			elastic.ErrUnproven,
			0,
			"rank 0 (pid 100) would be started again by an elastic agent with 2 restarts left",
		},
	} {
		m := &fakeMachine{how: map[int]string{}}
		above := &fakeParents{doubt: c.doubt}
		onNodeWith(t, launchConfig(), Options{Launch: m, Parents: above}, func(t *testing.T, n *node) {
			n.elasticRank(100, 0, c.restarts)
			wait(time.Second)
			n.dir.exits[100].die("killed by signal 9 (SIGKILL)")
			wait(time.Second)
			n.Command(launchCommand(1, 2, 0))
			wait(time.Second)
			got := n.ship.results()
			if len(above.signals()) > 0 ||
				m.starts() != c.started ||
				!strings.Contains(got[len(got)-1].Detail, c.detail) {
				t.Errorf("%s: signals %v, %d started, %v", name, above.signals(), m.starts(), got)
			}
		})
	}
}

// A node whose ranks are to end has nobody who starts them again; where single ranks are, the others go on.
func TestStopEndsElasticAgents(t *testing.T) {
	above := &fakeParents{}
	onNodeWith(
		t,
		launchConfig(),
		Options{Launch: &fakeMachine{how: map[int]string{}}, Parents: above},
		func(t *testing.T, n *node) {
			n.elasticRank(100, 0, 1)
			n.elasticRank(101, 1, 1)
			wait(time.Second)
			n.order(1, 50*time.Second, stopCommand(2, 1))
			n.dir.exits[101].die("killed by signal 15 (SIGTERM)")
			wait(time.Second)
			n.expect(t, accepted, done)
			if len(above.signals()) > 0 {
				t.Fatalf("rank 1 alone was to end, and its elastic agent got %v", above.signals())
			}
			above.onTerm = func() { n.dir.exits[100].die("killed by signal 15 (SIGTERM)") }
			n.order(2, 50*time.Second, stopCommand(3))
			wait(time.Second)
			n.expect(t, accepted, done, accepted, done)
			if !slices.Equal(above.signals(), []string{"terminated to 50"}) {
				t.Fatalf("signals %v", above.signals())
			}
		},
	)
}
