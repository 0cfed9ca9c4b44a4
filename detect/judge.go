package detect

import (
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/cause"
	"github.com/failslow/falcon/detect/peer"
)

// judgeWindow concludes from a window: verdicts, relief, and the healthy state.
func (m *Machine) judgeWindow(w *window, res peer.Result) {
	m.profile.keep(w, res)
	m.evidence.noteUneven(w.iteration, &res)
	if res.Missing > 0 {
		m.out.addNote("", m.samples.lastIteration(), "profile", "Profile %d lacks %d of %d ranks",
			w.id, res.Missing, len(res.Ranks))
	}
	if res.Dropped > 0 {
		m.out.addNote("", m.samples.lastIteration(), "profile",
			"Profile %d lost the timings of %d calls, %.0f %%: iterations that lack one are left out",
			w.id, res.Dropped, 100*res.DroppedShare())
	}
	m.watchRanks(w, &res)
	quiet := len(m.incidents.openIncidents()) == 0
	for _, s := range slices.Clone(m.incidents.list) {
		switch {
		case !s.Open():
		case (!s.hasVerdict() || s.isUnexplained()) && w.id > s.search.after:
			m.locateCulprit(s, res)
		case s.isLocated():
			m.judgeRelief(s, w, res)
			m.keepReference(s, w, &res)
		}
	}
	m.links.addTransfers(&res)
	if quiet && (m.profile.learningDue() || !m.evidence.hasHealthy()) {
		m.learnHealthy(w, res)
		return
	}
	m.checkUnexplained(w, res, quiet)
}

// checkUnexplained opens incidents for ranks that two windows running show slow
// although no verdict named them: the onset of a fault can hide behind an action
// or another fault. Where no incident is open, only those count that the watch
// calls failing: a little slowness that slows no iteration has no culprit.
func (m *Machine) checkUnexplained(w *window, res peer.Result, quiet bool) {
	if m.baseline.currentMs() == 0 {
		return // nothing to measure against yet
	}
	before := m.rankWatch.takeUnexplained()
	for _, s := range m.incidents.list {
		if s.Open() && !s.hasVerdict() {
			return
		}
	}
	s := newIncident(falcon.Incident{
		State:             falcon.IncidentVerified,
		DetectedIteration: m.samples.newest,
		RelievedIteration: falcon.NoIteration,
		OnsetIteration:    w.iteration,
		HealthyMs:         m.baseline.currentMs(),
		SlowMs:            m.samples.currentLevel(),
		Probability:       m.samples.changeProbability(),
	}, w.id)
	timing := m.evidence.withoutOthers(res, s)
	s.relief.hidden = m.samples.currentLevel() <= s.HealthyMs*(1+m.cfg.Settled)
	s.relief.byWindows = quiet || s.relief.hidden
	if quiet {
		timing.Slow = m.rankWatch.failing(timing.Slow)
		for _, r := range timing.Slow {
			since, _ := m.rankWatch.slowSince(r)
			s.OnsetIteration = min(s.OnsetIteration, since)
		}
	}
	switch {
	case quiet:
		m.rankWatch.forgetGroups()
	case m.checkGroups(s, w, timing):
		return
	}
	v := cause.Judge(m.evidence.caseFor(s, timing))
	if len(timing.Slow) == 0 || !m.evidence.isConvincing(v, timing) {
		return
	}
	known := true
	unexplained := map[falcon.Rank]int64{}
	for _, r := range timing.Slow {
		since, ok := before[r]
		if quiet {
			since, ok = m.rankWatch.slowSince(r)
		}
		known = known && ok
		if !ok {
			since = w.iteration
		}
		unexplained[r] = since
		s.OnsetIteration = min(s.OnsetIteration, since)
	}
	if !known {
		m.rankWatch.keepUnexplained(unexplained)
		m.incidents.expediteAll()
		m.watchSoon()
		return
	}
	m.openWithoutOnset(s, w, timing, v)
}

// groupsOver is how many times as long as usual messages must take, in two windows running, to open an
// incident of their own behind another: less is noise of a job that is slow.
const groupsOver = 2

