package recovery

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/replica"
)

// Machine recovers one job. It is not safe for concurrent use.
type Machine struct {
	cfg    Config
	policy falcon.Policy

	job    Job
	hasJob bool
	ranks  []member                      // by rank
	nodes  map[falcon.Node]*host         // heard of
	on     map[falcon.Node][]falcon.Rank // by the placement in force, ascending
	least  map[falcon.Device]uint64      // generation that a device's process has at least: the newest launch there
	sorted []falcon.Node                 // the nodes of on
	pace   progress                      // of the job
	last   time.Time                     // newest Tick
	hear   hearing                       // the console's own
	ends   ends                          // of the job epoch's processes
	blind  map[string]bool               // of what is told of too many nodes to be believed

	recs       []*falcon.Recovery // oldest first
	cur        *falcon.Recovery   // not over; nil = none
	closed     bool               // the job stands after a recovery without success: a new job epoch opens it
	closedAt   time.Time
	left       leftovers
	nextID     int
	generation uint64 // highest ever used
	at         attempt

	changed map[string]bool // recoveries
	ready   Ready
}

// member is one rank.
type member struct {
	known    bool
	proc     Process
	beat     Beat
	beatAt   time.Time // zero = none
	parkedAt time.Time // since when it parks, if it does
}

// host is one node.
type host struct {
	heard   time.Time // or, of one never heard, the end of the time that it has for that
	met     bool      // heard since the machine began
	suspect bool
	gone    bool      // its stream has ended and it has opened no other
	how     How       // it ended
	goneAt  time.Time // when
	fatal   Device    // newest fatal event
	fatalAt time.Time
}

// attempt is the present generation's state; what a restart needs of it is told
// anew by the agents.
type attempt struct {
	entered   time.Time     // the state
	until     time.Time     // its deadline; zero = none
	most      time.Duration // that it was given
	renewed   int           // how often its time began again
	gather    time.Time     // until then faults join
	moved     time.Time     // newest answer that brought it forward
	stands    time.Time     // since when all who stay park; zero = they don't yet
	told      []falcon.Node
	acked     map[falcon.Node]bool     // Suspended
	awaited   map[falcon.Rank]bool     // launched and not parked yet
	stopping  map[falcon.Rank]bool     // told to end, to be made anew on their device
	tabled    map[falcon.Node]bool     // Tabled
	rejoined  map[falcon.Rank]Rejoined // with success
	spare     bool                     // waits for one
	over      bool                     // a rank has rejoined, and come to the job's end
	overtaken bool                     // all have, before they were suspended
	agents    map[falcon.Node]bool     // that a whole restart waits for; nil = it waits for none
	retry     bool                     // made because a rejoin failed
	badTable  map[falcon.Node]int      // failures to take a table, over all attempts
}

// New makes a machine that knows of no job.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg.withDefaults(), nodes: map[falcon.Node]*host{}, changed: map[string]bool{}, blind: map[string]bool{}, least: map[falcon.Device]uint64{}, left: leftovers{}, ends: newEnds(), nextID: 1}
}

// Ready is what is to be done now: recoveries are made durable first.
func (m *Machine) Ready() Ready {
	r := Ready{Commands: m.ready.Commands, Notes: m.ready.Notes, Ended: m.ready.Ended}
	for _, c := range m.recs {
		if m.changed[c.ID] {
			r.Recoveries = append(r.Recoveries, clone(c))
		}
	}
	return r
}

// Advance says that it was done.
func (m *Machine) Advance() {
	m.ready = Ready{}
	clear(m.changed)
}

// Current is the recovery in progress; false = none.
func (m *Machine) Current() (falcon.Recovery, bool) {
	if m.cur == nil {
		return falcon.Recovery{}, false
	}
	return clone(m.cur), true
}

// Recovery finds one by its id.
func (m *Machine) Recovery(id string) (falcon.Recovery, bool) {
	if c := m.find(id); c != nil {
		return clone(c), true
	}
	return falcon.Recovery{}, false
}

// Recoveries lists those that are kept, newest first.
func (m *Machine) Recoveries() []falcon.Recovery {
	out := make([]falcon.Recovery, 0, len(m.recs))
	for _, c := range slices.Backward(m.recs) {
		out = append(out, clone(c))
	}
	return out
}

