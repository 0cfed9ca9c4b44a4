package mitigate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
	"github.com/failslow/falcon/mitigate/microbatch"
)

// Reasons why a rung can't help; each is shown to the operator as it is.
var (
	errNotLocated  = errors.New("the culprit is not located yet")
	errOver        = errors.New("the fault has cleared")
	errNoSpeeds    = errors.New("the ranks' speeds are not measured yet")
	errOneReplica  = errors.New("there is one replica only: nowhere to move work")
	errNoCounts    = errors.New("the job does not say how many micro-batches it runs")
	errTooMany     = fmt.Errorf("the batch has more than %d micro-batches", totalMost)
	errNotHW       = errors.New("all replicas are equally slow, no split is better")
	errAllSlow     = errors.New("all ranks are equally slow: other places are no faster")
	errFacility    = errors.New("the whole facility is slow: other places are no faster")
	errNetwork     = errors.New("it moves computation, not traffic: a slow link stays slow")
	errUnknown     = errors.New("the cause is unknown: moving work on a guess can make it worse")
	errNoPlacement = errors.New("where the ranks run is not known")
)

// planS2 prices the best split of the present speeds, or says why there is
// none.
func (p *Planner) planS2(s *story) (plan, error) {
	out := plan{rung: falcon.RungS2, what: "moves micro-batches to faster replicas"}
	if err := p.s2Applies(s); err != nil {
		return out, err
	}
	best := p.work("S2", func() worked {
		b := p.solve(p.curves(p.gauge.speeds, p.gauge.model))
		return worked{split: b, err: b.err}
	})
	if best.err != nil {
		return out, best.err
	}
	out.beforeMs = p.slowMs(s)
	out.counts = slices.Clone(best.split.counts)
	out.predictedMs = best.split.predictMs(out.beforeMs, s.incident.HealthyMs)
	out.gainMs, out.offShare = out.beforeMs-out.predictedMs, offBy(p.splitModelMs(s, best.split), out.beforeMs)
	return p.worth(out, "split")
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

// solve finds the best split for T_i(m) of every replica at its present place.
func (p *Planner) solve(curves [][]float64) split {
	out := split{now: slices.Clone(p.job.MicroBatches)}
	now := toInts(p.job.MicroBatches)
	counts, makespan, err := microbatch.SolveCurvesWithin(curves, sum(now), p.bounds())
	if err != nil {
		out.err = err
		return out
	}
	out.counts, out.makespanMs = toInt32s(counts), makespan
	for i, m := range now {
		if m >= len(curves[i]) {
			out.err = fmt.Errorf("replica %d runs %d micro-batches, beyond what was priced", i, m)
			return out
		}
		out.presentMs = max(out.presentMs, curves[i][m])
		out.replicas = append(out.replicas, replicaMs{base: p.baseMs(curves[i], i), now: curves[i][m], best: curves[i][counts[i]]})
	}
	return out
}

// bounds are what the job says of its replicas. An interleaved schedule whose
// job says nothing gets multiples of its stages, which it always takes.
func (p *Planner) bounds() microbatch.Bounds {
	ints := func(v []int32) []int {
		if len(v) != p.job.Layout.DP {
			return nil
		}
		return toInts(v)
	}
	b := microbatch.Bounds{Min: ints(p.job.MicroMin), Max: ints(p.job.MicroMax), MultipleOf: ints(p.job.MicroMultiple)}
	for i, v := range b.Max {
		if v <= 0 {
			b.Max[i] = totalMost
		}
	}
	if g := p.gauge; b.MultipleOf == nil && g != nil && g.model != nil && g.model.Chunks > 1 {
		b.MultipleOf = slices.Repeat([]int{p.job.Layout.PP}, p.job.Layout.DP)
	}
	return b
}

// baseMs is replica i's time with the base split, 0 when it was not priced.
func (p *Planner) baseMs(curve []float64, i int) float64 {
	if i >= len(p.base) || int(p.base[i]) >= len(curve) {
		return 0
	}
	return curve[p.base[i]]
}

func (p *Planner) s2Applies(s *story) error {
	if err := causeHelped(s, falcon.RungS2); err != nil {
		return err
	}
	if err := p.splittable(); err != nil {
		return err
	}
	switch {
	case !s.measured || p.gauge == nil || !p.usable(p.gauge.speeds):
		return errNoSpeeds
	case p.gauge.model == nil && !slices.Equal(p.gauge.placement, p.job.Placement):
		return errNoSpeeds // they are of other places
	}
	return nil
}

// splittable says why work can't be moved between replicas, whatever their speed.
func (p *Planner) splittable() error {
	switch {
	case p.job.Layout.DP < 2:
		return errOneReplica
	case len(p.job.MicroBatches) != p.job.Layout.DP || slices.Min(p.job.MicroBatches) < 1:
		return errNoCounts
	case total(p.job.MicroBatches) > totalMost:
		return errTooMany
	}
	return nil
}

// curves is T_i(m) of every replica: from the cost model at the present places
// where there is one, else from the stages' self times alone, a stage being as
// slow as the slowest of its tensor-parallel ranks.
func (p *Planner) curves(speeds []float64, m *cost.Model) [][]float64 {
	l := p.job.Layout
	total := int(total(p.job.MicroBatches))
	most := min(total-(l.DP-1), max(curveCapTimes*((total+l.DP-1)/l.DP), int(slices.Max(p.job.MicroBatches))))
	if m != nil && len(p.job.Placement) == l.World() {
		return m.Curves(p.job.Placement, most)
	}
	out := make([][]float64, l.DP)
	for d := range out {
		self := make([]float64, l.PP)
		for s := range self {
			for t := range l.TP {
				self[s] = max(self[s], speeds[l.RankOf(falcon.Coord{TP: t, DP: d, PP: s})])
			}
		}
		out[d] = cost.Curve(cost.StagesFromSelf(self), most, 0)
	}
	return out
}

func toInts(v []int32) []int {
	out := make([]int, len(v))
	for i, x := range v {
		out[i] = int(x)
	}
	return out
}

func toInt32s(v []int) []int32 {
	out := make([]int32, len(v))
	for i, x := range v {
		out[i] = int32(x)
	}
	return out
}

func sum(v []int) int {
	t := 0
	for _, x := range v {
		t += x
	}
	return t
}
