package recovery

import (
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// leftovers are processes that wait in a generation while the job stands after a
// recovery without success: by rank on each node, in the placement or not.
type leftovers map[falcon.Node]map[falcon.Rank]int // pid

// hear takes a process's word in; standing says that the job stands.
func (l leftovers) hear(p Process, standing bool) {
	waits := p.Alive && p.Park != nil && p.Park.Generation > 0 // who left by himself is in none
	switch {
	case standing && waits && p.Rank >= 0:
		if l[p.Node] == nil {
			l[p.Node] = map[falcon.Rank]int{}
		}
		l[p.Node][p.Rank] = p.Pid
	case l[p.Node][p.Rank] == p.Pid:
		delete(l[p.Node], p.Rank)
	}
}

// watchLeft ends processes that still wait although the job stands: the order to
// end them may have been lost with the engine that was to give it.
func (m *Machine) watchLeft(now time.Time) {
	if m.cur != nil || !m.closed || len(m.left) == 0 || now.Before(m.closedAt.Add(2*m.cfg.Beat)) {
		return
	}
	last, ranks := m.recs[len(m.recs)-1], []falcon.Rank{}
	for n, on := range m.left {
		if len(on) == 0 {
			delete(m.left, n)
		}
		ranks = slices.AppendSeq(ranks, maps.Keys(on))
	}
	if len(ranks) > 0 && last.Attempts > 0 {
		slices.Sort(ranks)
		m.command(Stop{Generation: last.Generation, Nodes: slices.Sorted(maps.Keys(m.left)), Ranks: slices.Compact(ranks)})
	}
	clear(m.left)
}
