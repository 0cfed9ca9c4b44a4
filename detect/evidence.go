package detect

import (
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/cause"
	"github.com/failslow/falcon/detect/peer"
)

// evidence joins timing, counters and tests to what a verdict rests on.
type evidence struct {
	cfg       *Config
	job       *jobState
	samples   *sampleLog
	work      *workLog
	incidents *incidentSet
	history   cause.History // of hardware counters
	healthy   peer.Healthy
	uneven    unevenWindow
}

// computesLonger reports whether a rank of an incident computes longer than when judged.
func (ev *evidence) computesLonger(o *incidentState, res peer.Result) bool {
	was := o.comparedWindow()
	return was != nil && slices.ContainsFunc(res.Slow, func(r falcon.Rank) bool {
		return o.namesAnyRank(r) &&
			ev.job.namesDeviceOf(o, r) &&
			int(r) < len(was.Ranks) &&
			res.Ranks[r].Ratio > longerBy*was.Ranks[r].Ratio
	})
}

// transfersLonger reports whether a network incident's transfers take longer than when judged.
func (ev *evidence) transfersLonger(o *incidentState, res peer.Result) bool {
	was := o.comparedWindow()
	if was == nil || !o.Verdict.HasCause(falcon.CauseNetwork) {
		return false
	}
	return slices.ContainsFunc(res.Groups, func(g peer.Group) bool {
		return g.Suspect && slices.ContainsFunc(was.Groups, func(b peer.Group) bool {
			return b.Suspect &&
				b.Comm == g.Comm &&
				b.Op == g.Op &&
				b.Bytes == g.Bytes &&
				g.TransferMs > longerBy*b.TransferMs
		})
	}) || slices.ContainsFunc(res.Pairs, func(p peer.Pair) bool {
		return p.Suspect && slices.ContainsFunc(was.Pairs, func(b peer.Pair) bool {
			return b.Suspect &&
				b.From == p.From &&
				b.To == p.To &&
				b.Bytes == p.Bytes &&
				p.RecvMs > longerBy*b.RecvMs
		})
	})
}

// dropUnconfirmed lets those ranks go that timing accuses alone: a rank stays if
// counters accuse it too, or if the window before did and its excess explains
// a fair part of the slowdown. A hiccup or two in a short window make anybody
// look slow. It reports whether all stay.
func (ev *evidence) dropUnconfirmed(s *incidentState, timing *peer.Result) bool {
	c, before := ev.caseFor(s, *timing), s.search.accused
	s.search.accused = timing.Slow
	timing.Slow = slices.DeleteFunc(slices.Clone(timing.Slow), func(r falcon.Rank) bool {
		return !c.Confirmed(r) &&
			(!slices.Contains(before, r) ||
				ev.explainedShare(s, timing.Ranks[r]) < explainLeast ||
				!ev.slowInMostSteps(&timing.Ranks[r]))
	})
	ranks := len(timing.Slow) == len(s.search.accused)
	return ev.dropMinorLinks(s, timing) && ranks
}

// dropMinorLinks takes the suspicion off groups and pairs whose excess is a small
// part of what the iteration lost: a network is never quite the same, and
// something else made the job slow. Beside a culprit of another kind they are
// reported. It reports whether all stay.
func (ev *evidence) dropMinorLinks(s *incidentState, timing *peer.Result) bool {
	lost := s.SlowMs - s.BeforeMs
	others := len(timing.Slow)+len(timing.SlowStages) > 0 ||
		timing.AllSlow ||
		timing.Uneven
	if s.BeforeMs <= 0 || lost <= 0 || s.tests.results != nil || others {
		return true
	}
	most := 0.0
	both := map[[2]falcon.Rank]float64{}
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
	timing.Groups = slices.Clone(timing.Groups)
	timing.Pairs = slices.Clone(timing.Pairs)
	for i := range timing.Groups {
		timing.Groups[i].Suspect = false
	}
	for i := range timing.Pairs {
		timing.Pairs[i].Suspect = false
	}
	return false
}

