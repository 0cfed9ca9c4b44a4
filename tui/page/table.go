package page

import (
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/roster"
)

// Prepare derives what a state of this snapshot needs. Whoever waits for the
// feed calls it, so that the event loop finds the work done.
func Prepare(f *feed.State) { rosterOf(f) }

// rosterOf is made once for all consoles that share a snapshot.
func rosterOf(f *feed.State) *roster.Roster {
	if r, ok := f.Memo.Get(func() any { return roster.Derive(f.Snap) }).(*roster.Roster); ok {
		return r
	}
	return roster.Make(f.Snap)
}
