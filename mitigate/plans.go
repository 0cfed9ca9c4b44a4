package mitigate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
	"github.com/failslow/falcon/mitigate/microbatch"
	"github.com/failslow/falcon/mitigate/topology"
)

// planMaker works out what each rung would do, and what that would bring.
type planMaker struct {
	cfg        *Config
	policy     *policyState
	iterations *iterationLog
	job        *jobState
	incidents  *incidentSet
	cache      *planCache
	overheads  *overheadBook
	profile    *profiler
}

// plan is one rung worked out for one incident: what to carry out, and what it would bring.
type plan struct {
	rung        falcon.Rung
	variant     falcon.Variant
	counts      []int32          // split afterwards; nil = as it is
	placement   falcon.Placement // S3, S4: device by rank afterwards
	preview     *falcon.Preview
	beforeMs    float64
	predictedMs float64
	gainMs      float64 // per iteration of the present batch
	modelError  float64 // by which the model misses beforeMs, of it; 0 = no model is concerned
	downMs      float64 // fence: what recoveries were measured to take; 0 = unknown
	what        string  // one clause: what it does
}

// hashFor names the plan: a decision must quote it, so no plan is approved unseen.
func (w plan) hashFor(incident string, epoch uint64) string {
	return planHash(incident, w.rung, epoch, w.counts, w.variant, w.placement)
}

