package agent

import (
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// place orders a placement and waits for its last word.
func (j *realJob) place(t *testing.T, id, order uint64, blocks ...int32) *falconv1.CommandResult {
	t.Helper()
	j.agent.Command(&falconv1.Command{
		Epoch:          1,
		Id:             id,
		DeadlineUnixNs: time.Now().Add(30 * time.Second).UnixNano(),
		Body: &falconv1.Command_Order{Order: &falconv1.OrderCommand{
			Order:    order,
			Kind:     string(falcon.OrderPlacement),
			Blocks:   blocks,
			JobEpoch: 1,
		}},
	})
	return j.result(t, id)
}

// held is the process that holds each rank, by the newest states.
func (j *realJob) held() map[int32]int32 {
	rank := map[int32]int32{} // by process
	for _, st := range j.ship.states() {
		if rank[st.Pid] = st.Rank; !st.Alive {
			delete(rank, st.Pid)
		}
	}
	out := map[int32]int32{}
	for pid, r := range rank {
		out[r] = pid
	}
	return out
}

func (j *realJob) pid(rank int) int32 {
	return int32(j.ranks[rank].Process.Pid)
}

// Real processes exchange their ranks, twice, and the agent is replaced in
// between: acknowledgements, states and samples follow the processes, every
// iteration is reported once for each rank, and a pause finds its boundary on
// the new communicators.
func TestRealRanksChangePlaces(t *testing.T) {
	j := startJob(t, "--iterations", "6000")
	j.until(t, "the first iterations", j.iterations(5))
	first := j.place(t, 1, 1, 2, 3, 0, 1)
	checkRealSwap(t, j, first, []int{2, 3, 0, 1})
	j.pauseOnce(t, 10)

	second := j.place(t, 2, 2, 1, 0) // blocks of two: 0, 1 ↔ 2, 3 back again
	checkRealSwap(t, j, second, []int{2, 3, 0, 1})
	if got := j.held(); got[0] != j.pid(0) || got[3] != j.pid(3) {
		t.Fatalf("ranks are held by %v", got)
	}
	from := second.Ranks[0].Iteration
	j.until(t, "iterations after the swaps", func() bool {
		return j.newestSample() > from+20
	})
	checkRealSeries(t, j, first.Ranks[0].Iteration, from)
}

// checkRealSwap wants each process to have gone where the order says, and the
// steps to be reported.
func checkRealSwap(t *testing.T, j *realJob, r *falconv1.CommandResult, to []int) {
	t.Helper()
	if r.Status != done || len(r.Ranks) != realRanks {
		t.Fatalf("placement: %v", r)
	}
	for _, a := range r.Ranks {
		if a.Status != 0 ||
			int(a.NowRank) != to[a.Rank] ||
			a.Iteration != r.Ranks[0].Iteration ||
			len(a.StepMs) != 4 ||
			a.MovedBytes == 0 {
			t.Fatalf("ack %v", a)
		}
	}
	got := j.held()
	if len(got) != realRanks {
		t.Fatalf("ranks are held by %v", got)
	}
}

func (j *realJob) newestSample() int64 {
	newest := int64(-1)
	for _, s := range j.ship.samples() {
		newest = max(newest, s.Iteration)
	}
	return newest
}

// checkRealSeries wants no iteration twice for a rank, and what the swaps took
// to be marked as held in the iterations right before them, but for those that
// the hook's 64 marks lost on a busy machine.
func checkRealSeries(t *testing.T, j *realJob, swaps ...int64) {
	t.Helper()
	seen := map[[2]int64]bool{}
	held := 0
	for _, s := range j.ship.samples() {
		key := [2]int64{int64(s.Rank), s.Iteration}
		if seen[key] {
			t.Fatalf("rank %d has iteration %d twice", s.Rank, s.Iteration)
		}
		seen[key] = true
		if slices.Contains(swaps, s.Iteration+1) {
			if s.PausedMs <= 0 || s.PausedMs > s.Ms {
				t.Fatalf("the swap's iteration: %v", s)
			}
			held++
		}
	}
	if held < realRanks {
		t.Fatalf("the swaps are marked in %d samples only", held)
	}
}

// pauseOnce holds the job once and lets it go.
func (j *realJob) pauseOnce(t *testing.T, id uint64) {
	t.Helper()
	var survey *falconv1.CommandResult
	j.until(t, "a survey of the new communicators", func() bool {
		survey = j.result(
			t,
			j.command(id, &falconv1.PauseCommand{Pause: id, Phase: falconv1.PausePhase_PAUSE_PHASE_SURVEY}),
		)
		id++
		return !slices.ContainsFunc(survey.Pauses, func(p *falconv1.RankPause) bool {
			return p.State != falconv1.PauseState_PAUSE_STATE_RUNNING
		})
	})
	arm := j.command(id, &falconv1.PauseCommand{
		Pause:  id,
		Phase:  arm1,
		Cuts:   cutsAhead(t, survey.Pauses, 100),
		LifeMs: 30_000,
	})
	j.until(t, "all ranks quiet", func() bool {
		if r := j.newest(arm); r != nil && r.Status == refused {
			t.Fatalf("refused: %s %v", r.Detail, r.Pauses)
		}
		return j.allAt(arm, falconv1.PauseState_PAUSE_STATE_QUIET)()
	})
	j.command(id+1, &falconv1.PauseCommand{Pause: id, Phase: resume1})
	if r := j.result(t, arm); r.Status != done {
		t.Fatalf("the pause ended with %v", r)
	}
}

// A step that fails on one rank is undone on all: nobody is told another rank.
func TestRealPlacementThatFails(t *testing.T) {
	j := startJob(t, "--iterations", "100000", "--fail-step", "swap")
	j.until(t, "the first iterations", j.iterations(5))
	r := j.place(t, 1, 1, 1, 0)
	if r.Status != refused || len(r.Ranks) != realRanks {
		t.Fatalf("placement: %v", r)
	}
	for _, a := range r.Ranks {
		if a.Status != r.Ranks[0].Status || a.NowRank != a.Rank {
			t.Fatalf("ack %v", a)
		}
	}
	at := j.newestSample()
	j.until(t, "iterations after the failure", func() bool {
		return j.newestSample() > at+10
	})
	for rank := range realRanks {
		if j.held()[int32(rank)] != j.pid(rank) {
			t.Fatalf("ranks are held by %v", j.held())
		}
	}
}

// The whole of S4 on one node, with real processes: a checkpoint that all leave
// with, and a launch of the next generation with other ranks on the GPUs.
func TestRealRestart(t *testing.T) {
	dir := t.TempDir()
	saves := filepath.Join(dir, "saves")
	j := startJob(t, "--iterations", "100000", "--checkpoint-dir", saves)
	j.until(t, "the first iterations", j.iterations(5))
	j.agent.Command(&falconv1.Command{
		Epoch:          1,
		Id:             1,
		DeadlineUnixNs: time.Now().Add(30 * time.Second).UnixNano(),
		Body: &falconv1.Command_Order{Order: &falconv1.OrderCommand{
			Order:    1,
			Kind:     string(falcon.OrderCheckpoint),
			Leave:    true,
			JobEpoch: 1,
		}},
	})
	left := j.result(t, 1)
	if left.Status != done ||
		len(left.Ranks) != realRanks ||
		left.Ranks[0].ResumeIteration < 5 {
		t.Fatalf("checkpoint: %v", left)
	}
	j.until(t, "the ends", func() bool { return len(j.held()) == 0 })
	for _, cmd := range j.ranks {
		_ = cmd.Wait() // the test is their parent
	}
	t.Cleanup(func() {
		for _, pid := range j.held() {
			_ = unix.Kill(int(pid), unix.SIGKILL)
		}
	})
	j.agent.Command(relaunch(2, 7))
	up := j.result(t, 2)
	if up.Status != done || len(up.Ranks) != realRanks {
		t.Fatalf("launch: %v", up)
	}
	resume := left.Ranks[0].ResumeIteration
	j.until(t, "iterations of the new generation", func() bool {
		for _, s := range j.ship.samples() {
			if s.Iteration > resume+5 {
				return true
			}
		}
		return false
	})
	for _, st := range j.ship.states() {
		if st.Generation == 7 && st.Device != falconDevice(realRanks-1-int(st.Rank)) {
			t.Fatalf("rank %d came up on %s", st.Rank, st.Device)
		}
	}
}

// relaunch names the ranks in reverse, so that each lands on another GPU.
func relaunch(id, generation uint64) *falconv1.Command {
	l := &falconv1.LaunchCommand{
		Generation: generation,
		World:      realRanks,
		Resume:     true,
	}
	for r := range realRanks {
		l.Ranks = append(l.Ranks, &falconv1.RankLaunch{
			Rank:      int32(r),
			LocalRank: int32(realRanks - 1 - r),
			Device:    falconDevice(realRanks - 1 - r),
		})
	}
	return &falconv1.Command{
		Epoch:          1,
		Id:             id,
		DeadlineUnixNs: time.Now().Add(30 * time.Second).UnixNano(),
		Body:           &falconv1.Command_Launch{Launch: l},
	}
}

func falconDevice(i int) string { return "n1.g" + strconv.Itoa(i) }
