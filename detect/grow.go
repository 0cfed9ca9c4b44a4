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
	for _, o := range m.incidents.list {
		if o == s || !o.located() || !o.Open() {
			continue
		}
		computes, transfers := m.evidence.computes(o) && (m.evidence.computesLonger(o, res) || last && o.touches(res.Slow...)), m.evidence.transfersLonger(o, res)
		if !computes && !transfers {
			continue
		}
		m.grow(o, s, res)
		if transfers && !computes {
			o.grew, o.tested, o.asks, o.askFrom = s.OnsetIteration, false, 0, 0
		}
		m.incidents.remove(s)
		return true
	}
	return false
}

// grow takes the new slowness into an incident: its extent and its evidence
// are those of now, its culprits and its onset stay.
func (m *Machine) grow(o, s *story, res peer.Result) {
	o.SlowMs = max(o.SlowMs, s.SlowMs)
	timing := m.evidence.withoutOthers(res, o)
	c := m.evidence.caseOf(o, timing)
	c.Counters = m.evidence.caseOf(s, timing).Counters // since it got worse
	v := cause.Judge(c)
	if v.Cause == o.Verdict.Cause && slices.Equal(v.Devices, o.Verdict.Devices) && slices.Equal(v.Links, o.Verdict.Links) {
		v.Severity = max(v.Severity, o.Verdict.Severity)
		o.timing = &timing
		m.culprits.conclude(o, v)
	}
	o.Verdict.Severity = max(o.Verdict.Severity, cause.Severity(o.SlowMs/max(o.HealthyMs, 1)-1, len(o.Verdict.Links), false, len(o.Verdict.Devices)))
	m.out.note(s.OnsetIteration, "onset", "%s got worse: nobody but %s is slow", o.ID, culprits(o.Verdict))
	m.out.update(o)
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
		State: falcon.IncidentVerified, OnsetIteration: o.grew, DetectedIteration: m.samples.newest,
		RelievedIteration: falcon.NoIteration, HealthyMs: o.HealthyMs, SlowMs: o.SlowMs, Probability: o.Probability,
	}, after: m.profile.windowID, inForce: map[falcon.Rung]bool{}, timing: o.timing, judgedAt: m.clock.now, tests: o.tests, tested: true, only: added}
	o.grew, o.only = 0, kept
	m.incidents.list = append(m.incidents.list, s)
	second := v
	second.Links = added
	m.settleVerdict(s, second)
	m.out.note(s.OnsetIteration, "onset", "%s: %s is slow beside the link of %s", s.ID, culprits(second), o.ID)
	v.Links = kept
	return v
}
