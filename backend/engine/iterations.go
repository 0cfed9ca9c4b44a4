package engine

import (
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate"
)

// Bounds of the wait for ranks that are late with an iteration.
const (
	laggardIterations = 16              // newer iterations seen elsewhere
	laggardWait       = 5 * time.Second // since the iteration was first heard of
	gapIterationsMax  = 1 << 16         // a jump beyond resets the count
	unheardFor        = 3 * time.Second // without a sample, before a laggard's node counts as silent
)

// iterationCollector turns samples of single ranks into the job's iteration times. An
// iteration is given out once, in order, when all live ranks have reported it,
// or without those that keep it waiting too long.
type iterationCollector struct {
	open   map[int64]*iteration
	next   int64 // first iteration not given out; NoIteration before the first
	newest int64
}

type iteration struct {
	ranks map[falcon.Rank]struct{}
	ms    float64 // slowest rank, pauses taken out
	since time.Time
}

func newIterationCollector() *iterationCollector {
	return &iterationCollector{
		open:   map[int64]*iteration{},
		next:   falcon.NoIteration,
		newest: falcon.NoIteration,
	}
}

func (p *iterationCollector) addSample(s falcon.Sample, now time.Time) {
	if p.next == falcon.NoIteration ||
		s.Iteration > p.newest+gapIterationsMax ||
		s.Iteration < p.next-gapIterationsMax {
		clear(p.open)
		p.next, p.newest = s.Iteration, s.Iteration
	}
	if s.Iteration < p.next {
		return
	}
	it := p.open[s.Iteration]
	if it == nil {
		it = &iteration{ranks: map[falcon.Rank]struct{}{}, since: now}
		p.open[s.Iteration] = it
	}
	it.ranks[s.Rank] = struct{}{}
	it.ms = max(it.ms, s.RunMs())
	p.newest = max(p.newest, s.Iteration)
}

// takeComplete gives out what is ready, oldest first; live is the number of ranks
// that can report. Iterations that no rank reported are skipped.
// unheard names the nodes that an incomplete one was given out without.
func (p *iterationCollector) takeComplete(
	live int,
	now time.Time,
	unheard func(heard map[falcon.Rank]struct{}) []falcon.Node,
) []mitigate.Iteration {
	var out []mitigate.Iteration
	for p.next != falcon.NoIteration && p.next <= p.newest {
		it := p.open[p.next]
		if !p.ready(it, live, now) {
			break
		}
		if it != nil {
			given := mitigate.Iteration{Index: p.next, Ms: it.ms}
			if len(it.ranks) < live {
				given.Unheard = unheard(it.ranks)
			}
			out = append(out, given)
			delete(p.open, p.next)
		}
		p.next++
	}
	return out
}

func (p *iterationCollector) ready(it *iteration, live int, now time.Time) bool {
	switch {
	case p.newest-p.next >= laggardIterations:
		return true
	case it == nil: // not reported yet; a newer one is there, so wait for the laggards' bound
		return false
	}
	return len(it.ranks) >= live || now.Sub(it.since) >= laggardWait
}
