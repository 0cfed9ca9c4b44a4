package detect

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/cause"
	"github.com/failslow/falcon/detect/peer"
)

// story is one incident with what the machine still has to do about it.
type story struct {
	falcon.Incident // ID empty: not told yet

	beforeMs float64 // level right before the onset, 0 = unknown
	floorMs  float64 // level that other incidents and their actions leave, 0 = none did at the onset
	after    uint64  // only windows with a greater id were asked for after the onset
	tries    int
	notUntil int64 // iteration before which no further window is asked for

	accused  []falcon.Rank // by the window before
	timing   *peer.Result  // what the verdict was given on, to judge again when counters come
	judgedAt time.Time
	rejudged int

	tests   *cause.Tests  // newest active tests, nil = none
	tested  bool          // a validation was completed
	asks    int           // validations asked for
	askFrom int64         // iteration before which no further one is
	grew    int64         // onset that made its links worse and is to be told apart by a test, 0 = none
	only    []falcon.Link // of the tested links of its groups, those that are its own; nil = all

	burstAt int64  // onset of the newest burst of an intermittent slowdown, 0 = it is none
	between bool   // that burst is over
	recurs  string // what makes it intermittent, for its evidence

	moved     bool         // a placement gave its culprits other work than when they were named
	reference *peer.Result // displaced: what "worse" is told against while timing is nil
	line      line         // displaced: how its links are watched
	backAt    int64        // iteration from which the ranks are where they were, and the iteration time shows it again

	inForce   map[falcon.Rung]bool // actions that hold
	since     int64                // first iteration of the newest action
	watched   bool                 // relief can't be seen in the iteration time
	hidden    bool                 // it never showed in the iteration time
	blind     bool                 // its healthy iteration time is of another job epoch
	asked     int64                // iteration of the newest window that watched it
	urgent    bool                 // the counters or the pace say to look early
	check     bool                 // the job got faster: look at the culprit once
	faster    int64                // where it got faster
	streak    int                  // healthy windows running
	healthyAt int64                // iteration of the first of them
	badAt     int64                // iteration of the last window that was not
	silent    silence              // of a node that it names
}

// incidentSet is the incidents known, in order of their onset.
type incidentSet struct {
	cfg    *Config
	clock  *clock
	out    *output
	job    *jobState
	list   []*story
	nextID int
}

// lines says that the links of a story must be watched as such: it names nothing
// else, and a placement changed what they carry.
func (s *story) lines() bool {
	return s.moved && s.Verdict.Cause == falcon.CauseNetwork && len(s.Verdict.Devices) == 0 && len(s.Verdict.Links) > 0
}

// displaced says that a story's culprits do other work than when they were
// named: the iteration time tells nothing of them while that lasts.
func (s *story) displaced() {
	s.moved, s.streak, s.line = true, 0, line{}
	s.watched = s.watched || s.located()
}

// compared is the window that "worse" is told against.
func (s *story) compared() *peer.Result {
	if s.timing == nil {
		return s.reference
	}
	return s.timing
}

// hush is the beginning of a silence: looks from before it and after it are not
// looks running.
func (s *story) hush(now time.Time) {
	s.silent, s.streak = silence{since: now, later: s.check}, 0
	s.check, s.urgent = false, false
}

// heard is its end. A look that was put off is due; that no test could be had
// meanwhile says nothing.
func (s *story) heard() {
	s.check, s.silent = s.silent.later, silence{}
	s.line.barred, s.line.refusals, s.line.looks = "", 0, 0
}

func (s *story) name() string {
	if s.ID == "" {
		return "The job is"
	}
	return s.ID + ": the job is"
}

// located says that somebody or something was named.
func (s *story) located() bool {
	return s.State == falcon.IncidentLocated && len(s.Verdict.Devices)+len(s.Verdict.Links)+len(s.Verdict.Ranks) > 0
}

// judged says that the verdict stands, even if it names nobody.
func (s *story) judged() bool { return s.State != falcon.IncidentVerified }

// puzzling says that the verdict names nobody and no cause: worth another try
// while the fault lasts.
func (s *story) puzzling() bool {
	return s.State == falcon.IncidentLocated && s.Verdict.Cause == falcon.CauseUnknown && !s.located()
}

// watching says that relief must be looked for on the culprit itself.
func (s *story) watching() bool {
	return s.Open() && s.located() && (s.watched || len(s.inForce) > 0)
}

