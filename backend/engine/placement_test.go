package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect"
)

// swapBench is a job whose two nodes change places from iteration 20 on.
func swapBench(t *testing.T) *bench {
	b := newBench(t)
	b.script = &fakePlanner{
		kind:   falcon.OrderPlacement,
		at:     20,
		blocks: []int32{1, 0},
	}
	return b
}

// checkPicture compares the engine's picture with the processes, and all that
// the detector was fed with what happened.
func checkPicture(b *bench) {
	b.t.Helper()
	b.inLoop(func() {
		rec := b.engine.state.job
		for _, a := range b.job.holders() {
			for _, r := range a.ranks {
				want := fmt.Sprintf("%s/%d", a.node, b.job.pidOf(a.node, r))
				if g := b.job.kept.generation; g != 0 {
					want += fmt.Sprintf("/g%d", g)
				}
				if int(r) >= len(rec.Processes) ||
					rec.Processes[r] != want ||
					rec.Placement[r].Node() != falcon.Node(a.node) {
					b.t.Errorf("rank %d is %s; the engine says %v on %v",
						r, want, rec.Processes, rec.Placement)
				}
			}
		}
		if rec.PlacementOrder != b.job.kept.order || rec.Generation != b.job.kept.generation {
			b.t.Errorf("placement %d of launch %d; the ranks are at %d of %d",
				rec.PlacementOrder, rec.Generation, b.job.kept.order, b.job.kept.generation)
		}
		checkSamples(b)
	})
}

// checkSamples: every sample counted for the rank that its process held.
func checkSamples(b *bench) {
	b.t.Helper()
	seen := 0
	for _, in := range b.det.log {
		s, ok := in.(detect.Samples)
		if !ok {
			continue
		}
		for _, x := range s.Samples {
			seen++
			pid := b.job.kept.holder[sampleKey{int32(x.Rank), x.Iteration}]
			if int64(pid) != x.EndNs {
				b.t.Errorf("rank %d at iteration %d: a sample of process %d, and %d held it",
					x.Rank, x.Iteration, x.EndNs, pid)
			}
		}
	}
	if seen == 0 {
		b.t.Error("no sample reached the detector")
	}
}

// checkNoneLost: every sample was taken, once. Only where nothing was cut off.
func checkNoneLost(b *bench) {
	b.t.Helper()
	taken := map[sampleKey]int{}
	for _, in := range b.det.log {
		if s, ok := in.(detect.Samples); ok {
			for _, x := range s.Samples {
				taken[sampleKey{int32(x.Rank), x.Iteration}]++
			}
		}
	}
	for k := range b.job.kept.holder {
		if taken[k] != 1 && k.iteration > 0 { // the first comes before the agents have reported the ranks
			b.t.Errorf("rank %d at iteration %d: %d samples were taken", k.rank, k.iteration, taken[k])
		}
	}
}

// A sample counts only from the node that held the rank at its iteration, also
// when it comes late.
func TestSamplesOfOtherTimes(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.script = &fakePlanner{
			kind:   falcon.OrderPlacement,
			at:     20,
			blocks: []int32{1, 0},
		}
		b.start()
		b.until(40)
		from := b.job.kept.from
		b.inLoop(func() {
			for _, c := range []struct {
				node      falcon.Node
				iteration int64
				want      int
			}{{"n0", from - 1, 1}, {"n1", from - 1, 0}, {"n0", from, 0}, {"n1", from, 1}} {
				n := b.engine.nodes.Node(c.node)
				got := b.engine.intake.attribute(
					n,
					[]*falconv1.Sample{{Rank: 0, Iteration: c.iteration, Ms: 1}},
					time.Now(),
				)
				if len(got) != c.want {
					b.t.Errorf("rank 0 at iteration %d from %s: %d samples were taken, want %d",
						c.iteration, c.node, len(got), c.want)
				}
			}
			if len(b.engine.intake.ahead) != 0 {
				b.t.Errorf("%d samples wait for a placement that is over", len(b.engine.intake.ahead))
			}
		})
	})
}