// checkGroups opens an incident for messages that two windows running show slow although no verdict
// names them: a link got slow while the job was slow already, and its onset could not be told. Ranks that
// one of the windows shows slow besides are left to the next. It reports whether it did.
func (m *Machine) checkGroups(s *incidentState, w *window, timing peer.Result) bool {
	timing.Slow = nil
	var slow []peer.Group
	for _, g := range timing.Groups {
		if g.Suspect && g.Ratio >= groupsOver {
			slow = append(slow, g)
		}
	}
	again := m.rankWatch.slowAgain(w.iteration, slow)
	if len(slow) > 0 && len(again) == 0 {
		m.watchSoon()
	}
	if len(again) == 0 {
		return false
	}
	v := cause.Judge(m.evidence.caseFor(s, timing))
	if v.Cause != falcon.CauseNetwork {
		return false
	}
	for _, g := range again {
		s.OnsetIteration = min(s.OnsetIteration, g.since)
	}
	m.openWithoutOnset(s, w, timing, v)
	return true
}

// openWithoutOnset opens an incident that windows alone have shown.
func (m *Machine) openWithoutOnset(s *incidentState, w *window, timing peer.Result, v falcon.Verdict) {
	s.basis = verdictBasis{timing: &timing, at: m.clock.now}
	m.incidents.add(s)
	m.decided.noteWindows(s, m.samples.lastIteration(), w.id, timing.Slow)
	m.publishVerdict(s, v)
	m.out.addNote(s.ID, w.iteration, "onset", "%s: %s is slow too, without an onset of its own",
		s.ID, culpritNames(v))
}

func sortedProfiles(w *window) []falcon.RankProfile {
	out := make([]falcon.RankProfile, 0, len(w.parts))
	for _, r := range slices.Sorted(maps.Keys(w.parts)) {
		out = append(out, w.parts[r])
	}
	return out
}

// locateCulprit gives an incident its verdict, or asks for another window.
func (m *Machine) locateCulprit(s *incidentState, res peer.Result) {
	timing := m.evidence.withoutOthers(res, s)
	sure := m.evidence.dropUnconfirmed(s, &timing)
	v := cause.Judge(m.evidence.caseFor(s, timing))
	named := len(v.Devices)+len(v.Links)+len(v.Ranks) > 0
	sure = sure &&
		(named || v.Cause == falcon.CauseNotHardware) &&
		(timing.Clear || len(timing.Slow) == 0)
	if s.burst.paused && !named { // a window of healthy iterations: no try
		return
	}
	if s.ID == "" && !named && m.mergeIntoOpen(s, res, false) {
		return
	}
	if !sure && m.profile.retryLater(s) {
		return
	}
	if s.ID == "" && !named && m.mergeIntoOpen(s, res, true) {
		return
	}
	s.basis = verdictBasis{timing: &timing, at: m.clock.now}
	if s.isUnexplained() && !named && v.Cause == falcon.CauseUnknown {
		return // as little as before
	}
	m.publishVerdict(s, v)
}

// concludeUnknown ends the search of an incident for which no window came.
func (m *Machine) concludeUnknown(s *incidentState) {
	if s.isUnexplained() {
		return
	}
	none := peer.Result{
		Ranks:   make([]peer.Rank, len(m.samples.ranks)),
		Missing: len(m.samples.ranks),
	}
	m.publishVerdict(s, cause.Judge(m.evidence.caseFor(s, none)))
}

func (m *Machine) publishVerdict(s *incidentState, v falcon.Verdict) {
	m.returns.settle(s, v)
	m.culprits.conclude(s, v)
	s.State = falcon.IncidentLocated
	s.relief.startWatch(m.samples.lastIteration())
	m.incidents.handOut(s)
}

// Bounds on judging again: counters lag behind the profile by a reading or two.
const (
	rejudgeFor  = 10 * time.Second
	rejudgeMost = 8
	rejudgeGain = 0.05 // of confidence, worth telling
)

