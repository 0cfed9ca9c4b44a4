package detect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// window is the profile window in flight; there is at most one.
type window struct {
	id         uint64
	iterations int
	asked      time.Time
	iteration  int64 // newest iteration when it was asked for
	parts      map[falcon.Rank]falcon.RankProfile
	refused    []string
	comparing  time.Time // since when its profiles are compared; zero = they are not
}

// learnState is the need for a profile of the healthy job.
type learnState struct {
	due   bool
	tries int
	after int64  // iteration before which it is not asked for
	seen  string // who looked slow in the window before
}

// Bounds on waiting for a window.
const (
	refusalGrace  = 2 * time.Second // for the other nodes' parts after a refusal
	deadlineTimes = 4               // windows long, at least
	deadlineMost  = time.Minute
	// iterations besides an early window's own: until it begins, and until all was timed
	earlyDeadline = 5
	compareMost   = time.Minute // for a comparison aside
)

// planWindow requests the window needed most, if none is in flight: for the culprit of an
// onset, then for a relief, then for the healthy state.
func (m *Machine) planWindow() {
	if !m.job.known || m.profile.inFlight() || m.samples.isLearning() {
		return
	}
	at := m.samples.lastIteration()
	for _, s := range m.incidents.list {
		if s.Open() &&
			!s.burst.paused &&
			(!s.hasVerdict() || s.isUnexplained()) &&
			at >= s.search.notBefore {
			m.profile.request(m.cfg.Profile.Iterations, fmt.Sprintf(
				"%s slower since iteration %d: who is it?",
				s.subject(), s.OnsetIteration,
			))
			return
		}
	}
	if m.profile.lookDue(at) && !m.tests.waiting() {
		m.profile.lookFrom(0)
		m.profile.request(m.cfg.Profile.Iterations, "How do the ranks compute on their new devices?")
		return
	}
	if m.tests.request(at) || m.linkWatch.requestTest(at) || m.tests.waiting() {
		return
	}
	if m.profile.requestWanted() {
		return
	}
	for _, s := range m.incidents.list {
		if m.reliefDue(s, at) {
			m.profile.request(m.cfg.Relief.Iterations, fmt.Sprintf("%s: is %s healthy again?",
				s.ID, culpritNames(s.Verdict)))
			return
		}
	}
	if m.profile.learningDueAt(at) &&
		!m.baseline.isSettling(at) &&
		len(m.incidents.openIncidents()) == 0 {
		m.profile.request(m.cfg.Profile.Iterations, "How does the job compute now?")
		return
	}
	if m.watchDue(at) {
		m.profile.request(m.cfg.Watch.Iterations, "How do the ranks compute?")
	}
}

// reliefDue reports whether a watched culprit should be looked at.
func (m *Machine) reliefDue(s *incidentState, at int64) bool {
	if !s.Open() || !s.isLocated() || m.incidents.awaitsNodes(s) {
		return false
	}
	if s.relief.check {
		return true
	}
	every := m.cfg.Relief.Every
	if s.relief.streak > 0 || s.relief.urgent {
		every = m.cfg.Relief.Confirm
	}
	return m.incidents.reliefByWindows(s) &&
		at >= s.relief.lastWindow+every &&
		at >= s.actions.since
}

func culpritNames(v falcon.Verdict) string {
	var names []string
	for _, d := range v.Devices {
		names = append(names, string(d))
	}
	for _, l := range v.Links {
		names = append(names, l.String())
	}
	if len(names) == 0 {
		return fmt.Sprintf("the group of ranks %v", v.Ranks)
	}
	return strings.Join(names, ", ")
}

// firstCulprit is the first device that a verdict names, "" without one.
func firstCulprit(v falcon.Verdict) string {
	if len(v.Devices) == 0 {
		return ""
	}
	return string(v.Devices[0])
}

// request asks all ranks for a window. The first id comes from the clock, so
// that windows of before a restart are not taken for new ones.
func (p *profiler) request(iterations int, why string) {
	if p.windowID == 0 {
		p.windowID = uint64(max(0, p.clock.now.Unix())) & 0x3fffffff
	}
	p.windowID++
	p.window = &window{
		id:         p.windowID,
		iterations: iterations,
		asked:      p.clock.now,
		iteration:  p.samples.lastIteration(),
		parts:      map[falcon.Rank]falcon.RankProfile{},
	}
	for _, s := range p.incidents.list {
		s.relief.lastWindow = max(s.relief.lastWindow, p.window.iteration)
	}
	p.out.addRequest(ProfileRequest{
		Window:     p.windowID,
		Iterations: iterations,
		Why:        why,
	})
}

