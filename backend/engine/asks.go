package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect"
)

// pendingAsk is a request of the detector that waits for its moment.
type pendingAsk struct {
	ask   falcon.ValidationAsk
	since time.Time
	epoch uint64 // of the job whose ranks are meant
}

// advised takes a request of the detector: policy decides whether it is
// carried out or only logged.
func (vq *validationQueue) advised(now time.Time, ask falcon.ValidationAsk, r *decidedRound) {
	ask.By = "engine"
	if why := vq.barred(); why != "" {
		vq.oplog.logf("validation", 1, ask.Incident,
			"a test is advised (%s), and %s; to hold the job for it: %s",
			ask.Why, why, commandFor(ask))
		r.steps = append(r.steps, func() {
			vq.declined(now, ask, falcon.BarPolicy, why)
		})
		return
	}
	if len(vq.asks) >= asksMax {
		r.steps = append(r.steps, func() {
			vq.declined(now, ask, falcon.BarNone, "other validations wait already")
		})
		return
	}
	vq.asks = append(vq.asks, pendingAsk{ask, now, vq.state.job.Epoch})
	r.steps = append(r.steps, func() { vq.tryAsks(now) })
}

// commandFor is what an operator types to have a request carried out.
func commandFor(ask falcon.ValidationAsk) string {
	var ranks []falcon.Rank
	ranks = append(ranks, ask.GEMM...)
	for _, g := range slices.Concat(ask.Rings, ask.Trees) {
		ranks = append(ranks, g...)
	}
	for _, p := range ask.Pairs {
		ranks = append(ranks, p[:]...)
	}
	s := "falcon validate --ranks " +
		strings.ReplaceAll(ranksText(slices.Compact(slices.Sorted(slices.Values(ranks)))), " ", "")
	if len(ask.GEMM) > 0 {
		s += " --gemm"
	}
	if len(ask.Rings)+len(ask.Trees)+len(ask.Pairs) > 0 {
		s += " --links"
	}
	return s
}

// barred is why policy forbids that a test holds the job by itself, "" where it may. A policy that
// only observes holds nothing.
func (vq *validationQueue) barred() string {
	p := vq.state.policy.Policy
	switch {
	case p.Frozen:
		return policyFrozen
	case p.Tests == falcon.ApprovalNever:
		return testsNever
	case p.Tests == falcon.ApprovalPerson, p.Tests == "" && !vq.cfg.Validation.Auto:
		return "tests wait for a person (policy.tests, or validation.mode manual)"
	case p.Mode == falcon.ModeObserve && p.Tests == "":
		return "the policy's mode is observe: tests wait for a person"
	}
	return ""
}

const (
	policyFrozen = "the policy is frozen: thaw it first"
	testsNever   = "policy.tests is never: set it to person or auto first"
)

// declined informs the detector that a test will not come. Nothing was held, and
// nothing is kept but the line in the log.
func (vq *validationQueue) declined(now time.Time, ask falcon.ValidationAsk, bar falcon.TestBar, why string) {
	vq.det.Step(now, detect.Validated{Validation: falcon.Validation{
		Ask:       ask,
		State:     falcon.ValidationRefused,
		Bar:       bar,
		Reason:    why,
		Iteration: falcon.NoIteration,
		AtNs:      now.UnixNano(),
	}})
}

// tryAsks starts the first request whose moment has come, and releases those
// that have none. What an operator asked for comes first.
func (vq *validationQueue) tryAsks(now time.Time) {
	vq.tryRequest(now)
	for len(vq.asks) > 0 {
		p := vq.asks[0]
		why, passing := vq.askObstacle(now, p)
		if why != "" && passing && now.Sub(p.since) < askPatience {
			return
		}
		vq.asks = vq.asks[1:]
		if why != "" {
			vq.declined(now, p.ask, vq.barOf(p.ask), why)
			continue
		}
		vq.start(now, vq.nextID(), p.ask, itself)
	}
}

// itself is who asks where no person does; no certificate has this role.
var itself = Actor{Name: "engine", Role: "policy"}

func (vq *validationQueue) askObstacle(now time.Time, p pendingAsk) (why string, passing bool) {
	if q := vq.request; q != nil {
		return fmt.Sprintf("%s, which %s asked for, comes first", q.id, q.who.Name), true
	}
	if why, passing = vq.obstacle(now, p); why != "" {
		return why, passing
	}
	return vq.tooOften(now)
}

// unfitFor names the first rank that can't be held, or tested.
func (c *clusterView) unfitFor(ask falcon.ValidationAsk) string {
	for r := range c.job.world() {
		if c.job.ranks[falcon.Rank(r)].state.GetUnhooked() {
			return fmt.Sprintf("rank %d runs NCCL without the hook: start it with falcon-agent run", r)
		}
		if byPlugin(c.job.ranks[falcon.Rank(r)].state) {
			return fmt.Sprintf(
				"rank %d is only watched, by NCCL's profiler plug-in: start it with falcon-agent run without --monitor",
				r,
			)
		}
	}
	for _, r := range testedRanks(ask) {
		if int(r) < 0 || int(r) >= c.job.world() {
			return fmt.Sprintf("rank %d is none of the job's %d", r, c.job.world())
		}
	}
	if r, ok := c.withoutMemory(ask); ok {
		return fmt.Sprintf(
			"rank %d has reserved no memory for tests: start it with falcon-agent run, without --test-mb 0 (FALCON_TEST_MB)",
			r,
		)
	}
	return ""
}

