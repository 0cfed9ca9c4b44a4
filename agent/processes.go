package agent

import (
	"cmp"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/launch"
)

// processSet is the training processes that the agent follows, by the path of their
// memory.
type processSet struct{ byPath map[string]*process }

func newProcessSet() processSet {
	return processSet{byPath: map[string]*process{}}
}

// processAt is the process whose memory has this path, nil for none.
func (s processSet) processAt(path string) *process {
	return s.byPath[path]
}

func (s processSet) addProcess(p *process) {
	s.byPath[p.path] = p
}

func (s processSet) remove(p *process) {
	delete(s.byPath, p.path)
}

// allProcesses is every process, in order of rank.
func (s processSet) allProcesses() []*process {
	all := make([]*process, 0, len(s.byPath))
	for _, p := range s.byPath {
		all = append(all, p)
	}
	slices.SortFunc(all, func(x, y *process) int {
		return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(x.path, y.path))
	})
	return all
}

// living is every process that has not ended, whether or not its rank is known.
func (s processSet) living() []*process {
	return slices.DeleteFunc(s.allProcesses(), func(p *process) bool { return p.dead })
}

// withRanks is the living processes that hold one of these ranks; none named means any.
func (s processSet) withRanks(ranks []int32) []*process {
	return slices.DeleteFunc(s.living(), func(p *process) bool {
		return p.rank < 0 || len(ranks) > 0 && !slices.Contains(ranks, int32(p.rank))
	})
}

// follows reports whether a living process has this number and generation.
func (s processSet) follows(pid int, generation uint64) bool {
	return slices.ContainsFunc(s.living(), func(p *process) bool {
		return p.header.PID == pid && p.status.Generation == generation
	})
}

// startedAs are the living processes, by the ranks that they were started as.
func (s processSet) startedAs() []launch.Running {
	var out []launch.Running
	for _, p := range s.living() {
		out = append(out, launch.Running{
			PID:        p.header.PID,
			Rank:       p.header.Rank,
			Generation: p.status.Generation,
		})
	}
	return out
}

// pidsByRank is the process of each rank. While ranks move two may claim one: the newer
// placement holds it.
func (s processSet) pidsByRank() map[falcon.Rank]int {
	pids := map[falcon.Rank]int{}
	order := map[falcon.Rank]uint64{}
	for _, p := range s.living() {
		placed := p.ranks.newest.Order
		if _, twice := pids[p.rank]; p.rank < 0 || twice && order[p.rank] > placed {
			continue
		}
		pids[p.rank] = p.header.PID
		order[p.rank] = placed
	}
	return pids
}
