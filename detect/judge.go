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
		Layout: m.job.Layout, Placement: m.job.Placement, Comms: m.job.Comms,
		Profiles: sortedParts(w), Healthy: &m.healthy, Rules: m.cfg.Rules,
	})
	for _, r := range res.Ranks {
		if r.Measured {
			m.shown[r.Rank] = r
		}
	}
	if res.Missing == 0 {
		m.last, m.haveLast, m.lastWindow = res, true, w.id
	} else {
		m.note(m.slow.last(), "profile", "Profile %d lacks %d of %d ranks", w.id, res.Missing, len(res.Ranks))
	}
	m.lookAtRanks(w, &res)
	quiet := len(m.openStories()) == 0
	for _, s := range slices.Clone(m.stories) {
		switch {
		case !s.Open():
		case (!s.judged() || s.puzzling()) && w.id > s.after:
			m.locate(s, res)
		case s.located():
			m.watch(s, w, res)
			m.refer(s, w, &res)
		}
	}
	m.seeTransfers(&res)
	if quiet && (m.learn.due || !m.healthy.Known()) {
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
	before := m.strangers
	m.strangers = nil
	for _, s := range m.stories {
		if s.Open() && !s.judged() {
			return
		}
	}
	s := &story{Incident: falcon.Incident{
		State: falcon.IncidentVerified, DetectedIteration: m.newest, RelievedIteration: falcon.NoIteration,
		OnsetIteration: w.iteration, HealthyMs: m.baselineMs(), SlowMs: m.level(), Probability: m.slow.tracker.PRecent(),
	}, after: w.id, inForce: map[falcon.Rung]bool{}}
	timing := m.without(res, s)
	s.hidden = m.level() <= s.HealthyMs*(1+m.cfg.Settled)
	s.watched = quiet || s.hidden
	if quiet {
		timing.Slow = m.failing(timing.Slow)
		for _, r := range timing.Slow {
			since, _ := m.rankWatch.Since(r)
			s.OnsetIteration = min(s.OnsetIteration, since)
		}
	}
	v := cause.Judge(m.caseOf(s, timing))
	if len(timing.Slow) == 0 || !m.convincing(v, timing) {
		return
	}
	known := true
	for _, r := range timing.Slow {
		since, ok := before[r]
		if quiet {
			since, ok = m.rankWatch.Since(r)
		}
		known = known && ok
		if !ok {
			since = w.iteration
		}
		if m.strangers == nil {
			m.strangers = map[falcon.Rank]int64{}
		}
		m.strangers[r] = since
		s.OnsetIteration = min(s.OnsetIteration, since)
	}
	if !known {
		m.hurry()
		m.lookSoon()
		return
	}
	m.strangers = nil
	s.timing, s.judgedAt = &timing, m.now
	m.stories = append(m.stories, s)
	m.settleVerdict(s, v)
	m.note(w.iteration, "onset", "%s: %s is slow too, without an onset of its own", s.ID, culprits(v))
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
	timing := m.without(res, s)
	sure := m.confirm(s, &timing)
	v := cause.Judge(m.caseOf(s, timing))
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
	s.timing, s.judgedAt, s.rejudged = &timing, m.now, 0
	if s.puzzling() && !named && v.Cause == falcon.CauseUnknown {
		return // as little as before
	}
	m.settleVerdict(s, v)
}

// confirm lets those ranks go that timing accuses alone: a rank stays if
// counters accuse it too, or if the window before did and its excess explains
// a fair part of the slowdown. A hiccup or two in a short window make anybody
// look slow. It says whether nobody had to go.
func (m *Machine) confirm(s *story, timing *peer.Result) bool {
	c, before := m.caseOf(s, *timing), s.accused
	s.accused = timing.Slow
	timing.Slow = slices.DeleteFunc(slices.Clone(timing.Slow), func(r falcon.Rank) bool {
		return !c.Confirmed(r) && (!slices.Contains(before, r) || m.explains(s, timing.Ranks[r]) < explainLeast || !m.steadily(&timing.Ranks[r]))
	})
	ranks := len(timing.Slow) == len(s.accused)
	return m.letLinksGo(s, timing) && ranks
}

// letLinksGo takes the suspicion off groups and pairs whose excess is a small
// part of what the iteration lost: a network is never quite the same, and
// something else made the job slow. Beside a culprit of another kind they are
// told. It says whether none had to go.
func (m *Machine) letLinksGo(s *story, timing *peer.Result) bool {
	lost := s.SlowMs - s.beforeMs
	others := len(timing.Slow)+len(timing.SlowStages) > 0 || timing.AllSlow || timing.Uneven
	if s.beforeMs <= 0 || lost <= 0 || s.tests != nil || others {
		return true
	}
	most, both := 0.0, map[[2]falcon.Rank]float64{}
	for _, g := range timing.Groups {
		if g.Suspect {
			most = max(most, (g.TransferMs-g.BaseMs)*g.CallsPerIt)
		}
	}
	for _, p := range timing.Pairs {
		if p.Suspect {
			ends := [2]falcon.Rank{min(p.From, p.To), max(p.From, p.To)}
			both[ends] += (p.RecvMs - p.BaseMs) * p.CallsPerIt
			most = max(most, both[ends])
		}
	}
	if most == 0 || most >= linkLeast*lost {
		return true
	}
	timing.Groups, timing.Pairs = slices.Clone(timing.Groups), slices.Clone(timing.Pairs)
	for i := range timing.Groups {
		timing.Groups[i].Suspect = false
	}
	for i := range timing.Pairs {
		timing.Pairs[i].Suspect = false
	}
	return false
}

