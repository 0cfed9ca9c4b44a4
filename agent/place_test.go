package agent

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// swap is what a process does that carries a placement out: new communicators
// in fresh slots, the placement, the acknowledgement.
func swap(s *fakeSegment, order uint64, iteration int64, rank int, spentMs float64) {
	s.set(func() {
		s.comms[0].State = ring.CommGone
		s.comms = append(s.comms, ring.Comm{
			Slot:  4,
			ID:    1000 + order,
			State: ring.CommLive,
			Size:  4,
			Rank:  rank,
		})
		ns := int64(spentMs * 1e6 / 4)
		s.place = ring.Place{
			Order:     order,
			Iteration: iteration,
			Rank:      rank,
			StepNs:    [4]int64{ns, ns, ns, ns},
			Bytes:     1 << 20,
		}
	})
	commit(s, order, iteration, 0)
}

func placementCommand(id, order uint64, blocks ...int32) *falconv1.Command {
	c := orderCommand(id, order, 10*time.Second)
	c.Body = &falconv1.Command_Order{Order: &falconv1.OrderCommand{
		Order:    order,
		Kind:     string(falcon.OrderPlacement),
		Blocks:   blocks,
		JobEpoch: 1,
	}}
	return c
}

// Two processes of one node exchange their ranks, the second one a look after
// the first: for a moment both claim one rank.
func TestRanksChangeHandsOnOneNode(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a := n.dir.add(100, 0, "n1.g0")
		b := n.dir.add(101, 1, "n1.g1")
		for i := range int64(4) {
			a.mark(i, 100*float64(i)+1)
			b.mark(i, 100*float64(i)+2)
		}
		wait(time.Second)
		n.Command(placementCommand(1, 3, 1, 0, 2, 3))
		wait(time.Second)
		swap(a, 3, 4, 1, 60)
		a.mark(4, 461)
		wait(time.Second)
		swap(b, 3, 4, 0, 60)
		b.mark(4, 462)
		for i := int64(5); i < 8; i++ {
			a.mark(i, 100*float64(i)+61)
			b.mark(i, 100*float64(i)+62)
		}
		wait(time.Second)
		checkHands(t, n)
		checkSwapAcks(t, n)
		pids := n.hardware.currentPids()
		if pids[1] != 100 || pids[0] != 101 || len(pids) != 2 {
			t.Fatalf("processes by rank %v", pids)
		}
	})
}

// checkHands wants each process's samples under the rank that it held, and the
// swap's time kept out of its last iteration before it.
func checkHands(t *testing.T, n *node) {
	t.Helper()
	ends := map[int64]map[int32]int64{}
	for _, s := range n.ship.samples() {
		if ends[s.Iteration] == nil {
			ends[s.Iteration] = map[int32]int64{}
		}
		if _, twice := ends[s.Iteration][s.Rank]; twice {
			t.Fatalf("rank %d ended iteration %d twice", s.Rank, s.Iteration)
		}
		ends[s.Iteration][s.Rank] = s.EndUnixNs
		run := s.Ms - s.PausedMs
		if math.Abs(run-100) > 1e-6 || (s.PausedMs != 0) != (s.Iteration == 3) {
			t.Fatalf("rank %d, iteration %d: ran %v ms, held %v ms", s.Rank, s.Iteration, run, s.PausedMs)
		}
	}
	if len(ends) != 7 {
		t.Fatalf("%d iterations", len(ends))
	}
	for i, at := range ends { // b is 1 ms behind a
		first, second := at[0], at[1]
		if i >= 4 {
			first, second = second, first
		}
		if second-first != 1e6 {
			t.Fatalf("iteration %d ended at %v", i, at)
		}
	}
}

func checkSwapAcks(t *testing.T, n *node) {
	t.Helper()
	got := n.ship.results()
	acks := got[len(got)-1].GetRanks()
	if got[len(got)-1].Status != done || len(acks) != 2 {
		t.Fatalf("results %v", got)
	}
	for i, a := range acks {
		if a.Rank != int32(i) ||
			a.NowRank != int32(1-i) ||
			a.Iteration != 4 ||
			a.MovedBytes != 1<<20 ||
			len(a.StepMs) != 4 ||
			a.StepMs[2] != 15 {
			t.Fatalf("ack %v", a)
		}
	}
	newest := map[int32]*falconv1.RankState{}
	for _, st := range n.ship.states() {
		newest[st.Pid] = st
	}
	for pid, want := range map[int32]int32{100: 1, 101: 0} {
		st := newest[pid]
		if st.Rank != want ||
			st.PlacementOrder != 3 ||
			st.PlacementIteration != 4 ||
			len(st.Comms) != 2 {
			t.Fatalf("state %v", st)
		}
	}
}

// An agent that is started after the swap knows the rank from the shared memory,
// tells the old one by the order, and says nothing of iterations whose rank it
// can't know.
func TestAgentComesAfterTheSwap(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a := n.dir.add(100, 0, "n1.g0")
		a.set(func() { a.newest = 3 })
		for i := range int64(9) {
			a.mark(i, 100*float64(i))
		}
		swap(a, 3, 5, 2, 10)
		wait(time.Second)
		n.Command(placementCommand(1, 3, 1, 0)) // blocks of two
		wait(time.Second)
		got := n.expect(t, accepted, done)
		ack := got[1].Ranks[0]
		if len(a.orders) != 0 ||
			ack.Rank != 0 ||
			ack.NowRank != 2 ||
			len(ack.StepMs) != 4 {
			t.Fatalf("put %v, ack %v", a.orders, got[1])
		}
		samples := n.ship.samples()
		if len(samples) != 3 || samples[0].Iteration != 5 || samples[0].Rank != 2 {
			t.Fatalf("samples %v", samples)
		}
	})
}

