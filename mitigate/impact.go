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
func (p *Planner) enter(s *story) {
	s.entered = true
	s.cost.JobEpoch, s.cost.From, s.cost.Counted = p.job.Epoch, s.incident.OnsetIteration, s.incident.OnsetIteration-1
	for _, o := range p.stories {
		p.fixLevel(o, s)
	}
	for _, it := range p.history {
		if it.Index < s.incident.OnsetIteration {
			continue
		}
		shares := p.shares(it)
		for o, was := range p.charged[it.Index] {
			p.lose(o, shares[o]-was)
			p.charged[it.Index][o] = shares[o]
		}
		p.charge(s, it, shares[s])
	}
}

// fixLevel remembers what an iteration lost to o before s began, where o began
// earlier and is the newest so far.
func (p *Planner) fixLevel(o, s *story) {
	if o == s || !o.entered || !o.incident.Open() || !before(o, s) {
		return
	}
	later := func(t *story) bool { return t != s && t != o && t.entered && t.incident.Open() && before(o, t) }
	if o.cost.LevelMs > 0 && slices.ContainsFunc(p.stories, later) {
		return
	}
	var lost []float64
	for i := len(p.history) - 1; i >= 0 && len(lost) < p.cfg.MeasureIterations; i-- {
		if was, ok := p.charged[p.history[i].Index][o]; ok && p.history[i].Index < s.incident.OnsetIteration {
			lost = append(lost, was)
		}
	}
	o.cost.LevelMs = falcon.Median(lost)
}

func before(a, b *story) bool {
	return cmp.Or(cmp.Compare(a.incident.OnsetIteration, b.incident.OnsetIteration), cmp.Compare(a.incident.ID, b.incident.ID)) < 0
}

func (p *Planner) chargeAll(it Iteration) {
	shares := p.shares(it)
	for _, s := range p.stories {
		p.charge(s, it, shares[s])
	}
}

// shares says what an iteration lost to each incident: in the order of their
// onsets each takes what it took before the next one began (an even part while
// that is unknown), the last one takes the rest.
func (p *Planner) shares(it Iteration) map[*story]float64 {
	var at []*story
	for _, s := range p.stories {
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
		rest = max(rest, p.lostMs(s, it))
	}
	for i, s := range at {
		take := min(rest, p.lostMs(s, it))
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
func (p *Planner) lostMs(s *story, it Iteration) float64 {
	ms := it.Ms
	if a := p.switchedAt(it.Index); a != nil && a.BeforeMs > 0 {
		ms = min(ms, a.BeforeMs)
	}
	return max(0, ms-s.incident.HealthyMs)
}

// switchedAt is the action that iteration i carried in or out, or may have.
func (p *Planner) switchedAt(i int64) *falcon.Action {
	if f := p.flight; f != nil && f.kind == falcon.OrderPlacement {
		return &f.story.actions[f.action]
	}
	for _, s := range p.stories {
		for k := range s.actions {
			a := &s.actions[k]
			if a.Rung == falcon.RungS4 || !p.thisEpoch(a) {
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

// charges says that the incident lasted in iteration i.
func (s *story) charges(i int64) bool {
	relieved := s.incident.RelievedIteration
	return s.incident.HealthyMs > 0 && (s.incident.Open() || (relieved != falcon.NoIteration && i < relieved))
}

// charge adds what one iteration lost to the incident. Impact counts while the
// fault lasts, whatever is in force: that is what waiting has cost (FALCON
// algorithm 1). Iterations that went by while the engine was down are charged
// like the last one before.
func (p *Planner) charge(s *story, it Iteration, lost float64) {
	if !s.entered || it.Index <= s.cost.Counted || !s.charges(it.Index) {
		return
	}
	if unseen := it.Index - s.cost.Counted - 1; s.resumed && unseen > 0 && s.cost.Counted != falcon.NoIteration {
		p.lose(s, float64(min(unseen, unseenMax))*s.cost.PerIterationMs)
	}
	s.resumed = false
	s.cost.Counted = it.Index
	s.cost.PerIterationMs = lost
	p.lose(s, lost)
	if p.charged[it.Index] == nil {
		p.charged[it.Index] = map[*story]float64{}
	}
	p.charged[it.Index][s] = lost
	if s.cost.Counted-s.kept.Counted >= keepEvery && s.cost.ImpactMs > s.kept.ImpactMs*(1+keepStep) {
		p.keepCost(s)
	}
}

// forget drops the newest n iterations' predecessors, all with n = 0.
func (p *Planner) forget(n int) {
	for _, it := range p.history[:len(p.history)-n] {
		delete(p.charged, it.Index)
	}
	p.history = slices.Delete(p.history, 0, len(p.history)-n)
}

func (p *Planner) lose(s *story, ms float64) {
	s.cost.ImpactMs = max(0, s.cost.ImpactMs+ms)
	s.cost.LostGPUMs = max(0, s.cost.LostGPUMs+ms*float64(p.job.GPUs))
}

// keepCost hands the cost out to be persisted.
func (p *Planner) keepCost(s *story) {
	if !s.entered || s.cost == s.kept {
		return
	}
	s.kept = s.cost
	for i := range p.ready.Impacts {
		if p.ready.Impacts[i].Incident == s.cost.Incident {
			p.ready.Impacts[i] = s.cost
			return
		}
	}
	p.ready.Impacts = append(p.ready.Impacts, s.cost)
}

// resume takes a persisted cost back.
func (p *Planner) resume(in Impact) {
	s := p.ensure(in.Incident)
	s.cost, s.kept, s.entered, s.resumed = in, in, true, true
	if in.JobEpoch != p.job.Epoch {
		p.renumber(s)
	}
}

// renumber lets the cost go on in another job epoch.
func (p *Planner) renumber(s *story) {
	s.cost.JobEpoch, s.cost.From, s.cost.Counted = p.job.Epoch, 0, falcon.NoIteration
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
func (p *Planner) clockMs(s *story, r falcon.Rung) float64 {
	out := 0.0
	for _, o := range p.stories {
		if o == s || (o.located() && causeHelped(o, r) == nil) {
			out += o.cost.ImpactMs - o.cost.PaidMs[r.Level()]
		}
	}
	return out
}

// paid starts the clock of a rung that took force again.
func (p *Planner) paid(r falcon.Rung) {
	for _, o := range p.stories {
		if o.located() && causeHelped(o, r) == nil {
			o.cost.PaidMs[r.Level()] = o.cost.ImpactMs
			p.keepCost(o)
		}
	}
}
