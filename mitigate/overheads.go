package mitigate

import (
	"cmp"

	"github.com/failslow/falcon"
)

// overheadBook is what taking each rung has cost.
type overheadBook struct {
	cfg   *Config
	cache *planCache
	means map[falcon.Rung]runningMean
}

type runningMean struct {
	sum float64
	n   int
}

// expected is what taking a plan's rung costs: the mean measured, else what the operator expects, else
// what the plan says, else the literature. A fence is not expected to cost more than a
// restart of the whole job, whose steps contain its own.
func (o *overheadBook) expected(s *incidentState, w plan) float64 {
	r := costName(w.rung, w.variant)
	if ms, given := o.cfg.OverheadsMs[costDrop]; given &&
		w.variant == falcon.VariantDrop &&
		o.means[r].n == 0 {
		return ms
	}
	if ms, known := o.known(r); known {
		return ms
	}
	switch {
	case r == falcon.RungS2:
		return s.incident.HealthyMs
	case r == falcon.RungS3 && w.preview != nil && w.preview.CopyMs > 0:
		return w.preview.CopyMs + s.incident.HealthyMs
	case r == falcon.RungS3:
		return DefaultOverheadS3Ms
	case r == costFence:
		restart, known := o.known(falcon.RungS4)
		if !known {
			restart = DefaultOverheadS4Ms
		}
		return min(cmp.Or(w.downMs, DefaultOverheadFenceMs), restart)
	case r == falcon.RungS4:
		return DefaultOverheadS4Ms
	}
	return 0
}

// known is what a rung was measured to cost, else what the operator expects.
func (o *overheadBook) known(r falcon.Rung) (float64, bool) {
	if m := o.means[r]; m.n > 0 {
		return m.sum / float64(m.n), true
	}
	ms, ok := o.cfg.OverheadsMs[r]
	return ms, ok
}

// restore takes back what was learned before a restart.
func (o *overheadBook) restore(r falcon.Rung, ms float64) {
	o.means[r] = runningMean{ms, 1}
}

func (o *overheadBook) addMeasured(r falcon.Rung, ms float64) {
	m := o.means[r]
	o.means[r] = runningMean{m.sum + ms, m.n + 1}
	o.cache.invalidate()
}

// measuredMeans are the measured overheads, by rung.
func (o *overheadBook) measuredMeans() map[falcon.Rung]float64 {
	out := map[falcon.Rung]float64{}
	for r, m := range o.means {
		if m.n > 0 {
			out[r] = m.sum / float64(m.n)
		}
	}
	return out
}
