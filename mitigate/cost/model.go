package cost

import (
	"github.com/failslow/falcon"
)

// Links are what the network does. The healthy bandwidths are of one transfer
// alone, in 10⁶ bytes/s; 0 means that such transfers take no time. Links are
// not shared: two rings over one pair of nodes don't slow each other, as each
// GPU of a node commonly has a port of its own.
type Links struct {
	IntraMBs, InterMBs float64
	LatencyMs          float64                 // per message between nodes
	Ratio              map[falcon.Link]float64 // time over the healthy time; absent or below 1 = healthy
}

// TransferMs is what one message of so many 10⁶ bytes takes from node a to b.
func (l Links) TransferMs(a, b falcon.Node, megabytes float64) float64 {
	if !(megabytes > 0) {
		return 0
	}
	return megabytes*l.msPerMB(a, b) + l.latencyMs(a, b)
}

// msPerMB is ms per 10⁶ bytes.
func (l Links) msPerMB(a, b falcon.Node) float64 {
	switch {
	case a == b && l.IntraMBs > 0:
		return 1e3 / l.IntraMBs
	case a != b && l.InterMBs > 0:
		return 1e3 / l.InterMBs * l.ratioOf(a, b)
	}
	return 0
}

func (l Links) ratioOf(a, b falcon.Node) float64 {
	return AtLeastHealthy(l.Ratio[falcon.NewLink(a, b)])
}

// AtLeastHealthy is a factor: 1 where it is absent, less, or not a number.
func AtLeastHealthy(factor float64) float64 {
	if factor > 1 {
		return factor
	}
	return 1
}

func (l Links) latencyMs(a, b falcon.Node) float64 {
	if a == b {
		return 0
	}
	return l.LatencyMs
}

// Model is what a job's iteration is made of. Slices by stage have Layout.PP
// entries. Where CP or EP split the job, their ranks count into the
// data-parallel coordinate, as Layout says.
type Model struct {
	Layout falcon.Layout
	// by stage: healthy work per micro-batch, ms, what the first and last stage have beyond the
	// others included, and the time in tensor-parallel calls
	Work  []Stage
	Slow  map[falcon.Device]float64 // factor on a device's work; absent or below 1 = 1
	Links Links
	DPMB  []float64 // by stage: what one rank reduces per iteration, 10⁶ bytes
	PPMB  float64   // one activation (or gradient) per micro-batch and boundary, 10⁶ bytes
	// what one rank sends to its next per micro-batch, 10⁶ bytes: for traffic only,
	// its time is in Work
	TPMB   float64
	RestMs float64 // per iteration beyond all this: optimizer, world reduction, host
	Chunks int     // model chunks of a stage (interleaving), 0 means 1

	ErrorShare float64 // of a calibrated model: what it predicts for now over what was measured, − 1
}

// Prediction is what one iteration takes and where.
type Prediction struct {
	IterationMs float64   // PipelineMs + DPMs + RestMs
	PipelineMs  float64   // until the slowest replica's last stage is through
	DPMs        float64   // until the last gradients are summed, beyond that
	RestMs      float64   // Model.RestMs
	ReplicaMs   []float64 // by replica: its pipeline, and the sums that follow its stages' ends
	StageDPMs   []float64 // by stage: its slowest ring's sum
}

// Iteration predicts the iteration time of placement p (device by rank, World
// entries) with micro-batches by replica (DP entries).
func (m Model) Iteration(p falcon.Placement, micro []int32) Prediction {
	var u Simulator
	out := Prediction{
		RestMs:    m.RestMs,
		StageDPMs: m.StageDPMs(p),
		ReplicaMs: make([]float64, m.Layout.DP),
	}
	total := 0.0
	for d := range out.ReplicaMs {
		ends := u.Ends(nil, m.Replica(p, d), int(micro[d]))
		out.PipelineMs = max(out.PipelineMs, latestEnd(ends, nil))
		out.ReplicaMs[d] = latestEnd(ends, out.StageDPMs)
		total = max(total, out.ReplicaMs[d])
	}
	out.DPMs = total - out.PipelineMs
	out.IterationMs = total + m.RestMs
	return out
}

