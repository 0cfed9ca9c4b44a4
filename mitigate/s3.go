package mitigate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
	"github.com/failslow/falcon/mitigate/topology"
)

// stateTimes is a rank's state over what it reduces, where the job does not
// say: parameters and two moments beside gradients of the same width.
const stateTimes = 3

// betterThanHealthy is the share of the healthy iteration time that a placement is taken to reach
// at best: a model that promises more has a fault wrong.
const betterThanHealthy = 0.97

var (
	errOneNode = errors.New("the job runs on one node: there is no other place")
	errNoSwap  = errors.New(
		"the present places can't be exchanged for those, neither by nodes nor by tensor-parallel groups",
	)
	errMixedSteps = errors.New("the replicas' micro-batches have different multiples")
)

// planS3 prices the best placement, with the split that suits it where that is
// what makes it worth while, or returns why there is none.
func (pm *planMaker) planS3(s *incidentState) (plan, error) {
	out := plan{rung: falcon.RungS3, what: "exchanges nodes' places so that slow parts hurt least"}
	if err := pm.s3Applies(s); err != nil {
		return out, err
	}
	w := pm.cache.solveOnce("S3", func() solution {
		found, err := topology.Search(pm.placementProblem(*pm.profile.newest.model))
		return solution{place: found, err: err}
	})
	if w.err != nil {
		return out, withoutPrefix(w.err)
	}
	t := w.place
	out.beforeMs = pm.iterations.presentMs(s)
	out.placement = t.Placement
	preview := t.Preview
	out.preview = &preview
	after := t.AfterMs
	if t.AfterSplitMs < t.AfterMs-pm.cfg.MinGain*out.beforeMs && pm.policy.maySplit() {
		after = t.AfterSplitMs
		out.counts = slices.Clone(t.MicroBatches)
	}
	// The model's gain, as a difference or as a share, whichever promises less.
	// No places make the job much faster than it was in its own when all was well.
	out.predictedMs = max(
		out.beforeMs-(t.BeforeMs-after),
		out.beforeMs*after/t.BeforeMs,
		betterThanHealthy*s.incident.HealthyMs,
	)
	out.gainMs = out.beforeMs - out.predictedMs
	out.modelError = modelError(t.BeforeMs, out.beforeMs)
	out.what = "exchanges " + exchangeText(t.Preview)
	return pm.requireGain(out, "placement")
}

// withoutPrefix takes a package's prefix off an error that is shown to people.
func withoutPrefix(err error) error {
	return errors.New(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "topology: "), "cost: "))
}

// exchangeText says who changes places.
func exchangeText(v falcon.Preview) string {
	const most = 4
	var out []string
	for _, s := range v.Swaps {
		out = append(out, fmt.Sprintf("%s with %s", s[0], s[1]))
	}
	for _, s := range v.Groups {
		out = append(out, fmt.Sprintf("the ranks on %s with those on %s", s[0], s[1]))
	}
	if n := len(out) - most; n > 0 {
		out = append(out[:most], fmt.Sprintf("%d more pairs", n))
	}
	return strings.Join(out, ", ")
}

func (pm *planMaker) s3Applies(s *incidentState) error {
	if err := causeHelped(s, falcon.RungS3); err != nil {
		return err
	}
	switch {
	case len(pm.job.desc.Placement) != pm.job.desc.Layout.World() ||
		pm.job.desc.Layout.World() == 0:
		return errNoPlacement
	case len(pm.job.desc.Placement.Nodes()) < 2:
		return errOneNode
	case !pm.job.desc.Can.Place:
		return pm.job.withoutLeave(errCantPlace)
	}
	if err := pm.job.splittable(); err != nil && !errors.Is(err, errOneReplica) {
		return err
	}
	switch {
	case !s.measured || pm.profile.newest == nil:
		return errNoSpeeds
	case pm.profile.newest.model == nil:
		return withoutPrefix(pm.profile.newest.err)
	case len(pm.job.desc.MicroMultiple) > 0 &&
		slices.Min(pm.job.desc.MicroMultiple) != slices.Max(pm.job.desc.MicroMultiple):
		return errMixedSteps
	}
	return nil
}

func (pm *planMaker) placementProblem(m cost.Model) topology.Problem {
	out := topology.Problem{
		Model:        m,
		Now:          pm.job.desc.Placement,
		MicroBatches: pm.job.desc.MicroBatches,
		StateMB:      pm.job.desc.StateMB,
		CopyMBs:      pm.job.desc.CopyMBs,
		MinGain:      pm.cfg.MinGain,
	}
	b := pm.splitBounds()
	if b.Min != nil {
		out.Bounds.Min = converted[int32](b.Min)
	}
	if b.Max != nil {
		out.Bounds.Max = converted[int32](b.Max)
	}
	if !pm.policy.maySplit() { // a place that is good with another split only is no good
		out.Bounds.Min = pm.job.desc.MicroBatches
		out.Bounds.Max = pm.job.desc.MicroBatches
	}
	if len(b.MultipleOf) > 0 {
		out.Bounds.Multiple = int32(b.MultipleOf[0]) //#nosec G115 -- it came as an int32
	}
	if len(out.StateMB) != m.Layout.World() {
		out.StateMB = make([]float64, m.Layout.World())
		for r := range out.StateMB {
			out.StateMB[r] = stateTimes * m.DPMB[m.Layout.Coord(falcon.Rank(r)).PP]
		}
	}
	return out
}

// blocksTo is the order that brings the job from one placement to another over the same
// devices: entry b is the block that the processes of block b take over. Blocks are nodes
// where whole nodes change places, else tensor-parallel groups.
func blocksTo(now, then falcon.Placement, group int) ([]int32, error) {
	nodes := now.Nodes()
	if len(nodes) == 0 ||
		len(now) != len(then) ||
		group < 1 ||
		len(now)%group != 0 {
		return nil, errNoSwap
	}
	if len(now)%len(nodes) == 0 {
		if out := blocksOf(now, then, len(now)/len(nodes)); out != nil {
			return out, nil
		}
	}
	if out := blocksOf(now, then, group); out != nil && len(out) <= blocksMost {
		return out, nil
	}
	return nil, errNoSwap
}

// blocksMost is how many blocks an order holds (falcon_shm.h).
const blocksMost = 1024

// blocksOf is blocksTo in blocks of one size, nil where they are torn apart or span nodes.
func blocksOf(now, then falcon.Placement, size int) []int32 {
	at := make(map[falcon.Device]int, len(then))
	for r, d := range then {
		at[d] = r
	}
	out := make([]int32, len(now)/size)
	for b := range out {
		first, ok := at[now[b*size]]
		if !ok || first%size != 0 {
			return nil
		}
		for i := range size {
			r, ok := at[now[b*size+i]]
			if !ok || r != first+i || now[b*size+i].Node() != now[b*size].Node() {
				return nil
			}
		}
		out[b] = int32(first / size) //#nosec G115 -- fewer blocks than ranks
	}
	return out
}