func planHash(
	incident string,
	r falcon.Rung,
	epoch uint64,
	counts []int32,
	v falcon.Variant,
	to falcon.Placement,
) string {
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

// candidate is a rung as algorithm 1 (FALCON §5.2) sees it.
type candidate struct {
	plan
	overheadMs float64
	err        error // why it can't help
}

// planCache keeps the costly part of plans until something changes that they
// rest on: consoles ask for them many times a second.
type planCache struct {
	solved  map[string]solution
	version int // grows with whatever a plan rests on
}

// solution is the costly part of a plan, for the job as a whole, kept until something it rests on
// changes: consoles ask for it many times a second.
type solution struct {
	version int
	split   split // S2
	place   topology.Plan
	swap    nodeSwap // S4
	err     error
}

// invalidate makes plans be worked out again.
func (c *planCache) invalidate() {
	c.version++
}

// solveOnce makes a plan's costly part, once per version of what it rests on.
func (c *planCache) solveOnce(name string, make func() solution) solution {
	w, ok := c.solved[name]
	if !ok || w.version != c.version {
		w = make()
		w.version = c.version
		c.solved[name] = w
	}
	return w
}

// DoubtMost bounds the error of a model that counts against its plans, of the
// iteration time: a gain above it is proposed however wrong the model is, as all
// faults worth a person's attention have such gains.
const DoubtMost = 0.15

// smallGain is a gain too small to act on. Its figures move every iteration; it is logged once.
type smallGain string

func (e smallGain) Error() string { return string(e) }

// modelError is by which share a model misses the measured iteration time; 0 = one is unknown.
func modelError(modelMs, measuredMs float64) float64 {
	if !(modelMs > 0) || !(measuredMs > 0) {
		return 0
	}
	return math.Abs(modelMs/measuredMs - 1)
}

// errorOfChange is the smaller of two errors: that of the present time, and that which is left once
// the model is scaled to the healthy time. A model that was as wrong when all was well, as it knows
// nothing of overlap, is right about what the fault changed.
func errorOfChange(modelMs, modelHealthyMs, measuredMs, healthyMs float64) float64 {
	off := modelError(modelMs, measuredMs)
	if !(healthyMs > 0) || !(modelHealthyMs > 0) {
		return off
	}
	return min(off, modelError(modelMs*healthyMs/modelHealthyMs, measuredMs))
}

// errorExceedsGain is why a plan's gain is no evidence: the model is wrong about the present by as
// much. A person may still step up by hand.
func errorExceedsGain(w plan) error {
	if w.gainMs > min(w.modelError, DoubtMost)*w.beforeMs {
		return nil
	}
	return smallGain(fmt.Sprintf(
		"its gain of %.1f ms (%.1f %%) lies within the cost model's own error, %.1f %% off the present iteration time",
		w.gainMs, 100*w.gainMs/w.beforeMs, 100*w.modelError,
	))
}

// leastGain is the share of the present iteration time that a rung has to gain. A split takes
// force between two iterations: it may gain less than what holds the job up.
func (pm *planMaker) leastGain(r falcon.Rung) float64 {
	if r == falcon.RungS2 {
		return pm.cfg.MinGain * splitShare
	}
	return pm.cfg.MinGain
}

// splitShare is what a split has to gain of what other rungs have to.
const splitShare = 2.0 / 3

// requireGain refuses plans that gain too little.
func (pm *planMaker) requireGain(w plan, what string) (plan, error) {
	if !(w.gainMs >= pm.leastGain(w.rung)*w.beforeMs) {
		return w, smallGain(fmt.Sprintf("no %s gains %.0f %%: the best saves %.1f ms of %.1f ms",
			what, 100*pm.leastGain(w.rung), max(w.gainMs, 0), w.beforeMs))
	}
	return w, nil
}

// candidates lists S2, S3 and the variants of S4 by their overhead
// (FindStrategies of FALCON algorithm 1), those that can't help with the reason.
func (pm *planMaker) candidates(s *incidentState) []candidate {
	var out []candidate
	add := func(w plan, err error) {
		out = append(out, candidate{
			plan:       w,
			overheadMs: pm.overheads.expected(s, w),
			err:        err,
		})
	}
	add(pm.planS2(s))
	add(pm.planS3(s))
	for _, v := range pm.policy.allowedVariants() {
		add(pm.planS4(s, v))
	}
	pm.weighRun(out)
	slices.SortStableFunc(out, func(a, b candidate) int {
		return cmp.Compare(a.overheadMs, b.overheadMs)
	})
	return out
}

// planRung makes the plan of one rung; with no variant, S4 is the first that can be taken.
func (pm *planMaker) planRung(s *incidentState, r falcon.Rung, v falcon.Variant) (plan, error) {
	switch r {
	case falcon.RungS2:
		return pm.planS2(s)
	case falcon.RungS3:
		return pm.planS3(s)
	case falcon.RungS4:
		if v != "" && !slices.Contains(pm.policy.allowedVariants(), v) {
			return plan{}, fmt.Errorf("policy does not list the variant %q of S4", v)
		}
		var first error
		for _, o := range pm.policy.allowedVariants() {
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

func (pm *planMaker) onSpeeds(in Speeds) {
	s := pm.incidents.byID(in.Incident)
	speeds := in.SelfMs
	if len(speeds) == 0 {
		speeds = in.Profile.SelfMs
	}
	if s == nil || len(speeds) == 0 {
		return
	}
	s.measured = true
	g := &measurement{
		speeds:    speeds,
		profile:   in.Profile,
		placement: pm.job.desc.Placement,
		split:     slices.Clone(pm.job.desc.MicroBatches),
		named:     pm.incidents.namedLinks(),
	}
	if pm.profile.newest.similarTo(g) {
		return
	}
	pm.profile.calibrate(g, s)
	pm.profile.replace(g)
	pm.cache.invalidate()
}

// revertTarget is the split that the job goes back to: after an action that did not help, the one
// before it; after its fault, the base split or, while another action holds, the best split for
// the other faults. It never changes the batch.
func (pm *planMaker) revertTarget(s *incidentState, a *falcon.Action) []int32 {
	want := totalOf(pm.job.desc.MicroBatches)
	fits := func(m []int32) bool {
		return totalOf(m) == want && len(m) == len(pm.job.desc.MicroBatches)
	}
	if !s.isOver() && fits(a.Previous) {
		return a.Previous
	}
	for _, h := range pm.incidents.actionsInForce() {
		o := h.action()
		if h.incident == s ||
			h.incident.isOver() ||
			o.RevertKind != "" ||
			len(o.MicroBatches) == 0 {
			continue
		}
		if best := pm.splitWithout(s); best != nil {
			return best
		}
		if fits(o.MicroBatches) {
			return o.MicroBatches
		}
	}
	for _, m := range [][]int32{pm.job.base, a.Base, a.Previous} {
		if fits(m) {
			return m
		}
	}
	return converted[int32](microbatch.Even(int(want), len(pm.job.desc.MicroBatches)))
}

// blockedBy is why a placement can't go yet: a newer one was built on it, or the other open faults
// are worse off at the old places and wait for their own plan.
func (pm *planMaker) blockedBy(h actionRef) string {
	s, a := h.incident, h.action()
	if a.Rung != falcon.RungS3 || !s.isOver() {
		return ""
	}
	for _, o := range pm.incidents.actionsInForce() {
		b := o.action()
		if b != a && b.Rung == falcon.RungS3 && b.AppliedIteration > a.AppliedIteration {
			return fmt.Sprintf("%s was built on it", b.ID)
		}
	}
	other := slices.IndexFunc(pm.incidents.list, func(o *incidentState) bool {
		return o != s && o.isLocated() && causeHelped(o, falcon.RungS3) == nil
	})
	if other < 0 ||
		pm.profile.newest == nil ||
		pm.profile.newest.model == nil ||
		slices.Equal(a.Home, pm.job.desc.Placement) {
		return ""
	}
	w := pm.cache.solveOnce("without "+a.ID, func() solution {
		m := pm.profile.withoutFaults(*pm.profile.newest.model, s)
		return solution{
			split: split{
				presentMs:  pm.bestSplitMs(m, pm.job.desc.Placement),
				makespanMs: pm.bestSplitMs(m, a.Home),
			},
		}
	})
	here, home := w.split.presentMs, w.split.makespanMs
	if home > here*(1+pm.cfg.MinGain) {
		return fmt.Sprintf("with it %s costs %.1f ms an iteration, without it %.1f ms",
			pm.incidents.list[other].incident.ID, here, home)
	}
	return ""
}

// bestSplitMs is the iteration time at some places with the split that suits them.
func (pm *planMaker) bestSplitMs(m cost.Model, at falcon.Placement) float64 {
	now := pm.job.desc.Placement
	pm.job.setPlacement(at)
	defer pm.job.setPlacement(now)
	best := pm.solveSplit(pm.replicaCurves(nil, &m))
	if best.err != nil {
		return m.Iteration(at, pm.job.desc.MicroBatches).IterationMs
	}
	return best.makespanMs + m.RestMs
}

// splitWithout is the best split once an incident's fault is gone, nil when that is unknown.
func (pm *planMaker) splitWithout(gone *incidentState) []int32 {
	if pm.profile.newest == nil || pm.job.splittable() != nil {
		return nil
	}
	if pm.profile.newest.model != nil {
		m := pm.profile.withoutFaults(*pm.profile.newest.model, gone)
		return pm.solveSplit(pm.replicaCurves(nil, &m)).counts
	}
	speeds := pm.profile.speedsWithout(gone)
	if pm.job.coversAllRanks(speeds) &&
		slices.Equal(pm.profile.newest.placement, pm.job.desc.Placement) {
		return pm.solveSplit(pm.replicaCurves(speeds, nil)).counts
	}
	return nil
}

// looksHealthy reports whether by the newest measurement nothing that the verdict names
// is slow any more. Whether that lasts is the detector's to say; until it does,
// what is in force stays, and is undone as a whole.
func (pm *planMaker) looksHealthy(s *incidentState) bool {
	if pm.profile.newest == nil || pm.profile.newest.model == nil {
		return false
	}
	v, m := s.incident.Verdict, pm.profile.newest.model
	return len(v.Devices)+len(v.Links) > 0 &&
		!slices.ContainsFunc(v.Devices, func(d falcon.Device) bool {
			return m.Slow[d] >= healthyBelow
		}) &&
		!slices.ContainsFunc(v.Links, func(l falcon.Link) bool {
			return m.Links.Ratio[l] >= healthyBelow
		})
}