// Exposure says, for every node and failure domain of the job as it stands,
// what would have no replica if it were gone now, worst first.
func (m *Machine) Exposure(more ...replica.Domain) ([]replica.Exposure, error) {
	return replica.Map(replica.Query{
		Layout: m.job.Layout, ZeRO: m.job.ZeRO, Placement: m.job.Placement, Domains: m.job.Domains,
	}, more...)
}

func (m *Machine) find(id string) *falcon.Recovery {
	for _, c := range m.recs {
		if c.ID == id {
			return c
		}
	}
	return nil
}

func clone(c *falcon.Recovery) falcon.Recovery {
	out := *c
	out.Faults = slices.Clone(c.Faults)
	for i, f := range out.Faults {
		out.Faults[i].Ranks, out.Faults[i].Evidence = slices.Clone(f.Ranks), slices.Clone(f.Evidence)
	}
	out.Replaced, out.Launched = maps.Clone(c.Replaced), maps.Clone(c.Launched)
	out.PhaseMs, out.PredictMs = maps.Clone(c.PhaseMs), maps.Clone(c.PredictMs)
	out.Survivors, out.Fenced, out.Pending = slices.Clone(c.Survivors), slices.Clone(c.Fenced), slices.Clone(c.Pending)
	out.Placement, out.Moves, out.Splits = slices.Clone(c.Placement), slices.Clone(c.Moves), slices.Clone(c.Splits)
	if s := c.Shrink; s != nil {
		out.Shrink = &falcon.Shrink{
			Layout: s.Layout, Of: s.Of, Kept: slices.Clone(s.Kept), Placement: slices.Clone(s.Placement), Splits: slices.Clone(s.Splits),
		}
	}
	return out
}

// Step takes one input in. Time never goes back.
func (m *Machine) Step(now time.Time, in Input) {
	switch in := in.(type) {
	case Beat:
		m.onBeat(now, in) // frequent: looked at by Tick
		return
	case Node:
		m.onNode(now, in)
		return
	case Pace:
		m.onPace(now, in)
		return
	case Late:
		m.onLate(now)
		return
	case Job:
		m.onJob(now, in)
	case SetPolicy:
		m.policy = in.Policy
	case Restored:
		m.onRestored(now, in)
	case Decision:
		m.onDecision(now, in)
	default:
		m.stepJob(now, in)
	}
	m.advance(now)
}

// stepJob takes what makes no sense without a job.
func (m *Machine) stepJob(now time.Time, in Input) {
	if !m.hasJob {
		return
	}
	switch in := in.(type) {
	case Process:
		m.onProcess(now, in)
	case Device:
		m.onDevice(now, in)
	case Suspended:
		m.onSuspended(now, in)
	case Launched:
		m.onLaunched(now, in)
	case Tabled:
		m.onTabled(now, in)
	case Rejoined:
		m.onRejoined(now, in)
	case Demand:
		m.onDemand(now, in)
	}
}

// Tick looks for silence and for deadlines; it is to come at least once a beat.
func (m *Machine) Tick(now time.Time) {
	m.forgive(now)
	m.last = now
	if !m.hasJob {
		return
	}
	m.listen(now)
	m.watch(now)
	m.advance(now)
	if m.cur != nil && !m.at.until.IsZero() && !now.Before(m.at.until) && !m.deadlineHeld(now) && !m.deadlineWaits(now) {
		m.overdue(now)
		m.advance(now)
	}
}

// forgive takes a time in which the machine itself was not asked out of
// everybody's silence: a console that slept must not fence the cluster.
func (m *Machine) forgive(now time.Time) {
	gap := now.Sub(m.last) - m.cfg.Beat
	if m.last.IsZero() || gap <= 0 {
		return
	}
	for _, h := range m.nodes {
		h.heard = earlier(h.heard.Add(gap), now) // what has come since is of now
	}
	for i := range m.ranks {
		if x := &m.ranks[i]; !x.beatAt.IsZero() {
			x.beatAt = earlier(x.beatAt.Add(gap), now)
		}
	}
	m.pace.moved, m.at.moved = earlier(m.pace.moved.Add(gap), now), earlier(m.at.moved.Add(gap), now)
	m.postpone(gap)
}

// recovering reports whether a recovery is at work, and does not only wait for a
// decision.
func (m *Machine) recovering() bool {
	return m.cur != nil && m.cur.State != falcon.RecoveryProposed
}

// Wakes is when Tick has something to do next, apart from its regular looks;
// zero = nothing is due. An engine that ticks then loses no time.
func (m *Machine) Wakes() time.Time {
	switch {
	case m.cur == nil:
		return time.Time{}
	case m.cur.State == falcon.RecoverySuspend && m.at.gather.After(m.last):
		return m.at.gather
	}
	return m.at.until
}

