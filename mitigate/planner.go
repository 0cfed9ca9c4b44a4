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
	historyLimit  = 1024    // iterations kept to price an incident from its onset
	storyLimit    = 64      // incidents kept; the oldest closed ones go first
	revertLimit   = 5       // orders tried at once to undo one action
	revertAgain   = 100     // iterations between further tries
	curveCapTimes = 4       // a replica is never given more than this times its even share
	totalMost     = 1 << 16 // micro-batches in a batch that is still priced
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
	switched  []int64     // iterations at which the newest actions of this epoch were ordered
	nextOrder uint64
	overheads map[falcon.Rung]mean
	ready     Ready
	taken     bool
}

// story is what the planner keeps of one incident.
type story struct {
	incident falcon.Incident
	cost     Impact
	kept     Impact // what was last handed out to be persisted
	entered  bool   // cost has begun
	resumed  bool   // iterations may have gone by unseen since cost.Counted
	speeds   []float64
	split    split // newest one solved from speeds
	actions  []falcon.Action
	vetoed   bool   // a person said no: nothing more is proposed by itself
	skip     string // last reason why nothing was proposed, to say it once
	reverts  int    // orders sent to undo the newest action
	revertAt int64  // newest iteration when the last of them was sent
	failedAt int64  // newest iteration when an order last failed
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
		if s := p.story(in.Incident); s != nil && len(in.SelfMs) > 0 {
			s.speeds, s.split = in.SelfMs, split{}
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
	p.taken = !p.ready.Empty()
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
	s := &story{incident: falcon.Incident{ID: id, RelievedIteration: falcon.NoIteration}, cost: Impact{Incident: id}}
	p.stories = append(p.stories, s)
	return s
}

func (p *Planner) dropOldest() {
	for i, s := range p.stories {
		if s.over() && s.current() == nil {
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

// over says that the fault has cleared. A story whose incident was not told yet
// (its action is back from the journal first) is not over.
func (s *story) over() bool { return s.incident.State != "" && !s.incident.Open() }

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
	was := s.incident.State
	s.incident = in
	if !s.entered {
		p.enter(s)
	}
	if was != in.State {
		p.keepCost(s)
	}
	p.advance()
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
		p.charge(s, in)
	}
	p.advance()
}

// advance makes every move that is due: first reverts (the safe direction),
// then gain verification, then one new proposal or dispatch.
func (p *Planner) advance() {
	for _, s := range p.stories {
		p.expire(s)
		p.measure(s)
		p.revertIfDue(s)
	}
	for _, s := range p.stories {
		p.propose(s)
		p.approveByPolicy(s)
		p.dispatch(s)
	}
}

func (p *Planner) note(kind, format string, args ...any) {
	p.ready.Notes = append(p.ready.Notes, Note{Iteration: p.newest(), Kind: kind, Text: fmt.Sprintf(format, args...)})
}

// changed queues the action's whole present state, replacing an older one.
func (p *Planner) changed(a falcon.Action) {
	for i := range p.ready.Actions {
		if p.ready.Actions[i].ID == a.ID {
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