// want has a window taken soon, for another consumer.
func (p *profiler) want(why string) {
	p.wanted = why
}

// requestWanted asks for the window that another consumer wants; false = none does.
func (p *profiler) requestWanted() bool {
	if p.wanted == "" {
		return false
	}
	p.request(p.cfg.Relief.Iterations, p.wanted)
	p.wanted = ""
	return true
}

func (m *Machine) stepProfiled(in Profiled) {
	w := m.profile.window
	if w == nil || in.Window != w.id || !w.comparing.IsZero() {
		return
	}
	if in.Refused != "" && !slices.Contains(w.refused, in.Refused) {
		w.refused = append(w.refused, in.Refused)
	}
	for _, p := range in.Profiles {
		if p.Rank >= 0 && int(p.Rank) < len(m.samples.ranks) {
			w.parts[p.Rank] = m.job.perMicroBatch(p)
		}
	}
	m.checkWindow()
}

// checkWindow ends the window when all ranks are in, or when it is late.
func (m *Machine) checkWindow() {
	w := m.profile.window
	if w == nil {
		return
	}
	waited := m.clock.now.Sub(w.asked)
	deadline := m.profile.deadlineOf(w, m.early.isOwn(w))
	switch {
	case !w.comparing.IsZero():
		if m.clock.now.Sub(w.comparing) > compareMost {
			m.profile.closeWindow()
			w.refused = append(w.refused, "its profiles were not compared in time")
			m.windowFailed(w)
		}
		return
	case len(w.parts) == len(m.samples.ranks):
	case waited >= deadline:
	case len(w.refused) > 0 && waited >= refusalGrace:
	case len(w.refused) > 0 &&
		len(w.parts) == 0 &&
		len(m.job.desc.Placement.Nodes()) == 1:
	default:
		return
	}
	switch early := m.early.isOwn(w); {
	case early && len(w.parts) < len(m.samples.ranks): // counts for nothing
		m.profile.closeWindow()
	case len(w.parts) == 0:
		m.profile.closeWindow()
		m.windowFailed(w)
	default:
		w.comparing = m.clock.now
		c := Comparison{Window: w.id, of: m.evidence.comparison(sortedProfiles(w))}
		if m.cfg.CompareAside > 0 && len(w.parts) >= m.cfg.CompareAside {
			m.out.addComparison(c)
			return
		}
		m.stepCompared(c.Run())
	}
}

// stepCompared ends the window whose profiles were compared, unless it was dropped meanwhile.
func (m *Machine) stepCompared(in Compared) {
	switch w := m.profile.takeCompared(in.Window); {
	case w == nil:
	case m.early.isOwn(w):
		m.endEarly(w, in.Result)
	default:
		m.judgeWindow(w, in.Result)
	}
}

// windowFailed is a window of which nothing came.
func (m *Machine) windowFailed(w *window) {
	why := "no node answered in time"
	if len(w.refused) > 0 {
		why = strings.Join(w.refused, "; ")
	}
	m.out.addNote("", m.samples.lastIteration(), "profile", "Profile %d failed: %s", w.id, why)
	for _, s := range slices.Clone(m.incidents.list) {
		if s.Open() && !s.hasVerdict() && w.id > s.search.after {
			if !m.profile.retryLater(s) {
				m.concludeUnknown(s)
			}
		}
		s.relief.check = false
	}
	m.profile.learnAgain()
}

// learnAgain tries the healthy profile again later, a bounded number of times.
func (p *profiler) learnAgain() {
	p.learn.tries++
	p.learn.after = p.samples.lastIteration() + p.cfg.Profile.Spacing*int64(p.learn.tries)
	p.learn.due = p.learn.due && p.learn.tries < p.cfg.Profile.Tries
}

// profiler asks for profile windows and keeps the newest complete one.
type profiler struct {
	cfg       *Config
	clock     *clock
	out       *output
	samples   *sampleLog
	incidents *incidentSet

	window     *window
	windowID   uint64 // of the newest window
	learn      learnState
	lookAt     int64       // iteration from which the ranks' new devices are profiled, 0 = no need
	last       peer.Result // newest complete profile
	haveLast   bool
	lastWindow uint64      // that last comes from
	lastAsked  time.Time   // when that window was asked for
	wanted     string      // why another consumer wants a window, "" = none does
	shown      []peer.Rank // newest timing per rank, from any profile
	kept       int         // changes of shown
}

