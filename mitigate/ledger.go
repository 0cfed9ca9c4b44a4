package mitigate

import (
	"cmp"
	"slices"

	"github.com/failslow/falcon"
)

// Bounds of what an incident is charged and how often that is persisted.
const (
	keepEvery = 20      // iterations between two records of one incident's cost, at least
	keepStep  = 0.02    // share by which it has grown, at least: the records of a long incident thin out
	unseenMax = 1 << 16 // iterations charged that nobody saw
)

// enter begins an incident's cost at its onset. What the iterations since then
// lost is shared out anew: a slowdown that several incidents share is charged
// once.
func (l *costLedger) begin(s *story) {
	s.entered = true
	s.cost.JobEpoch, s.cost.From, s.cost.Counted = l.job.desc.Epoch, s.incident.OnsetIteration, s.incident.OnsetIteration-1
	for _, o := range l.incidents.list {
		l.fixLevel(o, s)
	}
	for _, it := range l.iterations.list {
		if it.Index < s.incident.OnsetIteration {
			continue
		}
		shares := l.shares(it)
		for o, was := range l.charged[it.Index] {
			l.addLoss(o, shares[o]-was)
			l.charged[it.Index][o] = shares[o]
		}
		l.charge(s, it, shares[s])
	}
}

// fixLevel remembers what an iteration lost to o before s began, where o began
// earlier and is the newest so far.
func (l *costLedger) fixLevel(o, s *story) {
	if o == s || !o.entered || !o.incident.Open() || !before(o, s) {
		return
	}
	later := func(t *story) bool { return t != s && t != o && t.entered && t.incident.Open() && before(o, t) }
	if o.cost.LevelMs > 0 && slices.ContainsFunc(l.incidents.list, later) {
		return
	}
	var lost []float64
	for i := len(l.iterations.list) - 1; i >= 0 && len(lost) < l.cfg.MeasureIterations; i-- {
		if was, ok := l.charged[l.iterations.list[i].Index][o]; ok && l.iterations.list[i].Index < s.incident.OnsetIteration {
			lost = append(lost, was)
		}
	}
	o.cost.LevelMs = falcon.Median(lost)
}

func (l *costLedger) chargeAll(it Iteration) {
	shares := l.shares(it)
	for _, s := range l.incidents.list {
		l.charge(s, it, shares[s])
	}
}

// shares says what an iteration lost to each incident: in the order of their
// onsets each takes what it took before the next one began (an even part while
// that is unknown), the last one takes the rest.
func (l *costLedger) shares(it Iteration) map[*story]float64 {
	var at []*story
	for _, s := range l.incidents.list {
		if s.entered && s.charges(it.Index) && it.Index >= s.cost.From {
			at = append(at, s)
		}
	}
	slices.SortFunc(at, func(a, b *story) int {
		return cmp.Or(cmp.Compare(a.incident.OnsetIteration, b.incident.OnsetIteration), cmp.Compare(a.incident.ID, b.incident.ID))
	})
	out := make(map[*story]float64, len(at))
	rest := 0.0
	for _, s := range at {
		rest = max(rest, l.lostMs(s, it))
	}
	for i, s := range at {
		take := min(rest, l.lostMs(s, it))
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

// lostMs is what an iteration took beyond the healthy time. One that carried an
// action out is charged like those before it: the rest is the action's price.
func (l *costLedger) lostMs(s *story, it Iteration) float64 {
	ms := it.Ms
	if a := l.switchedAt(it.Index); a != nil && a.BeforeMs > 0 {
		ms = min(ms, a.BeforeMs)
	}
	return max(0, ms-s.incident.HealthyMs)
}

// switchedAt is the action that iteration i carried in or out, or may have.
func (l *costLedger) switchedAt(i int64) *falcon.Action {
	if f := l.orders.pending; f != nil && f.kind == falcon.OrderPlacement {
		return &f.story.actions[f.action]
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

// charge adds what one iteration lost to the incident. Impact counts while the
// fault lasts, whatever is in force: that is what waiting has cost (FALCON
// algorithm 1). Iterations that went by while the engine was down are charged
// like the last one before.
func (l *costLedger) charge(s *story, it Iteration, lost float64) {
	if !s.entered || it.Index <= s.cost.Counted || !s.charges(it.Index) {
		return
	}
	if unseen := it.Index - s.cost.Counted - 1; s.resumed && unseen > 0 && s.cost.Counted != falcon.NoIteration {
		l.addLoss(s, float64(min(unseen, unseenMax))*s.cost.PerIterationMs)
	}
	s.resumed = false
	s.cost.Counted = it.Index
	s.cost.PerIterationMs = lost
	l.addLoss(s, lost)
	if l.charged[it.Index] == nil {
		l.charged[it.Index] = map[*story]float64{}
	}
	l.charged[it.Index][s] = lost
	if s.cost.Counted-s.kept.Counted >= keepEvery && s.cost.ImpactMs > s.kept.ImpactMs*(1+keepStep) {
		l.persist(s)
	}
}

// forget drops the newest n iterations' predecessors, all with n = 0.
func (l *costLedger) forget(n int) {
	for _, it := range l.iterations.list[:len(l.iterations.list)-n] {
		delete(l.charged, it.Index)
	}
	l.iterations.list = slices.Delete(l.iterations.list, 0, len(l.iterations.list)-n)
}

func (l *costLedger) addLoss(s *story, ms float64) {
	s.cost.ImpactMs = max(0, s.cost.ImpactMs+ms)
	s.cost.LostGPUMs = max(0, s.cost.LostGPUMs+ms*float64(l.job.desc.GPUs))
}

// keepCost hands the cost out to be persisted.
func (l *costLedger) persist(s *story) {
	if !s.entered || s.cost == s.kept {
		return
	}
	s.kept = s.cost
	for i := range l.out.ready.Impacts {
		if l.out.ready.Impacts[i].Incident == s.cost.Incident {
			l.out.ready.Impacts[i] = s.cost
			return
		}
	}
	l.out.ready.Impacts = append(l.out.ready.Impacts, s.cost)
}

// resume takes a persisted cost back.
func (l *costLedger) resume(in Impact) {
	s := l.incidents.ensure(in.Incident)
	s.cost, s.kept, s.entered, s.resumed = in, in, true, true
	if in.JobEpoch != l.job.desc.Epoch {
		l.renumber(s)
	}
}

// renumber lets the cost go on in another job epoch.
func (l *costLedger) renumber(s *story) {
	s.cost.JobEpoch, s.cost.From, s.cost.Counted = l.job.desc.Epoch, 0, falcon.NoIteration
	s.resumed = false
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
func (l *costLedger) clockMs(s *story, r falcon.Rung) float64 {
	out := 0.0
	for _, o := range l.incidents.list {
		if o == s || (o.located() && causeHelped(o, r) == nil) {
			out += o.cost.ImpactMs - o.cost.PaidMs[r.Level()]
		}
	}
	return out
}

// paid starts the clock of a rung that took force again.
func (l *costLedger) resetClocks(r falcon.Rung) {
	for _, o := range l.incidents.list {
		if o.located() && causeHelped(o, r) == nil {
			o.cost.PaidMs[r.Level()] = o.cost.ImpactMs
			l.persist(o)
		}
	}
}

// costLedger charges every incident what the iterations lost to it.
type costLedger struct {
	cfg        *Config
	iterations *iterationLog
	out        *output
	job        *jobState
	incidents  *incidentSet
	orders     *orderSlot
	charged    map[int64]map[*story]float64 // by iteration of the log: what it cost each incident
}
