package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent"
	"github.com/failslow/falcon/agent/launch"
	"github.com/failslow/falcon/agent/ship"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	steady "github.com/failslow/falcon/backend/clock"
)

// node is one machine of the cluster.
type node struct {
	c     *Cluster
	name  falcon.Node
	dir   string
	power bool
	clock *clock
	time  *steady.Clock // of the newest agent
	path  path
	agent *agentLife // nil while none runs
	boots int

	paused    bool // nothing runs on it
	pausedAt  time.Duration
	resumedAt time.Duration
	pauses    int

	procs []*proc // that were ever started here, oldest first

	by     map[*host]*reach
	leads  *host         // where its agent's address leads to, nil = to the engine
	thawed time.Duration // when a process here last went on after a freeze
	hot    uint64        // thermal time of its GPUs so far, ns
	blamed time.Duration // when a device here last reported a fatal fault, 0 = never
	lost   bool          // it lost its power, and no fence of it was lifted since
	// it was given up while a device's fatal report spoke against it, and no fence
	// of it was lifted since
	faulty   bool
	demanded bool // an operator has asked for its replacement
	old      bool // its agent is of the version before, until it is started again
}

// agentLife is one life of a node's agent.
type agentLife struct {
	n       *node
	agent   *agent.Agent
	link    *ship.Link
	conn    *conn
	backoff time.Duration
	stopped bool // SIGSTOP
	over    bool
	old     bool          // of the version before
	due     time.Duration // next turn
	no      int           // of that turn: an older one does not count
}

func newNode(c *Cluster, name falcon.Node, dir string) *node {
	n := &node{
		c:     c,
		name:  name,
		dir:   filepath.Join(dir, string(name)),
		clock: &clock{w: c.World},
		by:    map[*host]*reach{},
		power: true,
	}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		c.violate("%s", err)
	}
	return n
}

// now is the time of the node's agent, which began with the wall clock and never steps.
func (n *node) now() time.Time { return n.time.Now() }

// boot starts the node's agent.
func (n *node) boot() {
	if n.agent != nil || !n.power {
		return
	}
	if n.paused {
		n.c.after(awhile, n.boot)
		return
	}
	n.boots++
	n.time = steady.New(n.clock.read)
	cfg := agent.Defaults()
	cfg.Node = string(n.name)
	cfg.Job = "sim"
	cfg.ShmDir = n.dir
	cfg.DrainMs, cfg.RankTable = n.c.setup.drainMs, filepath.Join(n.dir, "table.json")
	cfg.Launch = launch.Config{
		Command:   []string{"/bin/true"},
		NodeRanks: n.c.setup.perNode,
	}
	cfg.Host.Proc = n.dir // nothing of this machine's processes is theirs
	a := &agentLife{n: n, backoff: ship.BackoffMin, old: n.old}
	a.agent = agent.New(cfg, agent.Options{
		Directory: directory{n},
		Launch:    machine{n},
		Now:       n.now,
	})
	boot := fmt.Sprintf("%s-%d", n.name, n.boots)
	from := a.agent.TakeOver()
	if from != nil {
		boot = from.Boot
	}
	var err error
	a.link, err = ship.NewLink(ship.Config{
		Hello: &falconv1.Hello{
			Agent:       string(n.name),
			Node:        string(n.name),
			Boot:        boot,
			Version:     "sim",
			Job:         "sim",
			LaunchRanks: int32(n.c.setup.perNode),
			Protocol:    n.protocol(),
		},
		From:     from,
		Now:      n.now,
		Welcome:  a.agent.Welcome,
		Standing: a.agent.Standing,
		Command:  a.agent.Command,
		Ask:      a.agent.Ask,
	})
	if err != nil {
		n.c.violate("%s: %s", n.name, err)
		return
	}
	a.link.OnRenew(func() {
		if c := a.conn; c != nil {
			n.c.log("%s: agent begins a new stream", n.name)
			c.closeAgent("the agent was stopped")
		}
	})
	a.agent.Bind(a.link.Shipper())
	a.agent.Start(n.now())
	n.agent = a
	n.c.log("%s: agent %d starts", n.name, n.boots)
	a.wake(0)
	n.dial(a)
	a.probe()
}

func (n *node) protocol() uint32 {
	if n.old {
		return falconv1.ProtocolRevision - 1
	}
	return falconv1.ProtocolRevision
}

// telemetryEvery is how often the node's GPUs are read.
const telemetryEvery = 2 * time.Second

// probe sends what the hardware says: a slow GPU's clock is low, for heat.
func (a *agentLife) probe() {
	if a.over {
		return
	}
	n := a.n
	readings := []falcon.GPUReading{}
	for i := range n.c.setup.perNode {
		d := falcon.NewDevice(n.name, i)
		r := falcon.GPUReading{
			Device:        d,
			AtNs:          n.now().UnixNano(),
			MaxSMClockMHz: 1980,
			SMClockMHz:    1980,
			TemperatureC:  60,
			PowerMw:       400_000,
			PowerLimitMw:  700_000,
		}
		if f := n.c.job.slow[d]; f > 0 {
			r.SMClockMHz = uint32(1980 / f)
			r.TemperatureC = 92
			r.Reasons = falcon.ReasonHwThermal
			n.hot += uint64(float64(telemetryEvery) * (1 - 1/f))
		}
		r.ThermalNs = n.hot
		readings = append(readings, r)
	}
	if !a.halted() {
		a.link.Shipper().Send(agent.TelemetryFrame(readings, nil, falcon.HostReading{
			AtNs: n.now().UnixNano(),
		}))
	}
	n.c.after(telemetryEvery, a.probe)
}

