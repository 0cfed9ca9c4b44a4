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
	res.Missing = len(res.Ranks)
	for i := range profiles {
		p := &profiles[i]
		r := &res.Ranks[p.Rank]
		r.Measured, r.SelfMs, r.QueueMs, r.MicroBatches = measuresSelf(p), p.SelfMs, p.QueueMs, p.MicroBatches
		if res.Hidden {
			r.Measured, r.SelfMs = r.WorkMs > 0, r.WorkMs/float64(max(1, p.MicroBatches))
		}
		if !r.Measured {
			r.SelfMs = 0
			continue
		}
		res.Missing--
		if res.Hidden {
			continue
		}
		if own := w.Healthy.selfTime(p.Rank); own > 0 {
			own = expected(
				p.SelfMs,
				own,
				w.Healthy.microBatchesOf(p.Rank),
				p.MicroBatches,
			)
			r.OwnMs, r.OwnRatio = own, p.SelfMs/own
		}
	}
	w.compareWork(res)
	w.comparePeers(res)
	w.judgeTogether(res)
	w.compareCrowds(res)
	w.compareOwn(res)
	w.markSlow(res)
}

// comparePeers fills in the medians over the ranks that do the same work.
func (w *Window) comparePeers(res *Result) {
	eachColumn(w.Layout, func(column []falcon.Rank) {
		var selves, micro []float64
		for _, i := range column {
			if r := &res.Ranks[i]; r.Measured {
				selves = append(selves, r.SelfMs)
				micro = append(micro, float64(r.MicroBatches))
			}
		}
		all := othersOf(selves)
		usual := falcon.Median(micro)
		for _, i := range column {
			r := &res.Ranks[i]
			if !r.Measured {
				continue
			}
			r.Peers = all.count()
			r.PeerMs = expected(r.SelfMs, all.medianWithout(r.SelfMs), usual, r.MicroBatches)
			if r.Peers >= w.Rules.MinPeers {
				r.Ratio = r.SelfMs / r.PeerMs
				r.Basis = ByPeers
			}
		}
	})
}

// eachColumn calls f with the ranks that do the same work (falcon.Layout.Alike).
// Without a mesh these are the ranks of one (stage, TP coordinate), by replica.
func eachColumn(l falcon.Layout, f func([]falcon.Rank)) {
	if l.Mesh != (falcon.Mesh{}) {
		for _, column := range l.Alike() {
			f(column)
		}
		return
	}
	column := make([]falcon.Rank, l.DP)
	for pp := range l.PP {
		for tp := range l.TP {
			for dp := range column {
				column[dp] = l.RankOf(falcon.Coord{TP: tp, DP: dp, PP: pp})
			}
			f(column)
		}
	}
}

// stepShare is how much of a rank's self time may be work that is done once an
// iteration, whatever its micro-batches: the optimizer's step above all.
const stepShare = 0.15

// expected is the self time per micro-batch that a rank is compared with. One
// with fewer micro-batches than usual spreads the work of once an iteration over
// fewer, so it may take that much longer than the base for each without being
// slow.
func expected(self, base, usual float64, micro int) float64 {
	if micro < 1 || usual <= float64(micro) {
		return base
	}
	return min(max(self, base), base*(1+stepShare*(usual/float64(micro)-1)))
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
	if len(all) >= 2 && len(all) == len(res.Ranks)-res.Missing && w.areAlike(all) {
		res.AllSlow, res.AllRatio = true, falcon.Median(all)
		return
	}
	for stage, own := range stages {
		if perStage > 1 && len(own) == perStage && w.areAlike(own) {
			res.SlowStages = append(res.SlowStages, stage)
		}
	}
}

// areAlike reports whether all ratios are above the rule and near each other.
func (w *Window) areAlike(ratios []float64) bool {
	lo := slices.Min(ratios)
	hi := slices.Max(ratios)
	return lo > w.Rules.Suspect && hi <= lo*w.Rules.Suspect
}

// compareCrowds judges the ranks of columns in which most are slow: their median
// is slow itself and would clear them. They are then compared with their own
// healthy time. What all of their stage share is taken out first: work that grew
// grew for each of them.
func (w *Window) compareCrowds(res *Result) {
	if res.AllSlow {
		return
	}
	least := make([]float64, w.Layout.PP)
	for i := range res.Ranks {
		if r := &res.Ranks[i]; r.Measured {
			stage := w.Layout.Coord(r.Rank).PP
			if least[stage] == 0 || r.OwnRatio < least[stage] {
				least[stage] = r.OwnRatio
			}
		}
	}
	eachColumn(w.Layout, func(column []falcon.Rank) {
		own := make([]float64, 0, len(column))
		for _, i := range column {
			if r := &res.Ranks[i]; r.Measured && r.Basis == ByPeers {
				own = append(own, r.OwnRatio)
			}
		}
		common := max(1, least[w.Layout.Coord(column[0]).PP])
		if !mostAreSlow(own, common, w.Rules.Suspect) ||
			slices.Contains(res.SlowStages, w.Layout.Coord(column[0]).PP) {
			return
		}
		for _, i := range column {
			r := &res.Ranks[i]
			if r.Measured && r.OwnRatio/common > w.Rules.Suspect {
				r.Ratio = r.OwnRatio / common
				r.Basis = ByOwn
			}
		}
	})
}

