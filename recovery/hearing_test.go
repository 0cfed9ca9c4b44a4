package recovery

import (
	"fmt"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// hears is a machine with a job of one rank on each of n nodes and a spare, that
// has heard all of them.
func hears(n int) (*Machine, time.Time) {
	now := time.Unix(1000, 0)
	m := New(Config{})
	job := Job{
		Epoch:      1,
		Layout:     falcon.Layout{TP: 1, DP: n, PP: 1},
		Parks:      true,
		Checkpoint: falcon.NoIteration,
		Spares:     []falcon.Node{"n9"},
	}
	for r := range n {
		job.Placement = append(job.Placement, falcon.NewDevice(falcon.Node(fmt.Sprint("n", r)), 0))
	}
	m.Step(now, job)
	for r := range n {
		m.Step(now, Process{
			Rank:  falcon.Rank(r),
			Node:  job.Placement[r].Node(),
			Pid:   100 + r,
			Alive: true,
		})
	}
	for range 20 {
		now = now.Add(time.Second)
		for r := range n {
			m.Step(now, Node{Node: falcon.Node(fmt.Sprint("n", r)), Alive: true})
		}
		m.Step(now, Node{Node: "n9", Alive: true})
		m.Tick(now)
	}
	return m, now
}

// A console that was stopped takes up what came meanwhile before it ticks: that was
// heard now, and not in a time that is still to come.
func TestSleepDoesNotMoveWordsIntoTheFuture(t *testing.T) {
	m, now := hears(3)
	now = now.Add(50 * time.Second)
	m.Step(now, Node{Node: "n1", Alive: true})
	m.Tick(now)
	for _, n := range []falcon.Node{"n0", "n1", "n2", "n9"} {
		if heard := m.nodes.Get(n, now).LastHeard(); heard.After(now) {
			t.Errorf("node %s is heard %v from now", n, heard.Sub(now))
		}
	}
}

// The last node that is not fenced is not judged by its silence where the engine
// hears no node at all, and is where it hears others.
func TestDeafConsoleJudgesNobody(t *testing.T) {
	for name, heard := range map[string]bool{"hears a spare": true, "hears nobody": false} {
		m, now := hears(1)
		m.Step(now, Node{Node: "n0", How: TimedOut})
		for range 10 {
			now = now.Add(time.Second)
			if heard {
				m.Step(now, Node{Node: "n9", Alive: true})
			}
			m.Tick(now)
		}
		if m.health.Holds() == heard {
			t.Errorf("%s: holds %v", name, m.health.Holds())
		}
	}
}
