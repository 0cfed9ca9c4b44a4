package cluster

import (
	"errors"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/engine"
)

// hosts are the machines on which an engine may run.
func (c *Cluster) hosts() []*host {
	if c.rival != nil {
		return []*host{c.host, c.rival}
	}
	return []*host{c.host}
}

// lead is where the address of the engine leads a node's agent to.
func (n *node) lead() *host {
	if n.leads != nil {
		return n.leads
	}
	return n.c.host
}

// double starts a second engine, with a copy of the first one's folder or an empty one, as when
// a machine was brought back from an image that was thought lost. Agents are led to one or
// to the other, in turn.
func (c *Cluster) double(d injection) {
	if c.rival != nil || c.host.engine == nil {
		return
	}
	c.doubles++
	h := newHost(c, "second engine "+string(rune('a'+c.doubles%26)))
	if d.flag {
		for name, b := range c.host.readFiles() {
			h.write(name, b)
		}
	}
	c.rival = h
	c.log("a second engine is started (with a copy: %t)", d.flag)
	c.lead(d)
	h.start()
	c.after(copyEvery, h.keepCopies)
	c.after(d.last, func() {
		if c.rival == h {
			c.reunite(d.rank%2 == 0)
		}
	})
}

// lead leads agents to one engine or the other: all or half of them to the second, or each to
// either in turn.
func (c *Cluster) lead(d injection) {
	if c.rival == nil {
		return
	}
	for i, n := range c.order {
		to := c.rival
		switch {
		case d.node%3 == 1 && i%2 == 0, d.node%3 == 2 && c.rng.IntN(2) == 0:
			to = c.host
		}
		if n.lead() != to {
			n.leads = to
			n.reset()
		}
	}
	if d.node%3 == 2 {
		c.after(c.between(time.Second, 10*time.Second), func() { c.lead(d) })
	}
}

// reunite has an operator end one of two engines; all agents are led to the other.
func (c *Cluster) reunite(second bool) {
	if c.rival == nil {
		return
	}
	kept, gone := c.host, c.rival
	if second && c.rival.engine != nil || c.host.retired {
		kept, gone = gone, kept
	}
	c.log("%s is kept, %s is ended", kept.name, gone.name)
	gone.kill()
	gone.retired = true
	c.host, c.rival = kept, nil
	for _, n := range c.order {
		n.leads = nil
		if a := n.agent; a != nil && a.conn != nil && a.conn.host != kept {
			n.reset()
		}
	}
}

// yields has an engine end by itself beside a second one: it knows that the other has the
// cluster. Where the other was ended by an operator, it is started again. False where there was
// none.
func (c *Cluster) yields(h *host, err error) bool {
	brought := c.doubles > 0 || c.rollbacks > 0 // by a person, who starts the engine again
	if c.rival == nil && brought && errors.Is(err, engine.ErrSuperseded) {
		h.log("ends: %s", err)
		h.kill()
		c.after(c.between(time.Second, 5*time.Second), h.revive)
		return true
	}
	if c.rival == nil || c.host.retired || c.rival.retired {
		return false
	}
	h.log("ends: %s", err)
	h.retired = true
	h.kill()
	c.reunite(h == c.host)
	return true
}

// reach is informed of each step of a recovery: pauses that wait for it begin.
func (c *Cluster) reach(state falcon.RecoveryState) {
	for i, d := range c.armed {
		if steps[d.rank%len(steps)] != state {
			continue
		}
		c.armed = append(c.armed[:i:i], c.armed[i+1:]...)
		within := time.Duration(d.rank/len(steps)) * 50 * time.Millisecond
		d.kind = "node-pause"
		if d.node == 0 {
			d.kind = "some-pause"
		}
		c.after(within, func() { c.upset(d) })
		return
	}
}

// steps are those of a recovery at which a pause may begin.
var steps = []falcon.RecoveryState{
	falcon.RecoverySuspend, falcon.RecoveryReplace, falcon.RecoveryTable, falcon.RecoveryRejoin,
	falcon.RecoveryResumed,
}
