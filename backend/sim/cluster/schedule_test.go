package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/engine"
)

// injection is one entry of a schedule: what happens to whom, when, for how long.
type injection struct {
	at   time.Duration
	kind string
	node int
	rank int
	last time.Duration
	flag bool
}

func (d injection) String() string {
	return fmt.Sprintf("%8.3f %-12s node %d rank %d for %v (%t)",
		d.at.Seconds(), d.kind, d.node, d.rank, d.last.Round(time.Millisecond), d.flag)
}

// kinds of injections with their weights. Those above the line leave every process
// of the job alone; those below it are real faults.
var harmless = []weighted{
	{"agent-term", 10},
	{"agent-kill", 8},
	{"agent-stop", 6},
	{"reset", 10},
	{"cut", 8},
	{"cut-up", 3},
	{"cut-down", 3},
	{"slow", 3},
	{"all-term", 3},
	{"all-cut", 4},
	{"half-cut", 3},
	{"all-reset", 3},
	{"engine-kill", 6},
	{"engine-crash", 8},
	{"engine-stop", 6},
	{"disk-full", 3},
	{"stall", 3},
	{"slow-gpu", 4},
	{"test", 4},
	{"freeze", 2},
	{"decide", 4},
	{"demand", 2},
	{"device", 2},
}

var faulty = []weighted{
	{"rank-kill", 6}, {"rank-freeze", 3}, {"node-reset", 3}, {"node-silent", 3}, {"rank-thaw", 2},
}

type weighted struct {
	kind   string
	weight int
}

func pick(rng *rand.Rand, from []weighted) string {
	sum := 0
	for _, k := range from {
		sum += k.weight
	}
	n := rng.IntN(sum)
	for _, k := range from {
		if n -= k.weight; n < 0 {
			return k.kind
		}
	}
	return ""
}

// plan is the shape of the schedules of a test.
type plan struct {
	injections int           // of a run
	every      time.Duration // between two, in the mean
	faults     float64       // share of real faults
	faultGap   time.Duration // at least, between two that take a node
	kinds      []weighted    // harmless ones; nil = all
}

// slowMost bounds the latency of a slow way: beyond it a node counts as out of
// reach.
const slowMost = 1500 * time.Millisecond

// start is when the job has been described and trains.
const start = 20 * time.Second

func schedule(seed uint64, p plan) []injection {
	rng := rand.New(rand.NewPCG(seed, 0x5c4ed))
	kinds := p.kinds
	if kinds == nil {
		kinds = harmless
	}
	at := start
	gap := time.Duration(0)
	var out []injection
	for range p.injections {
		at += time.Duration(rng.ExpFloat64() * float64(p.every))
		d := injection{
			at:   at,
			node: rng.IntN(8),
			rank: rng.IntN(64),
			flag: rng.IntN(2) == 0,
		}
		d.last = time.Duration(500+rng.IntN(4500)) * time.Millisecond
		if rng.IntN(3) == 0 {
			d.last = time.Duration(5+rng.IntN(55)) * time.Second
		}
		d.kind = pick(rng, kinds)
		if rng.Float64() < p.faults && at > gap {
			d.kind = pick(rng, faulty)
			gap = at + p.faultGap
		}
		out = append(out, d)
	}
	return out
}

// do carries one entry out.
func (c *Cluster) do(d injection) {
	n := c.order[d.node%len(c.order)]
	c.log("DEED %s (%s)", d, n.name)
	c.did[d.kind]++
	switch d.kind {
	case "agent-term", "agent-kill":
		c.down(n, d.kind == "agent-term", d.last)
	case "agent-stop":
		n.stop()
		a := n.agent
		c.after(d.last, func() {
			if n.agent == a {
				n.cont()
			}
		})
	case "reset":
		n.reset()
	case "cut", "cut-up", "cut-down", "half-cut", "all-cut":
		c.cut(d)
	case "slow":
		n.path.up.slow = min(d.last/10, slowMost)
		n.path.down.slow = min(d.last/10, slowMost)
		c.after(d.last, func() { n.path.up.slow, n.path.down.slow = 0, 0 })
	case "all-term":
		for _, n := range c.order {
			c.down(n, true, d.last+c.between(0, 2*time.Second))
		}
	case "all-reset":
		for _, n := range c.order {
			n.reset()
		}
	case "engine-kill":
		c.host.kill()
		c.after(min(d.last, 20*time.Second), c.host.revive)
	case "engine-crash": // killed at one of the next points at which it writes or sends
		if c.host.engine != nil {
			c.host.doom = 1 + d.rank%12
			c.host.seldom = d.node%2 == 0 && c.setup.snapshotBytes > 0
			if c.host.seldom {
				c.host.doom = 1 + d.rank%3
			}
		}
	case "engine-stop":
		c.host.stop(d.last)
	case "disk-full":
		c.host.fill(d.last)
	case "stall":
		for _, t := range c.job.teams { // their order does not matter
			t.stall = c.now + d.last/2
		}
	case "slow-gpu":
		if p := c.victim(d.rank); p != nil {
			c.job.slow[p.dev] = 1.3 + float64(d.last%time.Second)/float64(time.Second)
			c.log("%s is slow now: %.2f", p.dev, c.job.slow[p.dev])
			c.after(10*d.last, func() {
				delete(c.job.slow, p.dev)
				c.job.relieved[p.dev] = c.now
			})
		}
	case "device":
		n.complain(falcon.NewDevice(n.name, d.rank%c.setup.perNode), d.flag)
	case "test", "freeze", "decide", "demand":
		c.operate(d)
	case "rank-kill", "rank-freeze", "rank-thaw", "node-reset", "node-silent":
		c.fault(d)
	default:
		c.upset(d)
	}
}