// linkLeast is the share of the slowdown that the slowest groups or links must
// explain. A transfer's least time hides much of it where computation overlaps.
const linkLeast = 1.0 / 8

// steadily says that a rank is slow in nearly all iterations of a window, not
// by a hiccup in one of two; true where they can't be told apart.
func (m *Machine) steadily(r *peer.Rank) bool {
	over, of := r.StepsOver(m.suspectRatio())
	return over >= (3*of+3)/4
}

// explainLeast is the share of the slowdown that a culprit without counters
// must explain.
const explainLeast = 1.0 / 3

// explains is the share of the iteration's slowdown that a rank's excess of
// self time accounts for, over its m + p − 1 passes (1F1B); 1 where it can't be
// told.
func (m *Machine) explains(s *story, r peer.Rank) float64 {
	replica := m.job.Layout.Replica(r.Rank)
	lost := s.SlowMs - s.beforeMs
	if s.beforeMs <= 0 || lost <= 0 || r.Ratio <= 0 || replica >= len(m.job.MicroBatches) {
		return 1
	}
	passes := float64(int(m.job.MicroBatches[replica]) + m.job.Layout.PP - 1)
	return (r.SelfMs - r.SelfMs/r.Ratio) * passes / lost
}

// again puts a story's verdict off to another window, while tries are left.
func (m *Machine) again(s *story) bool {
	s.tries++
	s.notUntil, s.after = m.slow.last()+m.cfg.Profile.Spacing, m.windows
	if s.tries < m.cfg.Profile.Tries {
		return true
	}
	s.notUntil = m.slow.last() + m.cfg.Profile.Retry
	return false
}

// giveUp tells a story that no window could be had for.
func (m *Machine) giveUp(s *story) {
	if s.puzzling() {
		return
	}
	none := peer.Result{Ranks: make([]peer.Rank, len(m.ranks)), Missing: len(m.ranks)}
	m.settleVerdict(s, cause.Judge(m.caseOf(s, none)))
}

func (m *Machine) drop(s *story) {
	m.stories = slices.DeleteFunc(m.stories, func(o *story) bool { return o == s })
}

func (m *Machine) settleVerdict(s *story, v falcon.Verdict) {
	m.conclude(s, v)
	s.State = falcon.IncidentLocated
	s.asked, s.badAt, s.healthyAt = m.slow.last(), m.slow.last(), falcon.NoIteration
	if s.ID == "" {
		m.tell(s)
		return
	}
	m.emit(s)
}

// caseOf joins a window's timing with the counters since the onset.
func (m *Machine) caseOf(s *story, timing peer.Result) cause.Case {
	c := cause.Case{
		Layout: m.job.Layout, Placement: m.job.Placement, Timing: timing,
		HealthyMs: s.HealthyMs, SlowMs: s.SlowMs,
	}
	since := m.times.startOf(s.OnsetIteration)
	if s.FromStart {
		since = time.Time{}
	}
	c.Counters, c.Tests = m.history.Since(since), s.tests
	return c
}

// without takes those out of a result whom other open incidents explain
// already: the ranks they name, the groups and pairs of a slow link, and those
// of a rank whose host is slow, as it serves the network late too. A slow GPU
// makes no transfer longer.
func (m *Machine) without(res peer.Result, s *story) peer.Result {
	others := slices.DeleteFunc(m.openStories(), func(o *story) bool { return o == s || !o.located() })
	named := func(r falcon.Rank) bool {
		return slices.ContainsFunc(others, func(o *story) bool { return m.computes(o) && o.touches(r) && m.holds(o, r) })
	}
	m.shareOut(&res, named)
	res.Slow = slices.DeleteFunc(slices.Clone(res.Slow), named)
	m.excuse(&res, others)
	return res
}

