package mitigate

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
	"github.com/failslow/falcon/mitigate/microbatch"
)

// Reasons why a rung can't help; each is shown to the operator as it is.
var (
	errNotLocated = errors.New("the culprit is not located yet")
	errOver       = errors.New("the fault has cleared")
	errNoSpeeds   = errors.New("the ranks' speeds are not measured yet")
	errOneReplica = errors.New("there is one replica only: nowhere to move work")
	errNoLayout   = errors.New("which ranks are replicas is not known")
	errNoCounts   = errors.New("the job does not say how many micro-batches it runs")
	errTooMany    = fmt.Errorf("the batch has more than %d micro-batches", totalMost)
	errNotHW      = errors.New("all replicas are equally slow, no split is better")
	errOwnWork    = errors.New(
		"the job itself is slower, not its hardware: no other split, place or start is faster",
	)
	errAllSlow     = errors.New("all ranks are equally slow: other places are no faster")
	errFacility    = errors.New("the whole facility is slow: other places are no faster")
	errNetwork     = errors.New("it moves computation, not traffic: a slow link stays slow")
	errUnknown     = errors.New("the cause is unknown: moving work on a guess can make it worse")
	errNoPlacement = errors.New("where the ranks run is not known")
)

// planS2 prices the best split of the present speeds, or returns why there is none.
func (pm *planMaker) planS2(s *incidentState) (plan, error) {
	out := plan{rung: falcon.RungS2, what: "moves micro-batches to faster replicas"}
	if err := pm.s2Applies(s); err != nil {
		return out, err
	}
	best := pm.cache.solveOnce("S2", func() solution {
		b := pm.solveSplit(pm.replicaCurves(pm.profile.newest.speeds, pm.profile.newest.model))
		return solution{split: b, err: b.err}
	})
	if best.err != nil {
		return out, best.err
	}
	out.beforeMs = pm.iterations.presentMs(s)
	out.counts = slices.Clone(best.split.counts)
	out.predictedMs = best.split.predictMs(out.beforeMs, s.incident.HealthyMs)
	out.gainMs = out.beforeMs - out.predictedMs
	out.modelError = pm.splitError(s, best.split, out.beforeMs)
	return pm.requireGain(out, "split")
}

// split is the best split for some speeds, and what the present one takes by
// the same model. It is solved once: consoles ask for it many times a second.
type split struct {
	now                   []int32 // the present split it was compared with
	counts                []int32
	presentMs, makespanMs float64
	replicas              []replicaMs
	err                   error
}

// replicaMs is what one replica's pipeline takes by the model: with the split
// of a job without actions, the present one and the best one.
type replicaMs struct {
	base, now, best float64
}

// nearSlowest is the share of the slowest replica's time from which on a
// replica counts as one that the job waits for.
const nearSlowest = 0.95

// predictMs is the simulated pipeline plus what the simulation misses
// (reductions, optimizer, a starved host's launches). Replicas that the job
// waits for now miss what is missing now; the others miss what was missing
// when all was well: a slow node's extra does not move with its work.
func (b split) predictMs(beforeMs, healthyMs float64) float64 {
	missing := max(0, beforeMs-b.presentMs)
	out := b.makespanMs
	for _, r := range b.replicas {
		own := missing
		if r.now < nearSlowest*b.presentMs && healthyMs > 0 && r.base > 0 {
			own = min(missing, max(0, healthyMs-r.base))
		}
		out = max(out, r.best+own)
	}
	return out
}

// solveSplit finds the best split for T_i(m) of every replica at its present place.
func (pm *planMaker) solveSplit(curves [][]float64) split {
	out := split{now: slices.Clone(pm.job.desc.MicroBatches)}
	now := converted[int](pm.job.desc.MicroBatches)
	counts, makespan, err := microbatch.SolveCurvesWithin(
		curves,
		int(totalOf(pm.job.desc.MicroBatches)),
		pm.splitBounds(),
	)
	if err != nil {
		out.err = err
		return out
	}
	out.counts = converted[int32](counts)
	out.makespanMs = makespan
	for i, m := range now {
		if m >= len(curves[i]) {
			out.err = fmt.Errorf("replica %d runs %d micro-batches, beyond what was priced", i, m)
			return out
		}
		out.presentMs = max(out.presentMs, curves[i][m])
		out.replicas = append(out.replicas, replicaMs{
			base: pm.job.baseSplitMs(curves[i], i),
			now:  curves[i][m],
			best: curves[i][counts[i]],
		})
	}
	return out
}

