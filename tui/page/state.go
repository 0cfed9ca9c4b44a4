// Package page holds what all pages share: the state that they draw, and the
// few judgements about it that must be the same everywhere.
//
// A State is built from one immutable feed state and the operator's choices
// (rank, metric, filter). Pages read it and draw; they change only the
// operator's choices. No I/O, no goroutines, no clocks.
package page

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/filter"
	"github.com/failslow/falcon/tui/key"
)

// State is what pages draw.
type State struct {
	Feed *feed.State
	Measured
	Layout
	*Selection
	Filter string // of the events page

	Keys   *key.Map // whose keys texts name; never nil
	Course *Course  // of the run, as far as this console has seen it; never nil

	rankFilter filter.Filter // of the ranks page
	matched    []int32       // ranks that match it, ascending

	rank      int32
	following bool

	// Now is when the state is drawn; whoever draws sets it.
	Now  time.Time
	Zone *time.Location // of the times that are shown; nil = UTC

	whole *falconv1.SnapshotReply // where another incident is looked at: the snapshot as it came; else nil
	pids  pids
	tally string // computed once an update, as drawing asks often
}

// NewState starts with nothing known, following the worst rank.
func NewState(f *feed.State) *State {
	s := &State{
		Keys:      key.Default(),
		Course:    &Course{},
		following: true,
		Selection: &Selection{ranks: map[int32]bool{}},
	}
	s.Update(f)
	return s
}

// Key is what the operator presses on a page for an action, as texts name it.
func (s *State) Key(p key.Scope, a key.Action) string {
	return s.Keys.Name(a, p, key.Global)
}

// Update takes a new feed state over. What is derived from it per rank is
// derived once for all who show this snapshot; only a filter costs more.
func (s *State) Update(f *feed.State) {
	s.Feed = pressingFirst(f)
	derived := rosterOfState(f)
	if derived == s.Roster {
		return
	}
	s.Course.take(f.Snap, derived)
	s.Roster = derived
	s.Layout = layoutOfRoster(derived)
	s.resizeTo(derived.World())
	if int(s.rank) >= s.Roster.World() {
		s.rank = 0
	}
	s.pids = s.pids.afterSnapshot(f.Snap.GetRecovery())
	s.tally = s.countTally()
	s.refreshMatches()
}

// Snap is the snapshot; never nil.
func (s *State) Snap() *falconv1.SnapshotReply { return s.Feed.Snap }

// Rank is the chosen rank; while following, the one that is named first in words, else the one that
// the engine holds for the worst, else the worst by what is known here.
func (s *State) Rank() int32 {
	if !s.following {
		return s.rank
	}
	if r := s.NamedRank(); r >= 0 {
		return r
	}
	e := s.Snap().GetSeries()
	if len(e.GetMs()) > 0 && e.Rank >= 0 && int(e.Rank) < s.Roster.World() {
		return e.Rank
	}
	return s.Roster.Worst
}

// Following reports whether the worst rank is followed.
func (s *State) Following() bool { return s.following }

// Follow goes back to the worst rank.
func (s *State) Follow() {
	s.following = true
}

// Select chooses a rank; one that doesn't exist is ignored.
func (s *State) Select(r int32) bool {
	if r < 0 || int(r) >= s.Roster.World() {
		return false
	}
	s.rank, s.following = r, false
	return true
}

// Wanted is the rank to ask the engine for.
func (s *State) Wanted() int32 {
	if !s.following {
		return s.rank
	}
	if r := s.NamedRank(); r >= 0 {
		return r
	}
	return feed.WorstRank
}

// NamedRank is the first rank that the sentences name, -1 for none: charts and keys are about the
// same rank as the words beside them. Who holds the job up comes before the present incident.
func (s *State) NamedRank() int32 {
	if !Browses(s) {
		x := First(s)
		if x.Action == nil &&
			x.Incident == nil &&
			len(x.Ranks) > 0 &&
			x.Ranks[0] >= 0 &&
			int(x.Ranks[0]) < s.Roster.World() {
			return x.Ranks[0]
		}
	}
	inc := s.Incident()
	list := inc.GetVerdict().GetRanks()
	if (Open(inc) || Browses(s)) &&
		len(list) > 0 &&
		list[0] >= 0 &&
		int(list[0]) < s.Roster.World() {
		return list[0]
	}
	return -1
}

// Step selects the next (+1) or previous (-1) rank that is not healthy.
func (s *State) Step(direction int) {
	s.stepThrough(s.Anomalies(), direction)
}

func (s *State) stepThrough(list []int32, direction int) {
	if len(list) == 0 {
		return
	}
	i, found := slices.BinarySearch(list, s.Rank())
	switch {
	case direction < 0:
		i--
	case found:
		i++
	}
	s.Select(list[(i+len(list))%len(list)])
}

// Over reports whether the job has finished.
func (s *State) Over() bool {
	return falcon.JobState(s.Snap().GetJob().GetState()) == falcon.JobFinished
}

// Incident is the one that matters now: the one that statements speak of first, else the newest.
func (s *State) Incident() *falconv1.Incident {
	if list := s.Snap().Incidents; len(list) > 0 {
		return list[0]
	}
	return nil
}

// Open reports whether an incident's fault still lasts.
func Open(i *falconv1.Incident) bool {
	switch falcon.IncidentState(i.GetState()) {
	case falcon.IncidentVerified, falcon.IncidentLocated:
		return true
	case falcon.IncidentRelieved, falcon.IncidentClosed:
	}
	return false
}

// Proposal is the action on the present incident that waits for a decision, or nil.
func (s *State) Proposal() *falconv1.Action {
	return proposalOn(s.Snap().GetLadder())
}

// Explained reports whether an open incident has named ranks.
func (s *State) Explained() bool {
	return slices.ContainsFunc(s.Snap().Incidents, func(i *falconv1.Incident) bool {
		return Open(i) && len(i.GetVerdict().GetRanks()) > 0
	})
}

// Blamed is the cause that an open incident names for a rank, or "".
func (s *State) Blamed(rank int32) string {
	for _, i := range s.Snap().Incidents {
		if Open(i) && slices.Contains(i.GetVerdict().GetRanks(), rank) {
			return i.Verdict.Cause
		}
	}
	return ""
}
