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
//
// Its parts own their state. Each knows only those above it in this list.
type Planner struct {
	cfg        *Config
	clock      *clock
	policy     *policyState
	iterations *iterationLog
	out        *output
	job        *jobState
	incidents  *incidentSet
	orders     *orderSlot
	ledger     *costLedger
	cache      *planCache
	overheads  *overheadBook
	profile    *profiler
	plans      *planMaker
	limits     *limiter
	verify     *verifier
	exec       *executor
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

// clock is the newest time that came in.
type clock struct{ now Clock }

// policyState is the policy in force.
type policyState struct {
	clock   *clock
	current falcon.Policy
}

// output is what steps have led to since the last Advance.
type output struct {
	iterations *iterationLog
	ready      Ready
	taken      bool
}

// iterationLog is the newest iteration times of the job.
type iterationLog struct {
	cfg     *Config
	list    []Iteration // ascending, at most historyLimit
	trained Clock       // when the newest iteration came in
}

// jobState is the job as it runs now.
type jobState struct {
	desc Job
	base []int32 // micro-batches before any action of this epoch
}

// incidentSet is the incidents known, oldest first.
type incidentSet struct{ list []*story }

// orderSlot holds the one order that is out.
type orderSlot struct {
	job     *jobState
	out     *output
	pending *flight
	nextID  uint64
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

// planCache keeps the costly part of plans until something changes that they
// rest on: consoles ask for them many times a second.
type planCache struct {
	solved  map[string]worked
	version int // grows with whatever a plan rests on
}

// overheadBook is what taking each rung has cost.
type overheadBook struct {
	cfg   *Config
	cache *planCache
	means map[falcon.Rung]mean
}

// profiler keeps the newest measurement of the job and its cost model.
type profiler struct {
	iterations *iterationLog
	job        *jobState
	incidents  *incidentSet
	newest     *gauge
}

// planMaker works out what each rung would do, and what that would bring.
type planMaker struct {
	cfg        *Config
	policy     *policyState
	iterations *iterationLog
	job        *jobState
	incidents  *incidentSet
	cache      *planCache
	overheads  *overheadBook
	profile    *profiler
}

// limiter bounds how often the planner proposes.
type limiter struct {
	clock      *clock
	policy     *policyState
	iterations *iterationLog
	job        *jobState
	incidents  *incidentSet
	ordered    []switched // the newest actions of this epoch that were ordered
}

// verifier measures whether actions in force helped.
type verifier struct {
	cfg        *Config
	clock      *clock
	iterations *iterationLog
	out        *output
	job        *jobState
	overheads  *overheadBook
}

// executor carries approved actions out, step by step, and undoes them.
type executor struct {
	clock      *clock
	policy     *policyState
	iterations *iterationLog
	out        *output
	job        *jobState
	incidents  *incidentSet
	orders     *orderSlot
	ledger     *costLedger
	cache      *planCache
	plans      *planMaker
	limits     *limiter
	generation uint64 // of the newest launch
	stuck      bool   // an order to put ranks back failed, and no iteration has come since
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
	p := &Planner{cfg: cfg.withDefaults(), clock: &clock{}, job: &jobState{}, cache: &planCache{solved: map[string]worked{}}}
	p.policy = &policyState{clock: p.clock, current: falcon.Policy{Mode: falcon.ModeApprove}}
	p.iterations = &iterationLog{cfg: p.cfg}
	p.out = &output{iterations: p.iterations}
	p.incidents = &incidentSet{}
	p.orders = &orderSlot{job: p.job, out: p.out, nextID: 1}
	p.ledger = &costLedger{
		cfg: p.cfg, iterations: p.iterations, out: p.out, job: p.job, incidents: p.incidents, orders: p.orders,
		charged: map[int64]map[*story]float64{},
	}
	p.overheads = &overheadBook{cfg: p.cfg, cache: p.cache, means: map[falcon.Rung]mean{}}
	p.profile = &profiler{iterations: p.iterations, job: p.job, incidents: p.incidents}
	p.plans = &planMaker{
		cfg: p.cfg, policy: p.policy, iterations: p.iterations, job: p.job, incidents: p.incidents,
		cache: p.cache, overheads: p.overheads, profile: p.profile,
	}
	p.limits = &limiter{clock: p.clock, policy: p.policy, iterations: p.iterations, job: p.job, incidents: p.incidents}
	p.verify = &verifier{cfg: p.cfg, clock: p.clock, iterations: p.iterations, out: p.out, job: p.job, overheads: p.overheads}
	p.exec = &executor{
		clock: p.clock, policy: p.policy, iterations: p.iterations, out: p.out, job: p.job, incidents: p.incidents,
		orders: p.orders, ledger: p.ledger, cache: p.cache, plans: p.plans, limits: p.limits,
	}
	return p
}

func (c Config) withDefaults() *Config {
	if c.SettleIterations == 0 {
		c.SettleIterations = DefaultSettleIterations
	}
	if c.MeasureIterations == 0 {
		c.MeasureIterations = DefaultMeasureIterations
	}
	if c.MinGain == 0 {
		c.MinGain = DefaultMinGain
	}
	if c.KeepShare == 0 {
		c.KeepShare = DefaultKeepShare
	}
	return &c
}

// Step takes one input.
func (p *Planner) Step(now Clock, in Input) {
	p.clock.advance(now)
	switch in := in.(type) {
	case Job:
		p.onJob(in)
	case Restored:
		p.onRestored(in)
	case SetPolicy:
		p.policy.current = in.Policy
		p.cache.version++ // it says which variants of S4 there are
	case Incident:
		p.onIncident(in.Incident)
	case Speeds:
		p.plans.onSpeeds(in)
	case Iteration:
		if !p.onIteration(in) {
			return
		}
	case Decision:
		p.onDecision(in)
	case Committed:
		p.exec.onCommitted(in)
	case Undeliverable:
		p.exec.onUndeliverable(in)
	case Left:
		p.exec.allEnded(in)
	case Launched:
		p.exec.onLaunched(in)
	}
	p.advance()
}

// Tick lets time pass: countdowns end, hours begin, and what an earlier step
// could not order is tried again.
func (p *Planner) Tick(now Clock) {
	p.clock.advance(now)
	p.advance()
}

// tell moves the clock, never back.
func (k *clock) advance(now Clock) {
	if now.After(k.now) {
		k.now = now
	}
}

// Ready is everything that steps have led to since the last Advance.
func (p *Planner) Ready() Ready {
	p.out.taken = !p.out.ready.Empty()
	return p.out.ready
}

// Advance says that Ready was persisted and acted on.
func (p *Planner) Advance() {
	if p.out.taken {
		p.out.ready, p.out.taken = Ready{}, false
	}
}

// Policy is the policy in force.
func (p *Planner) Policy() falcon.Policy { return p.policy.current }

func (n *incidentSet) get(id string) *story {
	for _, s := range n.list {
		if s.incident.ID == id {
			return s
		}
	}
	return nil
}

func (n *incidentSet) ensure(id string) *story {
	if s := n.get(id); s != nil {
		return s
	}
	if len(n.list) >= storyLimit {
		n.dropOldest()
	}
	s := &story{
		incident: falcon.Incident{ID: id, RelievedIteration: falcon.NoIteration}, cost: Impact{Incident: id},
		vetoed: map[falcon.Rung]bool{}, skip: map[string]string{},
	}
	n.list = append(n.list, s)
	return s
}

// dropOldest forgets the oldest incident that is over and done with.
func (n *incidentSet) dropOldest() {
	done := func(a falcon.Action) bool {
		return ended(a.State) || (a.Rung == falcon.RungS4 && a.State == falcon.ActionKept)
	}
	for i, s := range n.list {
		if s.over() && !slices.ContainsFunc(s.actions, func(a falcon.Action) bool { return !done(a) }) {
			n.list = slices.Delete(n.list, i, i+1)
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
	s := p.incidents.ensure(in.ID)
	was := s.incident
	s.incident = in
	if !s.entered {
		p.ledger.begin(s)
	}
	if was.State != in.State {
		p.ledger.persist(s)
	}
	if was.State != in.State || was.Verdict.Cause != in.Verdict.Cause ||
		!slices.Equal(was.Verdict.Devices, in.Verdict.Devices) || !slices.Equal(was.Verdict.Links, in.Verdict.Links) {
		p.cache.version++
	}
}

// onIteration says whether the iteration is news.
func (p *Planner) onIteration(in Iteration) bool {
	if n := len(p.iterations.list); n > 0 && in.Index <= p.iterations.list[n-1].Index {
		return false // it is already priced
	}
	if len(p.iterations.list) >= historyLimit {
		p.ledger.forget(historyLimit * 3 / 4)
	}
	p.iterations.list = append(p.iterations.list, in)
	p.iterations.trained, p.exec.stuck = p.clock.now, false
	p.ledger.chargeAll(in)
	return true
}

// advance makes every move that is due: first verification, then one revert
// (the safe direction), then proposals and one dispatch.
func (p *Planner) advance() {
	for _, s := range p.incidents.list {
		p.expire(s)
		p.verify.measure(s)
	}
	p.exec.revertDue()
	for _, s := range p.incidents.list {
		p.propose(s)
		p.approveByPolicy(s)
		p.exec.dispatch(s)
	}
}

// busy is the action that keeps others waiting, if any: one plan per job.
func (n *incidentSet) actionUnderWay() *falcon.Action {
	for _, s := range n.list {
		if i := s.atWork(); i >= 0 {
			return &s.actions[i]
		}
	}
	return nil
}

func (o *output) note(kind, format string, args ...any) {
	o.ready.Notes = append(o.ready.Notes, Note{Iteration: o.iterations.newest(), Kind: kind, Text: fmt.Sprintf(format, args...)})
}

// changed queues the action's whole present state, replacing an older one.
func (o *output) update(a falcon.Action) {
	for i := range o.ready.Actions {
		if o.ready.Actions[i].ID == a.ID {
			o.ready.Actions[i] = a
			return
		}
	}
	o.ready.Actions = append(o.ready.Actions, a)
}

func (l *iterationLog) newest() int64 {
	if n := len(l.list); n > 0 {
		return l.list[n-1].Index
	}
	return falcon.NoIteration
}

// OverheadsMs are the learned overheads, for the journal.
func (p *Planner) OverheadsMs() map[falcon.Rung]float64 { return p.overheads.learned() }