// splitBounds are what the job says of its replicas. An interleaved schedule whose
// job says nothing gets multiples of its stages, which it always takes.
func (pm *planMaker) splitBounds() microbatch.Bounds {
	ints := func(v []int32) []int {
		if len(v) != pm.job.desc.Layout.DP {
			return nil
		}
		return converted[int](v)
	}
	b := microbatch.Bounds{
		Min:        ints(pm.job.desc.MicroMin),
		Max:        ints(pm.job.desc.MicroMax),
		MultipleOf: ints(pm.job.desc.MicroMultiple),
	}
	for i, v := range b.Max {
		if v <= 0 {
			b.Max[i] = totalMost
		}
	}
	g := pm.profile.newest
	if b.MultipleOf == nil && g != nil && g.model != nil && g.model.Chunks > 1 {
		b.MultipleOf = slices.Repeat([]int{pm.job.desc.Layout.PP}, pm.job.desc.Layout.DP)
	}
	return b
}

func (pm *planMaker) s2Applies(s *incidentState) error {
	if err := causeHelped(s, falcon.RungS2); err != nil {
		return err
	}
	if err := pm.job.splittable(); err != nil {
		return err
	}
	switch {
	case !pm.job.desc.Can.Split:
		return pm.job.withoutLeave(errCantSplit)
	case !s.measured ||
		pm.profile.newest == nil ||
		!pm.job.coversAllRanks(pm.profile.newest.speeds):
		return errNoSpeeds
	case pm.profile.newest.model == nil &&
		!slices.Equal(pm.profile.newest.placement, pm.job.desc.Placement):
		return errNoSpeeds // they are of other places
	}
	return nil
}

// replicaCurves is T_i(m) of every replica: from the cost model at the present places
// where there is one, else from the stages' self times alone, a stage being as
// slow as the slowest of its tensor-parallel ranks.
func (pm *planMaker) replicaCurves(speeds []float64, m *cost.Model) [][]float64 {
	l := pm.job.desc.Layout
	total := int(totalOf(pm.job.desc.MicroBatches))
	most := min(
		total-(l.DP-1),
		max(curveCapTimes*((total+l.DP-1)/l.DP), int(slices.Max(pm.job.desc.MicroBatches))),
	)
	if m != nil && len(pm.job.desc.Placement) == l.World() {
		return m.Curves(pm.job.desc.Placement, most)
	}
	out := make([][]float64, l.DP)
	for d := range out {
		self := make([]float64, l.PP)
		for s := range self {
			for t := range l.TP {
				self[s] = max(self[s], speeds[l.RankOf(falcon.Coord{
					TP: t,
					DP: d,
					PP: s,
				})])
			}
		}
		out[d] = cost.Curve(cost.StagesFromSelf(self), most, 0)
	}
	return out
}

// converted is a list of another type of numbers; each must fit.
func converted[To, From int | int32](v []From) []To {
	out := make([]To, len(v))
	for i, x := range v {
		out[i] = To(x)
	}
	return out
}

// splitError is by which share the model that splits are priced with misses beforeMs; 0 = unknown.
// Without a cost model the rest beyond the pipelines is what it was when all took as long as the
// fastest does with its share of then.
func (pm *planMaker) splitError(s *incidentState, b split, beforeMs float64) float64 {
	fastest := math.Inf(1)
	healthyMs := s.incident.HealthyMs
	for _, r := range b.replicas {
		fastest = min(fastest, r.base)
	}
	m := pm.profile.newest.model
	if m != nil && len(pm.job.desc.Placement) == pm.job.desc.Layout.World() {
		return errorOfChange(b.presentMs+m.RestMs, fastest+m.RestMs, beforeMs, healthyMs)
	}
	if !(fastest > 0) || !(healthyMs > 0) {
		return 0
	}
	return modelError(b.presentMs+max(0, healthyMs-fastest), beforeMs)
}
