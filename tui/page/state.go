// Package page holds what all pages share: the state that they draw, and the
// few judgements about it that must be the same everywhere.
//
// A State is built from one immutable feed state and the operator's choices
// (rank, metric, filter). Pages read it and draw; they change only the
// operator's choices. No I/O, no goroutines, no clocks.
package page

import (
	"fmt"
	"maps"
	"slices"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/filter"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/roster"
	"github.com/failslow/falcon/tui/widget"
)

// Metric is what the maps colour ranks by.
type Metric = roster.Metric

// The metrics.
const (
	MetricAuto        = roster.Auto
	MetricSelf        = roster.Self
	MetricIteration   = roster.Slowdown
	MetricWait        = roster.Wait
	MetricTemperature = roster.Temperature
	MetricClock       = roster.Clock
	MetricCNP         = roster.CNP
)

// State is what pages draw.
type State struct {
	Feed   *feed.State
	Roster *roster.Roster       // derived from the snapshot, shared by all who show it
	Ranks  []*falconv1.RankView // by rank; nil where nothing is known; the roster's
	TP     int                  // at least 1, as are DP and PP
	DP     int
	PP     int
	Metric Metric
	Filter string // of the events page

	Keys *key.Map // whose keys texts name; never nil

	rankFilter filter.Filter // of the ranks page
	matched    []int32       // ranks that match it, ascending

	rank      int32
	following bool
	picks     *Picks

	// Now is when the state is drawn; whoever draws sets it.
	Now time.Time

	pids  pids
	tally string // computed once an update, as drawing asks often
}

// NewState starts with nothing known, following the worst rank.
func NewState(f *feed.State) *State {
	s := &State{Keys: key.Default(), following: true, picks: &Picks{ranks: map[int32]bool{}}}
	s.Update(f)
	return s
}

// Key is what the operator presses on a page for an action, as texts name it.
func (s *State) Key(p key.Scope, a key.Action) string { return s.Keys.Name(a, p, key.Global) }

// Update takes a new feed state over. What is derived from it per rank is
// derived once for all who show this snapshot; only a filter costs more.
func (s *State) Update(f *feed.State) {
	s.Feed = f
	derived := rosterOf(f)
	if derived == s.Roster {
		return
	}
	s.Roster = derived
	s.Ranks, s.TP, s.DP, s.PP = s.Roster.Ranks, s.Roster.TP, s.Roster.DP, s.Roster.PP
	if int(s.rank) >= len(s.Ranks) {
		s.rank = 0
	}
	maps.DeleteFunc(s.picks.ranks, func(r int32, _ bool) bool { return int(r) >= len(s.Ranks) })
	s.pids = s.pids.after(f.Snap.GetRecovery())
	s.tally = s.count()
	s.match()
}

// Snap is the snapshot; never nil.
func (s *State) Snap() *falconv1.SnapshotReply { return s.Feed.Snap }

// Rank is the chosen rank; while following, the one that the engine holds for
// the worst, else the worst by what is known here.
func (s *State) Rank() int32 {
	if !s.following {
		return s.rank
	}
	if e := s.Snap().GetSeries(); len(e.GetMs()) > 0 && e.Rank >= 0 && int(e.Rank) < len(s.Ranks) {
		return e.Rank
	}
	return s.Roster.Worst
}

// Following says whether the worst rank is followed.
func (s *State) Following() bool { return s.following }

// Follow goes back to the worst rank.
func (s *State) Follow() { s.following = true }

// Select chooses a rank; one that doesn't exist is ignored.
func (s *State) Select(r int32) bool {
	if r < 0 || int(r) >= len(s.Ranks) {
		return false
	}
	s.rank, s.following = r, false
	return true
}

// Wanted is the rank to ask the engine for.
func (s *State) Wanted() int32 {
	if s.following {
		return feed.WorstRank
	}
	return s.rank
}

// Anomalous says that a rank is not simply healthy.
func (s *State) Anomalous(r *falconv1.RankView) bool {
	return roster.Gravity(s.Roster.StandingOf(r)) > 0
}

// Anomalies lists the ranks that are not healthy, ascending.
func (s *State) Anomalies() []int32 { return s.Roster.Anomalies }

// Step selects the next (+1) or previous (-1) rank that is not healthy.
func (s *State) Step(direction int) { s.stepIn(s.Anomalies(), direction) }

