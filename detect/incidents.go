package detect

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/cause"
	"github.com/failslow/falcon/detect/peer"
)

// incidentState is one incident with what the machine still has to do about it.
type incidentState struct {
	falcon.Incident // ID empty: not reported yet

	floorMs float64     // level that other incidents and their actions leave, 0 = none did at the onset
	held    *heldLevels // what it knew of the job before this one, until it is known whether that is the same
	lasted  bool        // it has been slow for so long that it is reported without a culprit
	// the occurrence before, which is over, where the incident is back; nil = it is the first
	past *ended

	search  searchState
	basis   verdictBasis
	tests   testState
	burst   burstState
	move    moveState
	actions actionState
	relief  reliefState
}

// newIncident is an incident for which no window up to the given one was asked for.
func newIncident(inc falcon.Incident, window uint64) *incidentState {
	return &incidentState{
		Incident: inc,
		search:   searchState{after: window},
		actions:  actionState{inForce: map[falcon.Rung]bool{}},
	}
}

// isWatched reports whether windows are taken for an incident, or an action is measured on it. Of one
// that the job's own work explains, or nothing does, none are.
func (s *incidentState) isWatched() bool {
	return !s.isLocated() || !s.blamesNothing() || len(s.actions.inForce) > 0
}

// blamesNothing reports whether the verdict is the job's own work, or of no known cause.
func (s *incidentState) blamesNothing() bool {
	return s.Verdict.Cause == falcon.CauseNotHardware || s.Verdict.Cause == falcon.CauseUnknown
}

// searchState is how far the search for a culprit is.
type searchState struct {
	after     uint64 // only windows with a greater id were asked for after the onset
	tries     int
	notBefore int64         // iteration from which a further window may be asked for
	accused   []falcon.Rank // by the window before
}

// verdictBasis is the window of a verdict, to judge it again when counters come.
type verdictBasis struct {
	timing  *peer.Result
	at      time.Time
	repeats int
}

// testState is which tests an incident asked for, and what they brought.
type testState struct {
	results   *cause.Tests  // newest, nil = none
	done      bool          // a validation was completed
	asks      int           // validations asked for
	notBefore int64         // iteration from which a further one may be asked for
	grewAt    int64         // onset that made its links worse, to be attributed by a test; 0 = none
	ownLinks  []falcon.Link // of the tested links of its groups, those that are its own; nil = all
}

// burstState is of an intermittent slowdown.
type burstState struct {
	onset    int64  // of the newest burst, 0 = the slowdown is not intermittent
	paused   bool   // that burst is over
	evidence string // what makes it intermittent
}

// moveState is of an incident whose culprits were given other work by a placement.
type moveState struct {
	done      bool
	reference *peer.Result // a later window is compared with it while the verdict has no basis
	links     linkRelief   // how its links are watched
	// iteration from which the ranks are back in their places, and the iteration time
	// shows the fault again
	backAt int64
}

// actionState is what is done about an incident.
type actionState struct {
	inForce map[falcon.Rung]bool
	taken   bool  // one was in force at some time
	since   int64 // first iteration of the newest action
}

// reliefState is what is known about whether the fault is over.
type reliefState struct {
	byWindows  bool        // the iteration time can't show it: windows must
	hidden     bool        // the fault never showed in the iteration time
	blind      bool        // its healthy iteration time is of another job epoch
	lastWindow int64       // iteration of the newest window
	urgent     bool        // the counters or the iteration time suggest an early window
	check      bool        // the job got faster: profile the culprit once
	fasterAt   int64       // where it got faster
	streak     int         // consecutive healthy windows
	healthyAt  int64       // iteration of the first of them
	badAt      int64       // iteration of the last window that was not healthy
	silent     nodeSilence // of a node that the incident names
}

// testGrowth has the links of an incident that got worse tested again.
func (t *testState) testGrowth(onset int64) {
	t.grewAt = onset
	t.done = false
	t.asks = 0
	t.notBefore = 0
}

// resetEpoch forgets the tests of another epoch's processes.
func (t *testState) resetEpoch() {
	t.results = nil
	t.done = false
	t.asks = 0
	t.notBefore = 0
}

// startWatch begins to look for relief from an iteration on: the culprit is slow then.
func (r *reliefState) startWatch(iteration int64) {
	r.lastWindow = iteration
	r.badAt = iteration
	r.healthyAt = falcon.NoIteration
}

// seenBad ends a streak of healthy windows.
func (r *reliefState) seenBad(iteration int64) {
	r.streak, r.badAt = 0, iteration
}

// seenHealthy counts a healthy window, asked for after an iteration.
func (r *reliefState) seenHealthy(iteration int64) {
	if r.streak == 0 {
		r.healthyAt = iteration + 2 // the next one ran already when the window was asked for
	}
	r.streak++
}

// resetEpoch forgets what was seen of another epoch's processes.
func (r *reliefState) resetEpoch() {
	r.streak = 0
	r.lastWindow = 0
	r.badAt = falcon.NoIteration
	r.healthyAt = falcon.NoIteration
	r.byWindows = true
	r.check = false
	r.urgent = false
}

