package engine

import (
	"fmt"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/mesh"
)

// Bits of a communicator's unseen traffic, FALCON_TRAFFIC_* of
// native/include/falcon_shm.h: it moves data without a call of every rank.
const (
	trafficDevice   = 1 << 0
	trafficOneSided = 1 << 2
)

// needsInference reports whether no adapter declares a layout, and none is known of
// these processes. The job must be complete.
func (j *job) needsInference(was jobRecord) bool {
	if declaredLayout(j.ranks[0].state).Validate() == nil {
		return false
	}
	for _, p := range j.ranks {
		if _, known := j.known[p.name]; !known {
			return true
		}
	}
	return was.Unknown != ""
}

// inferredLayout is the layout by what communicators carry, or why there is none. The
// job must be complete.
func (j *job) inferredLayout() (falcon.Layout, string) {
	comms, traffic, why := j.carried()
	if why != "" {
		return falcon.Layout{}, why
	}
	m, err := mesh.Infer(j.world(), comms, traffic)
	if err != nil {
		return falcon.Layout{}, err.Error()
	}
	return falcon.LayoutOf(m), ""
}

// contradiction is how the communicators refute a layout, empty where they do not.
func (j *job) contradiction(l falcon.Layout) string {
	if !j.complete() || j.world() != l.World() {
		return ""
	}
	if at := (checked{l, j.reports}); j.checked != at {
		j.checked, j.refuted = at, ""
		if comms, traffic, why := j.carried(); why == "" {
			if err := mesh.Check(l, comms, traffic); err != nil {
				j.refuted = err.Error()
			}
		}
	}
	return j.refuted
}

// checked is a layout, and the number of reports that it was compared with.
type checked struct {
	layout  falcon.Layout
	reports int
}

// carried is what all ranks report of their communicators, or why that is not whole.
func (j *job) carried() (
	comms map[falcon.Rank][]falcon.Comm,
	traffic map[falcon.Rank][]falcon.Traffic,
	why string,
) {
	for r := range falcon.Rank(j.world()) {
		if why := doubtOf(r, j.ranks[r].state); why != "" {
			return nil, nil, why
		}
		if byPlugin(j.ranks[r].state) != byPlugin(j.ranks[0].state) {
			return nil, nil, fmt.Sprintf(
				"of ranks 0 and %d one is watched by the hook and one by NCCL's profiler plug-in: their communicators can't be joined",
				r,
			)
		}
	}
	comms = map[falcon.Rank][]falcon.Comm{}
	traffic = map[falcon.Rank][]falcon.Traffic{}
	for r := range falcon.Rank(j.world()) {
		for _, c := range j.ranks[r].state.GetComms() {
			comms[r] = append(comms[r], convert.CommFromProto(c))
		}
		for _, t := range j.ranks[r].state.GetTraffic() {
			traffic[r] = append(traffic[r], convert.TrafficFromProto(t))
		}
	}
	return comms, traffic, ""
}

// boundProfiler is FALCON_BOUND_PROFILER of native/include/falcon_shm.h: a rank that is
// watched by the profiler plug-in, which can't hold a call.
const boundProfiler = 5

func byPlugin(s *falconv1.RankState) bool {
	return s.GetBound() == boundProfiler
}

// doubtOf is why what a rank reports is not all that it communicates.
func doubtOf(r falcon.Rank, s *falconv1.RankState) string {
	switch {
	case s.GetUnhooked():
		return fmt.Sprintf("rank %d calls NCCL past the hook", r)
	case len(s.GetTraffic()) == 0:
		return "what the ranks communicate in an iteration is not known so far"
	case len(s.GetTraffic()) > trafficMost:
		return fmt.Sprintf("rank %d reports more than %d communicators and operations", r, trafficMost)
	}
	for _, c := range s.GetComms() {
		if c.GetUnseen()&(trafficDevice|trafficOneSided) != 0 {
			return fmt.Sprintf("rank %d communicates from its kernels or one-sided: not all of it is seen", r)
		}
	}
	return ""
}

// trafficMost bounds what one rank reports.
const trafficMost = 512
