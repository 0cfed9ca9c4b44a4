package detect

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/cause"
	"github.com/failslow/falcon/detect/peer"
)

// absorb ends an untold story that has no culprit of its own: the culprit of
// an open incident got worse, or, in the last window, the new slowness went with
// it.
func (m *Machine) absorb(s *story, res peer.Result, last bool) bool {
	for _, o := range m.stories {
		if o == s || !o.located() || !o.Open() {
			continue
		}
		computes, transfers := m.computes(o) && (m.slower(o, res) || last && o.touches(res.Slow...)), m.longer(o, res)
		if !computes && !transfers {
			continue
		}
		m.grow(o, s, res)
		if transfers && !computes {
			o.grew, o.tested, o.asks, o.askFrom = s.OnsetIteration, false, 0, 0
		}
		m.drop(s)
		return true
	}
	return false
}

// grow takes the new slowness into an incident: its extent and its evidence
// are those of now, its culprits and its onset stay.
func (m *Machine) grow(o, s *story, res peer.Result) {
	o.SlowMs = max(o.SlowMs, s.SlowMs)
	timing := m.without(res, o)
	c := m.caseOf(o, timing)
	c.Counters = m.caseOf(s, timing).Counters // since it got worse
	v := cause.Judge(c)
	if v.Cause == o.Verdict.Cause && slices.Equal(v.Devices, o.Verdict.Devices) && slices.Equal(v.Links, o.Verdict.Links) {
		v.Severity = max(v.Severity, o.Verdict.Severity)
		o.timing = &timing
		m.conclude(o, v)
	}
	o.Verdict.Severity = max(o.Verdict.Severity, cause.Severity(o.SlowMs/max(o.HealthyMs, 1)-1, len(o.Verdict.Links), false, len(o.Verdict.Devices)))
	m.note(s.OnsetIteration, "onset", "%s got worse: nobody but %s is slow", o.ID, culprits(o.Verdict))
	m.emit(o)
}

// longerBy is how much longer a rank must compute, or a transfer take, than when
// it was accused, to say that it got worse.
const longerBy = 1.1

// slower says that a rank of an incident computes even longer than when it was
// judged.
func (m *Machine) slower(o *story, res peer.Result) bool {
	was := o.compared()
	return was != nil && slices.ContainsFunc(res.Slow, func(r falcon.Rank) bool {
		return o.touches(r) && m.holds(o, r) && int(r) < len(was.Ranks) && res.Ranks[r].Ratio > longerBy*was.Ranks[r].Ratio
	})
}

// longer says that the slow groups or pairs of a network incident take longer
// than when it was judged.
func (m *Machine) longer(o *story, res peer.Result) bool {
	was := o.compared()
	if was == nil || !o.has(falcon.CauseNetwork) {
		return false
	}
	return slices.ContainsFunc(res.Groups, func(g peer.Group) bool {
		return g.Suspect && slices.ContainsFunc(was.Groups, func(b peer.Group) bool {
			return b.Suspect && b.Comm == g.Comm && b.Op == g.Op && b.Bytes == g.Bytes && g.TransferMs > longerBy*b.TransferMs
		})
	}) || slices.ContainsFunc(res.Pairs, func(p peer.Pair) bool {
		return p.Suspect && slices.ContainsFunc(was.Pairs, func(b peer.Pair) bool {
			return b.Suspect && b.From == p.From && b.To == p.To && b.Bytes == p.Bytes && p.RecvMs > longerBy*b.RecvMs
		})
	})
}

// divide opens an incident of their own for links that a test found slow after
// an incident had got worse: timing can't tell two links of one ring apart.
// It returns the verdict that is left for the first.
func (m *Machine) divide(o *story, v falcon.Verdict) falcon.Verdict {
	before := o.Verdict.Links
	added := slices.DeleteFunc(slices.Clone(v.Links), func(l falcon.Link) bool { return slices.Contains(before, l) })
	kept := slices.DeleteFunc(slices.Clone(v.Links), func(l falcon.Link) bool { return !slices.Contains(before, l) })
	if o.grew == 0 || len(added) == 0 || len(kept) == 0 {
		return v
	}
	s := &story{Incident: falcon.Incident{
		State: falcon.IncidentVerified, OnsetIteration: o.grew, DetectedIteration: m.newest,
		RelievedIteration: falcon.NoIteration, HealthyMs: o.HealthyMs, SlowMs: o.SlowMs, Probability: o.Probability,
	}, after: m.windows, inForce: map[falcon.Rung]bool{}, timing: o.timing, judgedAt: m.now, tests: o.tests, tested: true, only: added}
	o.grew, o.only = 0, kept
	m.stories = append(m.stories, s)
	second := v
	second.Links = added
	m.settleVerdict(s, second)
	m.note(s.OnsetIteration, "onset", "%s: %s is slow beside the link of %s", s.ID, culprits(second), o.ID)
	v.Links = kept
	return v
}
