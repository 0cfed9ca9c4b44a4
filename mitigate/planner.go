package mitigate

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
)

// Defaults of Config.
const (
	DefaultSettleIterations  = 2    // after a switch, before the gain is measured
	DefaultMeasureIterations = 8    // whose median is the measured time
	DefaultMinGain           = 0.03 // of the slow iteration time: less is not worth an action
	DefaultKeepShare         = 0.3  // of the predicted gain: less is reverted
)

const (
	historyLimit  = 1024 // iterations kept to price an incident from its onset
	storyLimit    = 64   // incidents kept; the oldest closed ones go first
	revertLimit   = 5    // orders tried to undo one action
	curveCapTimes = 4    // a replica is never given more than this times its even share
)

// Config are the planner's settings; zero values mean the defaults.
type Config struct {
	SettleIterations  int
	MeasureIterations int
	MinGain           float64
	KeepShare         float64
	OverheadsMs       map[falcon.Rung]float64 // measured before, by rung
}

// Planner climbs the ladder for the incidents of one job. See the package
// documentation for its guarantees; it is not safe for concurrent use.
type Planner struct {
	cfg       Config
	job       Job
	base      []int32 // micro-batches before any action of this epoch
	policy    falcon.Policy
	stories   []*story
	history   []Iteration // ascending, at most historyLimit
	flight    *flight     // the one order that is out
	nextOrder uint64
	overheads map[falcon.Rung]mean
	ready     Ready
	taken     bool
}

// story is what the planner keeps of one incident.
type story struct {
	incident falcon.Incident
	impactMs float64
	counted  int64 // iterations up to here are in impactMs
	speeds   []float64
	actions  []falcon.Action
	vetoed   bool   // a person said no: nothing more is proposed by itself
	skip     string // last reason why nothing was proposed, to say it once
	reverts  int
}

type flight struct {
	story     *story
	action    int
	order     uint64
	reverting bool
	target    []int32
}

type mean struct {
	sum float64
	n   int
}

// New builds a planner that waits for a Job.
func New(cfg Config) *Planner {
	if cfg.SettleIterations == 0 {
		cfg.SettleIterations = DefaultSettleIterations
	}
	if cfg.MeasureIterations == 0 {
		cfg.MeasureIterations = DefaultMeasureIterations
	}
	if cfg.MinGain == 0 {
		cfg.MinGain = DefaultMinGain
	}
	if cfg.KeepShare == 0 {
		cfg.KeepShare = DefaultKeepShare
	}
	p := &Planner{cfg: cfg, nextOrder: 1, overheads: map[falcon.Rung]mean{}, policy: falcon.Policy{Mode: falcon.ModeApprove}}
	for r, ms := range cfg.OverheadsMs {
		p.overheads[r] = mean{ms, 1}
	}
	return p
}

// Step takes one input.
func (p *Planner) Step(_ Clock, in Input) {
	switch in := in.(type) {
	case Job:
		p.onJob(in)
	case Restored:
		p.onRestored(in)
	case SetPolicy:
		p.policy = in.Policy
		p.advance()
	case Incident:
		p.onIncident(in.Incident)
	case Speeds:
		if s := p.story(in.Incident); s != nil {
			s.speeds = in.SelfMs
			p.advance()
		}
	case Iteration:
		p.onIteration(in)
	case Decision:
		p.onDecision(in)
	case Committed:
		p.onCommitted(in)
	case Undeliverable:
		p.onUndeliverable(in)
	}
}

// Tick lets time pass; the planner's clock is the iteration, so it only
// retries what an earlier step could not order.
func (p *Planner) Tick(_ Clock) { p.advance() }

// Ready is everything that steps have led to since the last Advance.
func (p *Planner) Ready() Ready {
	p.taken = true
	return p.ready
}

// Advance says that Ready was persisted and acted on.
func (p *Planner) Advance() {
	if p.taken {
		p.ready, p.taken = Ready{}, false
	}
}

// Policy is the policy in force.
func (p *Planner) Policy() falcon.Policy { return p.policy }

func (p *Planner) onJob(in Job) {
	if in.Epoch != p.job.Epoch || p.base == nil {
		p.base = slices.Clone(in.MicroBatches)
		p.history = nil
	}
	if p.flight != nil && in.Epoch == p.job.Epoch {
		in.MicroBatches = p.job.MicroBatches // the commit will say
	}
	p.job = in
}