// mostAreSlow reports whether most of what does the same work is slow against its own
// healthy past, given each one's ratio to it and what they have in common. Where
// one of them has no past nothing is said.
func mostAreSlow(own []float64, common, suspect float64) bool {
	slow := 0
	for _, x := range own {
		if x <= 0 {
			return false
		}
		if x/common > suspect {
			slow++
		}
	}
	return 2*slow > len(own)
}

// past is how those of one kind do against their own healthy past.
type past struct {
	common float64 // what all of them share, at least 1
	crowd  bool    // most are slow beyond what all share
	all    bool    // most are slow
}

// summarizePast sums up each one's ratio to its healthy past.
func summarizePast(own []float64, suspect float64) past {
	common := 1.0
	if len(own) > 0 {
		common = max(1, slices.Min(own))
	}
	return past{common, mostAreSlow(own, common, suspect), mostAreSlow(own, 1, suspect)}
}

// Crowded reports whether a rank has peers enough and was compared with its own past
// all the same, as most of them are slow.
func (r *Rank) Crowded(minPeers int) bool {
	return r.Basis == ByOwn && r.Peers >= minPeers
}

// compareOwn judges ranks with too few peers by their own past, less what every rank shares:
// a job that slowed as a whole accuses no rank.
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
		case !r.Measured || r.Basis != ByNone:
		case r.OwnRatio > 0:
			r.Ratio = r.OwnRatio / common
			r.Basis = ByOwn
		case r.Peers > 0:
			r.Ratio = r.SelfMs / r.PeerMs
			r.Basis = ByFew
		}
	}
}

// markSlow marks the ranks above the rule and measures the margin over the others.
func (w *Window) markSlow(res *Result) {
	least := math.Inf(1)
	next := 0.0
	for i := range res.Ranks {
		if r := &res.Ranks[i]; r.Basis != ByNone {
			deflate(res, r)
		}
	}
	spread := w.rankSpread(res)
	for i := range res.Ranks {
		r := &res.Ranks[i]
		if r.Basis == ByNone {
			continue
		}
		shared := res.AllSlow ||
			(r.Basis != ByPeers && slices.Contains(res.SlowStages, w.Layout.Coord(r.Rank).PP))
		r.Slow = r.Ratio > w.Rules.Suspect &&
			!shared &&
			(!w.Rules.Small || w.standsOut(res, r, spread))
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

// smallUnknown is the least ratio that accuses a rank of a small slowdown if it has no
// healthy past.
const smallUnknown = 1.1

// rankSpread is by how much the ranks differ from their own healthy past. Lasting
// differences between devices are not in it.
func (w *Window) rankSpread(res *Result) chance {
	var own []float64
	for i := range res.Ranks {
		if r := &res.Ranks[i]; r.Basis != ByNone {
			if ratio := ownRatio(res, r); ratio > 0 {
				own = append(own, ratio)
			}
		}
	}
	return chanceOf(own)
}

// ownRatio is a rank's ratio to its own healthy past, 0 = unknown.
func ownRatio(res *Result, r *Rank) float64 {
	if r.OwnRatio <= 0 && r.OwnWork > 0 {
		return r.OwnWork / res.CommonWork
	}
	return r.OwnRatio
}

// standsOut reports whether a rank is slow against its own past too, beyond what most
// ranks share, and by more than chance explains.
func (w *Window) standsOut(res *Result, r *Rank, spread chance) bool {
	own := ownRatio(res, r)
	if own <= 0 {
		return r.Ratio > smallUnknown
	}
	return own > w.Rules.Suspect*max(1, spread.middle) && !spread.explains(own)
}

// judgeQueues sets the host lead that each rank is compared with: its own
// healthy one, else the median of its stage's healthy ranks.
func (w *Window) judgeQueues(res *Result) {
	stages := make([][]float64, w.Layout.PP)
	counts := func(r *Rank) bool {
		return r.Measured && !r.Slow && r.QueueMs > 0
	}
	for i := range res.Ranks {
		if r := &res.Ranks[i]; counts(r) {
			stage := w.Layout.Coord(r.Rank).PP
			stages[stage] = append(stages[stage], r.QueueMs)
		}
	}
	leads := make([]others, len(stages))
	for i := range stages {
		leads[i] = othersOf(stages[i])
	}
	for i := range res.Ranks {
		r := &res.Ranks[i]
		stage := w.Layout.Coord(r.Rank).PP
		switch own := w.Healthy.queueTime(r.Rank); {
		case own > 0:
			r.LeadMs = own
		case counts(r):
			r.LeadMs = leads[stage].medianWithout(r.QueueMs)
		default:
			r.LeadMs = falcon.Median(leads[stage].sorted)
		}
	}
}
