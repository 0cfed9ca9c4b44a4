package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// A leftover is a living process that claims a rank and is not the job's: it was replaced, or an
// order came late to its node. Its node is no spare: a launch there would be refused for it, and the
// node would be taken for faulty.

// leftovers are those that the agents have reported, by node and name of the process.
type leftovers map[falcon.Node]map[string]leftover

type leftover struct {
	text string // for people
	at   time.Time
}

// leftoversMost bounds what is kept of one node: one is reason enough.
const leftoversMost = 16

// note takes the report of a process that is not the job's.
func (l leftovers) note(now time.Time, n falcon.Node, s *falconv1.RankState) {
	name := processName(n, s)
	if !s.GetAlive() {
		l.forget(n, name)
		return
	}
	on := l[n]
	if on == nil {
		on = map[string]leftover{}
		l[n] = on
	}
	if _, known := on[name]; known || len(on) < leftoversMost {
		text := fmt.Sprintf("process %d of an earlier life of rank %d still runs on %s",
			s.GetPid(), s.GetRank(), n)
		on[name] = leftover{text: text, at: now}
	}
}

// has reports whether a process is known to be left over.
func (l leftovers) has(n falcon.Node, s *falconv1.RankState) bool {
	_, is := l[n][processName(n, s)]
	return is
}

// forget notes that a process has ended, or is the job's.
func (l leftovers) forget(n falcon.Node, name string) {
	if on := l[n]; on != nil {
		delete(on, name)
		if len(on) == 0 {
			delete(l, n)
		}
	}
}

// relist is for how long after a new stream what was reported on the one before still counts: an
// agent reports all that live, and nothing of those that ended while it was away.
const relist = 5 * time.Second

// relistBeats are the beats of the new stream that must have come as well: an agent that was stopped
// meanwhile has reported nothing.
const relistBeats = 3

// listed reports whether a node's agent has had so long, and has beaten often enough, on its present
// stream: what it has not reported there has ended.
func (c *clusterView) listed(now time.Time, name falcon.Node, wait time.Duration) bool {
	n := c.nodes.Node(name)
	return n != nil &&
		n.Connected() &&
		n.Beats >= relistBeats &&
		now.Sub(c.attached[name]) >= wait
}

// leftOn is the first leftover on a node, "" = none is known.
func (c *clusterView) leftOn(now time.Time, name falcon.Node) string {
	listed, attached := c.listed(now, name, relist), c.attached[name]
	for _, process := range slices.Sorted(maps.Keys(c.left[name])) {
		if x := c.left[name][process]; !listed || !x.at.Before(attached) {
			return x.text
		}
	}
	return ""
}