// placement is the one in force: of the recovery in progress, else the job's.
func (m *Machine) placement() falcon.Placement {
	if m.cur != nil {
		return m.cur.Placement
	}
	return m.job.Placement
}

// index sorts the ranks by node anew, after the placement changed.
func (m *Machine) index() {
	m.on = map[falcon.Node][]falcon.Rank{}
	for r, d := range m.placement() {
		m.on[d.Node()] = append(m.on[d.Node()], falcon.Rank(r))
	}
	m.sorted = slices.Sorted(maps.Keys(m.on))
}

func (m *Machine) host(n falcon.Node, now time.Time) *host {
	h := m.nodes[n]
	if h == nil {
		h = &host{heard: now.Add(m.cfg.Grace)}
		m.nodes[n] = h
	}
	return h
}

func (m *Machine) onJob(now time.Time, j Job) {
	if perm := permutation(m.job.Placement, j.Placement); m.hasJob && m.job.Epoch == j.Epoch && perm != nil && m.mayFollow() {
		m.follow(j.Placement, perm)
	}
	before, first := m.job, !m.hasJob
	if before.Epoch == j.Epoch && (m.cur != nil || j.Generation < before.Generation) { // a recovery has its own, and leaves it
		j.Layout, j.Placement, j.Generation = before.Layout, before.Placement, max(j.Generation, before.Generation)
	}
	if m.cur != nil && before.Epoch == j.Epoch {
		j = declared(before, j)
	}
	m.job, m.hasJob = j, true
	m.generation = max(m.generation, j.Generation)
	if len(m.ranks) != len(j.Placement) {
		m.ranks = make([]member, len(j.Placement))
	}
	for _, d := range j.Placement {
		m.host(d.Node(), now)
	}
	switch {
	case first || before.Epoch != j.Epoch:
		m.newEpoch(now, first)
	case m.cur == nil:
		m.index()
	case m.cur.State == falcon.RecoveryProposed:
		m.propose(now)
	}
}

// declared keeps what the processes said of the job before they ended: who is
// made anew has not said it yet.
func declared(before, j Job) Job {
	j.Adapter = j.Adapter || before.Adapter
	j.StateMB, j.Checkpoint, j.Unit = max(j.StateMB, before.StateMB), max(j.Checkpoint, before.Checkpoint), max(j.Unit, before.Unit)
	if j.ZeRO == (falcon.ZeRO{}) {
		j.ZeRO = before.ZeRO
	}
	return j
}

// newEpoch starts the watch over; what is known of processes that live stays.
func (m *Machine) newEpoch(now time.Time, first bool) {
	if first {
		m.hear.open(now, m.cfg.Grace) // who is not back yet may know more
	} else {
		m.closed = false
		clear(m.left)
		m.endedByEpoch(now)
	}
	m.index()
	m.ends = newEnds()
	m.pace = progress{ms: m.pace.ms, newest: falcon.NoIteration, told: falcon.NoIteration, moved: now}
	// A job that was started by hand counts its generations from 0 again.
	maps.DeleteFunc(m.least, func(_ falcon.Device, g uint64) bool { return g > m.job.Generation })
	for r := range m.ranks {
		x := &m.ranks[r]
		if !x.proc.Alive || x.proc.Node != m.job.Placement[r].Node() {
			*x = member{}
		}
	}
}

// endedByEpoch ends the recovery in progress when the job was started anew.
func (m *Machine) endedByEpoch(now time.Time) {
	switch {
	case m.cur == nil:
	case m.cur.Whole && m.cur.State == falcon.RecoveryReplace && m.job.Generation >= m.cur.Generation:
		m.cur.Placement = slices.Clone(m.job.Placement)
		m.finish(now, falcon.RecoveryResumed, m.cur.Reason)
	default:
		m.finish(now, falcon.RecoveryCancelled, "the job was started anew meanwhile")
		m.closed = false
	}
}

func (m *Machine) note(kind string, severity int, format string, args ...any) {
	m.ready.Notes = append(m.ready.Notes, Note{Kind: kind, Text: fmt.Sprintf(format, args...), Severity: severity})
}

func (m *Machine) command(c Command) { m.ready.Commands = append(m.ready.Commands, c) }

func (m *Machine) dirty() { m.changed[m.cur.ID] = true }
