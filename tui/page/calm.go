package page

import (
	"slices"

	"github.com/failslow/falcon/tui/feed"
)

// AllWell reports whether there is nothing to look at: the engine is there and no
// incident, standstill, proposal, validation or recovery is under way.
func AllWell(f *feed.State) bool {
	snap := f.Snap
	if f.Conn != feed.Live || f.Slow || proposalOn(snap.GetLadder()) != nil {
		return false
	}
	if slices.ContainsFunc(snap.GetIncidents(), Open) || snap.GetHang() != nil {
		return false
	}
	return !Underway(snap.GetValidation()) && !feed.Recovering(snap.GetRecovery())
}

// SameButMeasurements reports whether two pictures differ in numbers alone: no rank
// has another health, nothing was logged, decided or set.
func SameButMeasurements(a, b *feed.State) bool {
	x, y := a.Snap, b.Snap
	return x.GetJob().GetState() == y.GetJob().GetState() && x.GetJob().GetAlarm() == y.GetJob().GetAlarm() &&
		x.GetPolicy().GetVersion() == y.GetPolicy().GetVersion() && x.GetRole() == y.GetRole() &&
		x.GetSeries().GetRank() == y.GetSeries().GetRank() && a.Recoveries == b.Recoveries &&
		lastSequence(a) == lastSequence(b) && rosterOfState(a).Count == rosterOfState(b).Count
}

func lastSequence(f *feed.State) uint64 {
	if n := len(f.Events); n > 0 {
		return f.Events[n-1].GetSeq()
	}
	return 0
}
