package mitigate

import (
	"fmt"
	"time"

	"github.com/failslow/falcon"
)

// How a measurement is waited for before a node is fenced.
const (
	lookAgain      = 5 * time.Second // between two requests
	lookMost       = 2 * time.Minute // for an answer, at least
	lookIterations = 20              // for an answer, where these take longer
)

// looker has the ranks measured once more between a fence's approval and its order: what
// was slow when the fence was proposed may have been healthy for long.
type looker struct {
	clock     *clock
	out       *output
	incidents *incidentSet

	action string // id of what waits, "" = nothing does
	since  Clock
	asked  Clock // newest request
	begun  Clock // of the newest complete measurement: all that it shows is later
}

// onMeasured takes a complete measurement of the job.
func (lk *looker) onMeasured(in Measured) {
	if in.Begun.After(lk.begun) {
		lk.begun = in.Begun
		for _, s := range lk.incidents.list {
			s.unmeasured = false
		}
	}
}

// measuredFor reports whether the ranks were measured since a fence was first due, and
// asks for it. A wait that has taken too long ends with a reason.
func (lk *looker) measuredFor(s *incidentState, a *falcon.Action, iterationMs float64) (done bool, why string) {
	if lk.action != a.ID {
		lk.action, lk.since, lk.asked = a.ID, lk.clock.now, Clock{}
	}
	if !lk.begun.Before(lk.since) && !lk.begun.IsZero() {
		lk.action = ""
		return true, ""
	}
	if most := max(lookMost, time.Duration(lookIterations*iterationMs*float64(time.Millisecond))); lk.clock.now.Sub(lk.since) > most {
		lk.action, s.unmeasured = "", true
		return false, fmt.Sprintf("no complete measurement came within %.0f s, and nothing is fenced on an old one", most.Seconds())
	}
	if lk.asked.IsZero() || lk.clock.now.Sub(lk.asked) >= lookAgain {
		lk.asked = lk.clock.now
		lk.out.askLook(fmt.Sprintf("%s: is %s still slow? A fence waits for the answer", a.Incident, nodeNames(nodesLeft(a))))
	}
	if a.Phase != falcon.PhaseMeasuring {
		a.Phase = falcon.PhaseMeasuring
		lk.out.addNote(a.ID, "action", "%s: the ranks are measured once more before %s is fenced", a.ID, nodeNames(nodesLeft(a)))
		lk.out.addAction(*a)
	}
	return false, ""
}