func (s *State) stepIn(list []int32, direction int) {
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

// BySelf says whether maps show self time.
func (s *State) BySelf() bool { return s.Roster.Resolve(s.Metric) == MetricSelf }

// ToggleMetric goes on to the next metric.
func (s *State) ToggleMetric() {
	i := slices.Index(roster.Cycle, s.Roster.Resolve(s.Metric))
	s.Metric = roster.Cycle[(i+1)%len(roster.Cycle)]
}

// MetricName is what the maps show, for titles.
func (s *State) MetricName() string { return s.Roster.Name(s.Metric) }

// Excess is how much slower a rank is than it should be, 0.5 for half more, by
// self time or by its own baseline; ok is false where it was not measured.
func (s *State) Excess(r *falconv1.RankView) (x float64, ok bool) {
	if r == nil {
		return 0, false
	}
	if s.BySelf() {
		return r.SelfRatio - 1, r.SelfRatio > 0
	}
	return r.Slowdown, r.Ms > 0
}

// Reading is what the metric says of a rank in at most five columns, "+12%" or
// "1.9k"; "—" where it was not measured.
func (s *State) Reading(r *falconv1.RankView) string {
	x, ok := s.Roster.Value(s.Metric, r)
	if !ok {
		return "—"
	}
	switch s.Roster.Resolve(s.Metric) {
	case MetricSelf:
		return phrase.Percent(x - 1)
	case MetricIteration:
		return phrase.Percent(x / 100)
	case MetricWait:
		return fmt.Sprintf("%.0f%%", min(x, 999))
	case MetricTemperature:
		return fmt.Sprintf("%d°", min(r.TemperatureC, 999))
	case MetricClock:
		return fmt.Sprintf("%dM", min(r.SmClockMhz, 9999))
	}
	return thousands(x)
}

// thousands writes a count in at most four columns.
func thousands(x float64) string {
	for _, unit := range []string{"", "k", "M"} {
		if x < 999.5 {
			return fmt.Sprintf("%.0f%s", x, unit)
		}
		x /= 1000
	}
	return "≥1G"
}

// Level is a rank's step on the heat ramp by the metric, 0 to 6.
func (s *State) Level(r *falconv1.RankView) int {
	n, _ := s.Roster.LevelOf(s.Metric, r)
	return n
}

// Pixel is a rank's value in a raster.
func (s *State) Pixel(r *falconv1.RankView) uint8 { return Pixels[s.Roster.Code(s.Metric, r)] }

// Pixels are the values of codes in a raster.
var Pixels = [...]uint8{
	roster.None: widget.PixelNone, roster.Excluded: widget.PixelExcluded, roster.Unmeasured: widget.PixelUnmeasured, roster.StaleCode: widget.PixelStale,
	roster.Level0: 0, roster.Level1: 1, roster.Level2: 2, roster.Level3: 3, roster.Level4: 4, roster.Level5: 5, roster.Level6: 6,
	roster.LostCode: widget.PixelLost, roster.CulpritCode: widget.PixelCulprit,
}

// Coord is a rank's replica, stage and tensor-parallel coordinate; tensor
// parallel varies fastest, then data parallel (Megatron's default order).
func (s *State) Coord(rank int32) (tp, dp, pp int) { return s.Roster.Coord(rank) }

// At is the rank at a place.
func (s *State) At(tp, dp, pp int) int32 { return int32(tp + s.TP*(dp+s.DP*pp)) }

// Finished is the state of a job that has ended as it should.
const Finished = roster.Finished

// Over says that the job has finished.
func (s *State) Over() bool { return s.Snap().GetJob().GetState() == Finished }

// Ended says that nothing comes from a rank because the job has finished,
// which is no trouble.
func (s *State) Ended(r *falconv1.RankView) bool { return s.Roster.StandingOf(r) == roster.Ended }

// Taking says that a rank takes part and fresh data comes from it, so that its
// level says something.
func (s *State) Taking(r *falconv1.RankView) bool {
	switch s.Roster.StandingOf(r) {
	case roster.OK, roster.Slow, roster.Culprit:
		return true
	}
	return false
}

// Incident is the one that matters now: the first open one, else the newest.
func (s *State) Incident() *falconv1.Incident {
	if list := s.Snap().Incidents; len(list) > 0 {
		return list[0]
	}
	return nil
}

// Open says whether an incident's fault still lasts.
func Open(i *falconv1.Incident) bool {
	return i != nil && (i.State == "verified" || i.State == "located")
}

// Proposal is the action on the present incident that waits for a decision, or
// nil.
func (s *State) Proposal() *falconv1.Action {
	return waiting(s.Snap().GetLadder())
}

// Explained says that an open incident has named ranks.
func (s *State) Explained() bool {
	for _, i := range s.Snap().Incidents {
		if Open(i) && len(i.GetVerdict().GetRanks()) > 0 {
			return true
		}
	}
	return false
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
