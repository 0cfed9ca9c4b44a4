package mitigate

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// Defaults of Config.
const (
	DefaultSettleIterations  = 2       // after a switch, before the gain is measured
	DefaultMeasureIterations = 8       // whose median is the measured time
	DefaultMinGain           = 0.03    // of the slow iteration time: less is not worth an action
	DefaultKeepShare         = 0.3     // of the predicted gain: less is reverted
	DefaultOverheadS3Ms      = 60_000  // FALCON §5.3: "typically within one minute"
	DefaultOverheadS4Ms      = 600_000 // FALCON §7.5: a typical restart takes tens of minutes
)

const (
	historyLimit  = 1024    // iterations kept to price an incident from its onset
	storyLimit    = 64      // incidents kept; the oldest closed ones go first
	revertLimit   = 5       // orders tried at once to undo one action
	revertAgain   = 100     // iterations between further tries
	curveCapTimes = 4       // a replica is never given more than this times its even share
	totalMost     = 1 << 16 // micro-batches in a batch that is still priced
)

// Config are the planner's settings; zero values mean the defaults. The fields
// with a YAML name are those of the section mitigate of falcon.yaml, which Check
// validates.
type Config struct {
	SettleIterations  int                     `yaml:"-"`
	MeasureIterations int                     `yaml:"-"`
	MinGain           float64                 `yaml:"-"`
	KeepShare         float64                 `yaml:"-"`
	OverheadsMs       map[falcon.Rung]float64 `yaml:"overheads_ms"` // expected, by rung, until the rung was measured
}

const overheadMsMost = 1e9 // eleven days

// Check reports the first value of falcon.yaml that makes no sense.
func (c Config) Check() error {
	for r, ms := range c.OverheadsMs {
		if r.Level() < 2 || !(ms > 0 && ms <= overheadMsMost) {
			return fmt.Errorf("mitigate.overheads_ms: %s: %v; give S2, S3 or S4 its expected cost in ms", r, ms)
		}
	}
	return nil
}

// Planner climbs the ladder for the incidents of one job. See the package
// documentation for its guarantees; it is not safe for concurrent use.
type Planner struct {
	cfg        Config
	job        Job
	base       []int32 // micro-batches before any action of this epoch
	policy     falcon.Policy
	stories    []*story
	history    []Iteration                  // ascending, at most historyLimit
	charged    map[int64]map[*story]float64 // by iteration of the history: what it cost each incident
	flight     *flight                      // the one order that is out
	switched   []switched                   // the newest actions of this epoch that were ordered
	nextOrder  uint64
	generation uint64 // of the newest launch
	overheads  map[falcon.Rung]mean
	gauge      *gauge // newest measurement of the job
	plans      map[string]worked
	version    int   // grows with whatever a plan rests on
	now        Clock // newest clock that came in
	trained    Clock // when the newest iteration came in
	stuck      bool  // an order to put ranks back came to nothing, and no iteration has come since
	ready      Ready
	taken      bool
}

// story is what the planner keeps of one incident.
type story struct {
	incident falcon.Incident
	cost     Impact
	kept     Impact // what was last handed out to be persisted
	entered  bool   // cost has begun
	resumed  bool   // iterations may have gone by unseen since cost.Counted
	measured bool   // the job was measured since the incident is known, in this epoch
	actions  []falcon.Action
	vetoed   map[falcon.Rung]bool // a person said no: these are not proposed again, the others wait for a person
	skip     map[string]string    // by plan: last reason why it was not proposed, to say it once
	reverts  int                  // orders sent to undo the newest action that goes
	revertAt int64                // newest iteration when the last of them was sent
	failedAt int64                // newest iteration when an order last failed
	held     string               // last reason why a revert waits, to say it once
	unheard  time.Time            // since when its newest action is measured without nodes that it names; zero = it is not
}

// flight is the order that is out, and what it does to the job.
type flight struct {
	story     *story
	action    int
	order     uint64
	kind      string
	reverting bool
	counts    []int32          // OrderMicroBatches
	placement falcon.Placement // OrderPlacement
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
	return &Planner{cfg: cfg, nextOrder: 1, overheads: map[falcon.Rung]mean{}, charged: map[int64]map[*story]float64{}, plans: map[string]worked{}, policy: falcon.Policy{Mode: falcon.ModeApprove}}
}

// Step takes one input.
func (p *Planner) Step(now Clock, in Input) {
	p.tell(now)
	switch in := in.(type) {
	case Job:
		p.onJob(in)
	case Restored:
		p.onRestored(in)
	case SetPolicy:
		p.policy = in.Policy
		p.version++ // it says which variants of S4 there are
	case Incident:
		p.onIncident(in.Incident)
	case Speeds:
		p.onSpeeds(in)
	case Iteration:
		if !p.onIteration(in) {
			return
		}
	case Decision:
		p.onDecision(in)
	case Committed:
		p.onCommitted(in)
	case Undeliverable:
		p.onUndeliverable(in)
	case Left:
		p.onLeft(in)
	case Launched:
		p.onLaunched(in)
	}
	p.advance()
}

