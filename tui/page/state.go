// Package page holds what all pages share: the state that they draw, and the
// few judgements about it that must be the same everywhere.
//
// A State is built from one immutable feed state and the operator's choices
// (rank, metric, filter). Pages read it and draw; they change only the
// operator's choices. No I/O, no goroutines, no clocks.
package page

import (
	"cmp"
	"maps"
	"slices"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/widget"
)

// Metric is what the maps colour ranks by.
type Metric int

// The metrics. All ranks of a job slow down together, so iteration time shows
// that the job is slow and self time shows who makes it slow.
const (
	MetricAuto      Metric = iota // self time once a profile has measured it
	MetricSelf                    // self time against same-stage peers
	MetricIteration               // iteration time against its own baseline
)

// State is what pages draw.
type State struct {
	Feed   *feed.State
	Ranks  []*falconv1.RankView // by rank; nil where nothing is known
	TP     int                  // at least 1, as are DP and PP
	DP     int
	PP     int
	Metric Metric
	Filter string // of the events page

	rankFilter string  // of the ranks page
	matched    []int32 // ranks that match it, ascending

	rank      int32
	following bool
	picks     *Picks

	// Now is when the state is drawn; whoever draws sets it.
	Now time.Time

	pids pids

	// Of the snapshot's table, as drawing asks often and ranks may be many.
	worst     int32
	measured  bool // some rank has a self time
	anomalies []int32
	tally     string
}

// maxRanks bounds what a broken snapshot can make the console allocate.
const maxRanks = 1 << 20

// NewState starts with nothing known, following the worst rank.
func NewState(f *feed.State) *State {
	s := &State{following: true, picks: &Picks{ranks: map[int32]bool{}}}
	s.Update(f)
	return s
}

