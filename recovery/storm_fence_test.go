package recovery

import (
	"maps"
	"slices"

	"github.com/failslow/falcon"
)

// fences are what the storm's engine refuses, as backend/engine does (see refuses
// there, and its tests): a fenced node says nothing that counts but that it is
// there, whatever becomes of the recovery that fenced it; a fenced process says
// nothing. Processes are fenced by name, so that of those that the engine has
// never heard of the machine hears late words all the same. In a leaky schedule
// all late words come through while a recovery is on: the machine knows them too.
type fences struct {
	nodes map[falcon.Node]bool
	below map[falcon.Rank]uint64 // generations fenced of a rank's processes
	pids  map[int]bool           // fenced by name
	heard map[int]bool           // names that the engine knows: the job's, and those told of since it began
	named map[int]bool           // those of the job's record
	leaky bool
}

func newFences(leaky bool) fences {
	return fences{
		nodes: map[falcon.Node]bool{},
		below: map[falcon.Rank]uint64{},
		pids:  map[int]bool{},
		leaky: leaky,
	}
}

// launched is a whole restart's launch: what is of before it counts no more.
func (f *fences) launched(c *Restart) {
	for r := range c.Placement {
		f.below[falcon.Rank(r)] = max(f.below[falcon.Rank(r)], c.Generation)
	}
}

func (s *storm) fence(c Fence) {
	for _, n := range c.Nodes {
		s.fences.nodes[n] = true
	}
	for _, r := range c.Ranks {
		s.fences.below[r] = max(s.fences.below[r], c.Generation)
	}
	for _, p := range s.procs {
		if p.launch < c.Generation &&
			s.fences.heard[p.pid] &&
			(slices.Contains(c.Nodes, p.node) || slices.Contains(c.Ranks, p.rank)) {
			s.fences.pids[p.pid] = true
		}
	}
}

// record names the processes of the job as it is described now.
func (s *storm) record() {
	s.fences.named = map[int]bool{}
	for _, p := range s.procs {
		if p.alive && s.owner(p) {
			s.fences.named[p.pid] = true
		}
	}
	s.fences.forget()
}

// forget leaves what the journal knows.
func (f *fences) forget() {
	f.heard = maps.Clone(f.named)
}

// refuses reports whether a node's word does not reach the machine.
func (s *storm) refuses(n *simNode, in Input) bool {
	if _, on := s.m.Current(); on && s.fences.leaky {
		return false
	}
	switch in := in.(type) {
	case Node:
		return false
	case Process:
		return s.fences.nodes[n.name] || s.fences.pids[in.Pid]
	case Beat:
		return s.fences.nodes[n.name] || s.fences.pids[in.Pid]
	}
	return s.fences.nodes[n.name]
}

// hear takes a node's word, unless it is refused.
func (s *storm) hear(n *simNode, in Input) {
	if s.refuses(n, in) {
		s.saw["refused word"] = true
		return
	}
	if p, ok := in.(Process); ok {
		s.fences.heard[p.Pid] = true
	}
	s.take(in)
}