// complain has a device report a fault, which is fatal or not. Nothing comes of it
// by itself: its process goes on.
func (n *node) complain(d falcon.Device, fatal bool) {
	if n.agent == nil || n.agent.halted() || !n.power {
		return
	}
	code, text := 13, "a page fault of the application"
	if fatal {
		code, text = 79, "the GPU has fallen off the bus"
		n.blamed = n.c.now
	}
	n.agent.link.Shipper().Send(agent.DeviceFrame(string(d), n.now().UnixNano(), fatal, code, text))
}

// wake has the next turn come within d.
func (a *agentLife) wake(d time.Duration) {
	at := a.n.c.now + d
	if a.due > a.n.c.now && a.due <= at {
		return
	}
	a.due = at
	a.no++
	no := a.no
	a.n.c.after(d, func() {
		if no == a.no {
			a.turn()
		}
	})
}

// turnLeast bounds how often an agent is driven: a busy node's scheduler.
const turnLeast = 20 * time.Millisecond

func (a *agentLife) turn() {
	a.due = 0
	if a.over {
		return
	}
	if a.halted() {
		return // it goes on with cont
	}
	next := a.agent.Tick(a.n.now())
	a.push()
	a.wake(max(next, turnLeast))
}

// push sends what waits on a stream that has been welcomed.
func (a *agentLife) push() {
	if a.conn == nil || !a.conn.agentUp || !a.link.Shipper().Stats().Connected {
		return
	}
	for f := a.link.Next(); f != nil; f = a.link.Next() {
		if a.old {
			f = withoutAge(f)
		}
		a.conn.toEngine(f)
	}
}

// withoutAge is a frame as an agent of the revision before sends it.
func withoutAge(f *falconv1.AgentFrame) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{Seq: f.GetSeq(), Body: f.GetBody()}
}

// received takes one frame of the engine.
func (a *agentLife) received(c *conn, f *falconv1.EngineFrame) {
	if a.over || a.conn != c || !c.agentUp {
		return
	}
	if a.halted() {
		// it waits in the socket
		a.n.c.after(100*time.Millisecond, func() { a.received(c, f) })
		return
	}
	if w := f.GetWelcome(); w != nil {
		for _, g := range a.link.Welcomed(w) {
			c.toEngine(g)
		}
		a.backoff = ship.BackoffMin
	} else {
		a.link.Received(f)
	}
	a.wake(0)
}

// lost is reported when the agent's end of its connection has closed.
func (a *agentLife) lost(c *conn, why string) {
	if a.over || a.conn != c {
		return
	}
	a.link.Broken()
	a.failed(why)
}

func (a *agentLife) failed(why string) {
	if a.over {
		return
	}
	w := a.n.c.World
	wait := time.Duration(float64(a.backoff) * (0.75 + 0.5*w.rng.Float64()))
	a.backoff = min(2*a.backoff, ship.BackoffMax)
	w.log("%s: no stream (%s), next try in %v", a.n.name, why, wait.Round(time.Millisecond))
	w.after(wait, func() { a.redial() })
}

func (a *agentLife) redial() {
	switch {
	case a.over:
	case a.halted():
		a.n.c.after(100*time.Millisecond, a.redial)
	default:
		a.n.dial(a)
	}
}

// halted reports whether the agent does not run.
func (a *agentLife) halted() bool { return a.stopped || a.n.paused }

// end ends the agent: in order, or as kill -9 does.
func (n *node) end(order bool) {
	a := n.agent
	if a == nil {
		return
	}
	n.c.log("%s: agent ends (in order: %t, old: %t)", n.name, order, a.old)
	n.old = false // it is upgraded
	if order && !a.old {
		a.agent.Halt(n.now())
		a.push()
		if c := a.conn; c != nil && c.agentUp && !a.halted() && a.link.Shipper().Stats().Connected {
			c.toEngine(a.link.Goodbye())
		}
		if err := a.agent.HandOver(a.link.Shipper().Handover()); err != nil {
			n.c.violate("%s: %s", n.name, err)
		}
	}
	a.over, n.agent = true, nil
	if c := a.conn; c != nil && c.agentUp {
		c.agentUp = false
		if n.power {
			c.send(&c.up, &n.path.up, func() { c.closeEngine("the agent has ended") })
		}
	}
}

// stop and cont are SIGSTOP and SIGCONT to the agent.
func (n *node) stop() {
	if n.agent != nil {
		n.c.log("%s: agent stopped", n.name)
		n.agent.stopped = true
	}
}

func (n *node) cont() {
	if n.agent != nil && n.agent.stopped {
		n.c.log("%s: agent goes on", n.name)
		n.agent.stopped = false
		n.agent.wake(0) // a paused node's waits
	}
}

// die takes the node away: its processes and its agent. With reset, its kernel
// still closes what is open; without, it falls silent.
func (n *node) die(reset bool) {
	if !n.power {
		return
	}
	n.c.log("%s: node dies (reset: %t)", n.name, reset)
	n.paused, n.lost = false, true
	n.clock.run()
	if !reset {
		n.power = false
	}
	n.end(false)
	n.power = false
	for _, p := range n.procs {
		p.kill("")
	}
}
