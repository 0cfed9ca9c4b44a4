package sim

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/docs/proof/flow"
)

// flows is what a shape says beyond its rates when its transfers are played by
// package flow.
type flows struct {
	Ports     int     // of a node; 0 = one for each GPU
	LeafNodes int     // nodes under a leaf switch; 0 = all
	Oversub   float64 // of a leaf
	Buckets   int     // of gradients, reduced beside the backward pass
	Channels  int     // rings of a reduction
	Serial    bool    // reductions wait for the end of the backward pass
	Eager     bool    // messages between stages leave whether or not the receiver waits
	Chunks    int     // of a stage, interleaved; 0 = 1
	Inner     []flow.Inner
}

func (s Shape) fabric() flow.Fabric {
	return flow.Fabric{
		Nodes:     s.Nodes(),
		GPUs:      s.GPUsPerNode,
		Ports:     s.Flows.Ports,
		NVLink:    s.NVLinkMBs / 1000,
		Port:      s.NICMBs / 1000,
		LatencyMs: s.LatencyMs,
		LocalMs:   s.LatencyMs / 4,
		LeafNodes: s.Flows.LeafNodes,
		Oversub:   s.Flows.Oversub,
	}
}

func gpuOf(d falcon.Device) flow.GPU {
	node, err := strconv.Atoi(strings.TrimPrefix(string(d.Node()), "n"))
	if err != nil {
		panic(err)
	}
	return flow.GPU{Node: node, Index: d.Index()}
}

func (j *Job) disturbNetwork() {
	if j.network == nil {
		return
	}
	pairs := map[[2]int]float64{}
	for l, times := range j.link {
		a, b := gpuOf(falcon.NewDevice(l.A, 0)).Node, gpuOf(falcon.NewDevice(l.B, 0)).Node
		pairs[[2]int{min(a, b), max(a, b)}] = times
	}
	if !maps.Equal(pairs, j.drawn.pairs) {
		j.network.Disturb(pairs, nil)
		j.graph, j.drawn.pairs = nil, pairs
	}
}

// drawnFor is what a graph was made for.
type drawnFor struct {
	pairs     map[[2]int]float64
	split     []int32
	placement falcon.Placement
	slow      []float64
}

func (d drawnFor) equals(o drawnFor) bool {
	return slices.Equal(d.split, o.split) &&
		slices.Equal(d.placement, o.placement) &&
		slices.Equal(d.slow, o.slow)
}

// iteration is the present graph.
func (j *Job) iteration() *flow.Iteration {
	now := drawnFor{j.drawn.pairs, slices.Clone(j.Split), slices.Clone(j.Placement), slices.Clone(j.slow)}
	if j.graph != nil && j.drawn.equals(now) {
		return j.graph
	}
	l, f := j.Layout, j.Flows
	job := flow.Job{
		Lanes:    l.TP,
		Replicas: l.DP,
		Stages:   l.PP,
		Chunks:   f.Chunks,
		Rank: func(lane, replica, stage int) int {
			return int(l.RankOf(falcon.Coord{TP: lane, DP: replica, PP: stage}))
		},
		Slow:         now.slow,
		OptimizerMs:  j.StepMs,
		ActivationMB: j.ActivationMB,
		Buckets:      f.Buckets,
		Channels:     f.Channels,
		Serial:       f.Serial,
		Eager:        f.Eager,
		Inner:        f.Inner,
	}
	for _, d := range j.Placement {
		job.At = append(job.At, gpuOf(d))
	}
	for _, m := range j.Split {
		job.Split = append(job.Split, int(m))
	}
	for s := range l.PP {
		ms := j.StageMs
		if s == 0 || s == l.PP-1 {
			ms *= 1 + j.EndsExtra
		}
		job.ForwardMs = append(job.ForwardMs, ms*forwardShare)
		job.BackwardMs = append(job.BackwardMs, ms*(1-forwardShare))
		job.GradientMB = append(job.GradientMB, j.GradientMB)
	}
	j.graph, j.drawn = j.network.Iteration(job), now
	return j.graph
}

// playFlows runs one iteration by package flow.
func (j *Job) playFlows(record bool) played {
	p := j.iteration().Play(flow.Noise{Op: j.OpCoV, Rank: j.RankCoV, Job: j.JobCoV, Rng: j.rng}, record)
	j.next++
	out := played{ms: p.Ms, self: p.Self}
	for r, calls := range p.Calls {
		var list []sent
		for _, c := range calls {
			list = append(list, j.sentCall(falcon.Rank(r), c))
		}
		out.sent = append(out.sent, list)
	}
	return out
}

// sentCall is a call as the hook would have seen it.
func (j *Job) sentCall(r falcon.Rank, c flow.Call) sent {
	out := sent{
		comm:  j.comm(falcon.DimPP, r),
		op:    falcon.OpSend,
		peer:  -1,
		bytes: int64(c.MB * 1e6),
		start: c.Start,
		end:   c.End,
	}
	switch c.Kind {
	case flow.CallSum:
		out.comm, out.op = j.comm(falcon.DimDP, r), falcon.OpAllReduce
		return out
	case flow.CallReceive:
		out.op = falcon.OpRecv
	}
	out.peer = j.Layout.Coord(falcon.Rank(c.Peer)).PP
	return out
}

// paceMs is what an iteration takes, to scale faults by: without noise where
// transfers are flows, as each play is dear.
func (s Shape) paceMs(active []Fault, plays int) float64 {
	if s.Flows != nil {
		return s.plainMs(active, nil, nil)
	}
	return s.MeanMs(active, plays)
}

// plainMs is an iteration without noise with these faults, places and split.
func (s Shape) plainMs(active []Fault, p falcon.Placement, split []int32) float64 {
	j := NewJob(s, nil)
	j.Disturb(active)
	if p != nil {
		j.Move(p)
	}
	if split != nil {
		j.Split = split
	}
	return j.Play(false).ms
}
