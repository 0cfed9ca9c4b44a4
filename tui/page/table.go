package page

import (
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/filter"
	"github.com/failslow/falcon/tui/roster"
)

// Prepare derives what a state of this snapshot needs, for a console whose ranks
// page has a filter. Whoever waits for the feed calls it, so that the event loop
// finds the work done.
func Prepare(f *feed.State, ranks filter.Filter) {
	if t := rosterOf(f); !ranks.Empty() && !ranks.ByPicks() {
		chosen(t, ranks)
	}
}

// rosterOf is made once for all consoles that share a snapshot.
func rosterOf(f *feed.State) *roster.Roster {
	if r, ok := f.Memo.Get(func() any { return roster.Derive(f.Snap) }).(*roster.Roster); ok {
		return r
	}
	return roster.Make(f.Snap)
}