// withoutMemory is the first rank to be tested that has reserved no memory for it.
func (c *clusterView) withoutMemory(ask falcon.ValidationAsk) (falcon.Rank, bool) {
	for _, r := range testedRanks(ask) {
		if p := c.job.ranks[r]; p != nil && p.state.GetTestWorkspace() == 0 {
			return r, true
		}
	}
	return 0, false
}

// barOf is what forbids a request that could not begin. That a rank is only watched, or has
// no memory for tests, is the choice of who started it.
func (vq *validationQueue) barOf(ask falcon.ValidationAsk) falcon.TestBar {
	if vq.barred() != "" {
		return falcon.BarPolicy
	}
	for r := range vq.job.world() {
		switch p := vq.job.ranks[falcon.Rank(r)]; {
		case p == nil || p.state.GetUnhooked():
			return falcon.BarNone
		case byPlugin(p.state):
			return falcon.BarWatched
		}
	}
	if _, without := vq.cluster.withoutMemory(ask); without {
		return falcon.BarMemory
	}
	return falcon.BarNone
}

func testedRanks(ask falcon.ValidationAsk) []falcon.Rank {
	out := slices.Concat(
		ask.GEMM,
		slices.Concat(ask.Rings...),
		slices.Concat(ask.Trees...),
	)
	for _, p := range ask.Pairs {
		out = append(out, p[:]...)
	}
	return out
}

// tooOften bounds what happens without a person.
func (vq *validationQueue) tooOften(now time.Time) (string, bool) {
	most := orElse(vq.cfg.Validation.PerHour, PerHourDefault)
	apart := orElse(vq.cfg.Validation.CoolDown, CoolDownDefault)
	recent := 0
	newest := falcon.NoIteration
	for _, t := range vq.state.tests {
		age := time.Duration(now.UnixNano() - t.Validation.AtNs)
		// one of the future was begun by a clock that was wrong
		if t.Role != itself.Role || age.Abs() > time.Hour {
			continue
		}
		recent++
		if t.JobEpoch == vq.state.job.Epoch {
			newest = max(newest, t.Asked)
		}
	}
	if recent >= most {
		return fmt.Sprintf(
			"%d validations were done by themselves in the last hour, and more need an operator",
			recent,
		), false
	}
	if at := vq.det.Steady().Iteration; newest != falcon.NoIteration && at < newest+apart {
		return fmt.Sprintf("the last one was %d iterations ago and %d must lie between",
			at-newest, apart), true
	}
	return "", false
}

// request is a validation that an operator asked for and was promised: it has
// its id and its record, and waits until nothing else is done with the job.
type request struct {
	pendingAsk
	id  string
	who Actor
	why string // what it waits for
}

// takeRequest promises a validation. The promise is durable before the operator
// is answered.
func (vq *validationQueue) takeRequest(
	now time.Time,
	ask falcon.ValidationAsk,
	who Actor,
	why string,
) string {
	q := &request{
		pendingAsk: pendingAsk{ask, now, vq.state.job.Epoch},
		id:         vq.nextID(),
		who:        who,
		why:        why,
	}
	vq.request = q
	vq.batch.addRecords(record(now, kindValidation, vq.requestRecord(q)))
	vq.oplog.logf("validation", 0, q.id, "%s: asked for by %s, waits: %s", q.id, who.Name, why)
	return q.id
}

func (vq *validationQueue) requestRecord(q *request) validationRecord {
	return validationRecord{
		Validation: vq.requestView(q),
		JobEpoch:   q.epoch,
		Asked:      vq.det.Steady().Iteration,
		By:         q.who.Name,
		Role:       q.who.Role,
		From:       q.who.From,
	}
}

func (vq *validationQueue) requestView(q *request) falcon.Validation {
	return falcon.Validation{
		ID:        q.id,
		Ask:       q.ask,
		State:     falcon.ValidationSurveying,
		Reason:    "waits: " + q.why,
		Iteration: falcon.NoIteration,
		Emulated:  vq.job.emulated,
		AtNs:      q.since.UnixNano(),
	}
}

// tryRequest begins what an operator waits for, or ends the wait.
func (vq *validationQueue) tryRequest(now time.Time) {
	q := vq.request
	if q == nil {
		return
	}
	why, passing := vq.obstacle(now, q.pendingAsk)
	switch {
	case why == "":
		vq.request = nil
		vq.start(now, q.id, q.ask, q.who)
	case passing && now.Sub(q.since) < askPatience:
		if q.why != why {
			q.why = why
			vq.changed()
		}
	case passing:
		vq.endRequest(now, fmt.Sprintf("it could not begin within %s: %s", askPatience, why))
	default:
		vq.endRequest(now, why)
	}
}

// endRequest breaks the promise, with the reason, and releases what has made way.
func (vq *validationQueue) endRequest(now time.Time, why string) {
	rec := vq.requestRecord(vq.request)
	vq.request = nil
	vq.refused(now, rec, why)
	if !vq.machine.Active() {
		vq.released(now)
	}
}

// refused ends a validation for which nothing was held.
func (vq *validationQueue) refused(now time.Time, rec validationRecord, why string) {
	rec.Validation.State = falcon.ValidationRefused
	rec.Validation.Reason = why
	vq.batch.addRecords(record(now, kindValidation, rec))
	vq.oplog.logf("validation", 1, rec.Validation.ID, "%s: refused, nothing was held: %s",
		rec.Validation.ID, why)
	vq.det.Step(now, detect.Validated{Validation: rec.Validation})
}
