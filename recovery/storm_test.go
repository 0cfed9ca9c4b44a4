package recovery

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

var (
	seedFlag  = flag.Int64("seed", -1, "play this random schedule alone, with its trace")
	firstFlag = flag.Int("first", 0, "first seed of the random schedules")
	seedsFlag = flag.Int("seeds", 10000, "how many random schedules are played")
)

// Bounds of a schedule.
const (
	stormStep = 500 * time.Millisecond
	stormRest = 1000 // steps after the last fault, in which everything must end
)

// Whatever fails whenever: a rank has one owner, two generations never train, no
// order comes with two contents, at most one step is lost without a word about
// it, and every schedule ends: the job trains, or somebody is told why not.
func TestRandomSchedules(t *testing.T) {
	if *seedFlag >= 0 {
		s := newStorm(uint64(*seedFlag))
		s.trace = t.Logf
		s.play()
		t.Logf("%+v", s.saw)
		if s.bad != "" {
			t.Fatalf("seed %d: %s", *seedFlag, s.bad)
		}
		return
	}
	n := *seedsFlag
	if testing.Short() {
		n /= 10
	}
	sum := map[string]int{}
	for seed := *firstFlag; seed < *firstFlag+n; seed++ {
		s := newStorm(uint64(seed))
		s.play()
		if s.bad != "" {
			t.Fatalf("seed %d: %s\nreplay it: go test ./recovery -run TestRandomSchedules -v -seed %d",
				seed, s.bad, seed)
		}
		for k := range s.saw {
			sum[k]++
		}
	}
	t.Logf("%d schedules, in how many of them there was: %v", n, sum)
	for _, k := range []string{
		"resumed", "failed", "checkpoint", "second fault", "engine restart", "rank 0 lost",
		"spare used", "in place", "waits for a person",
		"lost order", "late word", "refused word", "whole restart",
		"parked in the optimizer", "nothing lost", "cancelled", "denied", "restart in suspend",
		"restart in rejoin",
		"fewer replicas", "fewer are asked for", "recovered with fewer", "agents awaited",
		"goodbye", "blackout", "all agents restart", "pause", "late engine",
		"node pause", "taken back", "unexplained end", "finished", "engine restart as it finishes",
	} {
		if rare := testing.Short() && k == "recovered with fewer"; sum[k] == 0 && !rare {
			t.Errorf("no schedule had: %s", k)
		}
	}
}

// storm is a cluster whose agents and processes do what they are ordered, fail,
// freeze and fall silent.
type storm struct {
	rng   *rand.Rand
	start time.Time
	now   time.Time
	m     *Machine
	job   Job
	pol   falcon.Policy
	trace func(string, ...any)
	bad   string
	saw   map[string]bool

	nodes   []*simNode
	procs   []*proc
	pids    int
	shard   map[falcon.Rank]int
	of      int           // replicas at the start
	spare   time.Duration // is waited for
	left    int           // steps of the storm
	chaos   bool
	down    time.Time // the engine is, until then
	journal []falcon.Recovery
	orders  []*task
	content map[string]string
	seen    map[string]bool // evidence
	fences  fences
	best    int64     // newest step that any rank has finished
	epochAt time.Time // the job is described again then; zero = it is
	whole   *Restart
	wholeAt time.Time
	decides time.Time
	free    []falcon.Node // scratch of means
	weather weather
}

// simNode is a node with its agent.
type simNode struct {
	name     falcon.Node
	up       bool
	cut      bool // nothing comes through, either way
	cutEnds  time.Time
	pause    time.Time // it stands still until then; zero = it does not
	wentOn   time.Time // after its newest pause
	attach   time.Time
	attached bool
	in       []message // to the engine
	out      []message // to the agent
	tasks    []*task
	table    uint64
	launched map[uint64]bool
	silent   bool // the engine was informed of the connection's end
}

type message struct {
	due   time.Time
	input Input
	order *task
}

// task is a command on one node.
type task struct {
	node       falcon.Node
	generation uint64
	kind       string
	cmd        Command
	until      time.Time
	answered   bool
}

