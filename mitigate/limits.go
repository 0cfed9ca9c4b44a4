package mitigate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
)

// Hysteresis: a fault that flaps must not make the job flap. They bound what
// the planner proposes; a person may still step up by hand.
const (
	ActionsMost   = 6    // actions ordered for one culprit within ActionsWithin
	ActionsOfJob  = 60   // actions ordered for all of them within it
	ActionsWithin = 1000 // iterations
	CoolDown      = 20   // iterations after a revert before its culprit is offered a rung again
	FailuresMost  = 3    // orders of one incident and rung that failed before the rung is left alone
)

var (
	errVetoed = errors.New("somebody vetoed it for this incident")
	errTried  = errors.New("it was tried for this incident and did not work out")
	errNever  = errors.New("policy says that it is never taken")
)

// replacedBy begins the reason of actions that a newer one of the same incident
// took the place of: nothing was undone.
const replacedBy = "replaced by "

func replaced(a *falcon.Action) bool { return strings.HasPrefix(a.RevertReason, replacedBy) }

// withheld says why a rung that could help is not proposed now, whatever its plan.
func (l *limiter) withheld(s *story, r falcon.Rung) error {
	switch {
	case approval(l.policy.current, r) == falcon.ApprovalNever:
		return errNever
	case s.vetoed[r]:
		return errVetoed
	case l.triedWithoutEffect(s, r):
		return errTried
	}
	if err := l.tooSoon(s); err != nil {
		return err
	}
	return l.tooOften(r)
}

// tooSoon says why hysteresis forbids a proposal now.
func (l *limiter) tooSoon(s *story) error {
	for _, o := range l.incidents.list {
		for i := range o.actions {
			a := &o.actions[i]
			if l.job.isCurrent(a) && a.State == falcon.ActionReverted && !replaced(a) && a.RevertedIteration > l.iterations.newest()-CoolDown && sameCulprit(o, s) {
				return fmt.Errorf("%s was reverted at iteration %d: %d iterations have to pass first", a.ID, a.RevertedIteration, CoolDown)
			}
		}
	}
	if n := l.orderedFor(s); n >= ActionsMost {
		return fmt.Errorf("%d actions for this culprit within %d iterations are enough for now", n, ActionsWithin)
	}
	if n := len(l.ordered); n >= ActionsOfJob && l.ordered[n-ActionsOfJob].at > l.iterations.newest()-ActionsWithin {
		return fmt.Errorf("%d actions within %d iterations are enough for now", ActionsOfJob, ActionsWithin)
	}
	return nil
}

// switched is an action that was ordered, and for whom.
type switched struct {
	at       int64 // iteration
	incident string
	verdict  falcon.Verdict
}

// orderedFor counts the newest actions for the culprit of s: what flaps is one
// device or link, whatever incidents it opens.
func (l *limiter) orderedFor(s *story) int {
	n := 0
	for _, o := range l.ordered {
		if o.at > l.iterations.newest()-ActionsWithin && (o.incident == s.incident.ID || shareCulprit(o.verdict, s.incident.Verdict)) {
			n++
		}
	}
	return n
}

// tooOften keeps to the policy's limit per hour, by the engine's clock.
func (l *limiter) tooOften(r falcon.Rung) error {
	if most := l.policy.current.Rungs[r].PerHour; most > 0 && l.takenWithinHour(r) >= most {
		return fmt.Errorf("policy allows %d of %s within an hour", most, r)
	}
	return nil
}

// takenHour is how often a rung was ordered within the last hour.
func (l *limiter) takenWithinHour(r falcon.Rung) int {
	taken, since := 0, l.clock.now.Add(-time.Hour).UnixNano()
	for _, s := range l.incidents.list {
		for i := range s.actions {
			if a := &s.actions[i]; a.Rung == r && a.OrderID != 0 && a.DecidedUnixNs > since {
				taken++
			}
		}
	}
	return taken
}

// switching notes that an action is ordered.
func (l *limiter) recordOrdered(a *falcon.Action, at int64) {
	if !l.job.isCurrent(a) {
		return
	}
	o := switched{at: at, incident: a.Incident}
	if s := l.incidents.get(a.Incident); s != nil {
		o.verdict = s.incident.Verdict
	}
	l.ordered = append(l.ordered, o)
	slices.SortStableFunc(l.ordered, func(a, b switched) int { return cmp.Compare(a.at, b.at) })
	l.ordered = l.ordered[max(0, len(l.ordered)-ActionsOfJob):]
}

// triedInVain keeps the ladder from climbing the same rung again: one that did
// not help is not offered again for the same incident, one whose order failed
// only a few times, and not at once.
func (l *limiter) triedWithoutEffect(s *story, r falcon.Rung) bool {
	last, failures := s.newest(r), 0
	if last == nil {
		return false
	}
	for i := range s.actions {
		if s.actions[i].Rung == r && s.actions[i].State == falcon.ActionFailed {
			failures++
		}
	}
	switch last.State {
	case falcon.ActionReverted:
		return l.job.isCurrent(last) && !replaced(last)
	case falcon.ActionFailed:
		return failures >= FailuresMost || l.iterations.newest() < max(s.failedAt, last.ProposedIteration)+CoolDown
	}
	return false
}

// limiter bounds how often the planner proposes.
type limiter struct {
	clock      *clock
	policy     *policyState
	iterations *iterationLog
	job        *jobState
	incidents  *incidentSet
	ordered    []switched // the newest actions of this epoch that were ordered
}