// judgeAgain looks at fresh verdicts again when counters come in.
func (m *Machine) judgeAgain(in Readings) {
	for _, s := range m.incidents.list {
		if s.basis.timing == nil ||
			!readingsConcern(in, s) ||
			!s.isLocated() ||
			!s.Open() ||
			s.basis.repeats >= rejudgeMost ||
			m.clock.now.Sub(s.basis.at) > rejudgeFor {
			continue
		}
		s.basis.repeats++
		v := cause.Judge(m.evidence.caseFor(s, *s.basis.timing))
		if v.Confidence >= s.Verdict.Confidence+rejudgeGain ||
			(v.Cause != s.Verdict.Cause && v.Cause != falcon.CauseUnknown) ||
			len(v.Links) > 0 && len(s.Verdict.Links) == 0 {
			m.returns.settle(s, v)
			m.culprits.conclude(s, v)
			m.incidents.handOut(s)
		}
	}
}

// readingsConcern reports whether the readings are of one of the incident's devices or nodes,
// or of ports where it has a network suspicion.
func readingsConcern(in Readings, s *incidentState) bool {
	return len(in.NICs) > 0 && s.Verdict.HasCause(falcon.CauseNetwork) ||
		slices.ContainsFunc(s.Verdict.Devices, func(d falcon.Device) bool {
			return slices.ContainsFunc(in.GPUs, func(r falcon.GPUReading) bool { return r.Device == d }) ||
				slices.ContainsFunc(in.Hosts, func(r falcon.HostReading) bool {
					return r.Node == d.Node()
				})
		})
}

// learnHealthy takes a window of a job without open incidents as healthy, unless
// peers or counters name a rank: then the fault was there from the start.
func (m *Machine) learnHealthy(w *window, res peer.Result) {
	s := newIncident(falcon.Incident{
		State:             falcon.IncidentVerified,
		FromStart:         true,
		OnsetIteration:    m.samples.fold.first,
		DetectedIteration: m.samples.newest,
		RelievedIteration: falcon.NoIteration,
		SlowMs:            m.samples.currentLevel(),
		Probability:       1,
	}, w.id)
	s.relief.byWindows = true
	v := cause.Judge(m.evidence.caseFor(s, res))
	named := len(v.Devices)+len(v.Links) > 0
	switch {
	case named &&
		m.profile.learningDue() &&
		m.evidence.isConvincing(v, res) &&
		!m.profile.seenBefore(culpritNames(v)):
		m.profile.confirmLearning(culpritNames(v))
		m.out.addNote(firstCulprit(v), w.iteration, "profile",
			"%s looks slower than its peers: a second profile decides",
			culpritNames(v))
	case named && m.profile.learningDue() && m.evidence.isConvincing(v, res):
		m.profile.endLearning()
		m.openFromStart(s, v, res)
	case named || len(res.Slow) > 0:
		m.out.addNote(firstCulprit(v), w.iteration, "profile",
			"%s looks slower than its peers, but neither waits nor counters confirm it",
			culpritNames(v))
		m.profile.learnAgain()
	case res.Missing > 0 && !m.evidence.hasHealthy() && m.profile.learnTriesLeft():
		m.profile.learnAgain()
	case !res.AllSlow && len(res.SlowStages) == 0:
		m.evidence.learnHealthy(res)
		m.profile.healthyLearned()
		m.out.addNote("", w.iteration, "profile", "Healthy profile of %d of %d ranks stored",
			len(res.Ranks)-res.Missing, len(res.Ranks))
	default:
		m.profile.endLearning()
	}
}

// openFromStart opens an incident that has no onset. What the job would take
// without it is estimated from how much slower its culprit computes.
func (m *Machine) openFromStart(s *incidentState, v falcon.Verdict, res peer.Result) {
	worst := 1.0
	for _, r := range res.Slow {
		worst = max(worst, res.Ranks[r].Ratio)
	}
	s.HealthyMs = s.SlowMs / worst
	s.basis = verdictBasis{timing: &res, at: m.clock.now}
	m.incidents.add(s)
	m.decided.noteWindows(
		s,
		m.samples.lastIteration(),
		m.profile.windowID,
		res.Slow,
	)
	m.publishVerdict(s, v)
	m.out.addNote(s.ID, s.OnsetIteration, "onset",
		"%s: %s is slow since before the first iteration seen; healthy %.1f ms is an estimate",
		s.ID, culpritNames(v), s.HealthyMs)
}
