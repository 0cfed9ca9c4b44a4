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
// carried out or only told.
func (e *Engine) advised(now time.Time, ask falcon.ValidationAsk, r *round) {
	ask.By = "engine"
	if !e.cfg.Validation.Auto {
		e.oplog.logf("validation", 1, "a test is advised (%s); to hold the job for it: %s", ask.Why, commandFor(ask))
		r.steps = append(r.steps, func() { e.declined(now, ask, "validations wait for an operator (validation mode manual)") })
		return
	}
	if len(e.asks) >= asksMax {
		r.steps = append(r.steps, func() { e.declined(now, ask, "other validations wait already") })
		return
	}
	e.asks = append(e.asks, pendingAsk{ask, now, e.mem.job.Epoch})
	r.steps = append(r.steps, func() { e.tryAsks(now) })
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
	s := "falcon validate --ranks " + strings.ReplaceAll(ranksText(slices.Compact(slices.Sorted(slices.Values(ranks)))), " ", "")
	if len(ask.GEMM) > 0 {
		s += " --gemm"
	}
	if len(ask.Rings)+len(ask.Trees)+len(ask.Pairs) > 0 {
		s += " --links"
	}
	return s
}

// declined tells the detector that a test will not come. Nothing was held, and
// nothing is kept but the line in the log.
func (e *Engine) declined(now time.Time, ask falcon.ValidationAsk, why string) {
	e.det.Step(now, detect.Validated{Validation: falcon.Validation{
		Ask: ask, State: falcon.ValidationRefused, Reason: why, Iteration: falcon.NoIteration, AtNs: now.UnixNano(),
	}})
}

// tryAsks starts the first request whose moment has come, and lets go of those
// that have none. What an operator asked for comes first.
func (e *Engine) tryAsks(now time.Time) {
	e.tryRequest(now)
	for len(e.asks) > 0 {
		p := e.asks[0]
		why, passing := e.askObstacle(now, p)
		if why != "" && passing && now.Sub(p.since) < askPatience {
			return
		}
		e.asks = e.asks[1:]
		if why != "" {
			e.declined(now, p.ask, why)
			continue
		}
		e.startValidation(now, e.nextValidation(), p.ask, itself)
	}
}

// itself is who asks where no person does; no certificate has this role.
var itself = Actor{Name: "engine", Role: "policy"}

func (e *Engine) askObstacle(now time.Time, p pendingAsk) (why string, passing bool) {
	if q := e.request; q != nil {
		return fmt.Sprintf("%s, which %s asked for, comes first", q.id, q.who.Name), true
	}
	if why, passing = e.obstacle(now, p); why != "" {
		return why, passing
	}
	return e.tooOften(now)
}

// obstacle says why the job can't be held for a test now, and whether that may
// pass by itself; "" when it can.
func (e *Engine) obstacle(now time.Time, p pendingAsk) (why string, passing bool) {
	if p.epoch != e.mem.job.Epoch {
		return fmt.Sprintf("it was asked for in job epoch %d and this is epoch %d", p.epoch, e.mem.job.Epoch), false
	}
	if why = e.forbidden(); why != "" {
		return why, false
	}
	if why, passing = e.unready(now); why != "" {
		return why, passing
	}
	if why = e.cluster.unfitFor(p.ask); why != "" {
		return why, false
	}
	return e.busy(now), true
}

// forbidden says which decision of a person stands against any hold.
func (e *Engine) forbidden() string {
	if e.mem.policy.Policy.Frozen {
		return "the policy is frozen: thaw it first"
	}
	return ""
}

// busy says what else is being done with the job, which ends by itself soon.
// A validation is over once its result is durable.
func (e *Engine) busy(now time.Time) string {
	if v, _ := e.val.View(); e.val.Active() || !e.val.Ready().Empty() {
		return fmt.Sprintf("%s is in progress (%s)", v.ID, v.State)
	}
	for _, id := range sortedKeys(e.orders.open) {
		return fmt.Sprintf("order %d is being agreed on", e.orders.open[id].Order.ID)
	}
	if e.windows.inFlight(now, e.cluster.jobNodes()) {
		return "a profile window is in progress"
	}
	return ""
}

// unready says what is missing for any hold at all.
func (e *Engine) unready(now time.Time) (string, bool) {
	switch state := e.status.state(now); state {
	case "restarting", "recovering":
		return "the job is " + state, true
	case "waiting for agents":
		return "no ranks are known, or not all of them", true
	case "finished", "lost":
		return "the job is " + state, false
	}
	if !e.describer.described || !e.job.complete() || e.job.dirty || e.describer.recheck {
		return "the job's description still changes", true
	}
	if r := e.cluster.unsettledRank(); r >= 0 {
		return fmt.Sprintf("rank %d has not told yet what it uses in its new place", r), true
	}
	for _, n := range e.cluster.jobNodes() {
		if !e.cluster.connected(n) {
			return fmt.Sprintf("the agent of node %s is away", n), true
		}
	}
	if at := e.det.Steady().Iteration; at < ripeIterations {
		return "the job is not steady: it has not done four iterations yet", true
	}
	if still := e.status.standstill(); !e.intake.lastData.IsZero() && now.Sub(e.intake.lastData) > still {
		return fmt.Sprintf("the job is not steady: no iteration has ended for %s", now.Sub(e.intake.lastData).Round(time.Second)), true
	}
	return "", false
}