// incidentSet is the incidents known, in order of their onset.
type incidentSet struct {
	cfg    *Config
	clock  *clock
	out    *output
	job    *jobState
	list   []*incidentState
	nextID int
}

// hasOnlyLinks reports whether the links of an incident must be watched as such: it names nothing
// else, and a placement changed what they carry.
func (s *incidentState) hasOnlyLinks() bool {
	return s.move.done &&
		s.Verdict.Cause == falcon.CauseNetwork &&
		len(s.Verdict.Devices) == 0 &&
		len(s.Verdict.Links) > 0
}

// markDisplaced records that an incident's culprits do other work than when they were
// named: the iteration time shows nothing of them while that lasts.
func (s *incidentState) markDisplaced() {
	s.move.done = true
	s.relief.streak = 0
	s.move.links = linkRelief{}
	s.relief.byWindows = s.relief.byWindows || s.isLocated()
}

// comparedWindow is the window that later ones are compared with, to see whether the fault grew.
func (s *incidentState) comparedWindow() *peer.Result {
	if s.basis.timing == nil {
		return s.move.reference
	}
	return s.basis.timing
}

// pauseRelief begins a silence: looks before and after it are not consecutive.
func (s *incidentState) pauseRelief(now time.Time) {
	s.relief.silent = nodeSilence{since: now, later: s.relief.check}
	s.relief.streak = 0
	s.relief.check, s.relief.urgent = false, false
}

// resumeRelief ends it. A postponed look is due; tests refused meanwhile do not count.
func (s *incidentState) resumeRelief() {
	s.relief.check = s.relief.silent.later
	s.relief.silent = nodeSilence{}
	s.move.links.clearRefusals()
}

func (s *incidentState) subject() string {
	if s.ID == "" {
		return "The job is"
	}
	return s.ID + ": the job is"
}

// isLocated reports whether a culprit was named.
func (s *incidentState) isLocated() bool {
	return s.State == falcon.IncidentLocated &&
		len(s.Verdict.Devices)+len(s.Verdict.Links)+len(s.Verdict.Ranks) > 0
}

// hasVerdict reports whether there is a verdict, even one that names no rank.
func (s *incidentState) hasVerdict() bool {
	return s.State != falcon.IncidentVerified
}

// isUnexplained reports whether the verdict names no rank and no cause, to be tried again.
func (s *incidentState) isUnexplained() bool {
	return s.State == falcon.IncidentLocated &&
		s.Verdict.Cause == falcon.CauseUnknown &&
		!s.isLocated()
}

// reliefByWindows reports whether relief must be looked for on the culprit itself.
func (n *incidentSet) reliefByWindows(s *incidentState) bool {
	return s.Open() && s.isLocated() && (s.relief.byWindows || n.isActedOn(s))
}

// resetEpoch forgets what a new job epoch makes meaningless.
func (s *incidentState) resetEpoch() {
	s.relief.resetEpoch()
	s.tests.resetEpoch()
	s.basis.timing = nil
	s.search.notBefore = 0
	s.actions.since = 0
}

// namesAnyRank reports whether a rank belongs to the incident.
func (s *incidentState) namesAnyRank(ranks ...falcon.Rank) bool {
	return slices.ContainsFunc(ranks, func(r falcon.Rank) bool {
		return slices.Contains(s.Verdict.Ranks, r)
	})
}

func (n *incidentSet) removeIncident(s *incidentState) {
	n.list = slices.DeleteFunc(n.list, func(o *incidentState) bool { return o == s })
}

// updateRanks derives the ranks of open incidents through the present placement.
func (n *incidentSet) updateRanks() {
	for _, s := range n.list {
		if !s.Open() || len(s.Verdict.Devices) == 0 {
			continue
		}
		ranks := n.ranksOn(s.Verdict.Devices)
		if !slices.Equal(ranks, s.Verdict.Ranks) {
			s.Verdict.Ranks = ranks
			n.out.updateIncident(s)
		}
	}
}

