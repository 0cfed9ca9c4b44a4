package detect

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/cause"
	"github.com/failslow/falcon/detect/peer"
)

// Machine is the detector of one job. It is not safe for concurrent use: one
// goroutine owns it.
type Machine struct {
	cfg Config
	now time.Time
	job Job
	has bool // a job was described

	ranks  []*series
	slow   *series // slowest rank of each iteration
	fold   fold
	times  times
	newest int64 // newest iteration seen from any rank, -1 before the first

	baseline  float64 // restored, or lowest verified regime; 0 = unknown
	rebase    bool    // take the level after the settle window as the baseline
	settleTo  int64   // first iteration that no action owns
	jitterAt  int64   // newest jitter told
	dipAt     int64   // newest small downward change
	alarms    []alarm
	lastOnset int64 // placement of the newest onset, to merge late alarms

	stories []*story
	nextID  int
	bursts  []burst // slowdowns that passed before they were told, newest last

	history   cause.History
	healthy   peer.Healthy
	window    *window
	windows   uint64 // id of the newest window
	learn     learning
	rankWatch *peer.Watch
	watchAt   int64       // iteration from which the ranks of a quiet job are looked at
	watchFrom time.Time   // time from which they are
	asking    *asking     // validation asked for and not answered
	last      peer.Result // newest complete profile
	haveLast  bool
	shown     []peer.Rank // newest timing per rank, from any profile

	lookAt     int64                    // iteration from which the ranks' new devices are profiled, 0 = no need
	lastWindow uint64                   // that last comes from
	links      map[falcon.Link]linkSeen // judged lately
	departures bool                     // the epoch is new: incidents may have lost their culprits

	throughputTold bool                  // the job is below its best, and that was told
	past           []Named               // culprits of incidents that are over, newest last
	strangers      map[falcon.Rank]int64 // slow without an onset of their own, since which iteration

	changed map[string]falcon.Incident
	order   []string
	ready   Ready
}

// alarm is one rank's verified onset.
type alarm struct {
	rank        falcon.Rank
	iteration   int64
	beforeMs    float64
	afterMs     float64
	probability float64
}

// New returns a machine that knows no job yet.
func New(cfg Config) *Machine {
	return &Machine{
		cfg: cfg.withDefaults(), newest: -1, lastOnset: falcon.NoIteration, nextID: 1,
		changed: map[string]falcon.Incident{},
	}
}

// Step takes in one input. Samples, profiles and actions that come before a
// job is described are dropped.
func (m *Machine) Step(now time.Time, in Input) {
	m.now = now
	switch in := in.(type) {
	case Job:
		m.stepJob(in)
	case Samples:
		m.stepSamples(in)
	case Profiled:
		m.stepProfiled(in)
	case Readings:
		m.stepReadings(in)
	case Acted:
		m.stepActed(in)
	case Restored:
		m.stepRestored(in)
	case Validated:
		m.stepValidated(in)
	case Culprits:
		m.stepCulprits(in)
	}
	m.plan()
}

// Tick lets time pass: a profile window that waits too long is judged with
// what is there. Call it about once a second.
func (m *Machine) Tick(now time.Time) {
	m.now = now
	m.listen()
	m.checkWindow()
	m.plan()
}

// Ready is what Steps and Ticks since the last Advance led to.
func (m *Machine) Ready() Ready {
	r := m.ready
	r.Incidents = nil
	for _, id := range m.order {
		r.Incidents = append(r.Incidents, m.changed[id])
	}
	return r
}

// Advance says that Ready was acted on.
func (m *Machine) Advance() {
	m.ready, m.order = Ready{}, nil
	clear(m.changed)
}

func (m *Machine) note(iteration int64, kind, format string, args ...any) {
	m.ready.Notes = append(m.ready.Notes, Note{Iteration: iteration, Kind: kind, Text: fmt.Sprintf(format, args...)})
}

