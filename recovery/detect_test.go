package recovery

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// vigil is a job of one rank a node whose agents beat out of step, each by its
// own clock; words travel for a while.
type vigil struct {
	m     *Machine
	rng   *rand.Rand
	start time.Time
	nodes int
	step  time.Duration // of an iteration
	phase []time.Duration
	mail  []post
	dead  int           // node
	dies  time.Duration // when
	never bool          // no iteration begins
}

type post struct {
	due time.Duration
	in  []Input
}

const vigilBeat = 2 * time.Second

func newVigil(seed uint64, nodes int) *vigil {
	v := &vigil{
		m:     New(Config{}),
		rng:   rand.New(rand.NewPCG(seed, 3)),
		start: time.Unix(1000, 0),
		nodes: nodes,
	}
	j := Job{
		Epoch:      1,
		Layout:     falcon.Layout{TP: 1, DP: nodes, PP: 1},
		Parks:      true,
		Checkpoint: -1,
		Spares:     []falcon.Node{"s0"},
		CanLaunch:  map[falcon.Node]bool{"s0": true},
	}
	for r := range nodes {
		d := falcon.NewDevice(falcon.Node(fmt.Sprintf("n%d", r)), 0)
		j.Placement, j.CanLaunch[d.Node()] = append(j.Placement, d), true
		v.phase = append(v.phase, time.Duration(v.rng.Int64N(int64(vigilBeat))))
	}
	v.m.Step(v.start, j)
	for r, d := range j.Placement {
		v.m.Step(v.start, Node{Node: d.Node(), Alive: true})
		v.m.Step(v.start, Process{
			Rank:  falcon.Rank(r),
			Node:  d.Node(),
			Pid:   r + 1,
			Alive: true,
		})
	}
	v.step = time.Duration(50+v.rng.IntN(700)) * time.Millisecond
	v.m.Step(v.start, Pace{Iteration: -1, Ms: float64(v.step.Milliseconds())})
	v.dead, v.dies = v.rng.IntN(nodes), 20*time.Second+time.Duration(v.rng.Int64N(int64(4*time.Second)))
	return v
}

// beat is what a node's agent says: all iterations end with the one in which the
// node dies.
func (v *vigil) beat(node int, at time.Duration) post {
	live := min(at, v.dies+v.step)
	wait := max(0, at-v.dies-v.step)
	begun := int64(live / v.step)
	if v.never {
		begun = falcon.NoIteration
	}
	n := falcon.Node(fmt.Sprintf("n%d", node))
	return post{
		at + time.Duration(v.rng.Int64N(int64(50*time.Millisecond))),
		[]Input{Node{Node: n, Alive: true}, Beat{
			Rank:         falcon.Rank(node),
			Pid:          node + 1,
			Iteration:    begun,
			Calls:        uint64(4 * live / v.step),
			HookAgeMs:    1,
			WaitingMs:    float64(wait.Milliseconds()),
			WaitingKnown: true,
		}},
	}
}

// watch plays until a recovery begins, and says how long after the death.
func (v *vigil) watch(reset bool) time.Duration {
	for at := time.Duration(0); at < 4*time.Minute; at += 10 * time.Millisecond {
		for n := range v.nodes {
			alive := n != v.dead || at < v.dies
			if alive &&
				(at-v.phase[n])%vigilBeat/(10*time.Millisecond) == 0 &&
				at >= v.phase[n] {
				v.mail = append(v.mail, v.beat(n, at))
			}
		}
		if reset && at-v.dies >= 0 && at-v.dies < 10*time.Millisecond {
			v.mail = append(v.mail, post{
				at,
				[]Input{Node{
					Node: falcon.Node(fmt.Sprintf("n%d", v.dead)),
					How:  Reset,
				}},
			})
		}
		v.deliver(at)
		if at%(100*time.Millisecond) == 0 {
			v.m.Tick(v.start.Add(at))
		}
		if c, ok := v.m.Current(); ok {
			if c.Faults[0].Node != falcon.Node(fmt.Sprintf("n%d", v.dead)) || at < v.dies {
				return -1
			}
			return at - v.dies
		}
	}
	return -1
}

func (v *vigil) deliver(at time.Duration) {
	var later []post
	for _, p := range v.mail {
		if p.due > at {
			later = append(later, p)
			continue
		}
		for _, in := range p.in {
			v.m.Step(v.start.Add(at), in)
		}
	}
	v.mail = later
}

// A node that is lost is certain to be so within 7 s, of two nodes as of many,
// with and without a reset.
func TestLostNodeIsCertainInTime(t *testing.T) {
	for _, nodes := range []int{2, 3, 8} {
		for _, reset := range []bool{false, true} {
			longest := time.Duration(0)
			for seed := range uint64(200) {
				took := newVigil(seed, nodes).watch(reset)
				if took < 0 {
					t.Fatalf("%d nodes, seed %d: the lost node was not found, or another one was",
						nodes, seed)
				}
				longest = max(longest, took)
			}
			t.Logf("%d nodes, reset %v: certain after %s at most", nodes, reset, longest)
			if longest > 7*time.Second {
				t.Errorf("%d nodes, reset %v: certain only after %s", nodes, reset, longest)
			}
		}
	}
}

// A node that is lost before the first iteration is found as well, when the others
// have waited for it for long.
func TestNodeLostBeforeTheFirstIteration(t *testing.T) {
	v := newVigil(1, 4)
	v.never = true
	if took := v.watch(true); took < 2*time.Minute || took > 3*time.Minute {
		t.Errorf("it was certain after %s", took)
	}
}
