package peer

import (
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// dimension is the communicator's dimension by the job, else by its members.
func (w *Window) dimension(comm uint64, ranks []falcon.Rank) falcon.Dimension {
	for _, c := range w.Comms[ranks[0]] {
		if c.ID == comm && c.Dimension != "" {
			return c.Dimension
		}
	}
	if len(ranks) == w.Layout.World() {
		return falcon.DimWorld
	}
	for _, d := range []falcon.Dimension{
		falcon.DimTP, falcon.DimDP, falcon.DimPP, falcon.DimCP, falcon.DimFSDP, falcon.DimEP,
		falcon.DimEDP,
	} {
		if slices.Equal(w.Layout.Peers(ranks[0], d), ranks) {
			return d
		}
	}
	return ""
}

func (w *Window) nodesOf(ranks []falcon.Rank) []falcon.Node {
	var out []falcon.Node
	for _, r := range ranks {
		if int(r) < len(w.Placement) {
			if n := w.Placement[r].Node(); !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	return out
}

// judgeGroups finds groups whose transfer is long for their kind, and whom the
// members of DP and TP groups wait for.
func (w *Window) judgeGroups(res *Result, classes []joinedCalls) {
	for i := range classes {
		j := &classes[i]
		g := Group{
			Comm:       j.comm,
			Op:         j.op,
			Bytes:      j.bytes,
			Ranks:      j.members,
			CallsPerIt: j.calls,
			Dimension:  w.dimension(j.comm, j.members),
			Nodes:      w.nodesOf(j.members),
		}
		g.Internode = len(g.Nodes) > 1
		transfers := make([]float64, len(j.rows))
		for k, r := range j.rows {
			transfers[k] = slices.Min(r.ms)
		}
		g.TotalMs = perIteration(transfers, g.CallsPerIt)
		g.TransferMs = lowQuantile(transfers, 0.25)
		w.judgeWaits(res, &g, j)
		res.Groups = append(res.Groups, g)
	}
	kinds := map[kind][]float64{}
	own := map[kind][]float64{}
	for i := range res.Groups {
		g := &res.Groups[i]
		k := groupKind(g)
		kinds[k] = append(kinds[k], g.TransferMs)
		g.OwnMs = w.Healthy.transferTime(
			class{g.Comm, g.Op, g.Bytes},
			g.Ranks,
			g.Internode,
		)
		own[k] = append(own[k], excessRatio(g.TransferMs, g.OwnMs))
	}
	alike := map[kind]others{}
	pasts := map[kind]past{}
	spreads := map[kind]kindSpread{}
	for k, v := range kinds {
		alike[k] = othersOf(v)
		pasts[k] = summarizePast(own[k], w.Rules.Suspect)
		spreads[k] = w.spreadOfKind(v, own[k])
	}
	for i := range res.Groups {
		g := &res.Groups[i]
		k := groupKind(g)
		w.compareGroup(res, i, alike[k], pasts[k])
		if w.Rules.Small && g.Basis == ByPeers {
			g.Suspect = g.Suspect &&
				spreads[k].standsOut(g.TransferMs, g.OwnMs, w.Rules.Matter*res.IterationMs/g.CallsPerIt)
		}
	}
}

// perIteration is the sum of the transfers of one iteration, of those of all
// calls in order: the median over the iterations, as a hiccup is in one of them.
func perIteration(transfers []float64, calls float64) float64 {
	n := int(float64(len(transfers))/calls + 0.5)
	total := 0.0
	for _, ms := range transfers {
		total += ms
	}
	if n < 1 || len(transfers)%n != 0 {
		return total / math.Max(1, float64(n))
	}
	sums := make([]float64, n)
	for k, ms := range transfers {
		sums[k*n/len(transfers)] += ms
	}
	return falcon.Median(sums)
}

// kind is what groups must share to be compared.
type kind struct {
	dimension falcon.Dimension
	op        falcon.Op
	bytes     int64
	internode bool
}

func groupKind(g *Group) kind {
	return kind{g.Dimension, g.Op, g.Bytes, g.Internode}
}

// judgeWaits adds up each member's wait and marks who is waited for.
func (w *Window) judgeWaits(res *Result, g *Group, j *joinedCalls) {
	if g.Dimension == "" || g.Dimension == falcon.DimPP || g.Dimension == falcon.DimWorld {
		return
	}
	waits := make([]float64, len(j.members))
	transfer := 0.0
	for _, r := range j.rows {
		least := slices.Min(r.ms)
		transfer += least
		for i, d := range r.ms {
			waits[i] += d - least
		}
	}
	j.stepWaits(res)
	iterations := float64(len(j.rows)) / g.CallsPerIt
	for i, r := range j.members {
		res.Ranks[r].WaitMs += waits[i] / iterations
	}
	longest := slices.Max(waits)
	g.WaitMs = longest / iterations
	g.Waiting = longest > w.Rules.WaitOver*transfer && g.WaitMs >= w.Rules.Matter*res.IterationMs
	for i, r := range j.members {
		if g.Waiting && waits[i] <= longest/2 {
			res.Ranks[r].Awaited = true
		}
	}
}

// stepWaits adds each member's wait to the iteration of the window that the
// call belongs to; every iteration has as many.
func (j *joinedCalls) stepWaits(res *Result) {
	n := int(float64(len(j.rows))/j.calls + 0.5)
	if n < 1 || len(j.rows)%n != 0 {
		return
	}
	for k, row := range j.rows {
		least := slices.Min(row.ms)
		for i, r := range j.members {
			q := &res.Ranks[r]
			if len(q.StepWaits) < n {
				q.StepWaits = append(q.StepWaits, make([]float64, n-len(q.StepWaits))...)
			}
			q.StepWaits[k*n/len(j.rows)] += row.ms[i] - least
		}
	}
}

// compareGroup judges a group's transfer by others of its kind, or by its own past where
// they are too few or most are slow.
func (w *Window) compareGroup(res *Result, i int, alike others, was past) {
	g := &res.Groups[i]
	g.Classmates = alike.count()
	own := 0.0
	if g.Internode && g.Dimension != falcon.DimWorld && g.Classmates >= w.Rules.MinPeers {
		own = excessRatio(g.TransferMs, g.OwnMs)
	}
	g.Crowded = was.all && own > w.Rules.Suspect
	switch {
	case was.crowd && own/was.common > w.Rules.Suspect:
		g.BaseMs = g.OwnMs * was.common
		g.Basis = ByOwn
	case g.Classmates >= w.Rules.MinPeers:
		g.BaseMs = alike.medianWithout(g.TransferMs)
		g.Basis = ByPeers
	case g.OwnMs > 0:
		g.BaseMs = g.OwnMs
		g.Basis = ByOwn
	case g.Classmates > 0:
		g.BaseMs = alike.medianWithout(g.TransferMs)
		g.Basis = ByFew
	default:
		return
	}
	g.Ratio = g.TransferMs / g.BaseMs
	excess := (g.TransferMs - g.BaseMs) * g.CallsPerIt
	g.Suspect = g.Ratio > w.Rules.Suspect &&
		excess > w.Rules.Matter*res.IterationMs &&
		!math.IsInf(g.Ratio, 0)
}

// excessRatio is a ratio, 0 where its base is unknown.
func excessRatio(ms, base float64) float64 {
	if base <= 0 {
		return 0
	}
	return ms / base
}