// onRestored takes back the actions of the journal. Orders that were out are
// sent again by the engine under their old id; the planner waits for them.
func (p *Planner) onRestored(in Restored) {
	p.nextOrder = max(p.nextOrder, in.NextOrder)
	for r, ms := range in.OverheadsMs {
		p.overheads[r] = mean{ms, 1}
	}
	for _, a := range in.Actions {
		s := p.ensure(a.Incident)
		s.actions = append(s.actions, a)
		if a.State == falcon.ActionVetoed {
			s.vetoed = true
		}
		if a.State == falcon.ActionDispatched || a.State == falcon.ActionReverting {
			p.flight = &flight{story: s, action: len(s.actions) - 1, order: a.OrderID, reverting: a.State == falcon.ActionReverting, target: a.MicroBatches}
			if p.flight.reverting {
				p.flight.target = a.Previous
			}
		}
		if len(a.Previous) > 0 && inForce(a.State) {
			p.base = slices.Clone(a.Previous)
		}
	}
}

func (p *Planner) story(id string) *story {
	for _, s := range p.stories {
		if s.incident.ID == id {
			return s
		}
	}
	return nil
}

func (p *Planner) ensure(id string) *story {
	if s := p.story(id); s != nil {
		return s
	}
	if len(p.stories) >= storyLimit {
		p.dropOldest()
	}
	s := &story{incident: falcon.Incident{ID: id, RelievedIteration: falcon.NoIteration}, counted: falcon.NoIteration}
	p.stories = append(p.stories, s)
	return s
}

func (p *Planner) dropOldest() {
	for i, s := range p.stories {
		if !s.incident.Open() && s.current() == nil {
			p.stories = slices.Delete(p.stories, i, i+1)
			return
		}
	}
}

// current is the action that is proposed, under way or in force, if any.
func (s *story) current() *falcon.Action {
	if n := len(s.actions); n > 0 && !ended(s.actions[n-1].State) {
		return &s.actions[n-1]
	}
	return nil
}

func ended(s falcon.ActionState) bool {
	switch s {
	case falcon.ActionVetoed, falcon.ActionReverted, falcon.ActionFailed, falcon.ActionExpired:
		return true
	}
	return false
}

func inForce(s falcon.ActionState) bool {
	return s == falcon.ActionApplied || s == falcon.ActionKept || s == falcon.ActionReverting
}

func (p *Planner) onIncident(in falcon.Incident) {
	s := p.ensure(in.ID)
	first := s.counted == falcon.NoIteration
	s.incident = in
	if first {
		s.counted = in.OnsetIteration - 1
		for _, it := range p.history {
			s.charge(it)
		}
	}
	p.advance()
}

// charge adds what one iteration lost. Impact counts while the fault lasts,
// whatever is in force: that is what waiting has cost (FALCON algorithm 1).
func (s *story) charge(it Iteration) {
	if it.Index <= s.counted || s.incident.HealthyMs <= 0 {
		return
	}
	relieved := s.incident.RelievedIteration
	if !s.incident.Open() && (relieved == falcon.NoIteration || it.Index >= relieved) {
		return
	}
	s.counted = it.Index
	s.impactMs += max(0, it.Ms-s.incident.HealthyMs)
}

func (p *Planner) onIteration(in Iteration) {
	if n := len(p.history); n > 0 && in.Index <= p.history[n-1].Index {
		return // late news of an iteration that is already priced
	}
	if len(p.history) >= historyLimit {
		p.history = slices.Delete(p.history, 0, historyLimit/4)
	}
	p.history = append(p.history, in)
	for _, s := range p.stories {
		s.charge(in)
	}
	p.advance()
}

// advance makes every move that is due: first reverts (the safe direction),
// then gain verification, then one new proposal or dispatch.
func (p *Planner) advance() {
	for _, s := range p.stories {
		p.expire(s)
		p.measure(s)
		p.revertIfRelieved(s)
	}
	for _, s := range p.stories {
		p.propose(s)
		p.dispatch(s)
	}
}

func (p *Planner) note(kind, format string, args ...any) {
	p.ready.Notes = append(p.ready.Notes, Note{Iteration: p.newest(), Kind: kind, Text: fmt.Sprintf(format, args...)})
}

// changed queues the action's whole present state, replacing an older one.
func (p *Planner) changed(a falcon.Action) {
	for i := range p.ready.Actions {
		if p.ready.Actions[i].ID == a.ID && !p.taken {
			p.ready.Actions[i] = a
			return
		}
	}
	p.ready.Actions = append(p.ready.Actions, a)
}

func (p *Planner) newest() int64 {
	if n := len(p.history); n > 0 {
		return p.history[n-1].Index
	}
	return falcon.NoIteration
}
