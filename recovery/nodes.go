package recovery

import (
	"time"

	"github.com/failslow/falcon"
)

// How is how an agent's stream came to its end.
type How uint8

// Ends of streams. None of them is a sign against the node by itself.
const (
	TimedOut How = iota // nothing was heard on it for long
	Reset               // the other side broke it
	Goodbye             // the agent reported that it stops in order
	Closed              // the console ended it itself
)

// EventLife is how long a device's fatal report is a sign.
const EventLife = 10 * time.Minute

// nodeTable is when each node was heard, how its connection ended, and what its
// devices reported. It knows of no rank and of no recovery.
type nodeTable struct {
	limits silenceLimits
	hosts  map[falcon.Node]*host // heard of
}

// silenceLimits are the times after which silence means something.
type silenceLimits struct {
	beat, grace, leave time.Duration
	suspect            int // missed beats
}

// host is one node.
type host struct {
	*silenceLimits
	heard     time.Time // or, of one never heard, the end of the time that it has for that
	met       bool      // heard since the machine began
	suspected bool
	gone      bool      // its stream has ended and it has opened no other
	how       How       // it ended
	goneAt    time.Time // when
	fatal     Device    // newest fatal report
	fatalAt   time.Time
}

func newNodeTable(cfg Config) nodeTable {
	return nodeTable{
		limits: silenceLimits{beat: cfg.Beat, grace: cfg.Grace, leave: cfg.Leave, suspect: cfg.Suspect},
		hosts:  map[falcon.Node]*host{},
	}
}

// host finds a node; one that is new has the grace time to be heard.
func (t *nodeTable) host(n falcon.Node, now time.Time) *host {
	h := t.hosts[n]
	if h == nil {
		h = &host{silenceLimits: &t.limits, heard: now.Add(t.limits.grace)}
		t.hosts[n] = h
	}
	return h
}

// anyMissing reports whether one of the nodes was never heard, or is not heard now.
func (t *nodeTable) anyMissing(nodes []falcon.Node, now time.Time) bool {
	for _, n := range nodes {
		if h := t.host(n, now); !h.met || h.unheard(now) {
			return true
		}
	}
	return false
}

// noneHeard reports whether several nodes are known and none is heard.
func (t *nodeTable) noneHeard(now time.Time) bool {
	for _, h := range t.hosts {
		if h.met && !h.unheard(now) {
			return false
		}
	}
	return len(t.hosts) > 1
}

// skip takes a pause of the console itself out of every node's silence.
func (t *nodeTable) skip(gap time.Duration, now time.Time) {
	for _, h := range t.hosts {
		h.heard = earlier(h.heard.Add(gap), now) // what has come since is of now
	}
}

// restart has every node's silence begin now.
func (t *nodeTable) restart(now time.Time) {
	for _, h := range t.hosts {
		if h.heard.Before(now) {
			h.heard, h.suspected = now, false
		}
	}
}

// hear takes a sign of life. It reports whether the node was suspected, and whether
// it had no connection.
func (h *host) hear(now time.Time) (suspected, gone bool) {
	suspected, gone = h.suspected, h.gone
	h.heard, h.met, h.gone, h.suspected = now, true, false, false
	return suspected, gone
}

// disconnect takes the end of the node's stream.
func (h *host) disconnect(now time.Time, how How) {
	h.gone, h.how, h.goneAt = true, how, now
	h.heard = earlier(h.heard, now)
}

// report takes a device's fatal report.
func (h *host) report(d Device, at time.Time) { h.fatal, h.fatalAt = d, at }

func (h *host) missedBeats(now time.Time) int { return int(now.Sub(h.heard) / h.beat) }

// unheard reports whether nothing is known of the node now.
func (h *host) unheard(now time.Time) bool { return h.gone || h.missedBeats(now) >= h.suspect }

// leaving reports whether the node's agent has said goodbye and still has time to
// come back.
func (h *host) leaving(now time.Time) bool {
	return h.gone && h.how == Goodbye && now.Sub(h.goneAt) < h.leave
}

// becomesSuspect reports whether the node is to be named as suspected, once.
func (h *host) becomesSuspect(now time.Time) bool {
	if h.suspected || h.missedBeats(now) < h.suspect || h.leaving(now) {
		return false
	}
	h.suspected = true
	return true
}

// reportsFatal reports whether a device's fatal report is recent enough to be a sign.
func (h *host) reportsFatal(now time.Time) bool {
	return !h.fatalAt.IsZero() && now.Sub(h.fatalAt) < EventLife
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
