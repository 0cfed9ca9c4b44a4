package detect

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// adoptPlacement takes over a placement that ranks changed to within their job epoch
// (S3). What is known of devices follows them: their pace, the watch of the
// ranks, open incidents. Series stay with the ranks, and so does the baseline:
// blocks of ranks change nodes whole, so that every group and pair is within a
// node, or between nodes, as it was before, and on nodes of one kind the healthy
// iteration takes as long. Where it does not, the level after the settle window
// decides (settled). Windows that were asked for before an iteration mix both
// placements and are dropped.
func (m *Machine) adoptPlacement(now falcon.Placement, before int64) {
	was := m.job.desc.Placement
	if len(now) != len(m.samples.ranks) || slices.Equal(was, now) {
		return
	}
	m.job.setPlacement(now)
	if len(was) != len(now) {
		m.incidents.updateRanks()
		return
	}
	m.evidence.moveHealthy(was, now)
	m.rankWatch.move(was, now)
	m.onsets.clearAlarms()
	if m.profile.move(was, now, before) {
		m.incidents.endChecks()
	}
	m.incidents.displaceAll(was, m.profile.windowID)
}

// lookAfter is how many iterations after a change of places the ranks are profiled: by then they
// run as they will. Nothing is planned for a job whose ranks are not measured.
const lookAfter = 3

// placementChanged takes a change of the ranks' devices. The actions of before a restart are
// reported again, when the job has the placement already.
func (m *Machine) placementChanged(in Acted) {
	m.adoptPlacement(in.Placement, in.Iteration)
	m.baseline.dropOwnOnsets()
	m.profile.lookFrom(in.Iteration + lookAfter)
	for _, s := range m.incidents.openIncidents() {
		if s.move.backAt = in.Iteration; !in.Reverted {
			s.markDisplaced()
		}
	}
}

// dropOwnOnsets drops incidents whose onset was not reported yet and that an action's
// first iterations explain: the report of the action came after them.
func (bl *baseline) dropOwnOnsets() {
	bl.incidents.removeIf(func(s *incidentState) bool {
		own := s.ID == "" && bl.isSettling(s.OnsetIteration)
		if own {
			bl.out.addNote("", s.OnsetIteration, "settled",
				"The job is slower from iteration %d on because of an action: no onset",
				s.OnsetIteration)
		}
		return own
	})
}

// keepReference keeps a window to compare a displaced incident with if it grows.
func (m *Machine) keepReference(s *incidentState, w *window, res *peer.Result) {
	if s.move.done &&
		s.isLocated() &&
		s.basis.timing == nil &&
		s.move.reference == nil &&
		res.Missing == 0 &&
		w.iteration >= s.actions.since {
		s.move.reference = res
	}
}
