package mitigate

import (
	"slices"

	"github.com/failslow/falcon"
)

// Bounds of what an incident is charged and how often that is persisted.
const (
	keepEvery = 20      // iterations between two records of one incident's cost, at least
	keepStep  = 0.02    // share by which it has grown, at least: the records of a long incident thin out
	unseenMax = 1 << 16 // iterations charged that were not seen
)

// openAccount begins an incident's cost at its onset, and shares out again what was lost since:
// a slowdown of several incidents is charged once. What an incident that is back has cost before
// stays.
func (l *costLedger) openAccount(s *incidentState) {
	s.charged = true
	s.cost.JobEpoch = l.job.desc.Epoch
	s.cost.From = s.incident.OnsetIteration
	s.cost.Counted = s.incident.OnsetIteration - 1
	s.cost.LevelMs = 0
	for _, o := range l.incidents.list {
		l.fixLevel(o, s)
	}
	for _, it := range l.iterations.since(s.incident.OnsetIteration) {
		shares := l.lossShares(it)
		for o, was := range l.charged[it.Index] {
			l.addLoss(o, shares[o]-was)
			l.charged[it.Index][o] = shares[o]
		}
		l.chargeOne(s, it, shares[s])
	}
	for _, o := range l.incidents.list {
		if o.isOver() {
			l.persistCost(o) // it may have been charged for what is this one's
		}
	}
}

// fixLevel remembers what an iteration lost to o, the newest incident older than s, before s began.
func (l *costLedger) fixLevel(o, s *incidentState) {
	if o == s || !o.charged || !o.incident.Open() || !startedBefore(o, s) {
		return
	}
	later := func(t *incidentState) bool {
		return t != s &&
			t != o &&
			t.charged &&
			t.incident.Open() &&
			startedBefore(o, t)
	}
	if o.cost.LevelMs > 0 && slices.ContainsFunc(l.incidents.list, later) {
		return
	}
	var lost []float64
	for _, it := range slices.Backward(l.iterations.before(s.incident.OnsetIteration)) {
		was, ok := l.charged[it.Index][o]
		if ok && len(lost) < l.cfg.MeasureIterations {
			lost = append(lost, was)
		}
	}
	o.cost.LevelMs = falcon.Median(lost)
}

func (l *costLedger) chargeAll(it Iteration) {
	shares := l.lossShares(it)
	for _, s := range l.incidents.list {
		l.chargeOne(s, it, shares[s])
	}
}

// lossShares says what an iteration lost to each incident: in the order of their
// onsets each takes what it took before the next one began (an even part while
// that is unknown), the last one takes the rest.
func (l *costLedger) lossShares(it Iteration) map[*incidentState]float64 {
	var at []*incidentState
	for _, s := range l.incidents.list {
		if s.charged && s.chargedAt(it.Index) && it.Index >= s.cost.From {
			at = append(at, s)
		}
	}
	slices.SortFunc(at, compareOnsets)
	out := make(map[*incidentState]float64, len(at))
	rest := 0.0
	for _, s := range at {
		rest = max(rest, l.lossOf(s, it))
	}
	for i, s := range at {
		take := min(rest, l.lossOf(s, it))
		switch left := len(at) - i; {
		case left == 1:
		case s.cost.LevelMs > 0:
			take = min(take, s.cost.LevelMs)
		default:
			take = min(take, rest/float64(left))
		}
		out[s] = take
		rest -= take
	}
	return out
}

// lossOf is what an iteration took beyond the healthy time. One that carried an
// action out is charged like those before it: the rest is the action's price.
func (l *costLedger) lossOf(s *incidentState, it Iteration) float64 {
	ms := it.Ms
	if a := l.switchedAt(it.Index); a != nil && a.BeforeMs > 0 {
		ms = min(ms, a.BeforeMs)
	}
	return max(0, ms-s.incident.HealthyMs)
}

// switchedAt is the action that iteration i carried in or out, or may have.
func (l *costLedger) switchedAt(i int64) *falcon.Action {
	if a := l.orders.pendingPlacement(); a != nil {
		return a
	}
	for _, s := range l.incidents.list {
		for k := range s.actions {
			a := &s.actions[k]
			if a.Rung == falcon.RungS4 || !l.job.isCurrent(a) {
				continue
			}
			for _, at := range []int64{a.AppliedIteration, a.RevertedIteration} {
				if at != falcon.NoIteration && i >= at-1 && i <= at {
					return a
				}
			}
		}
	}
	return nil
}

