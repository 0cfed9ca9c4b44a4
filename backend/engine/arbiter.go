package engine

import (
	"fmt"
	"time"

	"github.com/failslow/falcon"
)

// jobUse is who uses the job at one moment. It alone decides what may begin
// beside that, and why not. It is a value: the same facts give the same answer.
type jobUse struct {
	jobEpoch  uint64
	frozen    bool     // by policy
	untested  bool     // by policy: no test may hold the job
	recovery  bool     // one is at work on the job
	proposed  bool     // one waits for a decision
	adopting  bool     // one has succeeded, and the job epoch that it led to has not begun
	restart   bool     // of the whole job
	testing   string   // the validation in progress, or whose result is not durable; "" = none
	holding   bool     // tests hold the job, or are about to
	mayHold   bool     // ranks may be held still by a test that is over
	requested bool     // an operator waits for a test
	orders    []uint64 // being agreed on, ascending
	heavy     bool     // one of them changes which process does what
	profiling bool     // some node has not answered a profile window
}

// mayOrder reports whether an order that was made for a job epoch can go out: a
// heavy one changes which process does what, and waits for profiles.
func (u jobUse) mayOrder(epoch uint64, heavy bool) bool {
	switch {
	case epoch != u.jobEpoch || u.adopting: // ranks would still vote for what the planner has given up
		return false
	case u.holding || u.recovery:
		return false
	}
	return !heavy || !u.profiling
}

// mayProfile reports whether a profile window can begin.
func (u jobUse) mayProfile() bool {
	return !u.holding && !u.requested && !u.heavy && !u.recovery
}

// testObstacle is what else is being done with the job, which ends by itself
// soon; "" where a test may begin.
func (u jobUse) testObstacle() string {
	switch {
	case u.recovery || u.adopting:
		return "the job is recovering"
	case u.restart:
		return "the job is restarting"
	case u.testing != "":
		return u.testing
	case len(u.orders) > 0:
		return fmt.Sprintf("order %d is being agreed on", u.orders[0])
	case u.profiling:
		return "a profile window is in progress"
	}
	return ""
}

// testForbidden is the decision of a person that forbids any test, "" = none.
func (u jobUse) testForbidden() string {
	switch {
	case u.frozen:
		return policyFrozen
	case u.untested:
		return testsNever
	}
	return ""
}

// mayStandStill reports whether the job may stand still for a reason that is known.
func (u jobUse) mayStandStill() bool {
	return u.holding || u.mayHold || u.heavy || u.restart
}

// changing reports whether the job's processes are being changed: what a
// process claims of its rank can't be judged meanwhile.
func (u jobUse) changing() bool {
	return u.recovery || u.adopting || u.restart
}

// nothingDone reports whether nothing is being done with the job that a pause of the
// engine would delay.
func (u jobUse) nothingDone() bool {
	return !u.recovery &&
		!u.proposed &&
		!u.adopting &&
		!u.restart &&
		!u.holding &&
		!u.heavy
}

// arbiter gathers who uses the job.
type arbiter struct {
	*shared

	validations *validationQueue
	describer   *jobDescriber
	status      *jobStatus
	intake      *sampleIntake
}

func (a *arbiter) present(now time.Time) jobUse {
	v, _ := a.validations.machine.View()
	u := jobUse{
		jobEpoch:  a.state.job.Epoch,
		frozen:    a.state.policy.Policy.Frozen,
		untested:  a.state.policy.Policy.Tests == falcon.ApprovalNever,
		recovery:  a.cluster.recovering() != nil,
		proposed:  a.state.current() != nil,
		adopting:  a.cluster.unadopted() != nil,
		restart:   a.state.restart.Active(),
		holding:   a.validations.machine.Active(),
		mayHold:   a.validations.machine.MayHold(now),
		requested: a.validations.request != nil,
		heavy:     a.orders.heavy(),
		profiling: a.cluster.profiling(now, a.outbox),
	}
	if u.holding || !a.validations.machine.Ready().Empty() {
		u.testing = fmt.Sprintf("%s is in progress (%s)", v.ID, v.State)
	}
	for _, o := range a.orders.open() {
		u.orders = append(u.orders, o.Order.ID)
	}
	return u
}

// testObstacle is why the job can't be held for a test now, and whether that may
// pass by itself; "" when it can.
func (a *arbiter) testObstacle(now time.Time, p pendingAsk) (why string, passing bool) {
	use := a.present(now)
	if p.epoch != use.jobEpoch {
		return fmt.Sprintf("it was asked for in job epoch %d and this is epoch %d",
			p.epoch, use.jobEpoch), false
	}
	if why = use.testForbidden(); why != "" {
		return why, false
	}
	if why, passing = a.unready(now); why != "" {
		return why, passing
	}
	if why = a.cluster.unfitFor(p.ask); why != "" {
		return why, false
	}
	return use.testObstacle(), true
}

// unready is what is missing for any test at all, and whether that may pass by itself.
func (a *arbiter) unready(now time.Time) (string, bool) {
	switch state := a.status.current(now); state {
	case falcon.JobRestarting, falcon.JobRecovering:
		return "the job is " + string(state), true
	case falcon.JobWaiting:
		return "no ranks are known, or not all of them", true
	case falcon.JobFinished, falcon.JobLost:
		return "the job is " + string(state), false
	}
	if !a.describer.described ||
		!a.job.complete() ||
		a.job.dirty ||
		a.describer.recheck {
		return "the job's description still changes", true
	}
	if r := a.cluster.unsettledRank(); r >= 0 {
		return fmt.Sprintf("rank %d has not reported yet what it uses in its new place", r), true
	}
	for _, n := range a.cluster.jobNodes() {
		if !a.cluster.connected(n) {
			return fmt.Sprintf("the agent of node %s is away", n), true
		}
	}
	if at := a.det.Steady().Iteration; at < ripeIterations {
		return "the job is not steady: it has not done four iterations yet", true
	}
	still := a.status.standstill()
	if !a.intake.lastData.IsZero() && now.Sub(a.intake.lastData) > still {
		return fmt.Sprintf("the job is not steady: no iteration has ended for %s",
			now.Sub(a.intake.lastData).Round(time.Second)), true
	}
	return "", false
}
