package mitigate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
	"github.com/failslow/falcon/mitigate/topology"
)

// Shares by which a measurement must differ from the one that plans rest on
// before they are made anew: plans whose hash changes with every profile could
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

// gauge is one measurement of the whole job, and the cost model made of it.
type gauge struct {
	speeds    []float64 // by rank under placement, ms per micro-batch
	profile   falcon.JobProfile
	placement falcon.Placement
	split     []int32
	named     []falcon.Link // by located incidents then
	model     *cost.Model
	err       error // why there is no model
}

func (pm *planMaker) onSpeeds(in Speeds) {
	s := pm.incidents.get(in.Incident)
	speeds := in.SelfMs
	if len(speeds) == 0 {
		speeds = in.Profile.SelfMs
	}
	if s == nil || len(speeds) == 0 {
		return
	}
	s.measured = true
	g := &gauge{speeds: speeds, profile: in.Profile, placement: pm.job.desc.Placement, split: slices.Clone(pm.job.desc.MicroBatches), named: pm.incidents.namedLinks()}
	if pm.profile.newest.like(g) {
		return
	}
	pm.profile.calibrate(g, s)
	pm.profile.newest = g
	pm.cache.version++
}

// like says that two measurements don't differ enough to plan anew.
func (g *gauge) like(o *gauge) bool {
	if g == nil || len(g.speeds) != len(o.speeds) || !slices.Equal(g.placement, o.placement) || !slices.Equal(g.named, o.named) || len(g.profile.Groups) == 0 && len(o.profile.Groups) > 0 {
		return false
	}
	for i, v := range g.speeds {
		if math.Abs(o.speeds[i]-v) > speedStep*v {
			return false
		}
	}
	a, b := ratios(g.profile.Links), ratios(o.profile.Links)
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

func ratios(links []falcon.LinkSpeed) map[falcon.Link]float64 {
	out := map[falcon.Link]float64{}
	for _, l := range links {
		out[l.Link] = max(1, l.Ratio)
	}
	return out
}

// model calibrates the measurement's cost model. Healthy work, volumes and
// bandwidths come from an earlier model where this profile did not see the
// traffic.
func (pr *profiler) calibrate(g *gauge, s *story) {
	if len(g.placement) == 0 {
		g.err = errNoPlacement
		return
	}
	profile := g.profile
	if len(profile.SelfMs) == 0 {
		profile.SelfMs = g.speeds
	}
	in := cost.Calibration{
		Layout: pr.job.desc.Layout, Placement: g.placement, Profile: profile, MicroBatches: g.split,
		HealthyMs: s.incident.HealthyMs, HealthyMicroBatches: pr.job.base, NowMs: pr.iterations.slowMs(s),
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

// namedLinks are the links that located incidents name, in their order.
func (n *incidentSet) namedLinks() []falcon.Link {
	var out []falcon.Link
	for _, s := range n.list {
		if s.located() {
			out = append(out, s.incident.Verdict.Links...)
		}
	}
	return out
}

// inferLinks gives links that a verdict names and that no test measured the
// one ratio that explains the present iteration time: the model grows with it,
// so halving finds it. A link that was healthy when it was last measured, and
// that the job waits for by the verdict, was measured before it became slow.
func (pr *profiler) inferLinks(m *cost.Model, in cost.Calibration) {
	var unmeasured []falcon.Link
	for _, l := range pr.incidents.namedLinks() {
		if r := m.Links.Ratio[l]; r == 0 || r < healthyBelow && matters(*m, in, l) {
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

// matters says that the job as it is placed would be slower by this link.
func matters(m cost.Model, in cost.Calibration, l falcon.Link) bool {
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

// healed is a model without the faults of one incident, as far as no other
// located one shares them.
func (pr *profiler) withoutFaults(m cost.Model, gone *story) cost.Model {
	shared := func(f func(falcon.Verdict) bool) bool {
		return slices.ContainsFunc(pr.incidents.list, func(o *story) bool { return o != gone && o.located() && f(o.incident.Verdict) })
	}
	m.Slow, m.Links.Ratio = maps.Clone(m.Slow), maps.Clone(m.Links.Ratio)
	for _, d := range gone.incident.Verdict.Devices {
		if !shared(func(v falcon.Verdict) bool { return slices.Contains(v.Devices, d) }) {
			delete(m.Slow, d)
		}
	}
	for _, l := range gone.incident.Verdict.Links {
		if !shared(func(v falcon.Verdict) bool { return slices.Contains(v.Links, l) }) {
			delete(m.Links.Ratio, l)
		}
	}
	return m
}

// healedSpeeds are the measured speeds, with the culprits of an incident that
// goes taken for as fast as the other ranks of their stage.
func (pr *profiler) speedsWithout(gone *story) []float64 {
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
			if !named[falcon.Rank(q)] && pr.job.desc.Layout.Coord(falcon.Rank(q)).PP == pr.job.desc.Layout.Coord(r).PP {
				peers = append(peers, v)
			}
		}
		if len(peers) > 0 {
			out[r] = min(out[r], falcon.Median(peers))
		}
	}
	return out
}

// usable says that every rank's speed was measured.
func (j *jobState) coversAllRanks(speeds []float64) bool {
	bad := func(v float64) bool { return !(v > 0) || math.IsInf(v, 0) }
	return len(speeds) == j.desc.Layout.World() && !slices.ContainsFunc(speeds, bad)
}

// slowMs is the present iteration time: the median of the newest iterations
// since onset, the detector's own figure before there are enough.
func (l *iterationLog) slowMs(s *story) float64 {
	var recent []float64
	for i := len(l.list) - 1; i >= 0 && len(recent) < l.cfg.MeasureIterations; i-- {
		if l.list[i].Index < s.cost.From {
			break
		}
		recent = append(recent, l.list[i].Ms)
	}
	if len(recent) < min(3, l.cfg.MeasureIterations) {
		return s.incident.SlowMs
	}
	return falcon.Median(recent)
}

// overheadMs is what taking a rung costs: the mean of what was measured, else
// what the operator expects, else what the plan itself says, else the
// literature.
func (o *overheadBook) expected(r falcon.Rung, s *story, w plan) float64 {
	if m := o.means[r]; m.n > 0 {
		return m.sum / float64(m.n)
	}
	if ms, ok := o.cfg.OverheadsMs[r]; ok {
		return ms
	}
	switch {
	case r == falcon.RungS2:
		return s.incident.HealthyMs
	case r == falcon.RungS3 && w.preview != nil && w.preview.CopyMs > 0:
		return w.preview.CopyMs + s.incident.HealthyMs
	case r == falcon.RungS3:
		return DefaultOverheadS3Ms
	case r == falcon.RungS4:
		return DefaultOverheadS4Ms
	}
	return 0
}

func (o *overheadBook) learn(r falcon.Rung, ms float64) {
	m := o.means[r]
	o.means[r] = mean{m.sum + ms, m.n + 1}
	o.cache.version++
}

// learned are the measured overheads, by rung.
func (o *overheadBook) learned() map[falcon.Rung]float64 {
	out := map[falcon.Rung]float64{}
	for r, m := range o.means {
		if m.n > 0 {
			out[r] = m.sum / float64(m.n)
		}
	}
	return out
}

// plan is one rung worked out for one incident: what would be carried out, and
// what it would bring.
type plan struct {
	rung        falcon.Rung
	variant     falcon.Variant
	counts      []int32          // split afterwards; nil = as it is
	placement   falcon.Placement // S3, S4: device by rank afterwards
	preview     *falcon.Preview
	beforeMs    float64
	predictedMs float64
	gainMs      float64 // per iteration of the present batch
	offShare    float64 // by which the model misses beforeMs, of it; 0 = no model is concerned
	what        string  // one clause: what it does
}

// hash names the plan: a decision must quote it, so that nobody approves what
// they did not see.
func (w plan) hash(incident string, epoch uint64) string {
	return planHash(incident, w.rung, epoch, w.counts, w.variant, w.placement)
}

func planHash(incident string, r falcon.Rung, epoch uint64, counts []int32, v falcon.Variant, to falcon.Placement) string {
	b, err := json.Marshal(struct {
		Incident string
		Rung     falcon.Rung
		Epoch    uint64
		Counts   []int32
		Variant  falcon.Variant   `json:",omitempty"`
		To       falcon.Placement `json:",omitempty"`
	}{incident, r, epoch, counts, v, to})
	if err != nil {
		panic("mitigate: a plan of plain values did not marshal: " + err.Error())
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:6])
}

// worked is the costly part of a plan, kept until something that it rests on
// changes: consoles ask for it many times a second. It is of the job as a whole,
// the same for every incident.
type worked struct {
	version int
	split   split // S2
	place   topology.Plan
	swap    swapNodes // S4
	err     error
}

// work makes a plan's costly part, once per version of what it rests on.
func (c *planCache) solve(name string, make func() worked) worked {
	w, ok := c.solved[name]
	if !ok || w.version != c.version {
		w = make()
		w.version = c.version
		c.solved[name] = w
	}
	return w
}

// worth refuses plans that gain too little.
func (pm *planMaker) requireGain(w plan, what string) (plan, error) {
	if !(w.gainMs >= pm.cfg.MinGain*w.beforeMs) {
		return w, slight(fmt.Sprintf("no %s gains %.0f %%: the best saves %.1f ms of %.1f ms", what, 100*pm.cfg.MinGain, max(w.gainMs, 0), w.beforeMs))
	}
	return w, nil
}

// candidate is a rung as algorithm 1 (FALCON §5.2) sees it.
type candidate struct {
	plan
	overheadMs float64
	err        error // why it can't help
}

// strategies lists S2, S3 and the variants of S4 by their overhead
// (FindStrategies of FALCON algorithm 1), those that can't help with the reason.
func (pm *planMaker) candidates(s *story) []candidate {
	var out []candidate
	add := func(w plan, err error) {
		out = append(out, candidate{plan: w, overheadMs: pm.overheads.expected(w.rung, s, w), err: err})
	}
	add(pm.planS2(s))
	add(pm.planS3(s))
	for _, v := range s4Variants(pm.policy.current) {
		add(pm.planS4(s, v))
	}
	slices.SortStableFunc(out, func(a, b candidate) int { return cmp.Compare(a.overheadMs, b.overheadMs) })
	return out
}

// plan makes the plan of one rung; with no variant S4 is the first that can be
// taken.
func (pm *planMaker) planRung(s *story, r falcon.Rung, v falcon.Variant) (plan, error) {
	switch r {
	case falcon.RungS2:
		return pm.planS2(s)
	case falcon.RungS3:
		return pm.planS3(s)
	case falcon.RungS4:
		if v != "" && !slices.Contains(s4Variants(pm.policy.current), v) {
			return plan{}, fmt.Errorf("policy does not list the variant %q of S4", v)
		}
		var first error
		for _, o := range s4Variants(pm.policy.current) {
			if v != "" && v != o {
				continue
			}
			w, err := pm.planS4(s, o)
			if err == nil {
				return w, nil
			}
			first = cmp.Or(first, err)
		}
		return plan{}, first
	}
	return plan{}, fmt.Errorf("rung %q is none of S2, S3, S4", r)
}

// causeHelped says why rung r can't help the incident's cause, nil if it can
// (FALCON table 3).
func causeHelped(s *story, r falcon.Rung) error {
	switch {
	case s.incident.State != "" && !s.incident.Open():
		return errOver
	case !s.located():
		return errNotLocated
	}
	v := s.incident.Verdict
	has := func(c falcon.Cause) bool { return v.Cause == c || slices.Contains(v.Also, c) }
	compute, network := has(falcon.CauseGPU) || has(falcon.CauseCPU), has(falcon.CauseNetwork)
	switch {
	case (v.Cause == falcon.CauseNotHardware || v.Cause == falcon.CauseFacility) && r == falcon.RungS2:
		return errNotHW
	case v.Cause == falcon.CauseNotHardware:
		return errAllSlow
	case v.Cause == falcon.CauseFacility:
		return errFacility
	case compute, network && r != falcon.RungS2:
		return nil
	case network:
		return errNetwork
	}
	return errUnknown
}
