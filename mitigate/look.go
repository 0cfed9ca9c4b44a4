package mitigate

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// How a measurement of the ranks is waited for: before a node is fenced, and before an
// action that seems not to help is undone.
const (
	lookAgain      = 5 * time.Second // between two requests
	lookMost       = 2 * time.Minute // for an answer, at least
	lookIterations = 20              // for an answer, where these take longer
)

// remeasurer has the ranks measured once more where what was measured last may not hold any
// more. One action waits at a time.
type remeasurer struct {
	clock     *clock
	out       *output
	incidents *incidentSet

	action string // id of what waits, "" = nothing does
	since  Clock
	asked  Clock // newest request
	begun  Clock // of the newest complete measurement: all that it shows is later
}

// onMeasured takes a complete measurement of the job.
func (lk *remeasurer) onMeasured(in Measured) {
	if in.Begun.After(lk.begun) {
		lk.begun = in.Begun
		for _, s := range lk.incidents.list {
			s.unmeasured = false
		}
	}
}

// look is how far a wait for a measurement is.
type look int

const (
	lookWaits  look = iota
	lookDone        // the ranks were measured since the wait began
	lookFailed      // none came in time
)

// measuredFor has the ranks measured for an action, and reports how far that is.
func (lk *remeasurer) measuredFor(a *falcon.Action, iterationMs float64, why string) look {
	if lk.action != a.ID {
		lk.action, lk.since, lk.asked = a.ID, lk.clock.now, Clock{}
	}
	if !lk.begun.Before(lk.since) && !lk.begun.IsZero() {
		return lookDone
	}
	if lk.clock.now.Sub(lk.since) > lookTime(iterationMs) {
		return lookFailed
	}
	if lk.asked.IsZero() || lk.clock.now.Sub(lk.asked) >= lookAgain {
		lk.asked = lk.clock.now
		lk.out.askLook(why)
	}
	return lookWaits
}

// lookTime is how long a measurement is waited for.
func lookTime(iterationMs float64) time.Duration {
	return max(lookMost, time.Duration(lookIterations*iterationMs*float64(time.Millisecond)))
}

// mayFence reports whether the ranks were measured since a fence was first due: what was
// slow when it was proposed may have been healthy for long. A fence for which no measurement
// comes ends.
func (e *executor) mayFence(s *incidentState, a *falcon.Action) bool {
	ms := e.iterations.presentMs(s)
	node := nodeNames(nodesLeft(a))
	switch e.look.measuredFor(a, ms, fmt.Sprintf("%s: is %s still slow? A fence waits for the answer",
		a.Incident, node)) {
	case lookDone:
		return true
	case lookFailed:
		s.unmeasured = true
		e.out.expireAction(a, fmt.Sprintf(
			"no complete measurement came within %.0f s, and nothing is fenced on an old one",
			lookTime(ms).Seconds(),
		))
		return false
	}
	if a.Phase != falcon.PhaseMeasuring {
		a.Phase = falcon.PhaseMeasuring
		e.out.addNote(a.ID, "action", "%s: the ranks are measured once more before %s is fenced", a.ID, node)
		e.out.addAction(*a)
	}
	return false
}

// slowBesides finds a device that the newest measurement shows as slow and that no incident
// named which began before an action took force: it is slow since.
func (pm *planMaker) slowBesides(a *falcon.Action) (falcon.Device, bool) {
	g := pm.profile.newest
	if g == nil || len(g.speeds) != len(g.placement) {
		return "", false
	}
	known := func(d falcon.Device) bool {
		return slices.ContainsFunc(pm.incidents.list, func(s *incidentState) bool {
			return s.incident.OnsetIteration < a.AppliedIteration &&
				slices.Contains(s.incident.Verdict.Devices, d)
		})
	}
	peers := map[int][]float64{} // by stage
	stage := func(r int) int {
		return pm.job.desc.Layout.Coord(falcon.Rank(r)).PP
	}
	for r, ms := range g.speeds {
		peers[stage(r)] = append(peers[stage(r)], ms)
	}
	for r, ms := range g.speeds {
		d := g.placement[r]
		if len(peers[stage(r)]) > 2 &&
			!known(d) &&
			ms >= healthyBelow*falcon.Median(slices.Clone(peers[stage(r)])) {
			return d, true
		}
	}
	return "", false
}
