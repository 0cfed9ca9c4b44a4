package detect

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// healthyPeers is how the ranks compute beside peers that no open incident names. The median of all
// peers is a culprit's where most of them are: a healthy rank would look fast beside it.
type healthyPeers struct {
	job       *jobState
	out       *output
	incidents *incidentSet
	profile   *profiler

	of     state                   // what ratios is of
	ratios map[falcon.Rank]float64 // of the ranks beside a culprit, 0 = there is nothing to compare with
}

// state is what the ratios follow from: the changes of incidents, and the windows that were kept.
type state struct{ incidents, windows int }

// ratio is a rank's self time over that of its healthy peers, 0 where it has none.
func (h *healthyPeers) ratio(r falcon.Rank) float64 {
	now := (state{h.out.updates, h.profile.kept})
	if now != h.of || h.ratios == nil {
		h.of = now
		h.ratios = map[falcon.Rank]float64{}
		h.compare()
	}
	if ratio, beside := h.ratios[r]; beside {
		return ratio
	}
	return h.profile.shown[r].Ratio
}

// compare compares the ranks with the same work as a culprit.
func (h *healthyPeers) compare() {
	named := h.incidents.slowRanks()
	if len(named) == 0 {
		return
	}
	for _, column := range h.job.desc.Layout.Alike() {
		if !slices.ContainsFunc(column, func(r falcon.Rank) bool { return named[r] }) {
			continue
		}
		for _, r := range column {
			h.ratios[r] = h.compareOne(r, column, named)
		}
	}
}

func (h *healthyPeers) compareOne(r falcon.Rank, column []falcon.Rank, named map[falcon.Rank]bool) float64 {
	own := h.profile.shown[r]
	if !own.Measured || own.Basis == peer.ByOwn { // its own past is as good
		return own.Ratio
	}
	var selves []float64
	for _, o := range column {
		if p := h.profile.shown[o]; o != r && !named[o] && p.Measured {
			selves = append(selves, p.SelfMs)
		}
	}
	if usual := falcon.Median(selves); usual > 0 {
		return own.SelfMs / usual
	}
	return 0
}

// slowRanks are the ranks that open incidents name as slow themselves.
func (n *incidentSet) slowRanks() map[falcon.Rank]bool {
	out := map[falcon.Rank]bool{}
	for _, s := range n.openIncidents() {
		if s.ID == "" ||
			!s.isLocated() ||
			s.Verdict.Cause == falcon.CauseNotHardware ||
			s.Verdict.Cause == falcon.CauseNetwork {
			continue
		}
		for _, r := range s.Verdict.Ranks {
			out[r] = true
		}
	}
	return out
}
