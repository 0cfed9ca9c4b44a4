package mitigate

import (
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
)

// profiler keeps the newest measurement of the job and its cost model.
type profiler struct {
	iterations *iterationLog
	job        *jobState
	incidents  *incidentSet
	newest     *measurement
	unsettled  int // complete measurements still to come before a change they show is taken to last
}

// settledWindows are the complete measurements that have to show a change: the first may
// hold iterations from before a fault grew or went.
const settledWindows = 2

// measurement is one measurement of the whole job, and the cost model made of it.
type measurement struct {
	speeds    []float64 // by rank under placement, ms per micro-batch
	profile   falcon.JobProfile
	placement falcon.Placement
	split     []int32
	named     []falcon.Link // by located incidents then
	model     *cost.Model
	err       error // why there is no model
}

// similarTo reports whether two measurements don't differ enough to replan.
func (g *measurement) similarTo(o *measurement) bool {
	if g == nil ||
		len(g.speeds) != len(o.speeds) ||
		!slices.Equal(g.placement, o.placement) ||
		!slices.Equal(g.named, o.named) ||
		len(g.profile.Groups) == 0 && len(o.profile.Groups) > 0 {
		return false
	}
	for i, v := range g.speeds {
		if math.Abs(o.speeds[i]-v) > speedStep*v {
			return false
		}
	}
	a := linkRatios(g.profile.Links)
	b := linkRatios(o.profile.Links)
	differ := func(x, y map[falcon.Link]float64) bool {
		for l, r := range x {
			if math.Abs(max(1, y[l])-r) > linkStep*r {
				return true
			}
		}
		return false
	}
	return !differ(a, b) && !differ(b, a)
}

func linkRatios(links []falcon.LinkSpeed) map[falcon.Link]float64 {
	out := map[falcon.Link]float64{}
	for _, l := range links {
		out[l.Link] = max(1, l.Ratio)
	}
	return out
}

// calibrate calibrates the measurement's cost model. Healthy work, volumes and bandwidths that
// this profile did not see come from an earlier model.
func (pr *profiler) calibrate(g *measurement, s *incidentState) {
	if len(g.placement) == 0 {
		g.err = errNoPlacement
		return
	}
	profile := g.profile
	if len(profile.SelfMs) == 0 {
		profile.SelfMs = g.speeds
	}
	in := cost.Calibration{
		Layout:              pr.job.desc.Layout,
		Placement:           g.placement,
		Profile:             profile,
		MicroBatches:        g.split,
		HealthyMs:           s.incident.HealthyMs,
		HealthyMicroBatches: pr.job.base,
		NowMs:               pr.iterations.presentMs(s),
	}
	if len(profile.Groups) == 0 {
		if pr.newest == nil || pr.newest.model == nil {
			g.err = errNoProfile
			return
		}
		in.Base = pr.newest.model
	}
	m, err := cost.Calibrate(in)
	if err != nil {
		g.err = err
		return
	}
	pr.inferLinks(&m, in)
	g.model = &m
}

// inferLinks gives links that a verdict names and that no test measured the
// one ratio that explains the present iteration time: the model grows with it,
// so halving finds it. A link that was healthy when it was last measured, and
// that the job waits for by the verdict, was measured before it became slow.
func (pr *profiler) inferLinks(m *cost.Model, in cost.Calibration) {
	var unmeasured []falcon.Link
	for _, l := range pr.incidents.namedLinks() {
		if r := m.Links.Ratio[l]; r == 0 || r < healthyBelow && slowsJob(*m, in, l) {
			unmeasured = append(unmeasured, l)
		}
	}
	if len(unmeasured) == 0 || !(in.NowMs > 0) {
		return
	}
	at := func(ratio float64) float64 {
		for _, l := range unmeasured {
			m.Links.Ratio[l] = ratio
		}
		return m.Iteration(in.Placement, in.MicroBatches).IterationMs
	}
	lo, hi := 1.0, ratioMost
	for range ratioSteps {
		if mid := math.Sqrt(lo * hi); at(mid) < in.NowMs {
			lo = mid
		} else {
			hi = mid
		}
	}
	m.ErrorShare = at(lo)/in.NowMs - 1
}

