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

var (
	errNoAdapter  = errors.New("the framework takes no orders: it has no adapter")
	errOneNode    = errors.New("the job runs on one node: there is no other place")
	errNoSwap     = errors.New("the present places can't be exchanged node by node for those")
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
	out.beforeMs, out.placement = pm.iterations.presentMs(s), t.Placement
	preview := t.Preview
	out.preview = &preview
	after := t.AfterMs
	if t.AfterSplitMs < t.AfterMs-pm.cfg.MinGain*out.beforeMs && pm.policy.maySplit() {
		after, out.counts = t.AfterSplitMs, slices.Clone(t.MicroBatches)
	}
	// The model's gain, as a difference or as a share, whichever promises less.
	out.predictedMs = max(out.beforeMs-(t.BeforeMs-after), out.beforeMs*after/t.BeforeMs)
	out.gainMs, out.modelError = out.beforeMs-out.predictedMs, modelError(t.BeforeMs, out.beforeMs)
	out.what = "exchanges " + swapText(t.Preview.Swaps)
	return pm.requireGain(out, "placement")
}

// withoutPrefix takes a package's prefix off an error that is shown to people.
func withoutPrefix(err error) error {
	return errors.New(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "topology: "), "cost: "))
}

func swapText(swaps [][2]falcon.Node) string {
	const most = 4
	var out []string
	for i, s := range swaps {
		if i == most {
			out = append(out, fmt.Sprintf("%d more pairs", len(swaps)-most))
			break
		}
		out = append(out, fmt.Sprintf("%s with %s", s[0], s[1]))
	}
	return strings.Join(out, ", ")
}

func (pm *planMaker) s3Applies(s *incidentState) error {
	if err := causeHelped(s, falcon.RungS3); err != nil {
		return err
	}
	switch {
	case len(pm.job.desc.Placement) != pm.job.desc.Layout.World() || pm.job.desc.Layout.World() == 0:
		return errNoPlacement
	case len(pm.job.desc.Placement.Nodes()) < 2:
		return errOneNode
	case !pm.job.desc.Adapter:
		return errNoAdapter
	}
	if err := pm.job.splittable(); err != nil && !errors.Is(err, errOneReplica) {
		return err
	}
	switch {
	case !s.measured || pm.profile.newest == nil:
		return errNoSpeeds
	case pm.profile.newest.model == nil:
		return withoutPrefix(pm.profile.newest.err)
	case len(pm.job.desc.MicroMultiple) > 0 && slices.Min(pm.job.desc.MicroMultiple) != slices.Max(pm.job.desc.MicroMultiple):
		return errMixedSteps
	}
	return nil
}

func (pm *planMaker) placementProblem(m cost.Model) topology.Problem {
	out := topology.Problem{
		Model: m, Now: pm.job.desc.Placement, MicroBatches: pm.job.desc.MicroBatches,
		StateMB: pm.job.desc.StateMB, CopyMBs: pm.job.desc.CopyMBs, MinGain: pm.cfg.MinGain,
	}
	b := pm.splitBounds()
	if b.Min != nil {
		out.Bounds.Min = converted[int32](b.Min)
	}
	if b.Max != nil {
		out.Bounds.Max = converted[int32](b.Max)
	}
	if !pm.policy.maySplit() { // a place that is good with another split only is no good
		out.Bounds.Min, out.Bounds.Max = pm.job.desc.MicroBatches, pm.job.desc.MicroBatches
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

// blocksTo is the order that brings the job from one placement to another over
// the same nodes: entry b is the block that the processes of block b take over.
func blocksTo(now, then falcon.Placement) ([]int32, error) {
	nodes := now.Nodes()
	if len(nodes) == 0 || len(now) != len(then) || len(now)%len(nodes) != 0 {
		return nil, errNoSwap
	}
	size := len(now) / len(nodes)
	at := map[falcon.Device]int{}
	for r, d := range then {
		at[d] = r
	}
	out := make([]int32, len(nodes))
	for b := range out {
		first, ok := at[now[b*size]]
		if !ok || first%size != 0 {
			return nil, errNoSwap
		}
		for i := range size {
			if r, ok := at[now[b*size+i]]; !ok || r != first+i || now[b*size+i].Node() != now[b*size].Node() {
				return nil, errNoSwap
			}
		}
		out[b] = int32(first / size) //#nosec G115 -- fewer blocks than ranks
	}
	return out, nil
}