// emit hands an incident's present state out with the next Ready.
func (m *Machine) emit(s *story) {
	if _, ok := m.changed[s.ID]; !ok {
		m.order = append(m.order, s.ID)
	}
	inc := s.Incident
	inc.Verdict.Devices = slices.Clone(inc.Verdict.Devices)
	inc.Verdict.Ranks = slices.Clone(inc.Verdict.Ranks)
	inc.Verdict.Links = slices.Clone(inc.Verdict.Links)
	inc.Verdict.Evidence = slices.Clone(inc.Verdict.Evidence)
	m.changed[s.ID] = inc
}

func (m *Machine) stepJob(j Job) {
	if j.Layout.Validate() != nil {
		return
	}
	if !m.has || j.Epoch != m.job.Epoch || j.Layout != m.job.Layout {
		m.startEpoch(j)
		return
	}
	if before, after := sum(m.job.MicroBatches), sum(j.MicroBatches); before > 0 && after > 0 && before != after {
		m.settle(m.newest + 1)
		m.rebase = true
		m.note(m.newest+1, "rebase", "The job now has %d micro-batches an iteration instead of %d: a new baseline follows", after, before)
	}
	now := j.Placement
	j.Placement = m.job.Placement
	m.job = j
	m.move(now, m.newest+1)
	m.job.Placement = now
	m.replace()
}

func sum(v []int32) (total int64) {
	for _, x := range v {
		total += int64(x)
	}
	return total
}

// startEpoch forgets everything that belongs to ranks; what belongs to
// hardware, open incidents and counters, stays.
func (m *Machine) startEpoch(j Job) {
	again, was := m.has, m.job.Placement
	m.job, m.has = j, true
	m.ranks = make([]*series, j.Layout.World())
	for i := range m.ranks {
		m.ranks[i] = newSeries(&m.cfg)
		m.ranks[i].heardAt = m.now
	}
	m.slow, m.fold, m.times, m.newest = newSeries(&m.cfg), fold{}, times{}, -1
	m.alarms, m.lastOnset, m.settleTo = nil, falcon.NoIteration, 0
	m.jitterAt, m.dipAt, m.strangers, m.bursts = -m.cfg.MergeWithin-1, falcon.NoIteration, nil, nil
	m.healthy, m.window, m.learn, m.asking = peer.Healthy{}, nil, learning{due: true}, nil
	m.rankWatch = peer.NewWatch(j.Layout.World(), m.cfg.Watch.Over, m.cfg.Watch.Steps)
	m.watchAt, m.throughputTold = 0, false
	m.haveLast, m.shown = false, make([]peer.Rank, j.Layout.World())
	m.lookAt, m.departures = 0, true
	if again {
		m.baseline, m.rebase = 0, false
	}
	for _, s := range m.stories {
		if again {
			m.carry(s, was)
			delete(s.inForce, falcon.RungS3) // the launcher placed these processes
		}
		s.restart()
		s.blind = s.blind || again
	}
	m.replace()
}

// replace derives the ranks of open incidents through the present placement.
func (m *Machine) replace() {
	for _, s := range m.stories {
		if !s.Open() || len(s.Verdict.Devices) == 0 {
			continue
		}
		var ranks []falcon.Rank
		for _, d := range s.Verdict.Devices {
			if r, ok := m.job.Placement.Rank(d); ok {
				ranks = append(ranks, r)
			}
		}
		slices.Sort(ranks)
		if !slices.Equal(ranks, s.Verdict.Ranks) {
			s.Verdict.Ranks = ranks
			m.emit(s)
		}
	}
}

func (m *Machine) stepSamples(in Samples) {
	if !m.has {
		return
	}
	for _, s := range in.Samples {
		if s.Rank < 0 || int(s.Rank) >= len(m.ranks) || s.Iteration < 0 {
			continue
		}
		r := m.ranks[s.Rank]
		if s.Iteration <= r.newest {
			continue // sent again after a reconnect
		}
		m.newest = max(m.newest, s.Iteration)
		r.heardAt = m.now
		ms := s.RunMs()
		if s.PausedMs > 0 {
			r.skip(s.Iteration)
		} else {
			for _, c := range r.observe(s.Iteration, ms) {
				m.rankChange(s.Rank, r, c)
			}
		}
		if ms > 0 && !math.IsInf(ms, 0) {
			m.fold.add(s.Iteration, ms, s.EndNs, s.PausedMs > 0)
		}
	}
	m.quorum()
	m.listen()
	for {
		c, ok := m.fold.done(len(m.ranks), m.newest)
		if !ok {
			break
		}
		m.iterated(c)
	}
}