// has says that a cause is among those of the verdict.
func (s *story) has(c falcon.Cause) bool {
	return s.Verdict.Cause == c || slices.Contains(s.Verdict.Also, c)
}

// restart forgets what a new job epoch makes meaningless.
func (s *story) restart() {
	s.streak, s.asked, s.badAt, s.healthyAt, s.since = 0, 0, falcon.NoIteration, falcon.NoIteration, 0
	s.tests, s.tested, s.asks, s.askFrom = nil, false, 0, 0
	s.watched, s.timing, s.check, s.urgent, s.notUntil = true, nil, false, false, 0
}

// touches says that a rank belongs to the story.
func (s *story) touches(ranks ...falcon.Rank) bool {
	return slices.ContainsFunc(ranks, func(r falcon.Rank) bool { return slices.Contains(s.Verdict.Ranks, r) })
}

func (n *incidentSet) remove(s *story) {
	n.list = slices.DeleteFunc(n.list, func(o *story) bool { return o == s })
}

// replace derives the ranks of open incidents through the present placement.
func (n *incidentSet) updateRanks() {
	for _, s := range n.list {
		if !s.Open() || len(s.Verdict.Devices) == 0 {
			continue
		}
		var ranks []falcon.Rank
		for _, d := range s.Verdict.Devices {
			if r, ok := n.job.desc.Placement.Rank(d); ok {
				ranks = append(ranks, r)
			}
		}
		slices.Sort(ranks)
		if !slices.Equal(ranks, s.Verdict.Ranks) {
			s.Verdict.Ranks = ranks
			n.out.update(s)
		}
	}
}

// carry takes a story to the new placement: what compares ranks with what they
// were before is forgotten, the culprits stay.
func (n *incidentSet) displace(s *story, was falcon.Placement, window uint64) {
	s.accused, s.timing, s.reference, s.after = nil, nil, nil, window
	s.displaced()
	if len(s.Verdict.Devices) > 0 || !s.Open() {
		return
	}
	var ranks []falcon.Rank
	for _, r := range s.Verdict.Ranks {
		if int(r) < len(was) {
			if q, placed := n.job.desc.Placement.Rank(was[r]); placed {
				ranks = append(ranks, q)
			}
		}
	}
	slices.Sort(ranks)
	if len(ranks) > 0 && !slices.Equal(ranks, s.Verdict.Ranks) {
		s.Verdict.Ranks = ranks
		if s.ID != "" {
			n.out.update(s)
		}
	}
}

// ended is a window that is given up without being judged.
func (n *incidentSet) endChecks() {
	for _, s := range n.list {
		s.check = false
	}
}

// away says that a placement other than the job's own holds.
func (n *incidentSet) placementInForce() bool {
	return slices.ContainsFunc(n.list, func(s *story) bool { return s.inForce[falcon.RungS3] })
}

// tell gives a story its id and hands it out.
func (n *incidentSet) publish(s *story) {
	s.ID = fmt.Sprintf("INC-%04d", n.nextID)
	n.nextID++
	n.out.update(s)
}

// openStories are those whose fault lasts, told or not.
func (n *incidentSet) open() []*story {
	var out []*story
	for _, s := range n.list {
		if s.Open() {
			out = append(out, s)
		}
	}
	return out
}

// namedLinks are the links of open incidents.
func (n *incidentSet) namedLinks() map[falcon.Link]bool {
	out := map[falcon.Link]bool{}
	for _, s := range n.open() {
		for _, l := range s.Verdict.Links {
			out[l] = true
		}
	}
	return out
}

// recently says that an incident was relieved around iteration at, so that the
// job is faster because of it.
func (n *incidentSet) relievedNear(at int64) bool {
	return slices.ContainsFunc(n.list, func(s *story) bool {
		return s.State == falcon.IncidentRelieved && at-s.RelievedIteration <= 2*n.cfg.MergeWithin
	})
}

// hurry makes watched culprits due earlier, as something changed.
func (n *incidentSet) expediteAll() {
	for _, s := range n.open() {
		s.urgent = s.urgent || s.watching()
	}
}

// waits says that a story's relief is put off, as a node of its own is silent.
func (n *incidentSet) awaitsNodes(s *story) bool {
	return !s.silent.since.IsZero() && n.clock.now.Sub(s.silent.since) < silentMost
}

// named says that an open incident names the rank.
func (n *incidentSet) namesRank(r falcon.Rank) bool {
	return slices.ContainsFunc(n.list, func(s *story) bool { return s.Open() && s.located() && s.touches(r) })
}