// proc is one training process.
type proc struct {
	rank      falcon.Rank
	node      falcon.Node
	pid       int
	launch    uint64
	alive     bool
	frozen    bool
	paused    bool // frozen with its node, which goes on
	normal    bool
	over      bool      // it ended with success, by itself
	ready     time.Time // it starts until then
	parked    bool
	joining   bool
	training  bool
	order     *Rejoin // in progress
	stop      bool
	announced uint64 // suspension
	wait      time.Time
	obeyed    uint64
	comm      uint64
	tag       int64
	stuck     bool
	hold      falcon.RankHold
	ack       *Rejoined
	said      said
	broken    int       // steps in which peers were missing
	unseen    bool      // nobody sees how it ends
	updates   int       // steps in the optimizer
	idle      time.Time // since when it waits for others; zero = it does not
}

func (s *storm) chance(p float64) bool { return s.rng.Float64() < p }

func (s *storm) logf(format string, args ...any) {
	if s.trace != nil {
		s.trace("%6.1f "+format, append([]any{s.now.Sub(s.start).Seconds()}, args...)...)
	}
}

func (s *storm) fail(format string, args ...any) {
	if s.bad == "" {
		s.bad = fmt.Sprintf(format, args...)
		s.logf("BAD %s", s.bad)
	}
}

func newStorm(seed uint64) *storm {
	s := &storm{
		rng:     rand.New(rand.NewPCG(seed, 5)),
		start:   time.Unix(1000, 0),
		saw:     map[string]bool{},
		content: map[string]string{},
		seen:    map[string]bool{},
		fences:  newFences(seed%2 == 0),
		shard:   map[falcon.Rank]int{},
		chaos:   true,
		best:    10,
	}
	s.now = s.start
	layouts := []falcon.Layout{
		{TP: 1, DP: 2, PP: 2},
		{TP: 1, DP: 4, PP: 1},
		{TP: 2, DP: 2, PP: 1},
		{TP: 1, DP: 3, PP: 1},
		{TP: 1, DP: 4, PP: 2},
	}
	s.job = Job{
		Epoch:      1,
		Layout:     layouts[s.rng.IntN(len(layouts))],
		Parks:      !s.chance(0.05),
		CanLaunch:  map[falcon.Node]bool{},
		Checkpoint: int64(s.rng.IntN(3)) - 1,
	}
	if s.job.Layout.DP%2 == 0 && s.chance(0.5) {
		s.job.ZeRO = falcon.ZeRO{Stage: 1, Instances: 1 + s.rng.IntN(2)}
	}
	per := 1 + s.rng.IntN(2)
	world := s.job.Layout.World()
	for i := range (world+per-1)/per + s.rng.IntN(4) {
		n := &simNode{
			name:     falcon.Node(fmt.Sprintf("n%d", i)),
			up:       true,
			attached: true,
			launched: map[uint64]bool{},
		}
		s.nodes, s.job.CanLaunch[n.name] = append(s.nodes, n), true
	}
	for r := range world {
		d := falcon.NewDevice(s.nodes[r/per].name, r%per)
		s.job.Placement = append(s.job.Placement, d)
		p := &proc{
			rank:     falcon.Rank(r),
			node:     d.Node(),
			alive:    true,
			training: true,
			tag:      10,
			hold:     s.holdAt(10),
		}
		s.add(p)
	}
	s.of = s.job.Layout.DP
	for range s.of {
		s.job.Splits = append(s.job.Splits, 4)
	}
	s.share()
	for _, p := range s.procs {
		p.hold = s.sums(p.rank, 10)
	}
	s.record()
	s.policy()
	s.weather.measured = !s.chance(0.1)
	s.spare = []time.Duration{15 * time.Second, time.Second}[s.rng.IntN(2)]
	s.machine()
	return s
}

func (s *storm) holdAt(step int64) falcon.RankHold {
	return falcon.RankHold{Steps: [2]int64{step, step - 1}}
}

// sums is what a rank holds at a step and the one before.
func (s *storm) sums(r falcon.Rank, step int64) falcon.RankHold {
	h := s.holdAt(step)
	for i := range h.Sums {
		h.Sums[i] = s.sum(r, h.Steps[i])
	}
	return h
}

func (s *storm) sum(r falcon.Rank, step int64) uint64 {
	return uint64(step)*1000 + uint64(s.shard[r])
}

func (s *storm) add(p *proc) {
	s.pids++
	p.pid = s.pids
	s.procs = append(s.procs, p)
}

