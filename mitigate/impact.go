package mitigate

import "github.com/failslow/falcon"

// Bounds of what an incident is charged and how often that is persisted.
const (
	keepEvery = 20      // iterations between two records of one incident's cost, at least
	keepStep  = 0.02    // share by which it has grown, at least: the records of a long incident thin out
	unseenMax = 1 << 16 // iterations charged that nobody saw
)

// enter begins an incident's cost at its onset.
func (p *Planner) enter(s *story) {
	s.entered = true
	s.cost.JobEpoch, s.cost.From, s.cost.Counted = p.job.Epoch, s.incident.OnsetIteration, s.incident.OnsetIteration-1
	for _, it := range p.history {
		p.charge(s, it)
	}
}

// charge adds what one iteration lost. Impact counts while the fault lasts,
// whatever is in force: that is what waiting has cost (FALCON algorithm 1).
// Iterations that went by while the engine was down are charged like the last
// one before.
func (p *Planner) charge(s *story, it Iteration) {
	if !s.entered || it.Index <= s.cost.Counted || s.incident.HealthyMs <= 0 {
		return
	}
	if relieved := s.incident.RelievedIteration; !s.incident.Open() && (relieved == falcon.NoIteration || it.Index >= relieved) {
		return
	}
	if unseen := it.Index - s.cost.Counted - 1; s.resumed && unseen > 0 {
		p.lose(s, float64(min(unseen, unseenMax))*s.cost.PerIterationMs)
	}
	s.resumed = false
	s.cost.Counted = it.Index
	s.cost.PerIterationMs = max(0, it.Ms-s.incident.HealthyMs)
	p.lose(s, s.cost.PerIterationMs)
	if s.cost.Counted-s.kept.Counted >= keepEvery && s.cost.ImpactMs > s.kept.ImpactMs*(1+keepStep) {
		p.keepCost(s)
	}
}

func (p *Planner) lose(s *story, ms float64) {
	s.cost.ImpactMs += ms
	s.cost.LostGPUMs += ms * float64(p.job.GPUs)
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

// renumber lets the cost go on in a job epoch whose iterations count anew.
func (p *Planner) renumber(s *story) {
	s.cost.JobEpoch, s.cost.From, s.cost.Counted = p.job.Epoch, 0, falcon.NoIteration
	s.resumed = false
}
