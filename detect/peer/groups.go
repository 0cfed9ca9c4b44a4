package peer

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// class is one kind of collective call on one communicator.
type class struct {
	comm  uint64
	op    falcon.Op
	bytes int64
}

// joinedCalls is a class's calls, one row per call that every member measured.
type joinedCalls struct {
	class
	members []falcon.Rank // ascending
	rows    []row         // in order of the calls
	calls   float64       // per iteration
}

// row is one call: its members' durations.
type row struct {
	ordinal uint64
	ms      []float64 // by member
}

// joinCalls lays the collective calls of all ranks side by side by (communicator,
// ordinal). A call that a member did not measure has no row: without the last
// arriver the least duration is not the transfer.
func (w *Window) joinCalls(profiles []falcon.RankProfile) []joinedCalls {
	type call struct {
		class
		ordinal uint64
	}
	durations := map[call]map[falcon.Rank]float64{}
	members := map[uint64]map[falcon.Rank]bool{}
	rates := map[class][]float64{}
	for _, p := range profiles {
		own := map[class]int{}
		for _, c := range p.Calls {
			if c.Op == falcon.OpSend || c.Op == falcon.OpRecv || !positive(c.DurationMs) {
				continue
			}
			k := call{class{c.Comm, c.Op, c.Bytes}, c.Ordinal}
			own[k.class]++
			if durations[k] == nil {
				durations[k] = map[falcon.Rank]float64{}
			}
			durations[k][p.Rank] = c.DurationMs
			if members[c.Comm] == nil {
				members[c.Comm] = map[falcon.Rank]bool{}
			}
			members[c.Comm][p.Rank] = true
		}
		for k, n := range own {
			rates[k] = append(rates[k], float64(n)/float64(max(1, p.Iterations)))
		}
	}
	groups := map[uint64][]falcon.Rank{}
	for comm, seen := range members {
		groups[comm] = w.membersOf(comm, seen)
	}
	byClass := map[class]*joinedCalls{}
	for k, byRank := range durations {
		ranks := groups[k.comm]
		if len(ranks) < 2 || len(byRank) < len(ranks) {
			continue
		}
		j := byClass[k.class]
		if j == nil {
			j = &joinedCalls{class: k.class, members: ranks}
			byClass[k.class] = j
		}
		ms := make([]float64, len(ranks))
		for i, r := range ranks {
			ms[i] = byRank[r]
		}
		j.rows = append(j.rows, row{k.ordinal, ms})
	}
	out := make([]joinedCalls, 0, len(byClass))
	for _, j := range byClass {
		// Ranks may have lost different iterations: few calls may be left that all measured.
		j.calls = falcon.Median(rates[j.class])
		// Sums of floats depend on their order, and maps have none.
		slices.SortFunc(j.rows, func(a, b row) int { return cmp.Compare(a.ordinal, b.ordinal) })
		out = append(out, *j)
	}
	slices.SortFunc(out, func(a, b joinedCalls) int {
		return cmp.Or(slices.Compare(a.members, b.members), cmp.Compare(a.comm, b.comm),
			cmp.Compare(a.op, b.op), cmp.Compare(a.bytes, b.bytes))
	})
	return out
}

// membersOf lists the communicator's ranks by the job, else those seen calling on it.
func (w *Window) membersOf(comm uint64, seen map[falcon.Rank]bool) []falcon.Rank {
	for r := range seen {
		for _, c := range w.Comms[r] {
			if c.ID != comm {
				continue
			}
			if c.Size != len(seen) {
				return nil // a member is missing
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

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
	for _, d := range []falcon.Dimension{falcon.DimTP, falcon.DimDP, falcon.DimPP, falcon.DimCP, falcon.DimFSDP, falcon.DimEP, falcon.DimEDP} {
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
			Comm: j.comm, Op: j.op, Bytes: j.bytes, Ranks: j.members, CallsPerIt: j.calls,
			Dimension: w.dimension(j.comm, j.members), Nodes: w.nodesOf(j.members),
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
	kinds, own := map[kind][]float64{}, map[kind][]float64{}
	for i := range res.Groups {
		g := &res.Groups[i]
		k := groupKind(g)
		kinds[k] = append(kinds[k], g.TransferMs)
		g.OwnMs = w.Healthy.transferTime(class{g.Comm, g.Op, g.Bytes}, g.Ranks, g.Internode)
		own[k] = append(own[k], excessRatio(g.TransferMs, g.OwnMs))
	}
	alike, pasts, spreads := map[kind]others{}, map[kind]past{}, map[kind]kindSpread{}
	for k, v := range kinds {
		alike[k], pasts[k], spreads[k] = othersOf(v), summarizePast(own[k], w.Rules.Suspect), w.spreadOfKind(v, own[k])
	}
	for i := range res.Groups {
		g := &res.Groups[i]
		k := groupKind(g)
		w.compareGroup(res, i, alike[k], pasts[k])
		if w.Rules.Small && g.Basis == ByPeers {
			g.Suspect = g.Suspect && spreads[k].standsOut(g.TransferMs, g.OwnMs, w.Rules.Matter*res.IterationMs/g.CallsPerIt)
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

func groupKind(g *Group) kind { return kind{g.Dimension, g.Op, g.Bytes, g.Internode} }

// judgeWaits adds up each member's wait and marks who is waited for.
func (w *Window) judgeWaits(res *Result, g *Group, j *joinedCalls) {
	if g.Dimension == "" || g.Dimension == falcon.DimPP || g.Dimension == falcon.DimWorld {
		return
	}
	waits, transfer := make([]float64, len(j.members)), 0.0
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
		g.BaseMs, g.Basis = g.OwnMs*was.common, ByOwn
	case g.Classmates >= w.Rules.MinPeers:
		g.BaseMs, g.Basis = alike.medianWithout(g.TransferMs), ByPeers
	case g.OwnMs > 0:
		g.BaseMs, g.Basis = g.OwnMs, ByOwn
	case g.Classmates > 0:
		g.BaseMs, g.Basis = alike.medianWithout(g.TransferMs), ByFew
	default:
		return
	}
	g.Ratio = g.TransferMs / g.BaseMs
	excess := (g.TransferMs - g.BaseMs) * g.CallsPerIt
	g.Suspect = g.Ratio > w.Rules.Suspect && excess > w.Rules.Matter*res.IterationMs && !math.IsInf(g.Ratio, 0)
}

// excessRatio is a ratio, 0 where its base is unknown.
func excessRatio(ms, base float64) float64 {
	if base <= 0 {
		return 0
	}
	return ms / base
}