// withoutFaults is a model without one incident's faults that no other located one shares.
func (pr *profiler) withoutFaults(m cost.Model, gone *incidentState) cost.Model {
	shared := func(f func(falcon.Verdict) bool) bool {
		return slices.ContainsFunc(pr.incidents.list, func(o *incidentState) bool {
			return o != gone && o.isLocated() && f(o.incident.Verdict)
		})
	}
	m.Slow = maps.Clone(m.Slow)
	m.Links.Ratio = maps.Clone(m.Links.Ratio)
	for _, d := range gone.incident.Verdict.Devices {
		if !shared(func(v falcon.Verdict) bool {
			return slices.Contains(v.Devices, d)
		}) {
			delete(m.Slow, d)
		}
	}
	for _, l := range gone.incident.Verdict.Links {
		if !shared(func(v falcon.Verdict) bool {
			return slices.Contains(v.Links, l)
		}) {
			delete(m.Links.Ratio, l)
		}
	}
	return m
}

// speedsWithout are the measured speeds, with the culprits of an incident that
// goes taken for as fast as the other ranks of their stage.
func (pr *profiler) speedsWithout(gone *incidentState) []float64 {
	out := slices.Clone(pr.newest.speeds)
	if !pr.job.coversAllRanks(out) {
		return nil
	}
	named := map[falcon.Rank]bool{}
	still := map[falcon.Rank]bool{}
	for _, o := range pr.incidents.list {
		for _, r := range o.incident.Verdict.Ranks {
			named[r] = named[r] || o == gone || o.incident.Open()
			still[r] = still[r] || (o != gone && o.incident.Open())
		}
	}
	for _, r := range gone.incident.Verdict.Ranks {
		if r < 0 || int(r) >= len(out) || still[r] {
			continue
		}
		var peers []float64
		for q, v := range pr.newest.speeds {
			if !named[falcon.Rank(q)] &&
				pr.job.desc.Layout.Coord(falcon.Rank(q)).PP == pr.job.desc.Layout.Coord(r).PP {
				peers = append(peers, v)
			}
		}
		if len(peers) > 0 {
			out[r] = min(out[r], falcon.Median(peers))
		}
	}
	return out
}

// slowsJob reports whether the job as it is placed would be slower by this link.
func slowsJob(m cost.Model, in cost.Calibration, l falcon.Link) bool {
	at := func(ratio float64) float64 {
		m.Links.Ratio = maps.Clone(m.Links.Ratio)
		if m.Links.Ratio == nil {
			m.Links.Ratio = map[falcon.Link]float64{}
		}
		m.Links.Ratio[l] = ratio
		return m.Iteration(in.Placement, in.MicroBatches).IterationMs
	}
	return at(ratioMost) > at(1)*(1+linkStep)
}

// Shares by which a measurement must differ from the one that plans rest on
// before they are made again: plans whose hash changes with every profile could
// not be decided on.
const (
	speedStep = 0.05
	linkStep  = 0.2
)

// What links are taken to be at most when their slowness has to be inferred.
const (
	ratioMost = 1024.0
	// healthyBelow is the ratio up to which a link counts as healthy (FALCON
	// §4.3: groups over 1.1 x the median of their kind are suspicious).
	healthyBelow = 1.1
	ratioSteps   = 40 // halvings of the search
)

var errNoProfile = errors.New("the traffic of the job's groups is not measured yet")

// reset forgets the measurement of another job epoch.
func (pr *profiler) reset() {
	pr.newest, pr.unsettled = nil, 0
}

// replace takes a measurement that differs from the newest. One that differs again right
// after is the same change, seen whole.
func (pr *profiler) replace(g *measurement) {
	if pr.newest != nil && pr.isSettled() {
		pr.unsettled = settledWindows
	}
	pr.newest = g
}

// onMeasured counts a complete measurement. Where it differed, replace came before.
func (pr *profiler) onMeasured() {
	pr.unsettled = max(0, pr.unsettled-1)
}

// isSettled reports whether more than one window has shown what the newest measurement shows.
func (pr *profiler) isSettled() bool { return pr.unsettled == 0 }
