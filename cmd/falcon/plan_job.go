package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
	"github.com/failslow/falcon/mitigate/topology"
	"github.com/failslow/falcon/tui/clean"
)

// solverProblem is the job that the input describes.
func (in *topologyProblem) solverProblem() (topology.Problem, error) {
	if err := in.checkShape(); err != nil {
		return topology.Problem{}, err
	}
	place, err := in.placementOf()
	if err != nil {
		return topology.Problem{}, err
	}
	micro, err := in.microBatchCounts()
	if err != nil {
		return topology.Problem{}, err
	}
	for name, v := range map[string]float64{
		"inter_gbps":  in.InterGbps,
		"intra_gbps":  in.IntraGbps,
		"latency_ms":  in.LatencyMs,
		"rest_ms":     in.RestMs,
		"state_mb":    in.StateMB,
		"min_gain":    in.MinGain,
		"model.dp_mb": in.Model.DPMB,
		"model.pp_mb": in.Model.PPMB,
		"model.tp_mb": in.Model.TPMB,
	} {
		if !validQuantity(v) {
			return topology.Problem{}, fmt.Errorf("%s is %v; give a number that is not negative", name, v)
		}
	}
	m := cost.Model{
		Layout: *in.Layout,
		RestMs: in.RestMs,
		PPMB:   in.Model.PPMB,
		TPMB:   in.Model.TPMB,
	}
	for range in.Layout.PP {
		m.DPMB = append(m.DPMB, in.Model.DPMB)
	}
	if m.Links, err = in.linkBandwidths(); err != nil {
		return topology.Problem{}, err
	}
	if err = in.splitStageWork(place, &m); err != nil {
		return topology.Problem{}, err
	}
	state := in.StateMB
	if state == 0 {
		state = in.Model.DPMB
	}
	return topology.Problem{
		Model:        m,
		Now:          place,
		MicroBatches: micro,
		MinGain:      in.MinGain,
		StateMB:      slices.Repeat([]float64{state}, len(place)),
	}, nil
}

// most is the largest number that a time, a size or a bandwidth may be.
const planNumberMost = 1e12

func validQuantity(v float64) bool { return v >= 0 && v <= planNumberMost }

func (in *topologyProblem) checkShape() error {
	l := *in.Layout
	if err := l.Validate(); err != nil {
		return err
	}
	if l.TP > planRanksMost ||
		l.DP > planRanksMost ||
		l.PP > planRanksMost ||
		l.TP*l.DP > planRanksMost ||
		l.World() > planRanksMost {
		return fmt.Errorf("the layout has over %d ranks, which is the limit", planRanksMost)
	}
	in.known = map[falcon.Node]bool{}
	for _, n := range in.Nodes {
		if n == "" || in.known[n] {
			return fmt.Errorf("node %q is empty or named twice in nodes", clean.String(string(n)))
		}
		in.known[n] = true
	}
	g := in.GPUsPerNode
	if g < 1 || g > planRanksMost || g*len(in.Nodes) < l.World() {
		return fmt.Errorf("%d nodes of %d GPUs hold no job of %d ranks; give nodes and gpus_per_node",
			len(in.Nodes), g, l.World())
	}
	return nil
}

// placementOf is the device of every rank, each on a node of the job.
func (in *topologyProblem) placementOf() (falcon.Placement, error) {
	world := in.Layout.World()
	if len(in.Placement) == 0 {
		out := make(falcon.Placement, world)
		for r := range out {
			out[r] = falcon.NewDevice(in.Nodes[r/in.GPUsPerNode], r%in.GPUsPerNode)
		}
		return out, nil
	}
	if len(in.Placement) != world {
		return nil, fmt.Errorf("placement has %d devices for %d ranks", len(in.Placement), world)
	}
	taken := map[falcon.Device]int{}
	for r, d := range in.Placement {
		if _, err := falcon.ParseDevice(string(d)); err != nil {
			return nil, fmt.Errorf("placement[%d]: %w", r, err)
		}
		if !in.known[d.Node()] || d.Index() >= in.GPUsPerNode {
			return nil, fmt.Errorf("placement[%d]: %q is no GPU of the nodes given", r, d)
		}
		if other, twice := taken[d]; twice {
			return nil, fmt.Errorf("placement puts ranks %d and %d onto %q", other, r, d)
		}
		taken[d] = r
	}
	return in.Placement, nil
}

