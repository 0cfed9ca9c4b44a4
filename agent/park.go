package agent

import (
	"log/slog"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/iterate"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// lookPark reads where the process stands in a recovery. A word that the hook is
// just writing is read at the next look.
func (p *process) lookPark() {
	if at, ok := p.seg.Park(); ok && at != p.park {
		p.park, p.news = at, true
	}
	if at, ok := p.seg.Rejoined(); ok && at.Generation != p.rejoined.Generation {
		p.rejoined, p.news = at, true
		p.goOn()
	}
}

// goOn takes up a rejoin. The iterations' numbers go back by one step at most,
// and the samples of one that is done again are sent again. What was counted or
// learned on the old communicators says nothing of the new ones; see move.
func (p *process) goOn() {
	p.infer.Reset()
	p.census = iterate.NewCensus()
	p.survey.lost()
	if !p.marked() {
		p.shift = p.rejoined.Iteration // the new communicators count from 0, on all ranks alike
		p.lastNum = p.rejoined.Iteration - 1
	}
	if p.window != nil {
		p.window.cut = true
	}
}

// interrupted says that a suspension fell into a stretch of time (CLOCK_MONOTONIC):
// no iteration's time can be told from it.
func (p *process) interrupted(fromNs, toNs int64) bool {
	at := p.status.SuspendedNs
	return at > fromNs && at <= toNs
}

// recoverable adds what a recovery needs to know of the process.
func (p *process) recoverable(st *falconv1.RankState) {
	job := p.seg.JobState()
	st.ZeroStage, st.ZeroInstances = int32(job.ZeRO.Stage), int32(job.ZeRO.Instances)
	st.StateBytes, st.CopyMbs = job.Bytes, float64(job.CopyBytesS)/1e6
	st.MicroMin, st.MicroMax, st.MicroMultiple = int32(job.MicroMin), int32(job.MicroMax), int32(job.MicroMultiple)
	if job.Checkpoint != falcon.NoIteration {
		st.CheckpointIteration = job.Checkpoint + 1
	}
	if p.rejoined.Status == 0 {
		st.RejoinedGeneration = p.rejoined.Generation
	}
	if p.fresh() {
		st.Park = parkOf(p.park)
	}
}

// fresh says that the process is parked and has obeyed the newest suspension: what
// it said before one that it has not obeyed so far is of no use to anybody.
func (p *process) fresh() bool { return p.park.On && p.park.Generation >= p.status.SuspendWanted }

// catchUp suspends a process made anew that has come up to park only after the
// job was suspended once more, for another fault: it belongs to the newer
// generation then, and parks in that one.
func (a *Agent) catchUp(p *process) {
	a.suspended = max(a.suspended, p.status.SuspendWanted)
	if p.dead || !p.park.On || p.park.Status != ring.ParkJoin || max(p.park.Generation, p.status.SuspendWanted) >= a.suspended {
		return
	}
	if err := p.seg.Suspend(a.suspended, a.dir.MonoNs()); err != nil {
		a.log.Warn("can't suspend a process that joins late", slog.String("process", p.String()), slog.Any("err", err))
	}
	p.status = p.seg.Control()
}

func parkOf(at ring.Park) *falconv1.Park {
	out := &falconv1.Park{Generation: at.Generation, Joining: at.Status == ring.ParkJoin, Tag: at.Tag}
	for i, step := range at.Hold.Steps {
		if step >= 0 {
			out.Steps, out.Sums = append(out.Steps, step), append(out.Sums, at.Hold.Sums[i])
		}
	}
	return out
}