// ranksOn are the ranks that devices carry now, ascending.
func (n *incidentSet) ranksOn(devices []falcon.Device) []falcon.Rank {
	var out []falcon.Rank
	for _, d := range devices {
		if r, ok := n.job.desc.Placement.Rank(d); ok {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return out
}

// displace takes an incident to the new placement: what compares ranks with what they
// were before is forgotten, the culprits stay.
func (n *incidentSet) displace(s *incidentState, was falcon.Placement, window uint64) {
	s.search.accused = nil
	s.basis.timing = nil
	s.move.reference = nil
	s.search.after = window
	s.markDisplaced()
	if len(s.Verdict.Devices) > 0 || !s.Open() {
		return
	}
	var devices []falcon.Device
	for _, r := range s.Verdict.Ranks {
		if int(r) < len(was) {
			devices = append(devices, was[r])
		}
	}
	ranks := n.ranksOn(devices)
	if len(ranks) > 0 && !slices.Equal(ranks, s.Verdict.Ranks) {
		s.Verdict.Ranks = ranks
		if s.ID != "" {
			n.out.updateIncident(s)
		}
	}
}

// endChecks is a window that is given up without being judged.
func (n *incidentSet) endChecks() {
	for _, s := range n.list {
		s.relief.check = false
	}
}

// placementInForce reports whether a placement other than the job's own holds.
func (n *incidentSet) placementInForce() bool {
	return slices.ContainsFunc(n.list, func(s *incidentState) bool {
		return s.actions.inForce[falcon.RungS3]
	})
}

// publish gives an incident its id and hands it out.
func (n *incidentSet) publish(s *incidentState) {
	s.ID = fmt.Sprintf("INC-%04d", n.nextID)
	n.nextID++
	n.out.updateIncident(s)
}

// handOut hands an incident out, with an id if it has none yet.
func (n *incidentSet) handOut(s *incidentState) {
	if s.ID == "" {
		n.publish(s)
		return
	}
	n.out.updateIncident(s)
}

// openIncidents are those whose fault lasts, reported or not.
func (n *incidentSet) openIncidents() []*incidentState {
	var out []*incidentState
	for _, s := range n.list {
		if s.Open() {
			out = append(out, s)
		}
	}
	return out
}

// acting reports whether an incident is open, or an action of one is in force.
func (n *incidentSet) acting() bool {
	return slices.ContainsFunc(n.list, func(s *incidentState) bool {
		return s.Open() || len(s.actions.inForce) > 0
	})
}

// isActedOn reports whether an action is in force that the job may be fast by with the culprit
// as slow as ever: the incident's own, or, once it has a culprit, one that was taken for another
// incident since its onset.
func (n *incidentSet) isActedOn(s *incidentState) bool {
	return slices.ContainsFunc(n.list, func(o *incidentState) bool {
		return len(o.actions.inForce) > 0 &&
			(o == s || s.isLocated() && o.actions.since > s.OnsetIteration)
	})
}

// allLocated reports whether every open incident has a culprit: what is slow beyond them is
// another's.
func (n *incidentSet) allLocated() bool {
	return !slices.ContainsFunc(n.list, func(s *incidentState) bool {
		return s.Open() && (!s.isLocated() || s.isUnexplained())
	})
}

// anyLocated reports whether an incident has a culprit, or its actions hold still.
func (n *incidentSet) anyLocated() bool {
	return slices.ContainsFunc(n.list, func(s *incidentState) bool {
		return s.Open() && s.isLocated() || len(s.actions.inForce) > 0
	})
}

// namedLinks are the links of open incidents.
func (n *incidentSet) namedLinks() map[falcon.Link]bool {
	out := map[falcon.Link]bool{}
	for _, s := range n.openIncidents() {
		for _, l := range s.Verdict.Links {
			out[l] = true
		}
	}
	return out
}

// relievedNear reports whether a relief around iteration at explains a faster job.
func (n *incidentSet) relievedNear(at int64) bool {
	return slices.ContainsFunc(n.list, func(s *incidentState) bool {
		return s.State == falcon.IncidentRelieved && at-s.RelievedIteration <= 2*n.cfg.MergeWithin
	})
}

// expediteAll makes watched culprits due earlier, as something changed.
func (n *incidentSet) expediteAll() {
	for _, s := range n.openIncidents() {
		s.relief.urgent = s.relief.urgent || n.reliefByWindows(s)
	}
}

// awaitsNodes reports whether an incident's relief is put off, as a node of its own is silent.
func (n *incidentSet) awaitsNodes(s *incidentState) bool {
	return !s.relief.silent.since.IsZero() &&
		n.clock.now.Sub(s.relief.silent.since) < silentMost
}

// namesRank reports whether an open incident names the rank.
func (n *incidentSet) namesRank(r falcon.Rank) bool {
	return slices.ContainsFunc(n.list, func(s *incidentState) bool {
		return s.Open() && s.isLocated() && s.namesAnyRank(r)
	})
}

func (n *incidentSet) add(s *incidentState) {
	n.list = append(n.list, s)
}

// removeIf removes the incidents that f picks.
func (n *incidentSet) removeIf(f func(*incidentState) bool) {
	n.list = slices.DeleteFunc(n.list, f)
}

// reserve keeps numbers below the next one from being used again.
func (n *incidentSet) reserve(next int) {
	n.nextID = max(n.nextID, next)
}

// startEpoch takes the incidents into a job epoch; again = there was one before.
func (n *incidentSet) startEpoch(again bool, was falcon.Placement, window uint64) {
	for _, s := range n.list {
		if again {
			n.displace(s, was, window)
			delete(s.actions.inForce, falcon.RungS3) // the launcher placed these processes
		}
		s.resetEpoch()
		s.relief.blind = s.relief.blind || again
	}
	n.updateRanks()
}

// displaceAll takes the incidents to another placement of the same epoch.
func (n *incidentSet) displaceAll(was falcon.Placement, window uint64) {
	for _, s := range n.list {
		n.displace(s, was, window)
	}
	n.updateRanks()
}
