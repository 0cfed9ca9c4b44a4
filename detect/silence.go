package detect

import (
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
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
	if !m.has {
		return
	}
	open := slices.DeleteFunc(m.openStories(), func(s *story) bool { return !s.located() || s.ID == "" })
	if len(open) == 0 {
		return
	}
	silent := m.silentNodes()
	for _, s := range open {
		var own []string
		for _, n := range silent {
			if m.names(s, n) {
				own = append(own, string(n))
			}
		}
		switch {
		case len(own) > 0 && s.silent.since.IsZero():
			s.hush(m.now)
			m.note(m.newest, "profile", "%s: relief waits, as %s can't be heard", s.ID, strings.Join(own, ", "))
		case len(own) == 0 && !s.silent.since.IsZero():
			s.heard()
			m.note(m.newest, "profile", "%s: all that it names are heard again", s.ID)
		case !s.silent.since.IsZero() && !s.silent.waited && !m.waits(s):
			s.silent.waited = true
			m.note(m.newest, "profile", "%s: relief waits no longer, although %s can't be heard", s.ID, strings.Join(own, ", "))
		}
	}
}

// silentNodes are the nodes with a rank that the others have left far behind and
// that was not heard of for some time, in order.
func (m *Machine) silentNodes() []falcon.Node {
	var out []falcon.Node
	for r, s := range m.ranks {
		if m.newest-s.newest <= foldLag || m.now.Sub(s.heardAt) < silentFor || r >= len(m.job.Placement) {
			continue
		}
		if n := m.job.Placement[r].Node(); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// names says that a story is about a node: a device on it, a link that ends at
// it, or, where it knows neither, a rank on it.
func (m *Machine) names(s *story, n falcon.Node) bool {
	if len(s.Verdict.Devices)+len(s.Verdict.Links) > 0 {
		return slices.ContainsFunc(s.Verdict.Devices, func(d falcon.Device) bool { return d.Node() == n }) ||
			slices.ContainsFunc(s.Verdict.Links, func(l falcon.Link) bool { return l.A == n || l.B == n })
	}
	return slices.ContainsFunc(s.Verdict.Ranks, func(r falcon.Rank) bool {
		return int(r) < len(m.job.Placement) && m.job.Placement[r].Node() == n
	})
}

// waits says that a story's relief is put off, as a node of its own is silent.
func (m *Machine) waits(s *story) bool {
	return !s.silent.since.IsZero() && m.now.Sub(s.silent.since) < silentMost
}

// hush is the beginning of a silence: looks from before it and after it are not
// looks running.
func (s *story) hush(now time.Time) {
	s.silent, s.streak = silence{since: now, later: s.check}, 0
	s.check, s.urgent = false, false
}

// heard is its end. A look that was put off is due; that no test could be had
// meanwhile says nothing.
func (s *story) heard() {
	s.check, s.silent = s.silent.later, silence{}
	s.line.barred, s.line.refusals, s.line.looks = "", 0, 0
}
