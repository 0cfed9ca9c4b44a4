package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// An agent that is between two connections is no reason against a whole restart:
// it is waited for before anything is ended or fenced, so that whoever approved
// may still abort, and a node that stays away can still be replaced.

// awaitsAgents begins what is added to a recovery's reason meanwhile.
const awaitsAgents = "; it waits up to "

// away says that a node's agent is not connected, and was not given up.
func (m *Machine) away(n falcon.Node) bool {
	return m.job.Away[n] && !m.job.CanLaunch[n] && !m.isFenced(n)
}

// launches says that a node can start processes, as far as is known.
func (m *Machine) launches(n falcon.Node) bool { return m.job.CanLaunch[n] || m.away(n) }

// awaitAgents has a whole restart wait for the agents that it needs; false =
// all are here. The wait is counted from its beginning, whoever comes and goes.
func (m *Machine) awaitAgents(now time.Time, on falcon.Placement) bool {
	c, away := m.cur, map[falcon.Node]bool{}
	for _, d := range on {
		if n := d.Node(); m.away(n) {
			away[n] = true
		}
	}
	if len(away) == 0 {
		return false
	}
	if m.at.agents == nil || !now.Before(m.at.until) {
		m.enter(now, falcon.RecoverySuspend, m.cfg.AgentWait)
		m.at.stands = now
	}
	m.at.agents = away
	why := wholeReason(c) + awaitsAgents + fmt.Sprintf("%s for %s to come back: see that falcon-agent runs there, or abort", m.cfg.AgentWait, agentsOf(m.missing()))
	if c.Reason != why {
		c.Reason = why
		m.dirty()
		m.note("recovery", 2, "%s waits: %s", c.ID, why)
	}
	return true
}

// missing are the nodes that are waited for and still away, in order.
func (m *Machine) missing() []falcon.Node {
	var out []falcon.Node
	for n := range m.at.agents {
		if m.away(n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// agentsBack plans again once none is waited for any more: each is here, or was
// given up.
func (m *Machine) agentsBack(now time.Time) bool {
	if len(m.missing()) > 0 {
		return false
	}
	m.relaunch(now)
	return m.cur == nil || m.cur.State != falcon.RecoverySuspend
}

// agentsOverdue gives up the nodes whose agents did not come back.
func (m *Machine) agentsOverdue(now time.Time) {
	m.cur.Reason = wholeReason(m.cur) + fmt.Sprintf("; %s did not come back within %s", agentsOf(m.missing()), m.cfg.AgentWait)
	m.giveUpLate(now, falcon.FaultNode, "the agent of node %s did not come back within %s", m.cfg.AgentWait)
}

func agentsOf(nodes []falcon.Node) string {
	if len(nodes) == 1 {
		return "the agent of " + nodeList(nodes)
	}
	return "the agents of " + nodeList(nodes)
}
