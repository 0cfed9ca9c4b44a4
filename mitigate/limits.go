package mitigate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
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
	errVetoed = errors.New("an operator vetoed it for this incident")
	errTried  = errors.New("it was tried for this incident and did not work out")
	errNever  = errors.New("policy never allows it")
)

// wasReplaced reports whether a newer action of the same incident took its place: nothing was undone.
func wasReplaced(a *falcon.Action) bool {
	return a.RevertKind == falcon.RevertReplaced
}

// whyWithheld is why a rung that could help is not proposed now, whatever its plan.
func (l *limiter) whyWithheld(s *incidentState, r falcon.Rung, v falcon.Variant) error {
	switch {
	case l.policy.requires(r) == falcon.ApprovalNever:
		return errNever
	case s.vetoed[r]:
		return errVetoed
	case l.triedWithoutEffect(s, r, v):
		return errTried
	}
	if err := l.tooSoon(s); err != nil {
		return err
	}
	return l.tooOften(r)
}

// tooSoon is why hysteresis forbids a proposal now.
func (l *limiter) tooSoon(s *incidentState) error {
	for _, o := range l.incidents.list {
		for i := range o.actions {
			a := &o.actions[i]
			if l.job.isCurrent(a) &&
				a.State == falcon.ActionReverted &&
				!wasReplaced(a) &&
				a.RevertedIteration > l.iterations.newestIndex()-CoolDown &&
				sameCulprit(o, s) {
				return fmt.Errorf("%s was reverted at iteration %d: %d iterations have to pass first",
					a.ID, a.RevertedIteration, CoolDown)
			}
		}
	}
	if n := l.orderedFor(s); n >= ActionsMost {
		return fmt.Errorf("%d actions for this culprit within %d iterations are enough for now",
			n, ActionsWithin)
	}
	if n := len(l.ordered); n >= ActionsOfJob &&
		l.ordered[n-ActionsOfJob].at > l.iterations.newestIndex()-ActionsWithin {
		return fmt.Errorf("%d actions within %d iterations are enough for now", ActionsOfJob, ActionsWithin)
	}
	return nil
}

// orderedAction is an action that was ordered, and for whom.
type orderedAction struct {
	at       int64 // iteration
	incident string
	verdict  falcon.Verdict
}

// orderedFor counts the newest actions for the culprit of s: what flaps is one
// device or link, whatever incidents it opens.
func (l *limiter) orderedFor(s *incidentState) int {
	n := 0
	for _, o := range l.ordered {
		if o.at > l.iterations.newestIndex()-ActionsWithin &&
			(o.incident == s.incident.ID || shareCulprit(o.verdict, s.incident.Verdict)) {
			n++
		}
	}
	return n
}

// tooOften keeps to the policy's limit per hour, by the engine's clock.
func (l *limiter) tooOften(r falcon.Rung) error {
	most := l.policy.rungPolicy(r).PerHour
	if most > 0 && l.takenWithinHour(r) >= most {
		return fmt.Errorf("policy allows %d of %s within an hour", most, r)
	}
	return nil
}

// takenWithinHour is how often a rung was ordered within the last hour.
func (l *limiter) takenWithinHour(r falcon.Rung) int {
	taken := 0
	since := l.clock.now.Add(-time.Hour).UnixNano()
	for _, s := range l.incidents.list {
		for i := range s.actions {
			a := &s.actions[i]
			if a.Rung == r && wasOrdered(a) && a.DecidedUnixNs > since {
				taken++
			}
		}
	}
	return taken
}

// recordOrdered notes that an action is ordered.
func (l *limiter) recordOrdered(a *falcon.Action, at int64) {
	if !l.job.isCurrent(a) {
		return
	}
	o := orderedAction{at: at, incident: a.Incident}
	if s := l.incidents.byID(a.Incident); s != nil {
		o.verdict = s.incident.Verdict
	}
	l.ordered = append(l.ordered, o)
	slices.SortStableFunc(l.ordered, func(a, b orderedAction) int {
		return cmp.Compare(a.at, b.at)
	})
	l.ordered = l.ordered[max(0, len(l.ordered)-ActionsOfJob):]
}

// triedWithoutEffect keeps the ladder off a rung that did not help this incident, and limits how
// often and how soon one is tried again whose order failed.
func (l *limiter) triedWithoutEffect(s *incidentState, r falcon.Rung, v falcon.Variant) bool {
	last := s.newestAction(func(a *falcon.Action) bool {
		return sameWay(a, r, v)
	})
	failures := 0
	if last == nil {
		return false
	}
	for i := range s.actions {
		if sameWay(&s.actions[i], r, v) && s.actions[i].State == falcon.ActionFailed {
			failures++
		}
	}
	switch last.State {
	case falcon.ActionReverted:
		return l.job.isCurrent(last) && !wasReplaced(last)
	case falcon.ActionFailed:
		return failures >= FailuresMost ||
			l.iterations.newestIndex() < max(s.failedAt, last.ProposedIteration)+CoolDown
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
	ordered    []orderedAction // the newest actions of this epoch that were ordered
}

// reset forgets the actions of another job epoch.
func (l *limiter) reset() {
	l.ordered = nil
}
