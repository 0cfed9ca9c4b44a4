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

// silence of a node that a story names.
type silence struct {
	since  time.Time // zero = all are heard
	waited bool      // relief has waited as long as it may
	later  bool      // a look at the culprit was put off
}

// listen notes of every open incident whether its nodes are heard.
func (m *Machine) listen() {
	if !m.job.known {
		return
	}
	open := slices.DeleteFunc(m.incidents.open(), func(s *story) bool { return !s.located() || s.ID == "" })
	if len(open) == 0 {
		return
	}
	silent := m.samples.silentNodes()
	for _, s := range open {
		var own []string
		for _, n := range silent {
			if m.job.namesNode(s, n) {
				own = append(own, string(n))
			}
		}
		switch {
		case len(own) > 0 && s.silent.since.IsZero():
			s.hush(m.clock.now)
			m.out.note(m.samples.newest, "profile", "%s: relief waits, as %s can't be heard", s.ID, strings.Join(own, ", "))
		case len(own) == 0 && !s.silent.since.IsZero():
			s.heard()
			m.out.note(m.samples.newest, "profile", "%s: all that it names are heard again", s.ID)
		case !s.silent.since.IsZero() && !s.silent.waited && !m.incidents.awaitsNodes(s):
			s.silent.waited = true
			m.out.note(m.samples.newest, "profile", "%s: relief waits no longer, although %s can't be heard", s.ID, strings.Join(own, ", "))
		}
	}
}
