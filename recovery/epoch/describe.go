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

// Where a layout is from; nothing means the adapter.
const (
	FromConfig  = "falcon.yaml"
	FromTraffic = "inferred from communicators"
)

// layout is the best one that is known and where it is from: what the adapters
// declare, else the configured one, else the inferred one. Without any, ranks are
// compared with all others, and doubt is why; such a job has no replicas.
func (v *View) layout() (l falcon.Layout, from, doubt string) {
	world := len(v.Ranks)
	l, doubt = v.declaredLayout()
	switch {
	case doubt == "":
		return l, "", ""
	case v.Configured.World() == world && v.Configured.Validate() == nil:
		return v.Configured, FromConfig, ""
	case v.Configured != (falcon.Layout{}):
		doubt = fmt.Sprintf("the configured layout %s has %d ranks and the job %d",
			v.Configured, v.Configured.World(), world)
	case v.Inferred.World() == world &&
		v.Inferred.Validate() == nil &&
		doubt == undeclared:
		return v.Inferred, FromTraffic, ""
	case v.Unsure != "" && doubt == undeclared:
		doubt += " (" + v.Unsure + ")"
	}
	return falcon.Layout{TP: 1, DP: world, PP: 1}, "", doubt
}

const undeclared = "the job declares no layout: each rank is compared with all others, and no work is moved between them"

// declaredLayout is what the adapters declare, or why that can't be used.
func (v *View) declaredLayout() (l falcon.Layout, doubt string) {
	world := len(v.Ranks)
	l = v.Ranks[0].Layout
	for i := range v.Ranks {
		if v.Ranks[i].Layout != l {
			return l, "the ranks declare different layouts"
		}
	}
	if l.Validate() != nil || max(l.TP, l.DP, l.PP) > world {
		return l, undeclared
	}
	if l.World() != world {
		return l, fmt.Sprintf("the declared layout %s has %d ranks and the job %d", l, l.World(), world)
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

// can is what every rank has declared that it can do.
func (v *View) can() falcon.Can {
	var out falcon.Can
	for i := range v.Ranks {
		if i == 0 {
			out = v.Ranks[i].Can
		}
		out = out.And(v.Ranks[i].Can)
	}
	return out
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