// slowInMostSteps reports whether a rank is slow in nearly all iterations of a window, not
// by a hiccup in one of two; true where they can't be distinguished.
func (ev *evidence) slowInMostSteps(r *peer.Rank) bool {
	over, of := r.StepsOver(ev.suspectRatio())
	return over >= (3*of+3)/4
}

// explainedShare is the share of the slowdown that a rank's excess of self time explains over
// its m + p − 1 passes (1F1B); 1 where it is unknown.
func (ev *evidence) explainedShare(s *incidentState, r peer.Rank) float64 {
	replica := ev.job.desc.Layout.Replica(r.Rank)
	lost := s.SlowMs - s.BeforeMs
	if s.BeforeMs <= 0 ||
		lost <= 0 ||
		r.Ratio <= 0 ||
		replica >= len(ev.job.desc.MicroBatches) {
		return 1
	}
	passes := float64(int(ev.job.desc.MicroBatches[replica]) + ev.job.desc.Layout.PP - 1)
	return (r.SelfMs - r.SelfMs/r.Ratio) * passes / lost
}

// caseFor joins a window's timing with the counters since the onset.
func (ev *evidence) caseFor(s *incidentState, timing peer.Result) cause.Case {
	c := cause.Case{
		Layout:    ev.job.desc.Layout,
		Placement: ev.job.desc.Placement,
		Timing:    timing,
		HealthyMs: s.HealthyMs,
		SlowMs:    s.SlowMs,
		Paths:     ev.job.pathsOf,
	}
	if s.isSmall(ev.cfg) {
		c.Small = s.SlowMs/s.HealthyMs - 1
	}
	since := ev.samples.times.startOfIteration(s.OnsetIteration)
	if s.FromStart {
		since = time.Time{}
	}
	c.Counters, c.Tests = ev.history.Since(since), s.tests.results
	c.Work = ev.work.since(s.OnsetIteration, s.HealthyMs, s.SlowMs)
	return c
}

// withoutOthers leaves out of a result what other open incidents explain: their ranks, and the
// groups and pairs of a slow link or of a rank whose slow host serves the network late.
func (ev *evidence) withoutOthers(res peer.Result, s *incidentState) peer.Result {
	others := slices.DeleteFunc(ev.incidents.openIncidents(), func(o *incidentState) bool {
		return o == s || !o.isLocated()
	})
	named := func(r falcon.Rank) bool {
		return slices.ContainsFunc(others, func(o *incidentState) bool {
			return ev.isCompute(o) &&
				o.namesAnyRank(r) &&
				ev.job.namesDeviceOf(o, r)
		})
	}
	ev.shareOut(&res, named)
	res.Slow = slices.DeleteFunc(slices.Clone(res.Slow), named)
	ev.clearExplained(&res, others)
	return res
}

// clearExplained takes the suspicion off the groups and pairs that incidents explain.
// The links of a displaced one explain what goes over them now, and the other
// messages of a pipeline that they throttle.
func (ev *evidence) clearExplained(res *peer.Result, others []*incidentState) {
	stay := slices.DeleteFunc(slices.Clone(others), (*incidentState).hasOnlyLinks)
	lines := slices.DeleteFunc(slices.Clone(others), func(o *incidentState) bool {
		return !o.hasOnlyLinks()
	})
	explained := func(slowIn func(*peer.Result) bool, ranks ...falcon.Rank) bool {
		return slices.ContainsFunc(stay, func(o *incidentState) bool {
			return o.explains(ranks...) && o.isAsOldAs(slowIn)
		})
	}
	throttled := map[int]bool{}
	for _, o := range lines {
		maps.Copy(throttled, ev.job.throttledReplicas(o, res))
	}
	res.Groups = slices.Clone(res.Groups)
	res.Pairs = slices.Clone(res.Pairs)
	for i := range res.Groups {
		g := &res.Groups[i]
		g.Suspect = g.Suspect &&
			!explained(g.SlowIn, g.Ranks...) &&
			!slices.ContainsFunc(lines, func(o *incidentState) bool {
				return ev.job.crossesLinkOf(o, g)
			})
	}
	for i := range res.Pairs {
		p := &res.Pairs[i]
		p.Suspect = p.Suspect &&
			!explained(p.SlowIn, p.From, p.To) &&
			!throttled[ev.job.desc.Layout.Replica(p.To)]
	}
}

