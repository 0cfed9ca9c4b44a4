package detect

import (
	"math"
	"time"

	"github.com/failslow/falcon"
)

// Machine is the detector of one job. It is not safe for concurrent use: one
// goroutine owns it.
//
// Its parts own their state. Each knows only those above it in this list.
type Machine struct {
	cfg       *Config
	clock     *clock
	out       *output
	job       *jobState
	samples   *sampleLog
	work      *workLog
	incidents *incidentSet
	culprits  *culpritHistory
	baseline  *baseline
	onsets    *onsetDetector
	decided   *decisionLog
	bursts    *burstLog
	returns   *returnLog
	evidence  *evidence
	links     *linkLog
	profile   *profiler
	peers     *healthyPeers
	early     *earlyLook
	rankWatch *rankWatcher
	tests     *testPlanner
	relief    *reliefJudge
	linkWatch *linkWatch

	throughputNoted bool // the job is below its best, and that was logged
}

// New returns a machine that knows no job yet.
func New(cfg Config) *Machine {
	full := cfg.withDefaults()
	m := &Machine{
		cfg:   &full,
		clock: &clock{},
		out:   &output{changed: map[string]falcon.Incident{}},
		job:   &jobState{trees: full.Validate.Trees},
	}
	m.samples = &sampleLog{clock: m.clock, job: m.job, newest: -1}
	m.work = &workLog{
		job:     m.job,
		samples: m.samples,
		open:    map[int64]*iterationWork{},
	}
	m.incidents = &incidentSet{
		cfg:    m.cfg,
		clock:  m.clock,
		out:    m.out,
		job:    m.job,
		nextID: 1,
	}
	m.culprits = &culpritHistory{
		clock:     m.clock,
		job:       m.job,
		incidents: m.incidents,
	}
	m.baseline = &baseline{
		cfg:       m.cfg,
		out:       m.out,
		samples:   m.samples,
		incidents: m.incidents,
	}
	m.onsets = &onsetDetector{
		cfg:       m.cfg,
		samples:   m.samples,
		baseline:  m.baseline,
		lastOnset: falcon.NoIteration,
	}
	m.decided = &decisionLog{}
	m.bursts = &burstLog{cfg: m.cfg, out: m.out}
	m.returns = &returnLog{
		cfg:       m.cfg,
		clock:     m.clock,
		out:       m.out,
		samples:   m.samples,
		incidents: m.incidents,
	}
	m.evidence = &evidence{
		cfg:       m.cfg,
		job:       m.job,
		samples:   m.samples,
		work:      m.work,
		incidents: m.incidents,
	}
	m.links = &linkLog{
		clock:     m.clock,
		job:       m.job,
		incidents: m.incidents,
		evidence:  m.evidence,
	}
	m.profile = &profiler{
		cfg:       m.cfg,
		clock:     m.clock,
		out:       m.out,
		samples:   m.samples,
		incidents: m.incidents,
	}
	m.peers = &healthyPeers{
		job:       m.job,
		out:       m.out,
		incidents: m.incidents,
		profile:   m.profile,
	}
	m.early = &earlyLook{
		cfg:       m.cfg,
		clock:     m.clock,
		samples:   m.samples,
		incidents: m.incidents,
		baseline:  m.baseline,
		evidence:  m.evidence,
		profile:   m.profile,
	}
	m.rankWatch = &rankWatcher{}
	m.tests = &testPlanner{
		cfg:       m.cfg,
		clock:     m.clock,
		out:       m.out,
		job:       m.job,
		samples:   m.samples,
		incidents: m.incidents,
		baseline:  m.baseline,
	}
	m.relief = &reliefJudge{
		cfg:       m.cfg,
		out:       m.out,
		job:       m.job,
		samples:   m.samples,
		incidents: m.incidents,
		culprits:  m.culprits,
		baseline:  m.baseline,
		onsets:    m.onsets,
		bursts:    m.bursts,
		returns:   m.returns,
		evidence:  m.evidence,
		links:     m.links,
		profile:   m.profile,
	}
	m.linkWatch = &linkWatch{
		cfg:       m.cfg,
		clock:     m.clock,
		out:       m.out,
		job:       m.job,
		samples:   m.samples,
		incidents: m.incidents,
		baseline:  m.baseline,
		evidence:  m.evidence,
		tests:     m.tests,
		relief:    m.relief,
	}
	return m
}

// Step takes one input. Samples, profiles and actions before the first Job are dropped.
func (m *Machine) Step(now time.Time, in Input) {
	m.clock.set(now)
	switch in := in.(type) {
	case Job:
		m.stepJob(in)
	case Samples:
		m.stepSamples(in)
	case Profiled:
		m.stepProfiled(in)
	case Readings:
		m.stepReadings(in)
	case Chosen:
		m.job.desc.Comms = in.Comms
	case Acted:
		m.stepActed(in)
	case Restored:
		m.stepRestored(in)
	case Validated:
		m.stepValidated(in)
	case Culprits:
		m.culprits.restore(in)
	case Compared:
		m.stepCompared(in)
	case Look:
		m.profile.want(in.Why)
	}
	m.planWindow()
}