// excuse takes the suspicion off the groups and pairs that incidents explain.
// The links of a displaced one explain what goes over them now, and the other
// messages of a pipeline that they throttle.
func (m *Machine) excuse(res *peer.Result, others []*story) {
	stay := slices.DeleteFunc(slices.Clone(others), (*story).lines)
	lines := slices.DeleteFunc(slices.Clone(others), func(o *story) bool { return !o.lines() })
	explained := func(ranks ...falcon.Rank) bool {
		return slices.ContainsFunc(stay, func(o *story) bool {
			return o.touches(ranks...) && (o.has(falcon.CauseNetwork) || !o.has(falcon.CauseGPU) || o.has(falcon.CauseCPU))
		})
	}
	throttled := map[int]bool{}
	for _, o := range lines {
		maps.Copy(throttled, m.throttled(o, res))
	}
	res.Groups, res.Pairs = slices.Clone(res.Groups), slices.Clone(res.Pairs)
	for i := range res.Groups {
		g := &res.Groups[i]
		g.Suspect = g.Suspect && !explained(g.Ranks...) && !slices.ContainsFunc(lines, func(o *story) bool { return m.linksExplain(o, g) })
	}
	for i := range res.Pairs {
		p := &res.Pairs[i]
		p.Suspect = p.Suspect && !explained(p.From, p.To) && !throttled[m.job.Layout.Replica(p.To)]
	}
}

// computes says that a story is about ranks that compute slowly, not only
// about a link.
func (m *Machine) computes(s *story) bool {
	return len(s.Verdict.Devices) > 0 || !s.has(falcon.CauseNetwork)
}

// holds says that a story names the device of a rank, or knows no devices.
func (m *Machine) holds(s *story, r falcon.Rank) bool {
	return len(s.Verdict.Devices) == 0 || int(r) < len(m.job.Placement) && slices.Contains(s.Verdict.Devices, m.job.Placement[r])
}

// Bounds on judging again: counters lag behind the profile by a reading or two.
const (
	rejudgeFor  = 10 * time.Second
	rejudgeMost = 8
	rejudgeGain = 0.05 // of confidence, worth telling
)

// rejudge looks at fresh verdicts again when counters come in.
func (m *Machine) rejudge(in Readings) {
	for _, s := range m.stories {
		if s.timing == nil || !concerns(in, s) || !s.located() || !s.Open() || s.rejudged >= rejudgeMost || m.now.Sub(s.judgedAt) > rejudgeFor {
			continue
		}
		s.rejudged++
		v := cause.Judge(m.caseOf(s, *s.timing))
		if v.Confidence >= s.Verdict.Confidence+rejudgeGain || (v.Cause != s.Verdict.Cause && v.Cause != falcon.CauseUnknown) || len(v.Links) > 0 && len(s.Verdict.Links) == 0 {
			m.conclude(s, v)
			m.emit(s)
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
		State: falcon.IncidentVerified, FromStart: true, OnsetIteration: m.fold.first,
		DetectedIteration: m.newest, RelievedIteration: falcon.NoIteration, SlowMs: m.level(), Probability: 1,
	}, after: w.id, inForce: map[falcon.Rung]bool{}, watched: true}
	v := cause.Judge(m.caseOf(s, res))
	named := len(v.Devices)+len(v.Links) > 0
	switch {
	case named && m.learn.due && m.convincing(v, res) && m.learn.seen != culprits(v):
		m.learn.seen, m.learn.after = culprits(v), m.slow.last()+m.cfg.Profile.Spacing
		m.note(w.iteration, "profile", "%s looks slower than its peers: a second profile will tell", culprits(v))
	case named && m.learn.due && m.convincing(v, res):
		m.learn.due = false
		m.fromStart(s, v, res)
	case named || len(res.Slow) > 0:
		m.note(w.iteration, "profile", "%s looks slower than its peers, but neither waits nor counters confirm it", culprits(v))
		m.learnAgain()
	case res.Missing > 0 && !m.healthy.Known() && m.learn.tries+1 < m.cfg.Profile.Tries:
		m.learnAgain()
	case !res.AllSlow && len(res.SlowStages) == 0:
		m.healthy.Learn(res)
		m.learn = learning{}
		m.note(w.iteration, "profile", "Healthy profile of %d of %d ranks stored", len(res.Ranks)-res.Missing, len(res.Ranks))
	default:
		m.learn.due = false
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
	s.timing, s.judgedAt = &res, m.now
	m.stories = append(m.stories, s)
	m.settleVerdict(s, v)
	m.note(s.OnsetIteration, "onset", "%s: %s is slow since before the first iteration seen; healthy %.1f ms is an estimate", s.ID, culprits(v), s.HealthyMs)
}

// convincing asks for more than one proof where no onset speaks: trusted peers
// with somebody waiting, or counters.
func (m *Machine) convincing(v falcon.Verdict, res peer.Result) bool {
	for _, e := range v.Evidence {
		if e.Kind == falcon.EvidenceCounter && !e.Against {
			return true
		}
	}
	if v.Cause == falcon.CauseNetwork {
		return v.Confidence >= 0.7
	}
	for _, r := range res.Slow {
		if q := &res.Ranks[r]; !res.Clear || q.Basis != peer.ByPeers || !q.Awaited || !m.steadily(q) {
			return false
		}
	}
	return len(res.Slow) > 0
}
