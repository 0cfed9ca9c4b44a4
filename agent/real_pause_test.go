package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// heldFor is how long the real job is held at least: much longer than any
// iteration of it.
const heldFor = 1500 * time.Millisecond

// command sends a body and returns the command's id.
func (j *realJob) command(id uint64, body any) uint64 {
	c := &falconv1.Command{
		Epoch:          1,
		Id:             id,
		DeadlineUnixNs: time.Now().Add(20 * time.Second).UnixNano(),
	}
	switch b := body.(type) {
	case *falconv1.PauseCommand:
		c.Body = &falconv1.Command_Pause{Pause: b}
	case *falconv1.TestCommand:
		c.Body = &falconv1.Command_Test{Test: b}
	}
	j.agent.Command(c)
	return id
}

// newest is the command's last word so far.
func (j *realJob) newest(id uint64) *falconv1.CommandResult {
	var last *falconv1.CommandResult
	for _, r := range j.ship.results() {
		if r.Id == id {
			last = r
		}
	}
	return last
}

// cutsAhead is what the engine does with a survey, without its checks.
func cutsAhead(t *testing.T, survey []*falconv1.RankPause, margin int64) []*falconv1.RankCut {
	t.Helper()
	target := int64(0)
	for _, p := range survey {
		target = max(target, p.Newest+margin)
	}
	var out []*falconv1.RankCut
	for _, p := range survey {
		if p.State != falconv1.PauseState_PAUSE_STATE_RUNNING || len(p.Counts) == 0 {
			t.Fatalf("survey: %v", p)
		}
		cut := &falconv1.RankCut{Rank: p.Rank, Iteration: target}
		for _, c := range p.Counts {
			if !c.Steady || !c.Whole {
				t.Fatalf("rank %d: %v", p.Rank, c)
			}
			cut.Limits = append(cut.Limits, &falconv1.CommLimit{
				Comm:  c.Comm,
				Calls: c.Calls + uint64(target-p.Boundary)*c.PerIteration,
			})
		}
		out = append(out, cut)
	}
	return out
}

func (j *realJob) allAt(id uint64, state falconv1.PauseState) func() bool {
	return func() bool {
		r := j.newest(id)
		return r != nil &&
			len(r.Pauses) == realRanks &&
			!slices.ContainsFunc(r.Pauses, func(p *falconv1.RankPause) bool { return p.State != state })
	}
}

// A real job is surveyed, held at one boundary by all ranks, tested and let go,
// with and without step marks; its iterations tell the held time apart.
func TestHoldsARealJob(t *testing.T) {
	for _, marks := range []string{"on", "off"} {
		t.Run("marks "+marks, func(t *testing.T) {
			j := startJob(t, "--iterations", "100000", "--marks", marks)
			j.until(t, "the first iterations", j.iterations(100))
			survey := j.result(t, j.command(1, &falconv1.PauseCommand{Pause: 1, Phase: survey1})).Pauses
			if len(survey) != realRanks || survey[0].Exact != (marks == "on") {
				t.Fatalf("survey %v", survey)
			}
			arm := j.command(2, &falconv1.PauseCommand{
				Pause:  1,
				Phase:  arm1,
				Cuts:   cutsAhead(t, survey, 100),
				LifeMs: 30_000,
			})
			j.until(t, "all ranks quiet", func() bool {
				if r := j.newest(arm); r != nil && r.Status == refused {
					t.Fatalf("refused: %s %v", r.Detail, r.Pauses)
				}
				return j.allAt(arm, falconv1.PauseState_PAUSE_STATE_QUIET)()
			})
			began := time.Now()
			checkRealTests(t, j)
			time.Sleep(heldFor - time.Since(began)) // the hold's length is what is tested
			j.command(9, &falconv1.PauseCommand{Pause: 1, Phase: resume1})
			ended := j.result(t, 9)
			if j.result(t, arm).Status != done || ended.Status != done {
				t.Fatalf("ended with %v", ended)
			}
			seen := len(j.byRank()[0])
			j.until(t, "the job to go on", j.iterations(seen+50))
			checkHeldTime(t, j, ended.Pauses)
		})
	}
}