func TestNodesChangePlaces(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.script = &fakePlanner{
			kind:   falcon.OrderPlacement,
			at:     20,
			blocks: []int32{1, 0},
		}
		b.start()
		b.until(40)
		checkPicture(b)
		t, a := b.t, b.script.action
		if a == nil ||
			a.State != falcon.ActionApplied ||
			a.AppliedIteration != b.job.kept.from {
			t.Fatalf("action %+v", a)
		}
		want := (falcon.Swap{StepMs: [4]float64{1, 2, 3, 3}, MovedMB: 4})
		if *a.Swap != want {
			t.Errorf("swap %+v, want %+v", *a.Swap, want)
		}
		jobAfter := slices.IndexFunc(b.det.log, func(in detect.Input) bool {
			j, ok := in.(detect.Job)
			return ok && j.Placement[0] == "n1.g0"
		})
		acted := slices.IndexFunc(b.det.log, func(in detect.Input) bool {
			x, ok := in.(detect.Acted)
			return ok && len(x.Placement) > 0
		})
		if acted < 0 || jobAfter < acted {
			t.Errorf("the detector heard of the action at %d and of the new places at %d", acted, jobAfter)
		}
		checkNoneLost(b)
		c := b.det.job.Comms[0]
		if len(c) != 1 || c[0].ID != 77+b.job.kept.order || b.det.job.Epoch != 1 {
			t.Errorf("the detector knows communicators %v in job epoch %d", c, b.det.job.Epoch)
		}
	})
}

func TestPlacementThatTheRanksRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := swapBench(t)
		b.job.kept.status = 7
		b.start()
		b.until(40)
		checkPicture(b)
		if a := b.script.action; a.State != falcon.ActionFailed || a.Reason != "rolled back" {
			t.Errorf("action %+v", a)
		}
		b.onceEach()
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

// What the processes announce counts where every acknowledgement gets lost.
func TestPlacementWithoutAcknowledgements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := swapBench(t)
		for _, a := range b.job.agents {
			a.place.mute = true
		}
		b.start()
		b.until(80)
		checkPicture(b)
		if a := b.script.action; a.State != falcon.ActionApplied {
			t.Errorf("action %+v", a)
		}
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

// A journal that never heard of the placement learns of it from the processes.
func TestPlacementOfALostOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := swapBench(t)
		b.script.at = 1 << 40
		b.start()
		b.until(20)
		b.job.swap(9, []int32{1, 0})
		b.until(30)
		checkPicture(b)
		if b.engine.state.job.Epoch != 1 {
			t.Errorf("job epoch %d", b.engine.state.job.Epoch)
		}
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

// Agents come and go around a placement, the console too; frames are repeated
// by what reconnects. The picture at the end is the ranks' own, no sample is
// counted for another rank, and no process is lost.
func TestPlacementUnderLossAndRepetition(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		upsets := rapid.SliceOfN(rapid.IntRange(0, 5), 40, 40).Draw(rt, "upsets")
		synctest.Test(t, func(t *testing.T) {
			b := swapBench(t)
			b.start()
			for _, u := range upsets {
				b.upset(u)
				b.turn()
			}
			for _, a := range b.job.agents {
				if a.stream == nil {
					b.attach(a)
				}
			}
			for range 100 {
				b.turn()
			}
			checkPicture(b)
			if a := b.script.action; a == nil || a.State != falcon.ActionApplied {
				t.Errorf("action %+v", a)
			}
			b.onceEach()
			if err := b.halt(); err != nil {
				t.Error(err)
			}
		})
	})
}

// upset breaks something, or mends it.
func (b *bench) upset(what int) {
	switch what {
	case 0, 1:
		a := b.job.agents[what]
		if a.stream == nil {
			b.attach(a)
			return
		}
		a.stream.cancel()
		a.stream = nil
	case 2:
		_ = b.halt()
		b.start()
	}
}

func TestKilledInAPlacement(t *testing.T) {
	killEverywhere(t, swapBench, func(b *bench) {
		checkPicture(b)
		a := b.script.action
		if a == nil || a.State != falcon.ActionApplied || a.Swap == nil {
			b.t.Errorf("action %+v", a)
		}
	})
}