// microBatchCounts is micro-batches by replica, from a number for each or a list.
func (in *topologyProblem) microBatchCounts() ([]int32, error) {
	var each int32
	if json.Unmarshal(in.MicroBatches, &each) == nil && each > 0 {
		return slices.Repeat([]int32{each}, in.Layout.DP), nil
	}
	var list []int32
	if json.Unmarshal(in.MicroBatches, &list) != nil || len(list) != in.Layout.DP {
		return nil, fmt.Errorf("micro_batches must be a positive number for each replica, or a list of %d",
			in.Layout.DP)
	}
	return list, nil
}

// linkBandwidths are the bandwidths given: the fastest is what the others are compared
// with.
func (in *topologyProblem) linkBandwidths() (cost.Links, error) {
	const mbPerGbit = 125
	out := cost.Links{
		LatencyMs: in.LatencyMs,
		IntraMBs:  in.IntraGbps * mbPerGbit,
		Ratio:     map[falcon.Link]float64{},
	}
	best := in.InterGbps
	links := map[falcon.Link]float64{}
	for name, gbps := range in.Bandwidth {
		l, err := in.linkByName(name)
		switch {
		case err != nil:
			return out, err
		case !(gbps > 0) || !validQuantity(gbps):
			return out, fmt.Errorf("bandwidth_gbps of %s is %v; give a positive number", l, gbps)
		}
		links[l] = gbps
		best = max(best, gbps)
	}
	out.InterMBs = best * mbPerGbit
	for l, gbps := range links {
		if gbps < best {
			out.Ratio[l] = best / gbps
		}
	}
	return out, nil
}

// linkByName finds the two nodes of a name: a dash may be part of a node's own name.
func (in *topologyProblem) linkByName(name string) (falcon.Link, error) {
	for i, c := range name {
		a := falcon.Node(name[:i])
		b := falcon.Node(name[min(i+1, len(name)):])
		if c == '-' && a != b && in.known[a] && in.known[b] {
			return falcon.NewLink(a, b), nil
		}
	}
	return falcon.Link{}, fmt.Errorf(
		"bandwidth_gbps names %q, which is not two different nodes of the job joined by a dash",
		clean.String(name),
	)
}

// splitStageWork splits the devices' times into the stages' healthy work and what makes
// a device slow.
func (in *topologyProblem) splitStageWork(place falcon.Placement, m *cost.Model) error {
	if len(in.StageMs) != 0 && len(in.StageMs) != in.Layout.PP {
		return fmt.Errorf("stage_ms has %d times for %d stages", len(in.StageMs), in.Layout.PP)
	}
	known := map[falcon.Device]bool{}
	for _, d := range place {
		known[d] = true
	}
	for name, ms := range in.SelfMs {
		switch {
		case !known[falcon.Device(name)]:
			return fmt.Errorf("self_ms names %q, which holds no rank", clean.String(name))
		case !(ms > 0) || !validQuantity(ms):
			return fmt.Errorf("self_ms of %s is %v; give a positive time", clean.String(name), ms)
		}
	}
	m.Slow = map[falcon.Device]float64{}
	self := make([]float64, in.Layout.PP)
	for s := range self {
		ms, err := in.healthyStageTime(place, s)
		if err != nil {
			return err
		}
		self[s] = ms
		n := in.Layout.TP * in.Layout.DP
		for _, d := range place[s*n : (s+1)*n] {
			if f := in.SelfMs[string(d)] / ms; f > 1 {
				m.Slow[d] = f
			}
		}
	}
	m.Work = cost.StagesFromSelf(self)
	return nil
}

// healthyStageTime is a stage's own time: the lower quartile of its devices, so that
// up to three quarters of them may be slow.
func (in *topologyProblem) healthyStageTime(place falcon.Placement, stage int) (float64, error) {
	if len(in.StageMs) > 0 {
		if ms := in.StageMs[stage]; !(ms > 0) || !validQuantity(ms) {
			return 0, fmt.Errorf("stage_ms[%d] is %v; give a positive time", stage, ms)
		}
		return in.StageMs[stage], nil
	}
	var times []float64
	n := in.Layout.TP * in.Layout.DP
	for _, d := range place[stage*n : (stage+1)*n] {
		if ms, ok := in.SelfMs[string(d)]; ok {
			times = append(times, ms)
		}
	}
	if len(times) == 0 {
		for _, ms := range in.SelfMs {
			times = append(times, ms)
		}
	}
	if len(times) == 0 {
		return 0, errors.New(
			"self_ms is missing: give the time of one micro-batch, forward and backward, by device",
		)
	}
	slices.Sort(times)
	return times[int(math.Floor(float64(len(times)-1)/4))], nil
}