// unfitFor names the first rank that can't be held, or tested.
func (c *clusterView) unfitFor(ask falcon.ValidationAsk) string {
	for r := range c.job.world() {
		if c.job.ranks[falcon.Rank(r)].state.GetUnhooked() {
			return fmt.Sprintf("rank %d runs NCCL without the hook: start it with falcon-agent run", r)
		}
	}
	for _, r := range testedRanks(ask) {
		if int(r) < 0 || int(r) >= c.job.world() {
			return fmt.Sprintf("rank %d is none of the job's %d", r, c.job.world())
		}
		if c.job.ranks[r].state.GetTestWorkspace() == 0 {
			return fmt.Sprintf("rank %d has reserved no memory for tests: set FALCON_TEST_MB for its process", r)
		}
	}
	return ""
}

func testedRanks(ask falcon.ValidationAsk) []falcon.Rank {
	out := slices.Concat(ask.GEMM, slices.Concat(ask.Rings...), slices.Concat(ask.Trees...))
	for _, p := range ask.Pairs {
		out = append(out, p[:]...)
	}
	return out
}

// tooOften bounds what happens without a person.
func (e *Engine) tooOften(now time.Time) (string, bool) {
	most, apart := e.cfg.Validation.PerHour, e.cfg.Validation.CoolDown
	if most <= 0 {
		most = PerHourDefault
	}
	if apart <= 0 {
		apart = CoolDownDefault
	}
	recent, newest := 0, falcon.NoIteration
	for _, t := range e.mem.tests {
		age := time.Duration(now.UnixNano() - t.Validation.AtNs)
		if t.Role != itself.Role || age.Abs() > time.Hour { // one of the future was begun by a clock that was wrong
			continue
		}
		recent++
		if t.JobEpoch == e.mem.job.Epoch {
			newest = max(newest, t.Asked)
		}
	}
	if recent >= most {
		return fmt.Sprintf("%d validations were done by themselves in the last hour, and more need an operator", recent), false
	}
	if at := e.det.Steady().Iteration; newest != falcon.NoIteration && at < newest+apart {
		return fmt.Sprintf("the last one was %d iterations ago and %d must lie between", at-newest, apart), true
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
// hears of it.
func (e *Engine) takeRequest(now time.Time, ask falcon.ValidationAsk, who Actor, why string) string {
	q := &request{pendingAsk: pendingAsk{ask, now, e.mem.job.Epoch}, id: e.nextValidation(), who: who, why: why}
	e.request = q
	e.batch.add(record(now, kindValidation, e.requestRecord(q)))
	e.oplog.logf("validation", 0, "%s: asked for by %s, waits: %s", q.id, who.Name, why)
	return q.id
}

func (e *Engine) requestRecord(q *request) validationRecord {
	return validationRecord{
		Validation: e.requestView(q), JobEpoch: q.epoch, Asked: e.det.Steady().Iteration,
		By: q.who.Name, Role: q.who.Role, From: q.who.From,
	}
}

func (e *Engine) requestView(q *request) falcon.Validation {
	return falcon.Validation{
		ID: q.id, Ask: q.ask, State: falcon.ValidationSurveying, Reason: "waits: " + q.why, Iteration: falcon.NoIteration,
		Emulated: e.job.emulated, AtNs: q.since.UnixNano(),
	}
}

// tryRequest begins what an operator waits for, or ends the wait.
func (e *Engine) tryRequest(now time.Time) {
	q := e.request
	if q == nil {
		return
	}
	why, passing := e.obstacle(now, q.pendingAsk)
	switch {
	case why == "":
		e.request = nil
		e.startValidation(now, q.id, q.ask, q.who)
	case passing && now.Sub(q.since) < askPatience:
		e.dirty = e.dirty || q.why != why
		q.why = why
	case passing:
		e.endRequest(now, fmt.Sprintf("it could not begin within %s: %s", askPatience, why))
	default:
		e.endRequest(now, why)
	}
}

// endRequest breaks the promise, with the reason, and lets go what has made way.
func (e *Engine) endRequest(now time.Time, why string) {
	rec := e.requestRecord(e.request)
	e.request = nil
	e.refused(now, rec, why)
	if !e.val.Active() {
		e.resumePlans(now)
	}
}

// refused ends a validation for which nothing was held.
func (e *Engine) refused(now time.Time, rec validationRecord, why string) {
	rec.Validation.State, rec.Validation.Reason = falcon.ValidationRefused, why
	e.batch.add(record(now, kindValidation, rec))
	e.oplog.logf("validation", 1, "%s: refused, nothing was held: %s", rec.Validation.ID, why)
	e.det.Step(now, detect.Validated{Validation: rec.Validation})
}
