package page

import (
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/filter"
	"github.com/failslow/falcon/tui/roster"
)

// Prepare derives what a state of this snapshot needs, for a console whose ranks
// page has a filter or is about to. Whoever waits for the feed calls it, so that
// the event loop finds the work done.
func Prepare(f *feed.State, ranks ...filter.Filter) {
	t := rosterOfState(f)
	for _, by := range ranks {
		searchAll(t, by)
	}
}

// PrepareCourse makes ready what the course takes of a picture.
func PrepareCourse(f *feed.State) {
	rosterOfState(f).Spreads()
}

// Ready reports whether a filter of ranks costs little in a state of this snapshot.
func Ready(f *feed.State, ranks filter.Filter) bool {
	return isKnownFilter(rosterOfState(f), ranks)
}

// rosterOfState is made once for all consoles that share a snapshot.
func rosterOfState(f *feed.State) *roster.Roster {
	made := f.Memo.Get(func() any { return roster.Make(f.Snap, f.Columns) })
	if r, ok := made.(*roster.Roster); ok {
		return r
	}
	return roster.Make(f.Snap, f.Columns)
}
