package swarm

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/failslow/falcon"
)

// Every group is the same on all its ranks, has each once, and together they make the layout.
func TestGroups(t *testing.T) {
	for _, nodes := range []int{1, 3, 16, 125} {
		j, err := newJob(nodes, 8, 1000, Fault{})
		if err != nil {
			t.Fatal(err)
		}
		l := j.layout
		if l.World() != nodes*8 {
			t.Fatalf("%d nodes: %v", nodes, l)
		}
		type seat struct {
			comm uint64
			at   int32
		}
		seen := map[seat]bool{}
		sizes := map[uint64]int32{}
		for r := range l.World() {
			for _, c := range j.comms(falcon.Rank(r)) {
				if s := (seat{c.GetId(), c.GetRank()}); seen[s] {
					t.Fatalf("%d nodes: two ranks are number %d of %x", nodes, s.at, s.comm)
				} else {
					seen[s] = true
				}
				sizes[c.GetId()] = c.GetSize()
			}
		}
		for id, size := range sizes {
			for at := range size {
				if !seen[seat{id, at}] {
					t.Errorf("%d nodes: nobody is number %d of %x", nodes, at, id)
				}
			}
		}
	}
	if _, err := newJob(0, 8, 1000, Fault{}); err == nil {
		t.Error("no nodes make a job")
	}
}

// One slow rank: it computes longer from its iteration on, all iterations take as much longer,
// and who waits for it waits as long.
func TestASlowRankHoldsAllUp(t *testing.T) {
	j, err := newJob(16, 8, 1000, Fault{Rank: 77, Factor: 1.5, From: 10})
	if err != nil {
		t.Fatal(err)
	}
	late := 1000 * computeShare * 0.5
	if got := j.iterationMs(9); got != 1000 {
		t.Errorf("before: %v", got)
	}
	if got := j.iterationMs(10); math.Abs(got-1000-late) > 1e-9 {
		t.Errorf("after: %v", got)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	waits := func(r falcon.Rank) (sum float64) {
		for _, c := range j.profile(r, 10, 2, rng).GetCalls() {
			sum += max(0, c.GetDurationMs()-2*transferMs)
		}
		return sum / 2
	}
	for _, r := range j.group(77, falcon.DimTP) {
		w := waits(r)
		if r == 77 && w != 0 || r != 77 && math.Abs(w-late) > 0.2*late {
			t.Errorf("rank %d waits %.0f ms, the slow one is %.0f ms late", r, w, late)
		}
	}
	p := j.profile(77, 10, 2, rng)
	if math.Abs(p.GetSelfMs()/j.profile(76, 10, 2, rng).GetSelfMs()-1.5) > 0.05 {
		t.Errorf("self time %v", p.GetSelfMs())
	}
}
