package peer

import (
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// judgeSelf finds ranks that compute slower than those with the same work.
func (w *Window) judgeSelf(res *Result, profiles []falcon.RankProfile) {
	for i := range res.Ranks {
		res.Ranks[i].Rank = falcon.Rank(i)
	}
	for _, p := range profiles {
		r := &res.Ranks[p.Rank]
		r.Measured, r.SelfMs, r.QueueMs = true, p.SelfMs, p.QueueMs
		if own := w.Healthy.self(p.Rank); own > 0 {
			r.OwnMs, r.OwnRatio = own, p.SelfMs/own
		}
	}
	w.comparePeers(res)
	w.judgeTogether(res)
	w.compareOwn(res)
	w.accuse(res)
}

// comparePeers fills in the medians over same-stage peers. Ranks of one
// (stage, TP coordinate) differ only in their replica.
func (w *Window) comparePeers(res *Result) {
	others := make([]float64, 0, w.Layout.DP)
	for i := range res.Ranks {
		r := &res.Ranks[i]
		if !r.Measured {
			continue
		}
		others = others[:0]
		at := w.Layout.Coord(r.Rank)
		for d := range w.Layout.DP {
			q := &res.Ranks[w.Layout.RankOf(falcon.Coord{TP: at.TP, DP: d, PP: at.PP})]
			if d != at.DP && q.Measured {
				others = append(others, q.SelfMs)
			}
		}
		r.Peers, r.PeerMs = len(others), Median(others)
		if r.Peers >= w.Rules.MinPeers {
			r.Ratio, r.Basis = r.SelfMs/r.PeerMs, ByPeers
		}
	}
}

// judgeTogether looks for slowness that all ranks, or all ranks of a stage,
// share: that is the job's own work, or a fault of all of them together.
func (w *Window) judgeTogether(res *Result) {
	stages := make([][]float64, w.Layout.PP)
	var all []float64
	for i := range res.Ranks {
		r := &res.Ranks[i]
		if r.OwnRatio > 0 && (r.Basis != ByPeers || r.Ratio <= w.Rules.Suspect) {
			stage := w.Layout.Coord(r.Rank).PP
			stages[stage] = append(stages[stage], r.OwnRatio)
			all = append(all, r.OwnRatio)
		}
	}
	perStage := w.Layout.TP * w.Layout.DP
	if len(all) >= 2 && len(all) == len(res.Ranks)-res.Missing && w.alike(all) {
		res.AllSlow, res.AllRatio = true, Median(all)
		return
	}
	for stage, own := range stages {
		if w.Layout.DP > 1 && len(own) == perStage && w.alike(own) {
			res.SlowStages = append(res.SlowStages, stage)
		}
	}
}

// alike says that all ratios are above the rule and near each other.
func (w *Window) alike(ratios []float64) bool {
	lo, hi := slices.Min(ratios), slices.Max(ratios)
	return lo > w.Rules.Suspect && hi <= lo*w.Rules.Suspect
}

// compareOwn judges ranks with too few peers by their own past. What every
// rank shares is taken out first, so that a job that slowed as a whole accuses
// nobody.
func (w *Window) compareOwn(res *Result) {
	common := math.Inf(1)
	for i := range res.Ranks {
		if r := &res.Ranks[i]; r.OwnRatio > 0 {
			common = math.Min(common, r.OwnRatio)
		}
	}
	if math.IsInf(common, 1) || common < 1 {
		common = 1
	}
	for i := range res.Ranks {
		r := &res.Ranks[i]
		switch {
		case !r.Measured || r.Basis == ByPeers:
		case r.OwnRatio > 0:
			r.Ratio, r.Basis = r.OwnRatio/common, ByOwn
		case r.Peers > 0:
			r.Ratio, r.Basis = r.SelfMs/r.PeerMs, ByFew
		}
	}
}

// accuse marks the ranks above the rule and measures the margin over the
// others.
func (w *Window) accuse(res *Result) {
	least, next := math.Inf(1), 0.0
	for i := range res.Ranks {
		r := &res.Ranks[i]
		if r.Basis == ByNone {
			continue
		}
		shared := res.AllSlow || (r.Basis != ByPeers && slices.Contains(res.SlowStages, w.Layout.Coord(r.Rank).PP))
		r.Slow = r.Ratio > w.Rules.Suspect && !shared
		if r.Slow {
			res.Slow = append(res.Slow, r.Rank)
			least = math.Min(least, r.Ratio)
		} else if !shared {
			next = math.Max(next, r.Ratio)
		}
	}
	if len(res.Slow) > 0 && next > 0 {
		res.Margin = least / next
	}
	res.Clear = len(res.Slow) > 0 && (next == 0 || res.Margin >= w.Rules.Margin)
}

// judgeQueues sets the host lead that each rank is compared with.
func (w *Window) judgeQueues(res *Result) {
	for i := range res.Ranks {
		r := &res.Ranks[i]
		if own := w.Healthy.queue(r.Rank); own > 0 {
			r.LeadMs = own
			continue
		}
		var leads []float64
		stage := w.Layout.Coord(r.Rank).PP
		for j := range res.Ranks {
			q := &res.Ranks[j]
			if j != i && q.Measured && !q.Slow && q.QueueMs > 0 && w.Layout.Coord(q.Rank).PP == stage {
				leads = append(leads, q.QueueMs)
			}
		}
		r.LeadMs = Median(leads)
	}
}
