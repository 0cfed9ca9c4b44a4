package mitigate

import (
	"fmt"

	"github.com/failslow/falcon"
)

// stayMost is how much slower than before its fault a job may train for ranks to stay at
// their new places: below it a slowdown is not worth telling.
const stayMost = 0.02

// slowTimes is how many measurements a job is slow for before its ranks go back.
const slowTimes = 2

// placeJudgement is what is to become of a placement whose fault has cleared. Putting ranks
// back stops the job for seconds and moves their whole state. So they stay if the job trains
// as fast as before the fault, which shows once no fault is open and nothing else is in force.
type placeJudgement struct {
	stays string // why they stay, "" = they go back
	waits string // why that is not known yet, "" = it is
}

// judgePlaces judges a placement whose fault has cleared. One with a split of its own goes
// back with it.
func (e *executor) judgePlaces(h actionRef) placeJudgement {
	s := h.incident
	a := h.action()
	if a.Rung != falcon.RungS3 ||
		a.State != falcon.ActionKept ||
		a.RevertKind != "" ||
		!s.isOver() ||
		s.incident.HealthyMs <= 0 ||
		len(a.MicroBatches) > 0 {
		return placeJudgement{}
	}
	if b := e.incidents.besides(a); b != "" {
		return placeJudgement{waits: fmt.Sprintf("whether its ranks can stay shows without %s", b)}
	}
	from := e.incidents.changedLast() + int64(e.iterations.cfg.SettleIterations)
	need := e.iterations.cfg.MeasureIterations
	times := e.iterations.between(from, e.iterations.newestIndex()+1)
	if len(times) >= need {
		ms := falcon.Median(times[len(times)-need:])
		if ms <= s.incident.HealthyMs*(1+stayMost) {
			return placeJudgement{
				stays: fmt.Sprintf("%.1f ms an iteration here, %.1f ms before the fault",
					ms, s.incident.HealthyMs),
			}
		}
	}
	if len(times) < slowTimes*need { // a new fault shows within this time
		return placeJudgement{
			waits: fmt.Sprintf("whether its ranks can stay is measured for %d to %d iterations",
				need, slowTimes*need),
		}
	}
	return placeJudgement{}
}

// besides is what else slows the job or is in force in it, "" if nothing.
func (n *incidentSet) besides(a *falcon.Action) string {
	for _, s := range n.list {
		if s.incident.State != "" && s.incident.Open() {
			return s.incident.ID
		}
		for i := range s.actions {
			b := &s.actions[i]
			if b != a &&
				b.Rung != falcon.RungS4 &&
				(isInForce(b) || isUnderWay(b.State)) {
				return b.ID
			}
		}
	}
	return ""
}

// changedLast is the newest iteration at which a fault cleared or an action changed the job.
func (n *incidentSet) changedLast() int64 {
	at := falcon.NoIteration
	for _, o := range n.list {
		at = max(at, o.incident.RelievedIteration)
		for _, a := range o.actions {
			at = max(at, a.AppliedIteration, a.RevertedIteration)
		}
	}
	return at
}

// retain ends an action whose fault has cleared and leaves the job as it is.
func (e *executor) retain(h actionRef, why string) {
	a := h.action()
	a.State = falcon.ActionRetained
	a.RevertKind = falcon.RevertCleared
	a.RevertReason = "the fault has cleared, and the job trains as fast as before: " + why
	e.out.addNote(a.ID, "action", "%s: its ranks stay at their places: %s", a.ID, a.RevertReason)
	e.out.addActed(Acted{
		Incident:  a.Incident,
		Rung:      a.Rung,
		Iteration: e.iterations.newestIndex() + 1,
		Reverted:  true,
		Unchanged: true,
	})
	e.out.addAction(*a)
}
