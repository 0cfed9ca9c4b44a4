package detect

import (
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/cause"
	"github.com/failslow/falcon/detect/peer"
)

// judge draws every conclusion from a window that ended: verdicts, relief, and
// the healthy state.
func (m *Machine) judge(w *window) {
	res := peer.Judge(peer.Window{
		Layout: m.job.desc.Layout, Placement: m.job.desc.Placement, Comms: m.job.desc.Comms,
		Profiles: sortedParts(w), Healthy: &m.evidence.healthy, Rules: m.cfg.Rules,
	})
	for _, r := range res.Ranks {
		if r.Measured {
			m.profile.shown[r.Rank] = r
		}
	}
	if res.Missing == 0 {
		m.profile.last, m.profile.haveLast, m.profile.lastWindow = res, true, w.id
	} else {
		m.out.note(m.samples.slowest.last(), "profile", "Profile %d lacks %d of %d ranks", w.id, res.Missing, len(res.Ranks))
	}
	m.lookAtRanks(w, &res)
	quiet := len(m.incidents.open()) == 0
	for _, s := range slices.Clone(m.incidents.list) {
		switch {
		case !s.Open():
		case (!s.judged() || s.puzzling()) && w.id > s.after:
			m.locate(s, res)
		case s.located():
			m.watch(s, w, res)
			m.refer(s, w, &res)
		}
	}
	m.links.addTransfers(&res)
	if quiet && (m.profile.learn.due || !m.evidence.healthy.Known()) {
		m.learned(w, res)
		return
	}
	m.meetStrangers(w, res, quiet)
}

// meetStrangers opens incidents for ranks that two windows running show slow
// although nobody named them: the onset of a fault can hide behind an action
// or another fault. Where no incident is open, only those count that the watch
// calls failing: a little slowness that slows no iteration is nobody's.
func (m *Machine) meetStrangers(w *window, res peer.Result, quiet bool) {
	before := m.rankWatch.unexplained
	m.rankWatch.unexplained = nil
	for _, s := range m.incidents.list {
		if s.Open() && !s.judged() {
			return
		}
	}
	s := &story{Incident: falcon.Incident{
		State: falcon.IncidentVerified, DetectedIteration: m.samples.newest, RelievedIteration: falcon.NoIteration,
		OnsetIteration: w.iteration, HealthyMs: m.baseline.ms(), SlowMs: m.samples.level(), Probability: m.samples.slowest.tracker.PRecent(),
	}, after: w.id, inForce: map[falcon.Rung]bool{}}
	timing := m.evidence.withoutOthers(res, s)
	s.hidden = m.samples.level() <= s.HealthyMs*(1+m.cfg.Settled)
	s.watched = quiet || s.hidden
	if quiet {
		timing.Slow = m.rankWatch.failing(timing.Slow)
		for _, r := range timing.Slow {
			since, _ := m.rankWatch.steps.Since(r)
			s.OnsetIteration = min(s.OnsetIteration, since)
		}
	}
	v := cause.Judge(m.evidence.caseOf(s, timing))
	if len(timing.Slow) == 0 || !m.evidence.convincing(v, timing) {
		return
	}
	known := true
	for _, r := range timing.Slow {
		since, ok := before[r]
		if quiet {
			since, ok = m.rankWatch.steps.Since(r)
		}
		known = known && ok
		if !ok {
			since = w.iteration
		}
		if m.rankWatch.unexplained == nil {
			m.rankWatch.unexplained = map[falcon.Rank]int64{}
		}
		m.rankWatch.unexplained[r] = since
		s.OnsetIteration = min(s.OnsetIteration, since)
	}
	if !known {
		m.incidents.expediteAll()
		m.lookSoon()
		return
	}
	m.rankWatch.unexplained = nil
	s.timing, s.judgedAt = &timing, m.clock.now
	m.incidents.list = append(m.incidents.list, s)
	m.settleVerdict(s, v)
	m.out.note(w.iteration, "onset", "%s: %s is slow too, without an onset of its own", s.ID, culprits(v))
}

func sortedParts(w *window) []falcon.RankProfile {
	out := make([]falcon.RankProfile, 0, len(w.parts))
	for _, r := range slices.Sorted(maps.Keys(w.parts)) {
		out = append(out, w.parts[r])
	}
	return out
}

// locate gives a story its verdict, or asks for another window.
func (m *Machine) locate(s *story, res peer.Result) {
	timing := m.evidence.withoutOthers(res, s)
	sure := m.evidence.dropUnconfirmed(s, &timing)
	v := cause.Judge(m.evidence.caseOf(s, timing))
	named := len(v.Devices)+len(v.Links)+len(v.Ranks) > 0
	sure = sure && (named || v.Cause == falcon.CauseNotHardware) && (timing.Clear || len(timing.Slow) == 0)
	if s.between && !named { // a window of healthy iterations: no try
		return
	}
	if s.ID == "" && !named && m.absorb(s, res, false) {
		return
	}
	if !sure && m.again(s) {
		return
	}
	if s.ID == "" && !named && m.absorb(s, res, true) {
		return
	}
	s.timing, s.judgedAt, s.rejudged = &timing, m.clock.now, 0
	if s.puzzling() && !named && v.Cause == falcon.CauseUnknown {
		return // as little as before
	}
	m.settleVerdict(s, v)
}