// Tick lets time pass: a profile window that waits too long is judged with
// what is there. Call it about once a second.
func (m *Machine) Tick(now time.Time) {
	m.clock.set(now)
	m.trackSilence()
	m.checkWindow()
	m.planWindow()
}

// Ready is what Steps and Ticks since the last Advance led to.
func (m *Machine) Ready() Ready {
	return m.out.pending()
}

// Advance confirms that Ready was acted on.
func (m *Machine) Advance() {
	m.out.clear()
}

func (m *Machine) stepJob(j Job) {
	if j.Layout.Validate() != nil {
		return
	}
	if !m.job.known ||
		j.Epoch != m.job.desc.Epoch ||
		j.Layout != m.job.desc.Layout {
		m.startEpoch(j)
		return
	}
	before := sumCounts(m.job.desc.MicroBatches)
	after := sumCounts(j.MicroBatches)
	if before > 0 && after > 0 && before != after {
		m.settleAround(m.samples.newest+1, math.Inf(1))
		m.baseline.relearn()
		m.out.addNote("", m.samples.newest+1, "rebase",
			"The job now has %d micro-batches an iteration instead of %d: a new baseline follows",
			after, before)
	}
	now := j.Placement
	j.Placement = m.job.desc.Placement
	m.job.replace(j)
	m.adoptPlacement(now, m.samples.newest+1)
	m.job.setPlacement(now)
	m.incidents.updateRanks()
}

// startEpoch forgets everything that belongs to ranks; what belongs to
// hardware, open incidents and counters, stays.
func (m *Machine) startEpoch(j Job) {
	again := m.job.known
	was := m.job.desc.Placement
	other := m.job.known && m.job.desc.Layout != j.Layout
	if j.Outside {
		m.incidents.holdLevels(m.samples.newest)
	}
	m.job.replace(j)
	m.samples.startEpoch(m.cfg)
	m.work.startEpoch()
	m.baseline.startEpoch(again)
	m.onsets.startEpoch()
	m.decided.startEpoch()
	m.bursts.clear()
	m.returns.startEpoch()
	m.evidence.resetHealthy()
	m.profile.startEpoch(j.Layout.World())
	m.early.startEpoch()
	m.rankWatch.startEpoch(j.Layout.World(), m.cfg.Watch)
	m.tests.reset()
	m.relief.startEpoch()
	m.throughputNoted = false
	m.incidents.startEpoch(again, was, m.profile.windowID)
	if other {
		m.incidents.forgetLevels()
	}
}

func (m *Machine) stepSamples(in Samples) {
	if !m.job.known {
		return
	}
	for _, part := range inParts(in.Samples) {
		for _, s := range part {
			if s.Rank >= 0 &&
				int(s.Rank) < len(m.samples.ranks) &&
				s.Iteration >= 0 {
				m.onSample(s)
			}
		}
		m.checkQuorum()
		m.trackSilence()
		for c, ok := m.samples.nextIteration(); ok; c, ok = m.samples.nextIteration() {
			m.onIteration(c)
		}
	}
}

// onSample takes in one rank's iteration, unless it was sent again after a reconnect.
func (m *Machine) onSample(s falcon.Sample) {
	r := m.samples.ranks[s.Rank]
	if s.Iteration <= r.newest {
		return
	}
	m.samples.heard(r, s.Iteration)
	m.work.add(&s)
	ms := s.RunMs()
	if s.PausedMs > 0 {
		r.skipIteration(s.Iteration)
	} else {
		for _, c := range r.observe(s.Iteration, ms) {
			m.onRankChange(s.Rank, r, c)
		}
	}
	if ms > 0 && !math.IsInf(ms, 0) {
		m.samples.fold.addSample(s.Iteration, ms, s.EndNs, s.PausedMs > 0)
	}
}

// onIteration takes in one iteration of the whole job.
func (m *Machine) onIteration(c cell) {
	m.samples.times.addIteration(c, m.clock.now)
	m.incidents.settleLevels(c.iteration)
	m.relief.relieveDeparted(c.iteration)
	if c.paused {
		return
	}
	m.work.close(c.iteration, c.ms)
	learnt := m.samples.isLearning()
	before := m.baseline.currentMs()
	for _, change := range m.samples.slowest.observe(c.iteration, c.ms) {
		m.onJobChange(change)
	}
	m.baseline.holdWhileOpen(before)
	if learnt && !m.samples.isLearning() {
		m.baseline.endWarmUp()
	}
	if m.baseline.finishRelearn(c.iteration) {
		m.profile.requestLearning(0)
	}
	if m.baseline.endsSettling(c.iteration) {
		m.baseline.adoptLevel(c.iteration)
	}
	m.publishLasting(c.iteration)
	m.relief.checkLevel(c.iteration)
	m.relief.acceptWork(c.iteration)
	m.checkThroughput(c.iteration)
	m.relief.closeRelieved(c.iteration)
	m.judgeEarly()
	m.lookEarly(c)
}

func (m *Machine) stepReadings(in Readings) {
	m.evidence.addReadings(m.clock.now, in)
	m.judgeEarly()
	m.judgeAgain(in)
}
