package learn

import (
	"cmp"
	"maps"
	"slices"
	"time"

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
	return m.isForeign(r.Epoch, r.Engine) &&
		cmp.Or(cmp.Compare(r.Engine.Start, m.own.Engine.Start), cmp.Compare(r.Engine.ID, m.own.Engine.ID)) > 0
}

// Leads reports whether a node follows another engine that goes before this one.
func (m *Machine) Leads(r Report) bool {
	return m.over && m.leads(r)
}

// rivalry is a node that follows another engine, although it is connected to this one.
type rivalry struct {
	Report
	since time.Time
}

// Bounds of going above a rival.
const (
	RivalMost  = 10 * time.Second // that nodes which follow another engine are left to it
	RivalAgain = time.Minute      // from one time to the next: a node that lies has no more of the engine
)

// Refused takes a node's refusal of a command as older: it follows another engine meanwhile.
func (m *Machine) Refused(now time.Time, n falcon.Node, r Report) {
	m.Report(r)
	_, known := m.rivals[n]
	if !known && m.over && r.Epoch > m.own.Epoch && r.Epoch < EpochMost {
		m.rivals[n] = rivalry{r, now}
	}
}

// Abandoned is an engine that a node follows, although it has been connected to this one alone for so
// long: the other is gone, or can't reach it. The node obeys no engine before this one goes above.
func (m *Machine) Abandoned(
	now time.Time,
	connected func(falcon.Node) bool,
) (n falcon.Node, r Report, found bool) {
	if !m.over || !m.raised.IsZero() && now.Sub(m.raised) < RivalAgain {
		return "", Report{}, false
	}
	for _, n := range slices.Sorted(maps.Keys(m.rivals)) {
		if v := m.rivals[n]; connected(n) && now.Sub(v.since) >= RivalMost {
			return n, v.Report, true
		}
	}
	return "", Report{}, false
}

// GoneAbove notes that the engine has raised its epoch above all that nodes follow.
func (m *Machine) GoneAbove(now time.Time) {
	m.raised = now
	clear(m.rivals)
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
			best = r.Report
		}
	}
	return best, true
}

// Follows reports whether a node follows this engine, as far as is known.
func (m *Machine) Follows(n falcon.Node) bool {
	_, rival := m.rivals[n]
	return !rival
}

// Raised puts the numbers in force that the engine goes on with.
func (m *Machine) Raised(n Numbers) {
	m.own.Numbers = n
}