// explains reports whether an incident's ranks explain that messages of these ranks are slow: a slow
// host serves the network late, a slow GPU does not.
func (s *incidentState) explains(ranks ...falcon.Rank) bool {
	v := &s.Verdict
	return s.namesAnyRank(ranks...) &&
		(v.HasCause(falcon.CauseNetwork) || !v.HasCause(falcon.CauseGPU) || v.HasCause(falcon.CauseCPU))
}

// isAsOldAs reports whether messages may have been slow from the incident's begin on: they were in the
// window that its verdict is of. A host or a link may have got worse and slowed them since; what became
// slow after a rank of unknown cause, or after the job's own work, has a cause of its own.
func (s *incidentState) isAsOldAs(slowIn func(*peer.Result) bool) bool {
	return !s.blamesNothing() || s.basis.timing == nil || slowIn(s.basis.timing)
}

// isCompute reports whether an incident is about slow computation, not only about a link.
func (ev *evidence) isCompute(s *incidentState) bool {
	return len(s.Verdict.Devices) > 0 || !s.Verdict.HasCause(falcon.CauseNetwork)
}

// isConvincing requires a second proof without an onset: a rank that waits, or counters.
func (ev *evidence) isConvincing(v falcon.Verdict, res peer.Result) bool {
	for _, e := range v.Evidence {
		if e.Kind == falcon.EvidenceCounter && !e.Against {
			return true
		}
	}
	if v.Cause == falcon.CauseNetwork {
		return v.Confidence >= 0.7
	}
	for _, r := range res.Slow {
		q := &res.Ranks[r]
		if !res.Clear ||
			q.Basis != peer.ByPeers ||
			!q.Awaited ||
			!ev.slowInMostSteps(q) {
			return false
		}
	}
	return len(res.Slow) > 0
}

// shareOut leaves of slowness that a whole stage shares, or the whole job, what
// other incidents do not name already, where they name most of it: replicas that
// got slow one after the other are slow together in the end.
func (ev *evidence) shareOut(res *peer.Result, named func(falcon.Rank) bool) {
	if res.AllSlow {
		all := make([]falcon.Rank, len(res.Ranks))
		for i := range all {
			all[i] = falcon.Rank(i)
		}
		res.AllSlow = !ev.accuseUnnamed(res, all, named)
		return
	}
	res.SlowStages = slices.DeleteFunc(slices.Clone(res.SlowStages), func(stage int) bool {
		var ranks []falcon.Rank
		for i := range res.Ranks {
			if r := falcon.Rank(i); ev.job.desc.Layout.Coord(r).PP == stage {
				ranks = append(ranks, r)
			}
		}
		return ev.accuseUnnamed(res, ranks, named)
	})
}

// accuseUnnamed accuses those of a list of ranks, all slow alike, that no incident
// names, where most are named. It reports whether it did.
func (ev *evidence) accuseUnnamed(res *peer.Result, ranks []falcon.Rank, named func(falcon.Rank) bool) bool {
	rest := slices.DeleteFunc(slices.Clone(ranks), named)
	if 2*len(rest) >= len(ranks) {
		return false
	}
	res.Ranks = slices.Clone(res.Ranks)
	res.Slow = slices.Clone(res.Slow)
	res.Clear = true
	for _, r := range rest {
		if q := &res.Ranks[r]; q.OwnRatio > ev.suspectRatio() {
			q.Ratio = q.OwnRatio
			q.Basis = peer.ByOwn
			q.Slow = true
			res.Slow = append(res.Slow, r)
		}
	}
	slices.Sort(res.Slow)
	return true
}

// clockBack is the first iteration seen after the clocks of all culprits read
// normal, and the newest one seen when they did not yet.
func (ev *evidence) clockBack(s *incidentState) (at, bad int64, ok bool) {
	at, bad = falcon.NoIteration, falcon.NoIteration
	for _, d := range s.Verdict.Devices {
		since, until, normal := ev.history.Normal(d)
		first, seen := ev.samples.times.firstAfter(since.At, since.Ns)
		if !normal || !seen {
			return 0, 0, false
		}
		at = max(at, first)
		if last, seen := ev.samples.times.firstAfter(until.At, until.Ns); seen && !until.At.IsZero() {
			bad = max(bad, last-1)
		}
	}
	return at, bad, at != falcon.NoIteration
}

