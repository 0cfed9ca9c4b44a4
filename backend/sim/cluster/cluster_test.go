package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/failslow/falcon"
)

// setup is what a run's seed has decided before it begins.
type setup struct {
	nodes, spares   int
	perNode         int
	layout          falcon.Layout
	iteration       time.Duration
	iterations      int64 // the job's length
	checkpointEvery int64
	spread          time.Duration // between the first and the last rank's end
	exitInfo        bool          // the kernel tells how processes that are no children have ended
	drainMs         int
	snapshotBytes   int64  // of records, before the journal is compacted
	old             []bool // by node: agent and hooks begin as those of the version before
	autoTests       bool
	cap             falcon.Rung
	skews           []time.Duration // of the nodes' clocks, by node; they stay
	verbose         bool
	alone           bool                    // nobody brings spares
	hosted          bool                    // the framework neither parks nor rejoins
	reuse           bool                    // of process ids
	policy          *falcon.Policy          // nil = automatic up to cap
	overheads       map[falcon.Rung]float64 // expected of actions, ms; nil = the planner's own
}

// Cluster is one run.
type Cluster struct {
	*World
	seed  uint64
	setup setup
	dir   string
	nodes map[falcon.Node]*node
	order []*node
	host  *host // of the engine
	rival *host // of a second one, while it is there
	conns []*conn
	job   *job
	judge *judge

	oracle *oracle     // nil = what is said is not judged
	armed  []injection // pauses that wait for a step of a recovery

	pids      int
	starts    uint64 // of processes
	engines   int    // started
	doubles   int
	rollbacks int            // journals that were brought back, or lost
	did       map[string]int // injections, by kind

	struck map[string]int // engines killed, by point
}

func newCluster(seed uint64, change func(*setup)) (*Cluster, error) {
	dir, err := scratch()
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		World:  newWorld(seed),
		seed:   seed,
		dir:    dir,
		nodes:  map[falcon.Node]*node{},
		pids:   100,
		did:    map[string]int{},
		struck: map[string]int{},
	}
	c.setup = c.draw()
	c.setup.versions(seed)
	if change != nil {
		change(&c.setup)
	}
	c.setup.fit()
	c.job, c.judge = newJob(c), newJudge(c)
	c.host = newHost(c, "engine")
	for i := range c.setup.nodes + c.setup.spares {
		n := newNode(c, falcon.Node(fmt.Sprintf("n%d", i)), dir)
		n.clock.offset, n.old = c.setup.skews[i], c.setup.old[i]
		c.nodes[n.name] = n
		c.order = append(c.order, n)
	}
	c.log("setup %+v", c.setup)
	c.after(0, c.host.start)
	for _, n := range c.order {
		c.after(c.between(0, time.Second), n.boot)
	}
	c.after(copyEvery, c.host.keepCopies)
	c.after(2*time.Second, c.train)
	c.after(time.Second, c.watch)
	return c, nil
}

func (c *Cluster) close() {
	for _, n := range c.order {
		n.end(false)
	}
	for _, h := range c.hosts() {
		if h.engine != nil {
			h.engine.Halt()
			_ = h.journal.Close()
		}
	}
	_ = os.RemoveAll(c.dir)
}

// draw makes a setup.
func (c *Cluster) draw() setup {
	s := setup{
		nodes:           3 + c.rng.IntN(4),
		spares:          2,
		perNode:         2,
		iteration:       c.between(300*time.Millisecond, 2*time.Second),
		checkpointEvery: 20,
		spread:          c.between(0, 900*time.Millisecond),
		exitInfo:        c.rng.IntN(2) == 0,
	}
	s.layout = falcon.Layout{TP: 1, DP: s.nodes * s.perNode, PP: 1}
	if s.nodes%2 == 0 && c.rng.IntN(2) == 0 {
		s.layout = falcon.Layout{TP: 1, DP: s.nodes * s.perNode / 2, PP: 2}
	}
	s.iterations = 1 << 30
	s.autoTests = c.rng.IntN(2) == 0
	s.cap = []falcon.Rung{falcon.RungS2, falcon.RungS3, falcon.RungS4}[c.rng.IntN(3)]
	s.skews = make([]time.Duration, s.nodes+s.spares)
	if c.rng.IntN(3) == 0 {
		s.skews[c.rng.IntN(s.nodes)] = c.between(-10*time.Minute, 10*time.Minute)
	}
	return s
}

// versions draws the agents' pace, whether the journal is compacted often, and in
// one run of three which nodes begin with agents and hooks of the version before:
// an upgrade of the cluster is under way.
func (s *setup) versions(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0x0d1f))
	s.drainMs = 200 * (1 + rng.IntN(3))
	s.old = make([]bool, len(s.skews))
	if rng.IntN(3) == 0 {
		for i := range s.old {
			s.old[i] = rng.IntN(2) == 0
		}
	}
	if rng.IntN(4) > 0 {
		s.snapshotBytes = 16 << 10
	}
}

// fit takes out what the version before is known not to bear: kernels that do not
// report how a process ended, and clocks that are off.
func (s *setup) fit() {
	for i := range s.old {
		s.old[i] = s.old[i] && s.exitInfo
		if s.old[i] {
			s.skews[i] = 0
		}
	}
}

// train starts the job by hand.
func (c *Cluster) train() {
	for r := range c.setup.layout.World() {
		n := c.order[r/c.setup.perNode]
		p := c.newProc(n, r, falcon.NewDevice(n.name, r%c.setup.perNode), 0)
		p.show()
		c.job.join(p, 0, 0, true)
	}
}

// reach is when a node and an engine could speak.
type reach struct {
	audible time.Duration // when the engine could last hear the agent
	reached time.Duration // when both could last speak
	back    time.Duration // when that was possible again, after an outage
	outage  time.Duration // how long that one was
}

// reach is that of the node to an engine, which knows of none before its first start.
func (n *node) reach(h *host) *reach {
	if n.by[h] == nil {
		n.by[h] = &reach{audible: h.began, reached: h.began}
	}
	return n.by[h]
}

// endOutage notes how long the node was out of reach, when it has been. A time between two
// outages that was shorter than its latency let nothing through: they are one.
func (n *node) endOutage(at *reach) {
	d := n.c.now - at.reached
	open := at.reached - at.back
	if d <= time.Second {
		return
	}
	late := max(n.path.up.slow, n.path.down.slow)
	if late > 0 && open < late+2*watchEvery {
		d += open + at.outage
	}
	at.outage, at.back = d, n.c.now
}

const watchEvery = 100 * time.Millisecond

// watch notes which nodes the engine can reach.
func (c *Cluster) watch() {
	for _, n := range c.order {
		a := n.agent
		if a == nil ||
			a.halted() ||
			a.conn == nil ||
			!a.conn.agentUp ||
			!a.conn.engUp ||
			a.conn.session == nil ||
			n.path.up.cut {
			continue
		}
		at := n.reach(a.conn.host)
		at.audible = c.now
		if !n.path.down.cut {
			n.endOutage(at)
			at.reached = c.now
		}
	}
	c.after(watchEvery, c.watch)
}