// killEverywhere kills the engine once at every point at which it writes or
// sends, and has the same story end as without.
func killEverywhere(t *testing.T, begin func(*testing.T) *bench, check func(*bench)) {
	for _, point := range []string{PointBeforeWrite, PointAfterWrite, PointAfterSend} {
		for nth, struck := 1, true; struck; nth++ {
			struck = false
			t.Run(fmt.Sprint(point, " ", nth), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := begin(t)
					seen := 0
					b.fault = func(at string) error {
						if at != point || struck {
							return nil
						}
						if seen++; seen == nth {
							struck = true
							return errors.New("killed")
						}
						return nil
					}
					b.playTo(60)
					check(b)
					b.onceEach()
					if err := b.halt(); err != nil {
						t.Fatal(err)
					}
					rec := b.records()
					if len(rec[kindOrder]) != 1 ||
						len(rec[kindOutcome]) != 1 ||
						len(rec[kindDecision]) != 1 {
						t.Errorf("%d orders, %d outcomes and %d decisions in the journal",
							len(rec[kindOrder]), len(rec[kindOutcome]), len(rec[kindDecision]))
					}
				})
			})
		}
	}
}

// playTo runs the job, and starts the engine again when it dies.
func (b *bench) playTo(iteration int64) {
	for !b.start() {
	}
	for turns := 0; b.job.iteration < iteration; turns++ {
		if turns > 2000 {
			b.t.Fatalf("the job stops at iteration %d", b.job.iteration)
		}
		b.turn()
		if b.each != nil && !b.dead() {
			b.each(b)
		}
		if b.dead() {
			_ = b.halt()
			for !b.start() {
			}
		}
	}
}

func TestMovesAgainstPositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 4).Draw(t, "size")
		n := rapid.IntRange(1, 8).Draw(t, "blocks")
		blocks := make([]int32, n)
		for i := range blocks {
			blocks[i] = int32(i)
		}
		blocks = rapid.Permutation(blocks).Draw(t, "order")
		now := moves(blocks, size*n)
		for old, r := range now {
			if int(r)/size != int(blocks[old/size]) || int(r)%size != old%size {
				t.Fatalf("rank %d goes to %d by %v", old, r, blocks)
			}
		}
		at := make([]int, size*n)
		for i := range at {
			at[i] = i
		}
		for r, old := range moved(at, now) {
			if int(now[old]) != r {
				t.Fatalf("rank %d is held by the process of %d, which went to %d", r, old, now[old])
			}
		}
	})
	for _, bad := range [][]int32{nil, {0, 0}, {1, 2}, {-1, 0}, {0, 1, 2}} {
		if moves(bad, 4) != nil {
			t.Errorf("%v was taken for a placement of 4 ranks", bad)
		}
	}
}

// Validations and placements never overlap.
func TestPlacementAndValidationTakeTurns(t *testing.T) {
	inBubble(t, func(b *bench) {
		t := b.t
		b.start()
		b.until(10)
		v, err := b.validate(&falconv1.ValidateRequest{Gemm: true})
		if err != nil {
			t.Fatal(err)
		}
		var sent *order
		b.inLoop(func() {
			o := falcon.Order{
				Epoch:  b.engine.state.job.Epoch,
				ID:     99,
				Kind:   falcon.OrderPlacement,
				Blocks: []int32{1, 0},
			}
			sent = b.engine.orders.addOrder(orderRecord{
				Order:      o,
				Command:    1 << 40,
				DeadlineNs: time.Now().Add(time.Minute).UnixNano(),
			})
			b.engine.delivery.sendWaiting(time.Now())
			if sent.item.Sent() {
				t.Errorf("a placement went out while %s holds the job", v.GetId())
			}
		})
		b.settleTests()
		b.turn()
		b.inLoop(func() {
			if sent.item != nil && !sent.item.Sent() {
				t.Error("the placement did not go out after the validation")
			}
		})
	})
}
