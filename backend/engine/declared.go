package engine

import (
	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/mitigate"
)

// declare adds to the planner's job what the adapters say of it: what a
// replica may be given, what moves with a rank, and how fast. A replica has the
// bounds of its tightest rank; what any rank leaves open of its state stays
// unknown for all, as half a sum would be taken for the whole.
func (j *job) declare(in *mitigate.Job) {
	world := in.Layout.World()
	state := make([]float64, world)
	states := 0
	for r := range world {
		p := j.ranks[falcon.Rank(r)]
		if p == nil || !p.state.GetAlive() {
			return
		}
		if b := p.state.GetStateBytes(); b > 0 {
			state[r] = float64(b) / 1e6
			states++
		}
		if v := p.state.GetCopyMbs(); v > 0 && (in.CopyMBs == 0 || v < in.CopyMBs) {
			in.CopyMBs = v
		}
		tighten(in, in.Layout.Replica(falcon.Rank(r)), p.state)
	}
	if states == world {
		in.StateMB = state
	}
	fillBounds(in)
}

// tighten takes one rank's bounds on its replica.
func tighten(in *mitigate.Job, replica int, s *falconv1.RankState) {
	at := func(list *[]int32) *int32 {
		if *list == nil {
			*list = make([]int32, in.Layout.DP)
		}
		return &(*list)[replica]
	}
	if v := s.GetMicroMin(); v > 0 {
		m := at(&in.MicroMin)
		*m = max(*m, v)
	}
	if v := s.GetMicroMax(); v > 0 {
		if m := at(&in.MicroMax); *m == 0 || v < *m {
			*m = v
		}
	}
	if v := s.GetMicroMultiple(); v > 1 {
		m := at(&in.MicroMultiple)
		*m = max(*m, v)
	}
}

// fillBounds gives replicas that declared nothing beside others that did what
// nothing means.
func fillBounds(in *mitigate.Job) {
	for _, list := range [][]int32{in.MicroMin, in.MicroMultiple} {
		for i, v := range list {
			list[i] = max(v, 1)
		}
	}
}
