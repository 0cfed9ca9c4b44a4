package detect

import (
	"slices"

	"github.com/failslow/falcon"
)

// stepRestored takes over the incidents of before a restart. They keep their
// ids; the profile after the warm-up judges them again.
func (m *Machine) stepRestored(in Restored) {
	m.incidents.reserve(in.NextID)
	if in.Baseline > 0 {
		m.baseline.restore(in.Baseline)
	}
	for _, inc := range in.Incidents {
		if inc.State == falcon.IncidentClosed ||
			slices.ContainsFunc(m.incidents.list, func(s *incidentState) bool {
				return s.ID == inc.ID
			}) {
			continue
		}
		s := newIncident(inc, m.profile.windowID)
		s.resetEpoch()
		s.relief.blind = in.Baseline <= 0
		m.incidents.add(s)
	}
	if m.job.known {
		m.incidents.updateRanks()
	}
}

// stepActed marks a change that Falcon itself caused.
func (m *Machine) stepActed(in Acted) {
	if !m.job.known {
		return
	}
	if !in.Unchanged {
		m.settleAround(in.Iteration, m.baseline.mostAfter(in))
	}
	if len(in.MicroBatches) > 0 {
		m.job.setSplit(in.MicroBatches)
	}
	if in.Rung == falcon.RungS3 && !in.Unchanged {
		m.placementChanged(in)
	}
	for _, s := range m.incidents.list {
		if s.ID == "" || s.ID != in.Incident {
			continue
		}
		switch {
		case in.Rung == falcon.RungS4 && !in.Reverted:
			s.actions.taken = true
			fallthrough
		case in.Rung == falcon.RungS4: // nothing to undo: the epoch that it began says what holds
		case in.Reverted:
			delete(s.actions.inForce, in.Rung)
		default:
			s.actions.inForce[in.Rung], s.actions.taken = true, true
			s.actions.since = in.Iteration
			s.relief.lastWindow = in.Iteration
			s.relief.streak = 0
		}
	}
	m.returns.forget(in.Incident)
	m.relief.closeRelieved(m.samples.newest)
}

// settleAround marks changes around an iteration as an action's, but not those to a level
// above most.
func (m *Machine) settleAround(iteration int64, most float64) {
	m.baseline.settleUntil(iteration+m.cfg.SettleAfter, most)
	m.samples.settleRange(m.baseline.settleFrom(), m.baseline.settleTo, most)
	m.onsets.clearAlarms()
}