// operator is who asks in a schedule.
var operator = engine.Actor{Name: "op", Role: "approver", From: "sim"}

// operate has an operator ask for something; what is refused is refused.
func (c *Cluster) operate(d injection) {
	err := c.host.call(func(ctx context.Context, e *engine.Engine) error {
		switch d.kind {
		case "test":
			_, err := e.Validate(ctx, operator, &falconv1.ValidateRequest{
				Gemm:     true,
				LinkTest: d.flag,
				Reason:   "sim",
			})
			return err
		case "freeze":
			s, err := e.Latest(ctx)
			if err != nil {
				return err
			}
			p := proto.CloneOf(s.Reply.GetPolicy())
			p.Frozen = true
			_, err = e.SetPolicy(ctx, operator, true, p)
			return err
		case "demand":
			return c.demand(ctx, e, d)
		default:
			return c.decide(ctx, e, d.rank)
		}
	})
	c.log("operator: %s: %v", d.kind, err)
	if d.kind == "freeze" {
		c.after(d.last, c.unfreeze)
	}
}

func (c *Cluster) unfreeze() {
	err := c.host.call(func(ctx context.Context, e *engine.Engine) error {
		s, err := e.Latest(ctx)
		if err != nil {
			return err
		}
		p := proto.CloneOf(s.Reply.GetPolicy())
		p.Frozen = false
		_, err = e.SetPolicy(ctx, operator, true, p)
		return err
	})
	c.log("operator: unfreeze: %v", err)
	if err != nil {
		c.after(time.Second, c.unfreeze)
	}
}

// decide takes a rung of the first open incident by hand, or vetoes what is
// proposed for it.
func (c *Cluster) decide(ctx context.Context, e *engine.Engine, no int) error {
	s, err := e.Latest(ctx)
	if err != nil {
		return err
	}
	for _, x := range s.Reply.GetIncidents() {
		if x.GetState() == string(falcon.IncidentClosed) {
			continue
		}
		q := &falconv1.DecideRequest{Incident: x.GetId(), Reason: "sim"}
		rungs := []falcon.Rung{"", falcon.RungS2, falcon.RungS3, falcon.RungS4}
		if no%4 > 0 {
			q.Approve, q.Rung = true, string(rungs[no%4])
		}
		_, err = e.Decide(ctx, operator, q)
		return err
	}
	return errNothing
}

// demand has a rank replaced, or a whole node given up, though nothing is known
// against it. What is in doubt counts as done: an engine may die as it answers.
func (c *Cluster) demand(ctx context.Context, e *engine.Engine, d injection) error {
	p := c.victim(d.rank)
	if p == nil {
		return errNothing
	}
	q := &falconv1.RecoverRequest{
		Verb:   "renew",
		Rank:   int32(p.rank),
		Reason: "sim",
	}
	if d.flag && c.now < start+10*time.Minute {
		q = &falconv1.RecoverRequest{
			Verb:   "fence",
			Node:   string(p.n.name),
			Reason: "sim",
		}
	}
	was := p.n.demanded
	p.n.demanded, c.judge.sick = was || q.GetVerb() == "fence", c.now
	_, err := e.Recover(ctx, operator, q)
	if err != nil && !errors.Is(err, engine.ErrStopped) {
		p.n.demanded = was
	}
	return err
}

var errNothing = errors.New("no incident is open")

// down ends a node's agent and starts it again later.
func (c *Cluster) down(n *node, order bool, last time.Duration) {
	if n.paused {
		return // it takes no signal
	}
	n.end(order)
	c.after(last, n.boot)
}

// reset breaks a node's connection.
func (n *node) reset() {
	if a := n.agent; a != nil && a.conn != nil {
		a.conn.closeEngine("reset")
		a.conn.closeAgent("reset")
	}
}

// cut takes ways away and mends them later.
func (c *Cluster) cut(d injection) {
	var nodes []*node
	switch d.kind {
	case "all-cut":
		nodes = c.order
	case "half-cut":
		nodes = c.order[:len(c.order)/2]
	default:
		nodes = []*node{c.order[d.node%len(c.order)]}
	}
	for _, n := range nodes {
		n.path.cuts++
		n.path.up.cut = n.path.up.cut || d.kind != "cut-down"
		n.path.down.cut = n.path.down.cut || d.kind != "cut-up"
		n.path.refuse = d.flag
		if d.flag && n.path.up.cut && n.path.down.cut {
			n.reset() // REJECT answers with a reset
		}
		c.after(d.last, func() { c.mend(n) })
	}
}