// Tick lets time pass: countdowns end, hours begin, and what an earlier step
// could not order is tried again.
func (p *Planner) Tick(now Clock) {
	p.tell(now)
	p.advance()
}

// tell moves the clock, never back.
func (p *Planner) tell(now Clock) {
	if now.After(p.now) {
		p.now = now
	}
}

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
	s := &story{
		incident: falcon.Incident{ID: id, RelievedIteration: falcon.NoIteration}, cost: Impact{Incident: id},
		vetoed: map[falcon.Rung]bool{}, skip: map[string]string{},
	}
	p.stories = append(p.stories, s)
	return s
}

// dropOldest forgets the oldest incident that is over and done with.
func (p *Planner) dropOldest() {
	done := func(a falcon.Action) bool {
		return ended(a.State) || (a.Rung == falcon.RungS4 && a.State == falcon.ActionKept)
	}
	for i, s := range p.stories {
		if s.over() && !slices.ContainsFunc(s.actions, func(a falcon.Action) bool { return !done(a) }) {
			p.stories = slices.Delete(p.stories, i, i+1)
			return
		}
	}
}

// proposal is the action that waits for a decision, if any.
func (s *story) proposal() *falcon.Action {
	if n := len(s.actions); n > 0 && s.actions[n-1].State == falcon.ActionProposed {
		return &s.actions[n-1]
	}
	return nil
}

// atWork is the index of the action that is decided, ordered, being measured
// or undone, −1 for none. There is at most one in the whole job.
func (s *story) atWork() int {
	return slices.IndexFunc(s.actions, func(a falcon.Action) bool { return underWay(a.State) })
}

// newest is the newest action of a rung, if any.
func (s *story) newest(r falcon.Rung) *falcon.Action {
	for i := len(s.actions) - 1; i >= 0; i-- {
		if s.actions[i].Rung == r {
			return &s.actions[i]
		}
	}
	return nil
}

// holds says that an action of the rung is in force for the incident.
func (s *story) holds(r falcon.Rung) bool {
	return slices.ContainsFunc(s.actions, func(a falcon.Action) bool { return a.Rung == r && inForce(&a) })
}

// over says that the fault has cleared. A story whose incident was not told yet
// (its action is back from the journal first) is not over.
func (s *story) over() bool { return s.incident.State != "" && !s.incident.Open() }

// located says that the fault lasts and its culprit is known.
func (s *story) located() bool { return s.incident.State == falcon.IncidentLocated }

func ended(s falcon.ActionState) bool {
	switch s {
	case falcon.ActionVetoed, falcon.ActionReverted, falcon.ActionFailed, falcon.ActionExpired:
		return true
	}
	return false
}

func underWay(s falcon.ActionState) bool {
	switch s {
	case falcon.ActionApproved, falcon.ActionDispatched, falcon.ActionApplied, falcon.ActionReverting:
		return true
	}
	return false
}

// inForce says that the job runs with what the action changed.
func inForce(a *falcon.Action) bool {
	switch a.State {
	case falcon.ActionApplied, falcon.ActionKept, falcon.ActionReverting:
		return true
	case falcon.ActionDispatched:
		return a.Phase == falcon.PhaseSplit
	}
	return false
}

func (p *Planner) onIncident(in falcon.Incident) {
	s := p.ensure(in.ID)
	was := s.incident
	s.incident = in
	if !s.entered {
		p.enter(s)
	}
	if was.State != in.State {
		p.keepCost(s)
	}
	if was.State != in.State || was.Verdict.Cause != in.Verdict.Cause ||
		!slices.Equal(was.Verdict.Devices, in.Verdict.Devices) || !slices.Equal(was.Verdict.Links, in.Verdict.Links) {
		p.version++
	}
}

// onIteration says whether the iteration is news.
func (p *Planner) onIteration(in Iteration) bool {
	if n := len(p.history); n > 0 && in.Index <= p.history[n-1].Index {
		return false // it is already priced
	}
	if len(p.history) >= historyLimit {
		p.forget(historyLimit * 3 / 4)
	}
	p.history = append(p.history, in)
	p.trained, p.stuck = p.now, false
	p.chargeAll(in)
	return true
}

// advance makes every move that is due: first verification, then one revert
// (the safe direction), then proposals and one dispatch.
func (p *Planner) advance() {
	for _, s := range p.stories {
		p.expire(s)
		p.measure(s)
	}
	p.revertDue()
	for _, s := range p.stories {
		p.propose(s)
		p.approveByPolicy(s)
		p.dispatch(s)
	}
}

// busy is the action that keeps others waiting, if any: one plan per job.
func (p *Planner) busy() *falcon.Action {
	for _, s := range p.stories {
		if i := s.atWork(); i >= 0 {
			return &s.actions[i]
		}
	}
	return nil
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
