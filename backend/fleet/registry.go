package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// NodesMax bounds how many nodes one engine remembers.
const NodesMax = 16384

// ErrFull is returned for a node beyond NodesMax.
var ErrFull = errors.New("fleet: too many nodes")

// Node is what the engine knows of one agent. A node keeps its entry after its
// stream has ended, so that what it sent is not counted again.
type Node struct {
	Name     falcon.Node
	Hello    *falconv1.Hello
	Session  *Session // nil while no stream is open
	Host     string   // address that its newest stream came from, "" = unknown
	LastSeen time.Time
	Beat     *falconv1.Beat // newest of the present stream, or of the last one; nil before its first
	Beats    int            // of the present stream
	Steal    float64        // share of CPU time withheld, from the last telemetry

	twins *Twins // newest case of two agents with this name; nil = none
	boot  string
	taken uint64 // newest frame of this boot that the engine took
	acked uint64 // newest one whose consequences are durable
	dirty bool   // frames came since the last acknowledgement
}

// Connected reports whether a stream is open.
func (n *Node) Connected() bool { return n.Session != nil }

// TakeBeat takes a sign of life of the present stream.
func (n *Node) TakeBeat(b *falconv1.Beat) {
	n.Beat = b
	n.Beats++
}

// Age is how long ago the node was last heard.
func (n *Node) Age(now time.Time) time.Duration {
	return now.Sub(n.LastSeen)
}

// Registry is the engine's table of nodes.
type Registry struct {
	nodes   map[falcon.Node]*Node
	sorted  []*Node // all, by name; nil = to be sorted
	dirty   []*Node
	changes uint64 // streams that began or ended
}

// Changes counts the streams that have begun or ended: while it stays, the same nodes are connected.
func (r *Registry) Changes() uint64 { return r.changes }

// NewRegistry makes an empty table.
func NewRegistry() *Registry {
	return &Registry{nodes: map[falcon.Node]*Node{}}
}

// Attach enters a new stream, ends the node's older one, and says up to where
// this agent's frames are done with: 0 for an agent that was restarted. A second agent of
// the same name is refused with an error that wraps ErrTwin.
func (r *Registry) Attach(s *Session, now time.Time) (*Node, uint64, error) {
	name := falcon.Node(s.Hello.GetNode())
	n := r.nodes[name]
	if n == nil {
		if len(r.nodes) >= NodesMax {
			return nil, 0, fmt.Errorf("%w: %d are known; node %s was turned away", ErrFull, NodesMax, name)
		}
		n = &Node{Name: name}
		r.nodes[name], r.sorted = n, nil
	}
	if err := n.judgeTwin(s, now); err != nil {
		return nil, 0, err
	}
	r.changes++
	if boot := bootOf(s); boot != n.boot {
		n.boot = boot
		n.taken = 0
		n.acked = 0
	}
	n.Session, n.Hello, n.LastSeen, n.Host, n.Beat = s, s.Hello, now, s.Host, nil
	n.Beats = 0
	return n, n.acked, nil
}

// Take reports whether a frame counts: it comes from the node's present stream
// and was not taken before. Numbers may be skipped, as a full spool releases
// telemetry; they never go back. Frames numbered 0 always count.
func (r *Registry) Take(s *Session, seq uint64, now time.Time) (*Node, bool) {
	s.held.pop() // the engine has it now, whatever it makes of it
	n := r.nodes[falcon.Node(s.Hello.GetNode())]
	if n == nil || n.Session != s {
		return nil, false
	}
	n.LastSeen = now
	if seq == 0 {
		return n, true
	}
	if !n.dirty {
		n.dirty = true
		r.dirty = append(r.dirty, n)
	}
	if seq <= n.taken {
		return n, false
	}
	n.taken = seq
	return n, true
}

// Acknowledge tells every agent what was taken since the last call. The engine
// calls it after the batch is durable.
func (r *Registry) Acknowledge() {
	for _, n := range r.dirty {
		n.dirty = false
		n.acked = n.taken
		if n.Session != nil {
			n.Session.Ack(n.taken)
		}
	}
	r.dirty = r.dirty[:0]
}

// Detach forgets a stream; nil when a newer one has taken its place.
func (r *Registry) Detach(s *Session) *Node {
	n := r.nodes[falcon.Node(s.Hello.GetNode())]
	if n == nil || n.Session != s {
		return nil
	}
	n.Session = nil
	r.changes++
	return n
}

// Node looks one up; nil when it was never seen.
func (r *Registry) Node(name falcon.Node) *Node { return r.nodes[name] }

// Nodes lists all by name. The list must not be changed.
func (r *Registry) Nodes() []*Node {
	if r.sorted == nil {
		r.sorted = slices.SortedFunc(maps.Values(r.nodes), func(a, b *Node) int {
			return cmp.Compare(a.Name, b.Name)
		})
	}
	return r.sorted
}
