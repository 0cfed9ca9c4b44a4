package engine

import (
	"time"

	"github.com/failslow/falcon"
)

// Ranks of one job train in step: no node can be far ahead of all others. One
// that claims so is wrong, and its claim would make the others' samples look old.
const (
	leadMax   = 4096             // iterations; agents may bring the others' later
	leadFresh = 30 * time.Second // a node that is silent for longer is no measure
)

// lead is how far a node has come.
type lead struct {
	node      falcon.Node
	iteration int64
	at        time.Time
}

// leads are the two nodes that are furthest: what the others of any node have
// reached is in one of them.
type leads struct{ first, second lead }

func (l *leads) noteLead(node falcon.Node, iteration int64, now time.Time) {
	switch {
	case l.first.node == node:
		l.first.iteration = max(l.first.iteration, iteration)
		l.first.at = now
	case l.first.node == "" || iteration > l.first.iteration:
		l.first, l.second = lead{node, iteration, now}, l.first
	case l.second.node == node:
		l.second.iteration = max(l.second.iteration, iteration)
		l.second.at = now
	case l.second.node == "" ||
		iteration > l.second.iteration ||
		now.Sub(l.second.at) > leadFresh:
		l.second = lead{node, iteration, now}
	}
}

// tooFar reports whether no other node is anywhere near an iteration of this one.
func (l *leads) tooFar(node falcon.Node, iteration int64, now time.Time) bool {
	other := l.first
	if other.node == node {
		other = l.second
	}
	return other.node != "" &&
		now.Sub(other.at) <= leadFresh &&
		iteration > other.iteration+leadMax
}