func (s *storm) policy() {
	switch p := &s.pol.Recovery; s.rng.IntN(8) {
	case 0:
		p.Approval = falcon.ApprovalPerson
	case 1:
		p.Countdown = 3
	case 2:
		p.FenceAlone = true
	case 3:
		p.InPlace = -1
	case 4:
		p.PerHour = 2
	}
	s.pol.Recovery.AllowShrink = s.chance(0.8)
}

func (s *storm) machine() {
	s.m = New(Config{
		Grace:         5 * time.Second,
		SuspendMost:   8 * time.Second,
		OptimizerWait: 2 * time.Second,
		SpareWait:     s.spare,
		ReplaceMost:   12 * time.Second,
		TableMost:     4 * time.Second,
		CollectMost:   4 * time.Second,
		RejoinMost:    10 * time.Second,
		RestartMost:   30 * time.Second,
		AgentWait:     4 * time.Second,
		HangMin:       20 * time.Second,
	})
	s.means()
	s.m.Step(s.now, s.job)
	s.m.Step(s.now, SetPolicy{s.pol})
	if len(s.journal) > 0 || len(s.weather.ended) > 0 {
		back := Restored{NextID: len(s.journal) + 1, Ended: s.weather.ended}
		for _, c := range s.journal {
			back.Recoveries = append(back.Recoveries, cloneRecovery(&c))
		}
		s.m.Step(s.now, back)
	}
	s.digest()
}

// play goes through the schedule, then lets everything come to rest.
func (s *storm) play() {
	for s.left = 20 + s.rng.IntN(40); s.left > 0; s.left-- {
		if s.step(); s.bad != "" {
			return
		}
	}
	s.chaos = false
	for _, n := range s.nodes {
		n.cut = false
	}
	s.logf("the storm is over")
	quiet := 0
	for range stormRest {
		before := s.best
		if s.step(); s.bad != "" {
			return
		}
		if quiet++; !s.atRest(before) {
			quiet = 0
		}
		if quiet > 8 {
			s.outcome()
			s.finish()
			return
		}
	}
	c, _ := s.m.Current()
	s.fail("it does not end: %s at %s (%s), %d of %d ranks train",
		c.ID, c.State, c.Reason, s.trainers(), len(s.job.Placement))
}

// atRest reports whether nothing is left to do without a person.
func (s *storm) atRest(best int64) bool {
	if s.now.Before(s.down) || !s.epochAt.IsZero() || s.whole != nil {
		return false
	}
	if c, ok := s.m.Current(); ok {
		return s.hasNoProof(c) ||
			c.State == falcon.RecoveryProposed && c.Reason != "" && s.decides.IsZero() && c.DeadlineNs == 0
	}
	return s.m.stop.isStopped() && !s.waiting() ||
		s.m.pace.Hung() ||
		s.deaf() ||
		s.trainers() == len(s.job.Placement) ||
		s.m.health.Blind() && !s.m.ranks.anyProcessAlive() ||
		s.m.detect.doubted
}

// hasNoProof reports whether a recovery waits for a proof that nothing here can give: of the job's
// processes none that lives and is not frozen is on a node whose agent is there.
func (s *storm) hasNoProof(c falcon.Recovery) bool {
	return c.State == falcon.RecoverySuspend &&
		strings.HasPrefix(c.Reason, noProof) &&
		!slices.ContainsFunc(s.procs, func(p *proc) bool {
			return p.alive && !p.frozen && s.owner(p) && s.simNode(p.node).up
		})
}

// waiting reports whether a process waits in a generation, and holds its device for
// nothing where the job stands.
func (s *storm) waiting() bool {
	last := s.journal[len(s.journal)-1]
	return last.Attempts > 0 &&
		last.JobEpoch == s.job.Epoch &&
		slices.ContainsFunc(s.procs, func(p *proc) bool {
			return p.alive &&
				p.parked &&
				!p.frozen &&
				p.obeyed > 0 &&
				s.owner(p) &&
				s.simNode(p.node).up
		})
}

func (s *storm) outcome() {
	if c, ok := s.m.Current(); ok {
		s.saw["waits for a person"] = true
		if c.Reason == "" {
			s.fail("%s waits and does not say why", c.ID)
		}
		return
	}
	for _, c := range s.journal {
		s.saw[string(c.State)] = true
		if c.State != falcon.RecoveryResumed && c.Reason == "" {
			s.fail("%s is %s and does not say why", c.ID, c.State)
		}
	}
}

