package detect

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/cause"
	"github.com/failslow/falcon/detect/peer"
)

// mergeIntoOpen ends an unreported incident that is the growth of an open one, or in the last
// window began with it.
func (m *Machine) mergeIntoOpen(s *incidentState, res peer.Result, last bool) bool {
	for _, o := range m.incidents.list {
		if o == s || !o.isLocated() || !o.Open() {
			continue
		}
		computes := m.evidence.isCompute(o) &&
			(m.evidence.computesLonger(o, res) || last && o.namesAnyRank(res.Slow...))
		transfers := m.evidence.transfersLonger(o, res)
		if !computes && !transfers {
			continue
		}
		m.recordGrowth(o, s, res)
		if transfers && !computes {
			o.tests.testGrowth(s.OnsetIteration)
		}
		m.incidents.removeIncident(s)
		return true
	}
	return false
}

// recordGrowth takes the new slowness into an incident: its extent and its evidence
// are those of now, its culprits and its onset stay.
func (m *Machine) recordGrowth(o, s *incidentState, res peer.Result) {
	o.SlowMs = max(o.SlowMs, s.SlowMs)
	timing := m.evidence.withoutOthers(res, o)
	c := m.evidence.caseFor(o, timing)
	c.Counters = m.evidence.caseFor(s, timing).Counters // since it got worse
	v := cause.Judge(c)
	if v.Cause == o.Verdict.Cause &&
		slices.Equal(v.Devices, o.Verdict.Devices) &&
		slices.Equal(v.Links, o.Verdict.Links) {
		v.Severity = max(v.Severity, o.Verdict.Severity)
		o.basis.timing = &timing
		m.culprits.conclude(o, v)
	}
	o.Verdict.Severity = max(
		o.Verdict.Severity,
		cause.Severity(o.SlowMs/max(o.HealthyMs, 1)-1, len(o.Verdict.Links), false, len(o.Verdict.Devices)),
	)
	m.out.addNote(o.ID, s.OnsetIteration, "onset", "%s got worse: no culprit besides %s",
		o.ID, culpritNames(o.Verdict))
	m.out.updateIncident(o)
}

// splitLinks opens an incident of their own for links that a test found slow after
// an incident had got worse: timing can't distinguish two links of one ring.
// It returns the verdict that is left for the first.
func (m *Machine) splitLinks(o *incidentState, v falcon.Verdict) falcon.Verdict {
	before := o.Verdict.Links
	added := slices.DeleteFunc(slices.Clone(v.Links), func(l falcon.Link) bool {
		return slices.Contains(before, l)
	})
	kept := slices.DeleteFunc(slices.Clone(v.Links), func(l falcon.Link) bool {
		return !slices.Contains(before, l)
	})
	if o.tests.grewAt == 0 || len(added) == 0 || len(kept) == 0 {
		return v
	}
	s := newIncident(falcon.Incident{
		State:             falcon.IncidentVerified,
		OnsetIteration:    o.tests.grewAt,
		DetectedIteration: m.samples.newest,
		RelievedIteration: falcon.NoIteration,
		HealthyMs:         o.HealthyMs,
		SlowMs:            o.SlowMs,
		Probability:       o.Probability,
	}, m.profile.windowID)
	s.basis = verdictBasis{timing: o.basis.timing, at: m.clock.now}
	s.tests = testState{
		results:  o.tests.results,
		done:     true,
		ownLinks: added,
	}
	o.tests.grewAt, o.tests.ownLinks = 0, kept
	m.incidents.add(s)
	second := v
	second.Links = added
	m.publishVerdict(s, second)
	m.out.addNote(s.ID, s.OnsetIteration, "onset", "%s: %s is slow beside the link of %s",
		s.ID, culpritNames(second), o.ID)
	v.Links = kept
	return v
}