// iterated takes in one iteration of the whole job.
func (m *Machine) iterated(c cell) {
	m.times.add(c, m.now)
	if m.departures {
		m.depart(c.iteration)
	}
	if c.paused {
		return
	}
	learnt, before := m.slow.tracker.Learning(), m.baselineMs()
	for _, change := range m.slow.observe(c.iteration, c.ms) {
		m.jobChange(change)
	}
	m.holdBaseline(before)
	if learnt && !m.slow.tracker.Learning() {
		m.warm()
	}
	if m.rebase && c.iteration >= m.settleTo && !m.slow.tracker.Learning() {
		m.rebase, m.baseline = false, 0
		m.slow.tracker.Rebase(0)
		m.slow.tracker.Compare(m.level())
		m.learn = learning{due: true}
		m.note(c.iteration, "rebase", "New baseline %.1f ms", m.slow.tracker.BaselineMs())
	}
	if m.settleTo > 0 && c.iteration == m.settleTo+levelOver {
		m.settled(c.iteration)
	}
	m.tellLasting(c.iteration)
	m.levelRelief(c.iteration)
	m.accept(c.iteration)
	m.throughput(c.iteration)
	m.closeRelieved(c.iteration)
}

// holdBaseline keeps the baseline while an incident is open: the ranks may have
// told of it before the job's own series did, whose first level then takes in
// iterations that are slow.
func (m *Machine) holdBaseline(before float64) {
	if before > 0 && m.baselineMs() > before*(1+m.cfg.Settled) && len(m.openStories()) > 0 {
		m.baseline = before
	}
}

// settled looks at the level that an action led to, as a fault whose onset fell
// into the settle window raised no alarm of its own.
func (m *Machine) settled(iteration int64) {
	level, baseline := m.level(), m.baselineMs()
	m.slow.tracker.Compare(level)
	if m.slow.tracker.Learning() || baseline <= 0 {
		return
	}
	acting := slices.ContainsFunc(m.stories, func(s *story) bool { return s.Open() || len(s.inForce) > 0 })
	switch {
	case level < baseline*(1-m.cfg.Settled):
		m.baseline = min(m.baseline, level)
		m.slow.tracker.Rebase(level)
		m.note(iteration, "rebase", "New baseline %.1f ms instead of %.1f ms", level, baseline)
	case !acting:
		m.slow.tracker.Compare(baseline)
	}
}

// warm is the end of the warm-up: a baseline that was handed over from before
// a restart holds on, as the job may be slow right now.
func (m *Machine) warm() {
	if m.baseline > 0 && m.baseline < m.slow.tracker.BaselineMs() {
		m.slow.tracker.Rebase(m.baseline)
		return
	}
	m.baseline = 0
	m.note(m.slow.last(), "rebase", "Baseline %.1f ms", m.slow.tracker.BaselineMs())
}

// baselineMs is the lowest verified regime of the epoch, 0 while learning.
func (m *Machine) baselineMs() float64 {
	if m.slow == nil || m.slow.tracker.Learning() {
		return m.baseline
	}
	if b := m.slow.tracker.BaselineMs(); m.baseline == 0 || b < m.baseline {
		return b
	}
	return m.baseline
}

func (m *Machine) stepReadings(in Readings) {
	for _, r := range in.GPUs {
		m.history.AddGPU(m.now, r)
	}
	for _, r := range in.Hosts {
		m.history.AddHost(m.now, r)
	}
	for _, r := range in.NICs {
		m.history.AddNIC(m.now, r)
	}
	m.rejudge(in)
}
