package epoch

import (
	"fmt"

	"github.com/failslow/falcon"
)

// microBatchesMost bounds what a rank can claim.
const microBatchesMost = 1 << 20

// processes names the process of every rank: what makes one job epoch.
func (v *View) processes() []string {
	out := make([]string, len(v.Ranks))
	for i := range v.Ranks {
		out[i] = v.Ranks[i].Process
	}
	return out
}

func (v *View) placement() falcon.Placement {
	out := make(falcon.Placement, len(v.Ranks))
	for i := range v.Ranks {
		out[i] = v.Ranks[i].Device
	}
	return out
}

// layout is what the adapters declare; where they do not agree all ranks count as
// replicas, which is how a job without an adapter is watched.
func (v *View) layout() (l falcon.Layout, doubt string) {
	world := len(v.Ranks)
	fallback := falcon.Layout{TP: 1, DP: world, PP: 1}
	l = v.Ranks[0].Layout
	for i := range v.Ranks {
		if v.Ranks[i].Layout != l {
			return fallback, "the ranks declare different layouts"
		}
	}
	if l.Validate() != nil || max(l.TP, l.DP, l.PP) > world {
		return fallback, "the job declares no layout: all ranks are taken for replicas"
	}
	if l.World() != world {
		return fallback, fmt.Sprintf("the declared layout %s has %d ranks and the job %d", l, l.World(), world)
	}
	return l, ""
}

// newestOrder is the newest placement that a process has carried out.
func (v *View) newestOrder() uint64 {
	newest := uint64(0)
	for i := range v.Ranks {
		newest = max(newest, v.Ranks[i].Order)
	}
	return newest
}

// generation is the launch that all ranks are of, 0 for a mixture.
func (v *View) generation() uint64 {
	for i := range v.Ranks {
		if v.Ranks[i].Generation != v.Ranks[0].Generation {
			return 0
		}
	}
	return v.Ranks[0].Generation
}

// adapter reports whether the framework of every rank takes orders.
func (v *View) adapter() bool {
	for i := range v.Ranks {
		if !v.Ranks[i].Adapter {
			return false
		}
	}
	return true
}

// microBatches are per replica; nil while a rank does not report its own.
func (v *View) microBatches(l falcon.Layout) []int32 {
	out := make([]int32, l.DP)
	for i := range l.World() {
		m := v.Ranks[i].MicroBatches
		if m <= 0 || m > microBatchesMost {
			return nil
		}
		out[l.Replica(falcon.Rank(i))] = m
	}
	return out
}