// checkRealTests multiplies on every rank, and sends both ways between two.
func checkRealTests(t *testing.T, j *realJob) {
	t.Helper()
	gemm := &falconv1.TestCommand{Pause: 1, Test: 1}
	for r := range int32(realRanks) {
		gemm.Tests = append(gemm.Tests, &falconv1.RankTest{
			Rank:    r,
			Kind:    falconv1.TestKind_TEST_KIND_GEMM,
			Repeats: 3,
			N:       64,
			LifeMs:  10_000,
		})
	}
	for _, r := range realTests(t, j, 3, gemm) {
		if r.MedianMs <= 0 || r.Repeats != 3 {
			t.Errorf("multiplication %v", r)
		}
	}
	ids := realTests(t, j, 4, &falconv1.TestCommand{
		Pause: 1,
		Test:  2,
		Tests: []*falconv1.RankTest{{
			Rank:   1,
			Kind:   falconv1.TestKind_TEST_KIND_ID,
			LifeMs: 10_000,
		}},
	})[0]
	if len(ids.ForwardId) != ring.UniqueIDBytes || len(ids.BackwardId) != ring.UniqueIDBytes {
		t.Fatalf("ids %v", ids)
	}
	link := &falconv1.TestCommand{Pause: 1, Test: 3}
	for side, rank := range []int32{1, 2} {
		link.Tests = append(link.Tests, &falconv1.RankTest{
			Rank:       rank,
			Kind:       falconv1.TestKind_TEST_KIND_LINK,
			Repeats:    3,
			Bytes:      1 << 16,
			Side:       int32(side),
			ForwardId:  ids.ForwardId,
			BackwardId: ids.BackwardId,
			LifeMs:     10_000,
		})
	}
	for _, r := range realTests(t, j, 5, link) {
		if r.MedianMs <= 0 || r.Bytes != 1<<16 {
			t.Errorf("link %v", r)
		}
	}
}

func realTests(t *testing.T, j *realJob, id uint64, cmd *falconv1.TestCommand) []*falconv1.TestResult {
	t.Helper()
	r := j.result(t, j.command(id, cmd))
	if r.Status != done || len(r.Tests) != len(cmd.Tests) {
		t.Fatalf("tests: %v", r)
	}
	for _, one := range r.Tests {
		if one.Status != falconv1.TestStatus_TEST_STATUS_DONE {
			t.Fatalf("test: %v", one)
		}
	}
	return r.Tests
}

// checkHeldTime wants one iteration of each rank to hold the pause, and to have
// run no longer than any other without it.
func checkHeldTime(t *testing.T, j *realJob, pauses []*falconv1.RankPause) {
	t.Helper()
	const timerMs = 60 // for a machine that is busy with other tests
	for rank, samples := range j.byRank() {
		var held, longest float64
		n := 0
		for _, s := range samples {
			if s.PausedMs > 0 {
				held += s.PausedMs
				n++
			} else {
				longest = max(longest, s.Ms)
			}
		}
		for _, s := range samples {
			run := s.Ms - s.PausedMs
			if s.PausedMs > 0 && (run < 0 || run > longest+timerMs) {
				t.Errorf("rank %d, iteration %d: ran %.1f ms beside the pause, the others %.1f at most",
					rank, s.Iteration, run, longest)
			}
		}
		announced := pauses[slices.IndexFunc(pauses, func(p *falconv1.RankPause) bool {
			return p.Rank == rank
		})].HeldMs
		if n < 1 ||
			n > 2 ||
			announced < float64(heldFor.Milliseconds()) ||
			held < announced-timerMs ||
			held > announced+timerMs {
			t.Errorf("rank %d: %d iterations hold %.1f ms, the hook held it for %.1f ms", rank, n, held, announced)
		}
	}
}
