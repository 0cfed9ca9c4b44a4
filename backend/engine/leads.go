package engine

import (
	"time"

	"github.com/failslow/falcon"
)

// Ranks of one job train in step: no node can be far ahead of all others. One
// that says so is wrong, and its word would make the others' samples look old.
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

func (l *leads) note(node falcon.Node, iteration int64, now time.Time) {
	switch {
	case l.first.node == node:
		l.first.iteration, l.first.at = max(l.first.iteration, iteration), now
	case l.first.node == "" || iteration > l.first.iteration:
		l.first, l.second = lead{node, iteration, now}, l.first
	case l.second.node == node:
		l.second.iteration, l.second.at = max(l.second.iteration, iteration), now
	case l.second.node == "" || iteration > l.second.iteration || now.Sub(l.second.at) > leadFresh:
		l.second = lead{node, iteration, now}
	}
}

// tooFar says that no other node is anywhere near an iteration of this one.
func (l *leads) tooFar(node falcon.Node, iteration int64, now time.Time) bool {
	other := l.first
	if other.node == node {
		other = l.second
	}
	return other.node != "" && now.Sub(other.at) <= leadFresh && iteration > other.iteration+leadMax
}

// inStep drops the samples of nodes that are too far ahead. All of a batch are
// looked at before one of it is judged.
func (e *Engine) inStep(samples []falcon.Sample, now time.Time) []falcon.Sample {
	ahead := e.leads
	for _, s := range samples {
		ahead.note(e.cluster.nodeOf(s.Rank), s.Iteration, now)
	}
	out := samples[:0]
	for _, s := range samples {
		node := e.cluster.nodeOf(s.Rank)
		if ahead.tooFar(node, s.Iteration, now) {
			e.oplog.logf("rank", 2, "rank %d on node %s claims iteration %d, far ahead of all other nodes: ignored", s.Rank, node, s.Iteration)
			continue
		}
		e.leads.note(node, s.Iteration, now)
		out = append(out, s)
	}
	return out
}
