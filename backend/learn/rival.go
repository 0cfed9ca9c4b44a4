package learn

import (
	"cmp"

	"github.com/failslow/falcon"
)

// leads reports whether a node follows another engine that goes before this one: it has the higher
// epoch, or with the same one it was started later on a copy of the journal.
func (m *Machine) leads(r Report) bool {
	switch {
	case r.Epoch >= EpochMost || r.Epoch < m.own.Epoch:
		return false
	case r.Epoch > m.own.Epoch:
		return true
	}
	return m.isForeign(r.Epoch, r.Engine) && cmp.Or(cmp.Compare(r.Engine.Start, m.own.Engine.Start), cmp.Compare(r.Engine.ID, m.own.Engine.ID)) > 0
}

// Refused takes a node's refusal of a command as older: it follows another engine meanwhile.
func (m *Machine) Refused(n falcon.Node, r Report) {
	m.Report(r)
	if m.over && r.Epoch > m.own.Epoch && r.Epoch < EpochMost {
		m.rivals[n] = r
	}
}

// Rival is the engine that most of the connected nodes, or of those that hold ranks, follow in place of
// this one. One node alone may be mistaken, or lie: it ends no engine that others follow.
func (m *Machine) Rival(connected int, job []falcon.Node) (Report, bool) {
	lost := 0
	for _, n := range job {
		if !m.Follows(n) {
			lost++
		}
	}
	most := 2*len(m.rivals) > max(connected, len(job)) || lost > 1 && 2*lost > len(job)
	if !m.over || len(m.rivals) == 0 || !most {
		return Report{}, false
	}
	var best Report
	for _, r := range m.rivals {
		if r.Epoch > best.Epoch || r.Epoch == best.Epoch && r.Engine.ID > best.Engine.ID {
			best = r
		}
	}
	return best, true
}

// Follows reports whether a node follows this engine, as far as is known.
func (m *Machine) Follows(n falcon.Node) bool { _, rival := m.rivals[n]; return !rival }

// Left forgets a rival's node that is not connected any more.
func (m *Machine) Left(n falcon.Node) { delete(m.rivals, n) }

// Raised puts the numbers in force that the engine goes on with.
func (m *Machine) Raised(n Numbers) { m.own.Numbers = n }