// Curves is T_i(k) for every replica i and k = 0..most micro-batches: its
// pipeline, and behind each stage's end that stage's gradient sum. The job's
// iteration is max_i T_i(m_i) + RestMs for any split, so that splits can be
// solved on the curves alone: max over stages and replicas of (end + sum) is
// the same in either order. T_i(0) is 0, and T_i never decreases. Replicas
// that are alike share one slice, which must not be written to.
func (m Model) Curves(p falcon.Placement, most int) [][]float64 {
	return m.CurvesBy(&Simulator{}, p, most)
}

// CurvesBy is Curves by a simulator that keeps its schedules from placement to placement.
func (m Model) CurvesBy(u *Simulator, p falcon.Placement, most int) [][]float64 {
	tail := m.StageDPMs(p)
	out := make([][]float64, m.Layout.DP)
	known := map[string]int{} // replicas that are alike are simulated once
	for d := range out {
		r := m.Replica(p, d)
		key := r.cacheKey()
		if same, ok := known[key]; ok {
			out[d] = out[same]
			continue
		}
		known[key] = d
		out[d] = u.Curve(r, tail, most)
	}
	return out
}

// Replica is the pipeline of replica d: each stage as slow as its slowest
// tensor-parallel rank, each boundary as its slowest pair of ranks.
func (m Model) Replica(p falcon.Placement, d int) Pipeline {
	out := Pipeline{Stages: make([]Stage, m.Layout.PP), Chunks: m.Chunks}
	for s := range out.Stages {
		factor := 1.0
		for t := range m.Layout.TP {
			factor = max(factor, AtLeastHealthy(m.Slow[p[m.rankOf(t, d, s)]]))
		}
		out.Stages[s] = m.Work[s].passTimes(factor)
	}
	if m.Layout.PP == 1 {
		return out
	}
	out.HopMs = make([]float64, m.boundaries())
	for b := range out.HopMs {
		for t := range m.Layout.TP {
			from := p[m.rankOf(t, d, b)].Node()
			to := p[m.rankOf(t, d, (b+1)%m.Layout.PP)].Node()
			out.HopMs[b] = max(out.HopMs[b], m.Links.TransferMs(from, to, m.PPMB))
		}
	}
	return out
}

// boundaries is the number of places where messages pass from stage to stage.
func (m Model) boundaries() int {
	if m.Chunks > 1 {
		return m.Layout.PP
	}
	return m.Layout.PP - 1
}

func (m Model) rankOf(t, d, s int) falcon.Rank {
	return m.Layout.RankOf(falcon.Coord{TP: t, DP: d, PP: s})
}

// StageDPMs is, by stage, what its slowest data-parallel ring takes to sum the
// gradients: see RingMs.
func (m Model) StageDPMs(p falcon.Placement) []float64 {
	out := make([]float64, m.Layout.PP)
	nodes := make([]falcon.Node, m.Layout.DP)
	for s := range out {
		for t := range m.Layout.TP {
			for d := range nodes {
				nodes[d] = p[m.rankOf(t, d, s)].Node()
			}
			out[s] = max(out[s], m.Links.RingMs(nodes, m.DPMB[s]))
		}
	}
	return out
}

// RingMs is a ring all-reduce of so many 10⁶ bytes over k = len(nodes) ranks,
// in their order: 2(k−1) steps of 1/k of the payload, each as slow as the
// slowest edge of the ring (Thakur et al. 2005, §4.4). A reduce-scatter and an
// all-gather of the same payload take as long together.
func (l Links) RingMs(nodes []falcon.Node, megabytes float64) float64 {
	k := len(nodes)
	if k < 2 || !(megabytes > 0) {
		return 0
	}
	worst, latency := 0.0, 0.0
	for i, a := range nodes {
		b := nodes[(i+1)%k]
		worst = max(worst, l.msPerMB(a, b))
		latency = max(latency, l.latencyMs(a, b))
	}
	return RingSteps(k)*(megabytes*worst/float64(k)) + RingSteps(k)*latency
}

// RingSteps is 2(k−1), the steps of a ring all-reduce over k ranks.
func RingSteps(k int) float64 {
	return float64(2 * (k - 1))
}