// culpritHealthy reports whether everything that an incident names is at or below the
// rule again; known is false where something was not measured.
func (ev *evidence) culpritHealthy(s *incidentState, res peer.Result) (healthy, known bool) {
	if s.Verdict.Cause == falcon.CauseNetwork && len(s.Verdict.Devices) == 0 {
		suspect := slices.ContainsFunc(res.Groups, func(g peer.Group) bool {
			return (g.Suspect || g.Crowded) && s.namesAnyRank(g.Ranks...)
		}) ||
			slices.ContainsFunc(res.Pairs, func(p peer.Pair) bool {
				return p.Suspect && s.namesAnyRank(p.From, p.To)
			})
		return !suspect, res.Missing == 0
	}
	for _, d := range s.Verdict.Devices {
		r, placed := ev.job.desc.Placement.Rank(d)
		if !placed {
			continue // carries no rank any more: it slows nothing
		}
		q := res.Ranks[r]
		if q.Basis == peer.ByNone {
			return false, false
		}
		if q.Ratio > ev.suspectRatio() ||
			res.AllSlow ||
			slices.Contains(res.SlowStages, ev.job.desc.Layout.Coord(r).PP) {
			return false, true
		}
	}
	return true, true
}

func (ev *evidence) suspectRatio() float64 { return ev.rules().Suspect }

// concerned reports whether a validation that no incident asked for tested
// something that an incident names, since its onset.
func (ev *evidence) concerned(s *incidentState, v falcon.Validation) bool {
	if v.Iteration <= s.OnsetIteration { // the boundary lies before that iteration
		return false
	}
	return slices.ContainsFunc(v.GEMM, func(g falcon.GEMMResult) bool {
		return slices.Contains(s.Verdict.Devices, g.Device)
	}) ||
		s.Verdict.Cause == falcon.CauseNetwork &&
			slices.ContainsFunc(v.Links, func(l falcon.LinkResult) bool {
				return s.namesAnyRank(l.From) && s.namesAnyRank(l.To)
			})
}

// linkLeast is the share of the slowdown that the slowest groups or links must
// explain. A transfer's least time hides much of it where computation overlaps.
const linkLeast = 1.0 / 8

// explainLeast is the share of the slowdown that a culprit without counters must explain.
const explainLeast = 1.0 / 3

// longerBy is how much longer a rank must compute, or a transfer take, than when
// it was accused, to say that it got worse.
const longerBy = 1.1

func (ev *evidence) hasHealthy() bool { return ev.healthy.Known() }

func (ev *evidence) resetHealthy() {
	ev.healthy = peer.Healthy{}
	ev.uneven = unevenWindow{}
}

func (ev *evidence) learnHealthy(res peer.Result) {
	ev.healthy.Learn(res)
}

// moveHealthy takes the devices' healthy pace to another placement.
func (ev *evidence) moveHealthy(was, now falcon.Placement) {
	ev.healthy.Move(ev.job.desc.Layout, was, now)
}

func (ev *evidence) addReadings(now time.Time, in Readings) {
	for _, r := range in.GPUs {
		ev.history.AddGPU(now, r)
	}
	for _, r := range in.Hosts {
		ev.history.AddHost(now, r)
	}
	for _, r := range in.NICs {
		ev.history.AddNIC(now, r)
	}
}

func (ev *evidence) portsBusy(n falcon.Node, link []falcon.Node, since time.Time) (busy, seen bool) {
	return ev.history.Busy(n, link, since)
}

// comparison judges a window's profiles against each other and the healthy ones. It shares
// nothing that is changed in place.
func (ev *evidence) comparison(profiles []falcon.RankProfile) peer.Window {
	healthy := ev.healthy
	return peer.Window{
		Layout:    ev.job.desc.Layout,
		Placement: ev.job.desc.Placement,
		Comms:     ev.job.desc.Comms,
		Profiles:  profiles,
		Healthy:   &healthy,
		Rules:     ev.rules(),
	}
}
