package mitigate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/failslow/falcon"
)

// Defaults of Config.
const (
	DefaultSettleIterations  = 2 // after a switch, before the gain is measured
	DefaultMeasureIterations = 8 // whose median is the measured time
	// of the slow iteration time: less is not worth an action; of a split, two thirds (leastGain)
	DefaultMinGain      = 0.03
	DefaultKeepShare    = 0.3     // of the predicted gain: less is reverted
	DefaultOverheadS3Ms = 60_000  // FALCON §5.3: "typically within one minute"
	DefaultOverheadS4Ms = 600_000 // FALCON §7.5: a typical restart takes tens of minutes
)

// Config are the planner's settings; zero values mean the defaults. The fields
// with a YAML name are those of the section mitigate of falcon.yaml, which Check
// validates.
type Config struct {
	SettleIterations  int     `yaml:"-"`
	MeasureIterations int     `yaml:"-"`
	MinGain           float64 `yaml:"-"`
	KeepShare         float64 `yaml:"-"`
	// expected, by rung, until the rung was measured
	OverheadsMs map[falcon.Rung]float64 `yaml:"overheads_ms"`
	// of the whole run; what is left of it decides what pays; 0 = not known
	RunIterations int64 `yaml:"run_iterations"`
}

const overheadMsMost = 1e9 // eleven days

// Check reports the first value of falcon.yaml that makes no sense.
func (c Config) Check() error {
	for r, ms := range c.OverheadsMs {
		if r.Level() < 2 && r != costFence && r != costDrop ||
			!(ms > 0 && ms <= overheadMsMost) {
			return fmt.Errorf(
				"mitigate.overheads_ms: %s: %v; give S2, S3, S4, S4 fence or S4 drop its expected cost in ms",
				r, ms,
			)
		}
	}
	if c.RunIterations < 0 {
		return fmt.Errorf(
			"mitigate.run_iterations: %d; give the number of iterations of the whole run, or 0 where it is not known",
			c.RunIterations,
		)
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
	look       *remeasurer
	verify     *verifier
	exec       *executor
}

// New builds a planner that waits for a Job.
func New(cfg Config) *Planner {
	p := &Planner{
		cfg:   cfg.withDefaults(),
		clock: &clock{},
		job:   &jobState{},
		cache: &planCache{solved: map[string]solution{}},
	}
	p.policy = &policyState{
		clock:   p.clock,
		current: falcon.Policy{Mode: falcon.ModeApprove},
	}
	p.iterations = &iterationLog{cfg: p.cfg}
	p.out = &output{iterations: p.iterations}
	p.incidents = &incidentSet{}
	p.orders = &orderSlot{job: p.job, out: p.out, nextID: 1}
	p.ledger = &costLedger{
		cfg:        p.cfg,
		iterations: p.iterations,
		out:        p.out,
		job:        p.job,
		incidents:  p.incidents,
		orders:     p.orders,
		charged:    map[int64]map[*incidentState]float64{},
	}
	p.overheads = &overheadBook{
		cfg:   p.cfg,
		cache: p.cache,
		means: map[falcon.Rung]runningMean{},
	}
	p.profile = &profiler{
		iterations: p.iterations,
		job:        p.job,
		incidents:  p.incidents,
	}
	p.plans = &planMaker{
		cfg:        p.cfg,
		policy:     p.policy,
		iterations: p.iterations,
		job:        p.job,
		incidents:  p.incidents,
		cache:      p.cache,
		overheads:  p.overheads,
		profile:    p.profile,
	}
	p.limits = &limiter{
		clock:      p.clock,
		policy:     p.policy,
		iterations: p.iterations,
		job:        p.job,
		incidents:  p.incidents,
	}
	p.look = &remeasurer{clock: p.clock, out: p.out, incidents: p.incidents}
	p.verify = &verifier{
		cfg:        p.cfg,
		clock:      p.clock,
		iterations: p.iterations,
		out:        p.out,
		job:        p.job,
		overheads:  p.overheads,
		plans:      p.plans,
		look:       p.look,
	}
	p.exec = &executor{
		clock:      p.clock,
		policy:     p.policy,
		iterations: p.iterations,
		out:        p.out,
		job:        p.job,
		incidents:  p.incidents,
		orders:     p.orders,
		ledger:     p.ledger,
		cache:      p.cache,
		plans:      p.plans,
		limits:     p.limits,
		look:       p.look,
	}
	return p
}

func (c Config) withDefaults() *Config {
	c.SettleIterations = cmp.Or(c.SettleIterations, DefaultSettleIterations)
	c.MeasureIterations = cmp.Or(c.MeasureIterations, DefaultMeasureIterations)
	c.MinGain = cmp.Or(c.MinGain, DefaultMinGain)
	c.KeepShare = cmp.Or(c.KeepShare, DefaultKeepShare)
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
		p.policy.set(in.Policy)
		p.cache.invalidate() // it says which variants of S4 there are
	case Incident:
		p.onIncident(in.Incident)
	case Speeds:
		p.plans.onSpeeds(in)
	case Measured:
		p.look.onMeasured(in)
		p.profile.onMeasured()
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
	case Fenced:
		p.exec.onFenced(in)
	}
	p.advance()
}

// Tick lets time pass: countdowns end, hours begin, and orders that failed earlier are retried.
func (p *Planner) Tick(now Clock) {
	p.clock.advance(now)
	p.advance()
}

// Ready is everything that steps have led to since the last Advance.
func (p *Planner) Ready() Ready {
	return p.out.takeReady()
}

// Advance confirms that Ready was persisted and acted on.
func (p *Planner) Advance() {
	p.out.advance()
}

// Policy is the policy in force.
func (p *Planner) Policy() falcon.Policy { return p.policy.current }

func (p *Planner) onIncident(in falcon.Incident) {
	s := p.incidents.getOrAdd(in.ID)
	was := s.incident
	s.incident = in
	isBack := was.State != "" && !was.Open() && in.Open()
	if !s.charged || isBack {
		p.ledger.openAccount(s)
	}
	if was.State != in.State {
		p.ledger.persistCost(s)
	}
	if was.State != in.State ||
		was.Verdict.Cause != in.Verdict.Cause ||
		!slices.Equal(was.Verdict.Devices, in.Verdict.Devices) ||
		!slices.Equal(was.Verdict.Links, in.Verdict.Links) {
		p.cache.invalidate()
	}
}

// onIteration takes an iteration; false = it came before.
func (p *Planner) onIteration(in Iteration) bool {
	if !p.iterations.add(p.clock.now, in) {
		return false // it is already priced
	}
	if p.iterations.full() {
		p.ledger.keepIterations(iterationsMost*3/4 + 1)
	}
	p.exec.onIteration()
	p.ledger.chargeAll(in)
	return true
}

// advance makes every move that is due: first verification, then one revert
// (the safe direction), then proposals and one dispatch.
func (p *Planner) advance() {
	for _, s := range p.incidents.list {
		p.expireStale(s)
		p.verify.measureGain(s)
	}
	p.exec.revertDue()
	for _, s := range p.incidents.list {
		p.proposeDue(s)
		p.approveByPolicy(s)
		p.exec.orderApproved(s)
	}
}

// OverheadsMs are the learned overheads, for the journal.
func (p *Planner) OverheadsMs() map[falcon.Rung]float64 {
	return p.overheads.measuredMeans()
}
