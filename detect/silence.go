package detect

import (
	"slices"
	"strings"
	"time"
)

// Relief of an incident is judged on what its own nodes say. While one of them is
// silent its ranks' iterations, profiles and ports are not seen, and those of the
// others prove nothing about it.
const (
	silentFor  = 3 * time.Second  // without a sample, while the job is more than foldLag iterations further
	silentMost = 10 * time.Minute // that relief waits for a silent node
)

// nodeSilence of a node that an incident names.
type nodeSilence struct {
	since  time.Time // zero = all are heard
	waited bool      // relief has waited as long as it may
	later  bool      // a look at the culprit was put off
}

// trackSilence notes of every open incident whether its nodes are heard.
func (m *Machine) trackSilence() {
	if !m.job.known {
		return
	}
	open := slices.DeleteFunc(m.incidents.openIncidents(), func(s *incidentState) bool {
		return !s.isLocated() || s.ID == ""
	})
	if len(open) == 0 {
		return
	}
	silent := m.samples.silentNodes()
	for _, s := range open {
		var own []string
		for _, n := range silent {
			if s.Verdict.NamesNode(n, m.job.desc.Placement) {
				own = append(own, string(n))
			}
		}
		switch {
		case len(own) > 0 && s.relief.silent.since.IsZero():
			s.pauseRelief(m.clock.now)
			m.out.addNote(s.ID, m.samples.newest, "profile", "%s: relief waits, as %s can't be heard",
				s.ID, strings.Join(own, ", "))
		case len(own) == 0 && !s.relief.silent.since.IsZero():
			s.resumeRelief()
			m.out.addNote(s.ID, m.samples.newest, "profile", "%s: all that it names are heard again", s.ID)
		case !s.relief.silent.since.IsZero() &&
			!s.relief.silent.waited &&
			!m.incidents.awaitsNodes(s):
			s.relief.silent.waited = true
			m.out.addNote(s.ID, m.samples.newest, "profile",
				"%s: relief waits no longer, although %s can't be heard",
				s.ID, strings.Join(own, ", "))
		}
	}
}
