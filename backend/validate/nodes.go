package validate

import (
	"slices"

	"github.com/failslow/falcon"
)

// nodeStates is how far every node is in holding and releasing its ranks.
type nodeStates struct {
	nodes    []falcon.Node
	accepted map[falcon.Node]bool // ARM
	armEnded map[falcon.Node]bool // the final answer to ARM is here
	released map[falcon.Node]bool // RESUME was carried out
	lost     map[falcon.Node]bool // its agent is gone
}

func newNodeStates(nodes []falcon.Node) nodeStates {
	s := nodeStates{nodes: nodes, lost: map[falcon.Node]bool{}}
	s.startAttempt()
	s.startRelease()
	return s
}

func (s *nodeStates) startAttempt() {
	s.accepted = map[falcon.Node]bool{}
	s.armEnded = map[falcon.Node]bool{}
}

func (s *nodeStates) startRelease() {
	s.released = map[falcon.Node]bool{}
}

// accept records that a node has begun to hold. It reports whether all have.
func (s *nodeStates) accept(node falcon.Node) (all bool) {
	s.accepted[node] = true
	return len(s.accepted) == len(s.nodes)
}

// notAccepted is the first node that has not begun to hold.
func (s *nodeStates) notAccepted() (falcon.Node, bool) {
	i := slices.IndexFunc(s.nodes, func(n falcon.Node) bool {
		return !s.accepted[n]
	})
	if i < 0 {
		return "", false
	}
	return s.nodes[i], true
}

func (s *nodeStates) allReleased() bool {
	return !slices.ContainsFunc(s.nodes, func(n falcon.Node) bool {
		return !s.released[n]
	})
}

// releaseOver reports whether every node that can answer has released its ranks
// and said for how long they were held.
func (s *nodeStates) releaseOver() bool {
	return !slices.ContainsFunc(s.nodes, func(n falcon.Node) bool {
		return !s.lost[n] && (!s.released[n] || s.accepted[n] && !s.armEnded[n])
	})
}
