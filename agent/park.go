package agent

import (
	"log/slog"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// recoveryState is where a process stands in a recovery, as last read.
type recoveryState struct {
	park     ring.Park
	rejoined ring.Rejoined // the newest, Generation 0 for none
	unsent   bool          // a change that was not reported so far
}

// readChanges takes up what changed. What the hook is just writing is read the next time.
func (r *recoveryState) readChanges(seg Segment) (rejoined bool) {
	if at, ok := seg.Park(); ok && at != r.park {
		r.park, r.unsent = at, true
	}
	if at, ok := seg.Rejoined(); ok && at.Generation != r.rejoined.Generation {
		r.rejoined = at
		r.unsent = true
		rejoined = true
	}
	return rejoined
}

// takeUnsent reports whether a change is to be reported now.
func (r *recoveryState) takeUnsent() bool {
	unsent := r.unsent
	r.unsent = false
	return unsent
}

func (p *process) readRecovery() {
	if p.recovery.readChanges(p.seg) {
		p.restartIterations(p.recovery.rejoined.Iteration)
	}
}

// restartIterations takes up a rejoin. The iterations' numbers go back by one step at
// most, and the samples of one that is done again are sent again. What was counted or
// learned on the old communicators says nothing of the new ones; see readPlacement.
func (p *process) restartIterations(first int64) {
	p.iterations.forgetPeriod()
	p.survey.Forget()
	if !p.hasMarks() {
		p.iterations.rewindTo(first)
	}
	if p.window != nil {
		p.window.cut = true
	}
}

// interrupted reports whether a suspension fell into a stretch of time
// (CLOCK_MONOTONIC): no iteration's time can be taken from it.
func (p *process) interrupted(fromNs, toNs int64) bool {
	at := p.status.SuspendedNs
	return at > fromNs && at <= toNs
}

// addRecovery adds what a recovery needs to know of the process.
func (p *process) addRecovery(st *falconv1.RankState) {
	job := p.seg.JobState()
	st.ZeroStage = int32(job.ZeRO.Stage)
	st.ZeroInstances = int32(job.ZeRO.Instances)
	st.StateBytes = job.Bytes
	st.CopyMbs = float64(job.CopyBytesS) / 1e6
	st.MicroMin = int32(job.MicroMin)
	st.MicroMax = int32(job.MicroMax)
	st.MicroMultiple = int32(job.MicroMultiple)
	st.Can, st.Raised = convert.CanToProto(job.Can), convert.RaisedToProto(job.Raised)
	if stored := p.storedCheckpoint(job.Checkpoint); stored != falcon.NoIteration {
		st.CheckpointIteration = stored + 1
	}
	if p.recovery.rejoined.Status == 0 {
		st.RejoinedGeneration = p.recovery.rejoined.Generation
	}
	if p.parkedForNewest() {
		st.Park = parkMessage(p.recovery.park)
	}
}

// storedCheckpoint is the newest checkpoint: as the adapter reports it, else as it was found.
func (p *process) storedCheckpoint(reported int64) int64 {
	if reported != falcon.NoIteration || p.stored == nil {
		return reported
	}
	return p.stored.newest.Load()
}

// parkedForNewest reports whether the process is parked and has obeyed the newest
// suspension: what it reported before one that it has not obeyed is out of date.
func (p *process) parkedForNewest() bool {
	return p.recovery.park.On && p.recovery.park.Generation >= p.status.SuspendWanted
}

// keepsParked reports whether the process waits in a recovery, and is to wait on while an engine is
// there, which ends the wait itself: it may be for a spare, or for a node to come back, and last longer
// than the hook waits.
func (p *process) keepsParked() bool {
	return !p.dead && p.parkedForNewest()
}

// suspendLateJoiner suspends a replacement process that has come up to park only after the
// job was suspended once more, for another fault: it belongs to the newer
// generation then, and parks in that one.
func (a *Agent) suspendLateJoiner(p *process) {
	a.suspended = max(a.suspended, p.status.SuspendWanted)
	if p.dead ||
		!p.recovery.park.On ||
		p.recovery.park.Status != ring.ParkJoin ||
		max(p.recovery.park.Generation, p.status.SuspendWanted) >= a.suspended {
		return
	}
	if err := p.seg.Suspend(a.suspended, a.dir.MonoNs()); err != nil {
		a.log.Warn(
			"can't suspend a process that joins late",
			slog.String("process", p.String()),
			slog.Any("err", err),
		)
	}
	p.status = p.seg.Control()
}

func parkMessage(at ring.Park) *falconv1.Park {
	out := &falconv1.Park{
		Generation: at.Generation,
		Joining:    at.Status == ring.ParkJoin,
		Tag:        at.Tag,
	}
	for i, step := range at.Hold.Steps {
		if step >= 0 {
			out.Steps, out.Sums = append(out.Steps, step), append(out.Sums, at.Hold.Sums[i])
		}
	}
	return out
}