// startEpoch forgets what was profiled of another epoch's processes.
func (p *profiler) startEpoch(world int) {
	p.window = nil
	p.learn = learnState{due: true}
	p.lookAt = 0
	p.wanted = ""
	p.haveLast, p.shown = false, make([]peer.Rank, world)
	p.kept++
}

// deadlineOf is how long a window is waited for. An early one must not keep the search for a
// culprit waiting, as a node that is missing would; its iterations are as slow as the newest.
func (p *profiler) deadlineOf(w *window, early bool) time.Duration {
	iterations := deadlineTimes * float64(w.iterations)
	level := p.samples.currentLevel()
	least := p.cfg.Profile.Deadline
	if early {
		iterations = float64(w.iterations + earlyDeadline)
		level = slices.Max(append(p.samples.slowest.newestValues(lastOver), 0))
		least = min(least, refusalGrace)
	}
	return min(max(least, time.Duration(iterations*level*float64(time.Millisecond))), deadlineMost)
}

// inFlight reports whether a window is awaited.
func (p *profiler) inFlight() bool { return p.window != nil }

func (p *profiler) closeWindow() {
	p.window = nil
}

// takeCompared ends the window that is being compared, if it is the one of an id.
func (p *profiler) takeCompared(id uint64) *window {
	w := p.window
	if w == nil || w.id != id || w.comparing.IsZero() {
		return nil
	}
	p.closeWindow()
	return w
}

// retryLater puts an incident's verdict off to another window, while tries are left.
func (p *profiler) retryLater(s *incidentState) bool {
	s.search.tries++
	s.search.notBefore, s.search.after = p.samples.lastIteration()+p.cfg.Profile.Spacing, p.windowID
	if s.search.tries < p.cfg.Profile.Tries {
		return true
	}
	s.search.notBefore = p.samples.lastIteration() + p.cfg.Profile.Retry
	return false
}

// keep takes the result of a window; only a complete one is shown as a whole.
func (p *profiler) keep(w *window, res peer.Result) {
	p.kept++
	for _, r := range res.Ranks {
		if r.Measured {
			p.shown[r.Rank] = r
		}
	}
	if res.Missing == 0 {
		p.last, p.haveLast, p.lastWindow, p.lastAsked = res, true, w.id, w.asked
	}
}

// move forgets what was measured on other devices. It reports whether it dropped a window that
// mixes both placements.
func (p *profiler) move(was, now falcon.Placement, before int64) (dropped bool) {
	p.kept++
	for r := range now {
		if now[r] != was[r] {
			p.shown[r] = peer.Rank{}
		}
	}
	p.last = peer.Result{}
	p.haveLast = false
	dropped = p.window != nil && p.window.iteration < before
	if dropped {
		p.window = nil
	}
	return dropped
}

// requestLearning asks for a profile of the healthy job from an iteration on.
func (p *profiler) requestLearning(after int64) {
	p.learn = learnState{due: true, after: after}
}

func (p *profiler) learningDue() bool { return p.learn.due }

func (p *profiler) learningDueAt(iteration int64) bool {
	return p.learn.due && iteration >= p.learn.after
}

// confirmLearning asks for a second window, as a rank looked slow in the first.
func (p *profiler) confirmLearning(seen string) {
	p.learn.seen, p.learn.after = seen, p.samples.lastIteration()+p.cfg.Profile.Spacing
}

// lookFrom has the ranks profiled on their new devices from an iteration on, 0 = no more.
func (p *profiler) lookFrom(iteration int64) {
	p.lookAt = iteration
}

func (p *profiler) lookDue(iteration int64) bool {
	return p.lookAt > 0 && iteration >= p.lookAt
}

// healthyLearned ends learning: the healthy state is known.
func (p *profiler) healthyLearned() {
	p.learn = learnState{}
}

// endLearning ends learning without a healthy state; the tries made count.
func (p *profiler) endLearning() {
	p.learn.due = false
}

// seenBefore reports whether the same culprits looked slow in the window before.
func (p *profiler) seenBefore(culprits string) bool {
	return p.learn.seen == culprits
}

func (p *profiler) learnTriesLeft() bool {
	return p.learn.tries+1 < p.cfg.Profile.Tries
}