// Update takes a new feed state over.
func (s *State) Update(f *feed.State) {
	s.Feed = f
	t := tableOf(f)
	s.Ranks, s.TP, s.DP, s.PP = t.ranks, t.tp, t.dp, t.pp
	s.worst, s.measured, s.anomalies, s.tally = t.worst, t.measured, t.anomalies, t.tally
	if int(s.rank) >= len(s.Ranks) {
		s.rank = 0
	}
	maps.DeleteFunc(s.picks.ranks, func(r int32, _ bool) bool { return int(r) >= len(s.Ranks) })
	s.pids = s.pids.after(f.Snap.GetRecovery())
	s.FilterRanks(s.rankFilter)
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
	return s.worst
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

// findWorst is the rank that most needs a look: by health, then by self time,
// then by slowdown; the lowest of equals, so that it doesn't jump.
func (s *State) findWorst() int32 {
	best := int32(0)
	for i, r := range s.Ranks {
		if r != nil && s.worse(r, s.Ranks[best]) {
			best = int32(i)
		}
	}
	return best
}

func (s *State) worse(a, b *falconv1.RankView) bool {
	if b == nil {
		return true
	}
	return cmp.Or(
		cmp.Compare(s.gravity(a), s.gravity(b)),
		cmp.Compare(SelfLevel(a.SelfRatio), SelfLevel(b.SelfRatio)),
		cmp.Compare(a.Level, b.Level),
	) > 0
}

// gravity orders healths by how much they must be seen.
func (s *State) gravity(r *falconv1.RankView) int {
	if s.Ended(r) {
		return 0
	}
	switch r.GetHealth() {
	case falconv1.RankHealth_RANK_HEALTH_CULPRIT:
		return 4
	case falconv1.RankHealth_RANK_HEALTH_LOST:
		return 3
	case falconv1.RankHealth_RANK_HEALTH_SLOW:
		return 2
	case falconv1.RankHealth_RANK_HEALTH_STALE:
		return 1
	}
	return 0
}

// Anomalous says that a rank is not simply healthy.
func (s *State) Anomalous(r *falconv1.RankView) bool { return s.gravity(r) > 0 }

// Anomalies lists the ranks that are not healthy, ascending.
func (s *State) Anomalies() []int32 { return s.anomalies }

func (s *State) findAnomalies() []int32 {
	var out []int32
	for i, r := range s.Ranks {
		if s.Anomalous(r) {
			out = append(out, int32(i))
		}
	}
	return out
}

// Step selects the next (+1) or previous (-1) rank that is not healthy.
func (s *State) Step(direction int) { s.stepIn(s.anomalies, direction) }

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
func (s *State) BySelf() bool {
	if s.Metric != MetricAuto {
		return s.Metric == MetricSelf
	}
	return s.measured
}

// ToggleMetric switches between the two metrics.
func (s *State) ToggleMetric() {
	if s.BySelf() {
		s.Metric = MetricIteration
	} else {
		s.Metric = MetricSelf
	}
}

// MetricName is what the maps show, for titles.
func (s *State) MetricName() string {
	if s.BySelf() {
		return "self time vs peers"
	}
	return "iteration vs baseline"
}

// Excess is how much slower a rank is by the metric, 0.5 for half more; ok is
// false where it was not measured.
func (s *State) Excess(r *falconv1.RankView) (x float64, ok bool) {
	if r == nil {
		return 0, false
	}
	if s.BySelf() {
		return r.SelfRatio - 1, r.SelfRatio > 0
	}
	return r.Slowdown, r.Ms > 0
}

// Level is a rank's step on the heat ramp, 0 to 6.
func (s *State) Level(r *falconv1.RankView) int {
	if s.BySelf() {
		return SelfLevel(r.GetSelfRatio())
	}
	return int(min(6, max(0, r.GetLevel())))
}

// selfSteps are the lower bounds of levels 1 to 6; 1.1 is where FALCON calls
// a rank slow against its peers.
var selfSteps = [...]float64{1.05, 1.1, 1.25, 1.5, 1.75, 2}

// SelfLevel is a self-time ratio's step on the heat ramp. The engine's own
// hysteresis is in the profile: a ratio changes only when one is taken.
func SelfLevel(ratio float64) int {
	level := 0
	for i, lower := range selfSteps {
		if ratio >= lower {
			level = i + 1
		}
	}
	return level
}

// Pixel is a rank's value in a raster.
func (s *State) Pixel(r *falconv1.RankView) uint8 {
	if s.Ended(r) {
		return 0
	}
	switch r.GetHealth() {
	case falconv1.RankHealth_RANK_HEALTH_CULPRIT:
		return widget.PixelCulprit
	case falconv1.RankHealth_RANK_HEALTH_LOST:
		return widget.PixelLost
	case falconv1.RankHealth_RANK_HEALTH_STALE:
		return widget.PixelStale
	}
	if r == nil {
		return widget.PixelStale
	}
	return uint8(s.Level(r))
}

// Coord is a rank's replica, stage and tensor-parallel coordinate; tensor
// parallel varies fastest, then data parallel (Megatron's default order).
func (s *State) Coord(rank int32) (tp, dp, pp int) {
	n := int(rank)
	return n % s.TP, n / s.TP % s.DP, n / (s.TP * s.DP)
}

// At is the rank at a place.
func (s *State) At(tp, dp, pp int) int32 { return int32(tp + s.TP*(dp+s.DP*pp)) }

// Finished is the state of a job that has ended as it should.
const Finished = "finished"

// Over says that the job has finished.
func (s *State) Over() bool { return s.Snap().GetJob().GetState() == Finished }

// Ended says that nothing comes from a rank because the job has finished,
// which is no trouble.
func (s *State) Ended(r *falconv1.RankView) bool {
	switch r.GetHealth() {
	case falconv1.RankHealth_RANK_HEALTH_OK, falconv1.RankHealth_RANK_HEALTH_SLOW, falconv1.RankHealth_RANK_HEALTH_CULPRIT:
		return false
	}
	return s.Over()
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

// Proposal is the action that waits for a decision, or nil.
func (s *State) Proposal() *falconv1.Action {
	p := s.Snap().GetLadder().GetProposal()
	if p.GetState() != "proposed" {
		return nil
	}
	return p
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