// A placement that was rolled back leaves everything as it was.
func TestRolledBackPlacement(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a := n.dir.add(100, 0, "n1.g0")
		wait(time.Second)
		n.Command(placementCommand(1, 3, 1, 0, 2, 3))
		wait(time.Second)
		commit(a, 3, 5, 7)
		wait(time.Second)
		got := n.expect(t, accepted, refused)
		ack := got[1].Ranks[0]
		if ack.Status != 7 || ack.NowRank != 0 || len(ack.StepMs) != 0 {
			t.Fatalf("ack %v", ack)
		}
		states := n.ship.states()
		if st := states[len(states)-1]; st.Rank != 0 || st.PlacementOrder != 0 {
			t.Fatalf("state %v", st)
		}
	})
}

func TestCommitWithoutAPlaceIsTold(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a := n.dir.add(100, 0, "n1.g0")
		wait(time.Second)
		n.Command(placementCommand(1, 3, 1, 0, 2, 3))
		wait(time.Second)
		commit(a, 3, 5, 0)
		wait(time.Second)
		got := n.expect(t, accepted, done)
		if !strings.Contains(got[1].Detail, "without saying which rank") {
			t.Fatalf("result %v", got[1])
		}
	})
}

func TestCheckpointAcksTheResumeIteration(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a := n.dir.add(100, 0, "n1.g0")
		wait(time.Second)
		c := orderCommand(1, 4, 10*time.Second)
		c.Body = &falconv1.Command_Order{Order: &falconv1.OrderCommand{
			Order:    4,
			Kind:     string(falcon.OrderCheckpoint),
			Leave:    true,
			JobEpoch: 1,
		}}
		n.Command(c)
		wait(time.Second)
		if o := a.orders[0]; o.Kind != falcon.OrderCheckpoint || !o.Leave {
			t.Fatalf("order %+v", o)
		}
		a.set(func() { a.control.ResumeIteration = 61 })
		commit(a, 4, 61, 0)
		n.dir.exits[100].die("ended normally")
		wait(time.Second)
		got := n.expect(t, accepted, done)
		if got[1].Ranks[0].ResumeIteration != 61 {
			t.Fatalf("result %v", got[1])
		}
	})
}

// The profile of a window in which the ranks changed places would mix two
// sets of communicators.
func TestPlacementInAProfileWindow(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 2, "n1.g0")
		s.set(func() { s.control.MicroBatches = 4 })
		run(s, 0, 3, 4, 15, 30, 60)
		n.Command(profileCommand(11, 8))
		wait(200 * time.Millisecond)
		run(s, 3, 3, 4, 15, 30, 60)
		swap(s, 1, 6, 3, 10)
		wait(time.Second)
		n.expect(t, accepted, refused)
		if p := n.ship.profiles()[0]; !strings.Contains(p.Refused, "changed places") ||
			len(p.Ranks) != 0 ||
			s.open {
			t.Fatalf("profile %v, still open %v", p, s.open)
		}
		n.Command(profileCommand(12, 2))
		wait(200 * time.Millisecond)
		run(s, 6, 5, 4, 15, 30, 60)
		wait(time.Second)
		if p := n.ship.profiles()[1]; p.Refused != "" ||
			p.Ranks[0].Rank != 3 ||
			math.Abs(p.Ranks[0].SelfMs-15) > 1e-6 {
			t.Fatalf("profile %v", p)
		}
	})
}

func TestPauseWaitsForRanksThatMove(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a := n.dir.add(100, 0, "n1.g0")
		n.dir.add(101, 1, "n1.g1")
		wait(time.Second)
		swap(a, 3, 5, 1, 10)
		wait(time.Second)
		n.Command(profileCommand(1, 2))
		n.Command(&falconv1.Command{
			Epoch: 1,
			Id:    2,
			Body: &falconv1.Command_Pause{
				Pause: &falconv1.PauseCommand{Pause: 1, Phase: falconv1.PausePhase_PAUSE_PHASE_SURVEY},
			},
		})
		wait(time.Second)
		for _, r := range n.expect(t, refused, refused) {
			if !strings.Contains(r.Detail, "changing places") {
				t.Fatalf("result %v", r)
			}
		}
	})
}

// before is compared with the forward map on every rank.
func TestRankBeforeAPlacement(t *testing.T) {
	for _, blocks := range [][]int32{{0}, {1, 0}, {2, 0, 1}, {3, 1, 0, 2}} {
		world := 2 * len(blocks)
		for old := range world {
			now := falcon.Rank(int(blocks[old/2])*2 + old%2)
			if got := rankBefore(now, blocks, world); got != falcon.Rank(old) {
				t.Errorf("blocks %v: rank %d was %d, not %d", blocks, now, old, got)
			}
		}
	}
	if rankBefore(0, nil, 4) != -1 ||
		rankBefore(0, []int32{0, 1, 2}, 4) != -1 ||
		rankBefore(9, []int32{1, 0}, 4) != -1 {
		t.Error("blocks that do not fit were inverted")
	}
}
