package mitigate

import (
	"fmt"
	"math"
)

// DoubtMost bounds the error of a model that counts against its plans, of the
// iteration time: a gain above it is proposed however wrong the model is, as all
// faults worth a person's attention have such gains.
const DoubtMost = 0.15

// slight is a gain that is no reason to act. Its figures move with every
// iteration; it is told once.
type slight string

func (e slight) Error() string { return string(e) }

// offBy is by which share of the measured iteration time a model misses it;
// 0 = one of them is unknown.
func offBy(modelMs, measuredMs float64) float64 {
	if !(modelMs > 0) || !(measuredMs > 0) {
		return 0
	}
	return math.Abs(modelMs/measuredMs - 1)
}

// doubtful says why a plan's gain is no evidence: a model that is wrong about the
// present by as much can't tell it from its own error. A person may still step
// up by hand.
func doubtful(w plan) error {
	if w.gainMs > min(w.offShare, DoubtMost)*w.beforeMs {
		return nil
	}
	return slight(fmt.Sprintf("its gain of %.1f ms (%.1f %%) lies within the cost model's own error, %.1f %% off the present iteration time",
		w.gainMs, 100*w.gainMs/w.beforeMs, 100*w.offShare))
}

// unproposed says why a rung that could help is not proposed now.
func (p *Planner) unproposed(s *story, c candidate) error {
	if err := p.limits.withheld(s, c.rung); err != nil {
		return err
	}
	return doubtful(c.plan)
}

// splitModelMs is the present iteration time by what splits are priced with; 0 =
// unknown. Without a cost model the rest beyond the pipelines is taken for what it
// was when all was well, when all took as long as the fastest does with its share
// of then.
func (pm *planMaker) splitModelMs(s *story, b split) float64 {
	if m := pm.profile.newest.model; m != nil && len(pm.job.desc.Placement) == pm.job.desc.Layout.World() {
		return b.presentMs + m.RestMs
	}
	healthy := math.Inf(1)
	for _, r := range b.replicas {
		healthy = min(healthy, r.base)
	}
	if !(healthy > 0) || !(s.incident.HealthyMs > 0) {
		return 0
	}
	return b.presentMs + max(0, s.incident.HealthyMs-healthy)
}