// trainers counts the ranks whose owner trains in the newest generation.
func (s *storm) trainers() int {
	n := 0
	for _, p := range s.procs {
		if p.alive && p.training && !p.frozen && !p.stuck && s.owner(p) {
			n++
		}
	}
	return n
}

func (s *storm) owner(p *proc) bool {
	return !s.fences.nodes[p.node] && p.launch >= s.fences.below[p.rank]
}

func (s *storm) simNode(n falcon.Node) *simNode {
	for _, x := range s.nodes {
		if x.name == n {
			return x
		}
	}
	return nil
}

func (s *storm) step() {
	s.now = s.now.Add(stormStep)
	if s.chaos {
		s.strike()
	}
	for _, n := range s.nodes {
		s.clears(n)
		s.goOn(n)
		s.agent(n)
	}
	for _, p := range s.procs {
		s.evolve(p)
	}
	s.train()
	for _, n := range s.nodes {
		s.report(n)
	}
	s.engine()
	s.check()
}

// strike lets something fail.
func (s *storm) strike() {
	if !s.chance(0.1) {
		return
	}
	n := s.nodes[s.rng.IntN(len(s.nodes))]
	p := s.procs[s.rng.IntN(len(s.procs))]
	switch s.rng.IntN(18) {
	case 0, 1, 2, 3:
		s.kill(p, "killed")
	case 4:
		s.loseNode(n)
	case 5:
		p.frozen = p.alive
		s.logf("rank %d pid %d freezes", p.rank, p.pid)
	case 6:
		// else the iterations that are not heard of count as slow ones
		n.cut = !n.cut && len(s.m.ranks.usedNodes()) > 1
		s.logf("link of %s cut %v", n.name, n.cut)
	case 7:
		s.agentRestarts(n, Reset)
	case 8, 9:
		s.engineStops()
	case 10:
		s.word(n, Device{
			Device: falcon.NewDevice(n.name, 0),
			Fatal:  true,
			Code:   79,
			Text:   "fell off the bus",
		})
	case 11:
		s.byHand(p)
	default:
		s.trouble(n)
	}
}

func (s *storm) kill(p *proc, how string) {
	if !p.alive {
		return
	}
	s.logf("rank %d pid %d on %s is %s", p.rank, p.pid, p.node, how)
	if p.rank == 0 && s.owner(p) {
		s.saw["rank 0 lost"] = true
	}
	if p.unseen = s.chance(0.2); p.unseen {
		s.saw["unexplained end"] = true
	}
	p.alive = false
	p.parked = false
	p.training = false
	p.order = nil
}

func (s *storm) loseNode(n *simNode) {
	if !n.up {
		return
	}
	s.logf("node %s is lost", n.name)
	n.up = false
	for _, p := range s.procs {
		if p.node == n.name {
			s.kill(p, "lost")
		}
	}
	n.tasks, n.out = nil, nil
	if s.chance(0.5) && !n.cut { // the machine is gone, its peer tells
		n.in = append(n.in, message{
			due:   s.now,
			input: Node{Node: n.name, How: Reset},
		})
	} else {
		n.in = nil
	}
}

func (s *storm) detach(n *simNode) {
	n.attached, n.attach = false, s.now.Add(time.Duration(s.rng.IntN(3000))*time.Millisecond)
	n.out = nil
}

// engineStops loses everything that was not journaled.
func (s *storm) engineStops() {
	if s.now.Before(s.down) {
		return
	}
	s.saw["engine restart"] = true
	if c, ok := s.m.Current(); ok {
		s.saw["restart in "+string(c.State)] = true
	}
	s.down = s.now.Add(time.Duration(s.rng.IntN(4000)) * time.Millisecond)
	s.logf("the engine is down until %.1f", s.down.Sub(s.start).Seconds())
	s.decides = time.Time{}
	s.orders = nil // the machine gives again what it still wants
	s.fences.forget()
	for _, n := range s.nodes {
		n.in = nil
		if n.up {
			s.detach(n)
			n.attach = n.attach.Add(s.down.Sub(s.now))
		}
	}
}

// word has a node tell the engine, in the order of its words.
func (s *storm) word(n *simNode, in Input) {
	if !n.up || !n.attached {
		return
	}
	due := s.now.Add(time.Duration(s.rng.IntN(700)) * time.Millisecond)
	if k := len(n.in); k > 0 && n.in[k-1].due.After(due) {
		due = n.in[k-1].due
	}
	n.in = append(n.in, message{due: due, input: in})
}