// chargeOne adds what one iteration lost to the incident. Impact counts while the fault lasts,
// whatever is in force: it is the cost of waiting (FALCON algorithm 1). Iterations missed while
// the engine was down are charged like the last one before.
func (l *costLedger) chargeOne(s *incidentState, it Iteration, lost float64) {
	if !s.charged || it.Index <= s.cost.Counted || !s.chargedAt(it.Index) {
		return
	}
	unseen := it.Index - s.cost.Counted - 1
	if s.resumedCost && unseen > 0 && s.cost.Counted != falcon.NoIteration {
		l.addLoss(s, float64(min(unseen, unseenMax))*s.cost.PerIterationMs)
	}
	s.resumedCost = false
	s.cost.Counted = it.Index
	s.cost.PerIterationMs = lost
	l.addLoss(s, lost)
	if l.charged[it.Index] == nil {
		l.charged[it.Index] = map[*incidentState]float64{}
	}
	l.charged[it.Index][s] = lost
	if s.cost.Counted-s.persisted.Counted >= keepEvery &&
		s.cost.ImpactMs > s.persisted.ImpactMs*(1+keepStep) {
		l.persistCost(s)
	}
}

// keepIterations drops the newest n iterations' predecessors, all with n = 0.
func (l *costLedger) keepIterations(n int) {
	for _, it := range l.iterations.keepNewest(n) {
		delete(l.charged, it.Index)
	}
}

func (l *costLedger) addLoss(s *incidentState, ms float64) {
	s.cost.ImpactMs = max(0, s.cost.ImpactMs+ms)
	s.cost.LostGPUMs = max(0, s.cost.LostGPUMs+ms*float64(l.job.desc.GPUs))
}

// persistCost hands the cost out to be persisted.
func (l *costLedger) persistCost(s *incidentState) {
	if !s.charged || s.cost == s.persisted {
		return
	}
	s.persisted = s.cost
	l.out.addImpact(s.cost)
}

// restoreAccount takes a persisted cost back.
func (l *costLedger) restoreAccount(in Impact) {
	s := l.incidents.getOrAdd(in.Incident)
	s.cost = in
	s.persisted = in
	s.charged = true
	s.resumedCost = true
	if in.JobEpoch != l.job.desc.Epoch {
		l.moveToEpoch(s)
	}
}

// moveToEpoch lets the cost go on in another job epoch.
func (l *costLedger) moveToEpoch(s *incidentState) {
	s.cost.JobEpoch = l.job.desc.Epoch
	s.cost.From = 0
	s.cost.Counted = falcon.NoIteration
	s.resumedCost = false
}

// clockMs is the impact that counts towards taking rung r for incident s:
// everything lost since onset to the open incidents that the rung can help, as
// one action helps them all, less what was lost before it was last taken.
//
// It counts from the onset and not from the rung below: with O the dearest rung
// taken, the loss until then is O, what came before is paid once more at most,
// and rungs further up cost more than has been lost; so the whole stays within
// twice the best choice in hindsight plus the lower rungs' overheads
// (TestLadderIsTwoCompetitive). Counted from the rung below, two rungs of about
// the same overhead would break that bound.
func (l *costLedger) clockMs(s *incidentState, r falcon.Rung) float64 {
	out := 0.0
	for _, o := range l.incidents.list {
		if o == s || (o.isLocated() && causeHelped(o, r) == nil) {
			out += o.cost.ImpactMs - o.cost.PaidMs[r.Level()]
		}
	}
	return out
}

// resetClocks starts the clock of a rung that took force again.
func (l *costLedger) resetClocks(r falcon.Rung) {
	for _, o := range l.incidents.list {
		if o.isLocated() && causeHelped(o, r) == nil {
			o.cost.PaidMs[r.Level()] = o.cost.ImpactMs
			l.persistCost(o)
		}
	}
}

// restartAbove starts the clocks of the rungs above one again for an incident: a person has refused the
// cheaper action, so what was lost until now is no reason for a dearer one. It is due by what is lost
// from here on.
func (l *costLedger) restartAbove(s *incidentState, r falcon.Rung) {
	for _, up := range []falcon.Rung{falcon.RungS2, falcon.RungS3, falcon.RungS4} {
		if up.Level() > r.Level() {
			s.cost.PaidMs[up.Level()] = s.cost.ImpactMs
		}
	}
	l.persistCost(s)
}

// costLedger charges every incident what the iterations lost to it.
type costLedger struct {
	cfg        *Config
	iterations *iterationLog
	out        *output
	job        *jobState
	incidents  *incidentSet
	orders     *orderSlot
	charged    map[int64]map[*incidentState]float64 // by iteration of the log: what it cost each incident
}