// again puts a story's verdict off to another window, while tries are left.
func (m *Machine) again(s *story) bool {
	s.tries++
	s.notUntil, s.after = m.samples.slowest.last()+m.cfg.Profile.Spacing, m.profile.windowID
	if s.tries < m.cfg.Profile.Tries {
		return true
	}
	s.notUntil = m.samples.slowest.last() + m.cfg.Profile.Retry
	return false
}

// giveUp tells a story that no window could be had for.
func (m *Machine) giveUp(s *story) {
	if s.puzzling() {
		return
	}
	none := peer.Result{Ranks: make([]peer.Rank, len(m.samples.ranks)), Missing: len(m.samples.ranks)}
	m.settleVerdict(s, cause.Judge(m.evidence.caseOf(s, none)))
}

func (m *Machine) settleVerdict(s *story, v falcon.Verdict) {
	m.culprits.conclude(s, v)
	s.State = falcon.IncidentLocated
	s.asked, s.badAt, s.healthyAt = m.samples.slowest.last(), m.samples.slowest.last(), falcon.NoIteration
	if s.ID == "" {
		m.incidents.publish(s)
		return
	}
	m.out.update(s)
}

// Bounds on judging again: counters lag behind the profile by a reading or two.
const (
	rejudgeFor  = 10 * time.Second
	rejudgeMost = 8
	rejudgeGain = 0.05 // of confidence, worth telling
)

// rejudge looks at fresh verdicts again when counters come in.
func (m *Machine) rejudge(in Readings) {
	for _, s := range m.incidents.list {
		if s.timing == nil || !concerns(in, s) || !s.located() || !s.Open() || s.rejudged >= rejudgeMost || m.clock.now.Sub(s.judgedAt) > rejudgeFor {
			continue
		}
		s.rejudged++
		v := cause.Judge(m.evidence.caseOf(s, *s.timing))
		if v.Confidence >= s.Verdict.Confidence+rejudgeGain || (v.Cause != s.Verdict.Cause && v.Cause != falcon.CauseUnknown) || len(v.Links) > 0 && len(s.Verdict.Links) == 0 {
			m.culprits.conclude(s, v)
			m.out.update(s)
		}
	}
}

// concerns says that the readings are of one of the story's devices or nodes,
// or of ports where it has a network suspicion.
func concerns(in Readings, s *story) bool {
	return len(in.NICs) > 0 && (s.Verdict.Cause == falcon.CauseNetwork || slices.Contains(s.Verdict.Also, falcon.CauseNetwork)) ||
		slices.ContainsFunc(s.Verdict.Devices, func(d falcon.Device) bool {
			return slices.ContainsFunc(in.GPUs, func(r falcon.GPUReading) bool { return r.Device == d }) ||
				slices.ContainsFunc(in.Hosts, func(r falcon.HostReading) bool { return r.Node == d.Node() })
		})
}

// learned takes a window of a job without open incidents as healthy, unless
// peers or counters name somebody: then the fault was there from the start.
func (m *Machine) learned(w *window, res peer.Result) {
	s := &story{Incident: falcon.Incident{
		State: falcon.IncidentVerified, FromStart: true, OnsetIteration: m.samples.fold.first,
		DetectedIteration: m.samples.newest, RelievedIteration: falcon.NoIteration, SlowMs: m.samples.level(), Probability: 1,
	}, after: w.id, inForce: map[falcon.Rung]bool{}, watched: true}
	v := cause.Judge(m.evidence.caseOf(s, res))
	named := len(v.Devices)+len(v.Links) > 0
	switch {
	case named && m.profile.learn.due && m.evidence.convincing(v, res) && m.profile.learn.seen != culprits(v):
		m.profile.learn.seen, m.profile.learn.after = culprits(v), m.samples.slowest.last()+m.cfg.Profile.Spacing
		m.out.note(w.iteration, "profile", "%s looks slower than its peers: a second profile will tell", culprits(v))
	case named && m.profile.learn.due && m.evidence.convincing(v, res):
		m.profile.learn.due = false
		m.fromStart(s, v, res)
	case named || len(res.Slow) > 0:
		m.out.note(w.iteration, "profile", "%s looks slower than its peers, but neither waits nor counters confirm it", culprits(v))
		m.profile.learnAgain()
	case res.Missing > 0 && !m.evidence.healthy.Known() && m.profile.learn.tries+1 < m.cfg.Profile.Tries:
		m.profile.learnAgain()
	case !res.AllSlow && len(res.SlowStages) == 0:
		m.evidence.healthy.Learn(res)
		m.profile.learn = learning{}
		m.out.note(w.iteration, "profile", "Healthy profile of %d of %d ranks stored", len(res.Ranks)-res.Missing, len(res.Ranks))
	default:
		m.profile.learn.due = false
	}
}

// fromStart opens an incident that has no onset. What the job would take
// without it is estimated from how much slower its culprit computes.
func (m *Machine) fromStart(s *story, v falcon.Verdict, res peer.Result) {
	worst := 1.0
	for _, r := range res.Slow {
		worst = max(worst, res.Ranks[r].Ratio)
	}
	s.HealthyMs = s.SlowMs / worst
	s.timing, s.judgedAt = &res, m.clock.now
	m.incidents.list = append(m.incidents.list, s)
	m.settleVerdict(s, v)
	m.out.note(s.OnsetIteration, "onset", "%s: %s is slow since before the first iteration seen; healthy %.1f ms is an estimate", s.ID, culprits(v), s.HealthyMs)
}
