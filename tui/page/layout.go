package page

import "github.com/failslow/falcon/tui/roster"

// Layout owns how ranks are laid out, by the roster's mesh.
type Layout struct {
	roster     *roster.Roster // divides a rank into its coordinates
	TP, DP, PP int            // each at least 1
}

func layoutOfRoster(r *roster.Roster) Layout {
	return Layout{r, r.TP, r.DP, r.PP}
}

// Coord is a rank's replica, stage and tensor-parallel coordinate.
func (l *Layout) Coord(rank int32) (tp, dp, pp int) {
	return l.roster.Coord(rank)
}

// At is the rank at a place.
func (l *Layout) At(tp, dp, pp int) int32 {
	return l.roster.At(tp, dp, pp)
}

// Replicas are the ranks of a rank's data-parallel group: the same stage and
// tensor-parallel coordinate in every replica.
func (l *Layout) Replicas(rank int32) []int32 {
	tp, _, pp := l.Coord(rank)
	return l.existingRanks(l.DP, func(i int) int32 {
		return l.At(tp, i, pp)
	})
}

// Pipeline are the ranks of a rank's pipeline, first stage first.
func (l *Layout) Pipeline(rank int32) []int32 {
	tp, dp, _ := l.Coord(rank)
	return l.existingRanks(l.PP, func(i int) int32 {
		return l.At(tp, dp, i)
	})
}

// existingRanks are those of n ranks that exist: a layout from the wire may be wrong.
func (l *Layout) existingRanks(n int, at func(int) int32) []int32 {
	var out []int32
	for i := range min(n, l.roster.World()) {
		if r := at(i); r >= 0 && int(r) < l.roster.World() {
			out = append(out, r)
		}
	}
	return out
}
