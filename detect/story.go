package detect

import (
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

// stepRestored takes over the incidents of before a restart. They keep their
// ids; the profile after the warm-up judges them anew.
func (m *Machine) stepRestored(in Restored) {
	m.nextID = max(m.nextID, in.NextID)
	if in.Baseline > 0 {
		m.baseline = in.Baseline
	}
	for _, inc := range in.Incidents {
		if inc.State == falcon.IncidentClosed || slices.ContainsFunc(m.stories, func(s *story) bool { return s.ID == inc.ID }) {
			continue
		}
		s := &story{Incident: inc, after: m.windows, inForce: map[falcon.Rung]bool{}}
		s.restart()
		s.blind = in.Baseline <= 0
		m.stories = append(m.stories, s)
	}
	if m.has {
		m.replace()
	}
}

// stepActed marks a change that Falcon itself caused.
func (m *Machine) stepActed(in Acted) {
	if !m.has {
		return
	}
	m.settle(in.Iteration)
	if len(in.MicroBatches) > 0 {
		m.job.MicroBatches = slices.Clone(in.MicroBatches)
	}
	if in.Rung == falcon.RungS3 {
		m.swapped(in)
	}
	for _, s := range m.stories {
		if s.ID == "" || s.ID != in.Incident {
			continue
		}
		switch {
		case in.Rung == falcon.RungS4: // nothing to undo: the epoch that it began says what holds
		case in.Reverted:
			delete(s.inForce, in.Rung)
		default:
			s.inForce[in.Rung] = true
			s.since, s.asked, s.streak = in.Iteration, in.Iteration, 0
		}
	}
	m.closeRelieved(m.newest)
}

// settle says that changes around iteration belong to an action.
func (m *Machine) settle(iteration int64) {
	from, to := iteration-m.cfg.SettleBefore, iteration+m.cfg.SettleAfter
	m.settleTo = to
	m.slow.settle(from, to)
	for _, r := range m.ranks {
		r.settle(from, to)
	}
	m.alarms = nil
}

// closeRelieved closes incidents that are relieved, once every action of
// theirs is undone and none can still be on its way.
func (m *Machine) closeRelieved(iteration int64) {
	m.stories = slices.DeleteFunc(m.stories, func(s *story) bool {
		done := s.State == falcon.IncidentRelieved && len(s.inForce) == 0 &&
			iteration >= max(s.RelievedIteration, s.healthyAt)+m.cfg.CloseAfter
		if done {
			s.State = falcon.IncidentClosed
			m.emit(s)
		}
		return done
	})
}
