package detect

// heldLevels is how fast the job was without an incident, before somebody started it again, or
// another one in its place. Nothing is charged by it until that is known.
type heldLevels struct {
	healthyMs, beforeMs float64
	reached             int64 // iteration that the job had reached
}

// forgetLevels forgets how fast the job was without the open incidents: it is another job now, and
// what they cost can't be determined by the old one's pace.
func (n *incidentSet) forgetLevels() {
	for _, s := range n.openIncidents() {
		n.setLevels(s, 0, 0)
		s.held = nil
	}
}

// holdLevels puts aside how fast the job was without the open incidents.
func (n *incidentSet) holdLevels(newest int64) {
	for _, s := range n.openIncidents() {
		if s.held == nil && s.HealthyMs > 0 {
			s.held = &heldLevels{s.HealthyMs, s.BeforeMs, max(newest, s.DetectedIteration)}
		}
		n.setLevels(s, 0, 0)
	}
}

// settleLevels decides with the first iteration whether it is the job of before. One that goes on
// from a checkpoint does so behind half of what it had reached; one that begins again from the start
// is another job, or may be: what the incidents cost is not known.
func (n *incidentSet) settleLevels(iteration int64) {
	for _, s := range n.list {
		h := s.held
		if h == nil {
			continue
		}
		if s.held = nil; s.Open() && iteration > h.reached/2 {
			n.setLevels(s, h.healthyMs, h.beforeMs)
			continue
		}
		n.out.addNote(s.ID, iteration, "rebase",
			"%s: the job began again from iteration %d, and had reached %d: it may be another one, and what %s costs is not known",
			s.ID, iteration, h.reached, s.ID)
	}
}

func (n *incidentSet) setLevels(s *incidentState, healthyMs, beforeMs float64) {
	if s.HealthyMs == healthyMs && s.BeforeMs == beforeMs {
		return
	}
	s.HealthyMs, s.BeforeMs = healthyMs, beforeMs
	if s.ID != "" {
		n.out.updateIncident(s)
	}
}
