package cluster

import (
	"context"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
)

// Times of the emulated network; the keepalive's are those of ship and rpc.
const (
	latencyLeast   = 200 * time.Microsecond
	latencyMost    = 5 * time.Millisecond
	keepalive      = 20 * time.Second // without an answer, after which an end gives a connection up
	keepaliveEvery = time.Second      // how often that is looked at here
	dialTimeout    = 5 * time.Second
)

// way is one direction of a node's path to the engine.
type way struct {
	cut  bool          // nothing passes; what was sent comes after it is mended, as TCP sends again
	slow time.Duration // added to the latency
}

// path is a node's path to the engine.
type path struct {
	up, down way
	cuts     int  // not mended
	refuse   bool // connections are refused at once (REJECT) while a way is cut
}

// conn is one connection with its stream. Frames of one direction keep their
// order; those of two connections do not.
type conn struct {
	w       *World
	node    *node
	host    *host // engine's side; its life at the time
	life    int
	session *fleet.Session
	up      pipe // agent to engine
	down    pipe
	agentUp bool // the agent's end is open
	engUp   bool // the engine's end is open
	agent   *agentLife
}

// pipe carries messages in order.
type pipe struct {
	queue []func()      // sent, and not delivered
	held  int           // of them, due while the way was cut
	last  time.Duration // when the newest delivery is due
	heard time.Duration // when the far end last got anything, keepalives included
}

// dial opens a connection from a node's agent, or fails in its own time.
func (n *node) dial(a *agentLife) {
	w := n.c.World
	p := &n.path
	switch {
	case p.up.cut || p.down.cut:
		wait := dialTimeout
		if p.refuse {
			wait = time.Millisecond
		}
		w.after(wait, func() { a.failed("no way") })
		return
	case n.lead().engine == nil:
		w.after(w.between(latencyLeast, latencyMost), func() { a.failed("refused") })
		return
	}
	c := &conn{
		w:       w,
		node:    n,
		host:    n.lead(),
		life:    n.lead().life,
		agentUp: true,
		engUp:   true,
		agent:   a,
	}
	c.up.heard, c.down.heard = w.now, w.now
	a.conn = c
	n.c.conns = append(n.c.conns, c)
	hello := proto.CloneOf(a.link.Hello())
	if a.old {
		olderFrame(hello)
	}
	c.send(&c.up, &p.up, func() { c.accept(hello) })
	w.after(keepaliveEvery, c.probe)
}

// send delivers f after the way's latency, behind everything sent before. While
// the way is cut it waits.
func (c *conn) send(q *pipe, over *way, f func()) {
	q.queue = append(q.queue, f)
	c.due(q, over, c.w.between(latencyLeast, latencyMost)+over.slow)
}

// due delivers one more message after a while.
func (c *conn) due(q *pipe, over *way, wait time.Duration) {
	q.last = max(q.last, c.w.now+wait)
	c.w.after(q.last-c.w.now, func() {
		if over.cut {
			q.held++ // it goes on when the way is mended
			return
		}
		f := q.queue[0]
		q.queue = q.queue[1:]
		q.heard = c.w.now
		f()
	})
}

// mended lets what waits flow again.
func (c *conn) mended() {
	for _, x := range []struct {
		q    *pipe
		over *way
	}{{&c.up, &c.node.path.up}, {&c.down, &c.node.path.down}} {
		n := x.q.held
		x.q.held = 0
		for range n {
			c.due(x.q, x.over, c.w.between(latencyLeast, latencyMost))
		}
	}
}

// probe is the keepalive of both ends: it needs both ways.
func (c *conn) probe() {
	if !c.agentUp && !c.engUp {
		return
	}
	whole := !c.node.path.up.cut && !c.node.path.down.cut
	if whole && c.agentUp && c.engUp && c.node.power && !c.agent.halted() {
		c.up.heard, c.down.heard = c.w.now, c.w.now
	}
	if c.engUp &&
		c.host.life == c.life &&
		!c.host.stopped &&
		c.w.now-c.up.heard >= keepalive {
		c.closeEngine("keepalive")
	}
	if c.agentUp && !c.agent.halted() && c.w.now-c.down.heard >= keepalive {
		c.closeAgent("keepalive")
	}
	c.w.after(keepaliveEvery, c.probe)
}

// accept is the engine's side of a new stream.
func (c *conn) accept(hello *falconv1.AgentFrame) {
	if !c.live() {
		return
	}
	c.session = fleet.NewSession(context.Background(), hello.GetHello())
	if err := c.host.engine.Attach(c.session); err != nil {
		c.closeEngine(err.Error())
		return
	}
	c.host.wake()
}

// live reports whether the engine's end still is the one that the connection
// was made to.
func (c *conn) live() bool {
	return c.engUp && c.host.engine != nil && c.host.life == c.life
}

// toEngine carries one frame of the agent.
func (c *conn) toEngine(f *falconv1.AgentFrame) {
	f = proto.CloneOf(f)
	if c.agent.old {
		olderFrame(f)
	}
	if c.w.frames {
		c.w.log("%s > %s", c.node.name, prototext.MarshalOptions{}.Format(f))
	}
	c.send(&c.up, &c.node.path.up, func() {
		if c.live() && c.session != nil && c.session.Context().Err() == nil {
			c.host.take(c, f)
		}
	})
}

// pump carries what the engine has for the agent.
func (c *conn) pump() {
	if c.session == nil || !c.live() {
		return
	}
	for f := c.session.Next(); f != nil; f = c.session.Next() {
		f = proto.CloneOf(f)
		if c.w.frames {
			c.w.log("%s < %s", c.node.name, prototext.MarshalOptions{}.Format(f))
		}
		c.send(&c.down, &c.node.path.down, func() {
			if c.agentUp {
				c.agent.received(c, f)
			}
		})
	}
	if c.session.Context().Err() != nil {
		c.closeEngine(context.Cause(c.session.Context()).Error())
	}
}

// olderFrame takes out of a frame what an agent of the revision before does not send.
func olderFrame(f *falconv1.AgentFrame) {
	switch b := f.Body.(type) {
	case *falconv1.AgentFrame_Hello:
		b.Hello.Standing = nil
		b.Hello.Formats = nil
		b.Hello.Living = 0
	case *falconv1.AgentFrame_Beat:
		b.Beat.Standing = nil
	case *falconv1.AgentFrame_Result:
		b.Result.Newer, b.Result.Unproven = nil, nil
	}
}

// closeAgent ends the agent's end; the engine's hears of it if a way is there.
func (c *conn) closeAgent(why string) {
	if !c.agentUp {
		return
	}
	c.agentUp = false
	c.agent.lost(c, why)
	if c.node.power {
		c.send(&c.up, &c.node.path.up, func() { c.closeEngine("peer closed") })
	}
}

// closeEngine ends the engine's end.
func (c *conn) closeEngine(why string) {
	if !c.engUp {
		return
	}
	c.engUp = false
	if c.session != nil && c.host.engine != nil && c.host.life == c.life {
		c.session.End(fleet.ErrClosed)
		c.host.engine.Detach(c.session)
		c.host.wake()
	}
	c.w.log("%s: the stream ended at the engine: %s", c.node.name, why)
	c.send(&c.down, &c.node.path.down, func() { c.closeAgent("peer closed") })
}