func (c *Cluster) mend(n *node) {
	if n.path.cuts--; n.path.cuts > 0 {
		return
	}
	n.path.up.cut = false
	n.path.down.cut = false
	n.path.refuse = false
	for _, x := range c.conns {
		if x.node == n {
			x.mended()
		}
	}
}

// fault takes something of the job away.
func (c *Cluster) fault(d injection) {
	p := c.victim(d.rank)
	switch d.kind {
	case "rank-kill":
		if p != nil {
			p.kill("killed by signal 9 (SIGKILL)")
		}
	case "rank-freeze", "rank-thaw":
		if p == nil || p.frozen {
			return
		}
		c.log("%s is frozen", p)
		p.frozen, p.frozenAt = true, c.now
		if d.kind == "rank-thaw" {
			c.after(d.last, p.thaw)
		}
	case "node-reset", "node-silent":
		if p == nil {
			return
		}
		p.n.die(d.kind == "node-reset")
		c.after(30*time.Second+d.last, p.n.repair)
	}
}

// victim is a process that trains or waits, by a number.
func (c *Cluster) victim(no int) *proc {
	var all []*proc
	for _, n := range c.order {
		for _, p := range n.procs {
			if p.alive && n.power {
				all = append(all, p)
			}
		}
	}
	if len(all) == 0 || c.job.finished {
		return nil
	}
	return all[no%len(all)]
}

func (p *proc) thaw() {
	if p.frozen && p.alive {
		p.frozen, p.n.thawed = false, p.c.now
		p.c.log("%s goes on after a freeze", p)
		p.obeyStop()
	}
}

// repair brings a dead node back, with a new agent and no processes.
func (n *node) repair() {
	n.c.log("%s: repaired", n.name)
	for _, p := range n.procs {
		p.shown = false
	}
	n.power = true
	n.boot()
}

// pausesLeft is for how long an operator leaves a node that has paused to the console.
const pausesLeft = 2 * time.Minute

// lift has an operator lift all fences of nodes that are well again, and bring a
// spare where a recovery waits for one.
func (c *Cluster) lift() {
	for _, n := range c.order {
		if n.resumedAt > 0 && c.now-n.resumedAt < pausesLeft {
			continue
		}
		if n.power && c.host.belief.isFenced(n.name) && !c.broken(n) {
			err := c.host.call(func(ctx context.Context, e *engine.Engine) error {
				_, err := e.Recover(ctx, operator, &falconv1.RecoverRequest{
					Verb:   "lift",
					Node:   string(n.name),
					Reason: "repaired",
				})
				return err
			})
			// the engine died before its fence, or as it lifted it
			if err == nil || errors.Is(err, engine.ErrNotFound) && !c.host.belief.open() {
				delete(c.host.belief.barred, n.name)
				n.demanded = false
				n.lost = false
				n.faulty = false
				c.log("operator: lifted the fence of %s", n.name)
			} else {
				c.log("operator: lift %s: %v", n.name, err)
			}
		}
	}
	// they look at the job before they approve
	if id := c.host.belief.asks; id != "" && c.job.broken() != "" {
		verb := "approve"
		if id == c.host.belief.doubts {
			verb = "deny" // its log says that it has finished
		}
		err := c.host.call(func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Recover(ctx, operator, &falconv1.RecoverRequest{
				Verb:     verb,
				Recovery: id,
				Reason:   "sim",
			})
			return err
		})
		c.log("operator: %s %s: %v", verb, id, err)
	}
	if c.host.belief.waits && !c.setup.alone && len(c.order) < nodesMost {
		n := newNode(c, falcon.Node(fmt.Sprintf("n%d", len(c.order))), c.dir)
		c.nodes[n.name] = n
		c.order = append(c.order, n)
		c.log("operator: connected %s as a spare", n.name)
		n.boot()
	}
	c.after(5*time.Second, c.lift)
}

// nodesMost bounds the spares that operators bring.
const nodesMost = 24

// broken reports whether a process on a node is frozen.
func (c *Cluster) broken(n *node) bool {
	return slices.ContainsFunc(n.procs, func(p *proc) bool {
		return p.alive && p.frozen
	})
}

// heal ends everything that is in the way: from here on, what is real must be
// recovered.
func (c *Cluster) heal() {
	c.log("everything is whole again")
	c.armed = nil
	for _, n := range c.order {
		n.path.cuts = 1
		c.mend(n)
		n.path.up.slow, n.path.down.slow = 0, 0
		if n.power {
			n.goOn()
			n.cont()
			n.boot()
		}
	}
	c.reunite(false)
	c.host.full = 0
	c.host.cont()
	c.host.revive()
}
