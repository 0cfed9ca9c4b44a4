package page

import (
	"slices"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

// table is what is computed of all ranks of a snapshot. It is made once for
// all consoles that share the snapshot, and belongs to none: nobody may change
// it.
type table struct {
	ranks      []*falconv1.RankView // by rank; nil where nothing is known
	tp, dp, pp int                  // at least 1
	worst      int32
	measured   bool // some rank has a self time
	anomalies  []int32
	tally      string
}

// Prepare computes what a state of this snapshot needs. Whoever waits for the
// feed calls it, so that the event loop finds the work done.
func Prepare(f *feed.State) { tableOf(f) }

func tableOf(f *feed.State) *table {
	return f.Memo.Get(func() any { return newTable(f) }).(*table)
}

func newTable(f *feed.State) *table {
	job := f.Snap.GetJob()
	t := &table{tp: max(1, int(job.GetTp())), dp: max(1, int(job.GetDp())), pp: max(1, int(job.GetPp()))}
	world := min(maxRanks, max(0, int(job.GetWorld())))
	if world == 0 {
		world = len(f.Snap.Ranks)
	}
	t.ranks = byRank(f.Snap.Ranks, world)
	s := &State{Feed: f, Ranks: t.ranks}
	t.worst, t.anomalies, t.tally = s.findWorst(), s.findAnomalies(), s.count()
	t.measured = slices.ContainsFunc(t.ranks, func(r *falconv1.RankView) bool { return r.GetSelfRatio() > 0 })
	return t
}

// byRank is list itself where all ranks are there in order.
func byRank(list []*falconv1.RankView, world int) []*falconv1.RankView {
	ordered := len(list) == world
	for i, r := range list {
		ordered = ordered && r != nil && int(r.Rank) == i
	}
	if ordered {
		return list
	}
	out := make([]*falconv1.RankView, world)
	for _, r := range list {
		if r != nil && r.Rank >= 0 && int(r.Rank) < world {
			out[r.Rank] = r
		}
	}
	return out
}
