package recovery

import (
	"fmt"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// fleet is a job of 8 ranks a node, all of which are heard.
func fleet(nodes int) (*Machine, Job, time.Time) {
	now := time.Unix(1000, 0)
	m := New(Config{})
	j := Job{
		Epoch:     1,
		Layout:    falcon.Layout{TP: 8, DP: nodes / 2, PP: 2},
		Parks:     true,
		CanLaunch: map[falcon.Node]bool{"s0": true},
		Spares:    []falcon.Node{"s0"},
	}
	for r := range 8 * nodes {
		n := falcon.Node(fmt.Sprintf("n%d", r/8))
		j.Placement, j.CanLaunch[n] = append(j.Placement, falcon.NewDevice(n, r%8)), true
	}
	m.Step(now, j)
	for r, d := range j.Placement {
		m.Step(now, Process{
			Rank:  falcon.Rank(r),
			Node:  d.Node(),
			Pid:   r + 1,
			Alive: true,
		})
	}
	return m, j, now
}

// recover plays a whole recovery of one rank.
func (m *Machine) play(b *testing.B, j Job, now time.Time) {
	n := j.Placement[0].Node()
	m.Step(now, Process{
		Rank: 0,
		Node: n,
		Pid:  1,
		Exit: "signal 9",
	})
	hold := falcon.RankHold{Steps: [2]int64{7, 6}}
	for r, d := range j.Placement[1:] {
		m.Step(now, Process{
			Rank:  falcon.Rank(r + 1),
			Node:  d.Node(),
			Pid:   r + 2,
			Alive: true,
			Park:  &Park{Generation: 1, Tag: 7, Hold: hold},
		})
	}
	for _, x := range m.ranks.usedNodes() {
		m.Step(now, Suspended{Node: x, Generation: 1})
	}
	now = now.Add(time.Second)
	m.Tick(now)
	m.Step(now, Process{
		Rank:       0,
		Node:       n,
		Pid:        1 << 30,
		Generation: 1,
		Alive:      true,
		Park: &Park{
			Generation: 1,
			Joining:    true,
			Tag:        -1,
			Hold:       falcon.RankHold{Steps: [2]int64{-1, -1}},
		},
	})
	for _, x := range m.ranks.usedNodes() {
		m.Step(now, Tabled{Node: x, Generation: 1})
	}
	for r := range j.Placement {
		m.Step(now, Rejoined{Rank: falcon.Rank(r), Generation: 1, Iteration: 7})
	}
	if c, _ := m.Recovery("REC-0001"); c.State != falcon.RecoveryResumed {
		b.Fatalf("it is at %s: %s", c.State, c.Reason)
	}
}

// What the machine itself takes of one recovery, all words of all ranks
// included, must not grow faster than the job.
func BenchmarkRecovery(b *testing.B) {
	for _, nodes := range []int{4, 600, 2250} {
		b.Run(fmt.Sprintf("ranks=%d", 8*nodes), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				m, j, now := fleet(nodes)
				b.StartTimer()
				m.play(b, j, now)
			}
		})
	}
}

func BenchmarkTick(b *testing.B) {
	m, _, now := fleet(2250)
	for b.Loop() {
		now = now.Add(time.Microsecond)
		m.Tick(now)
	}
}
