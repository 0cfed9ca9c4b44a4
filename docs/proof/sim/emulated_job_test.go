package sim

import (
	"math/rand/v2"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/docs/proof/flow"
)

// Shape is what a job is and how fast it is when all is well.
type Shape struct {
	Name        string
	Layout      falcon.Layout
	GPUsPerNode int
	Micro       int // micro-batches per replica

	StageMs      float64 // forward + backward of one micro-batch on one stage
	EndsExtra    float64 // share by which the first and the last stage take longer (embedding, loss)
	GradientMB   float64 // of one rank, reduced over its data-parallel group
	ActivationMB float64 // of one micro-batch, between stages
	NICMBs       float64 // of one GPU's port, 10⁶ B/s
	NVLinkMBs    float64 // between GPUs of one node
	LatencyMs    float64 // per message
	StepMs       float64 // optimizer

	OpCoV, RankCoV, JobCoV float64 // noise of one op, of a rank's iteration, of the job's

	Flows *flows // nil = transfers don't share links (pipeline and reduce in this package)
}

// Nodes is the number of nodes that the job takes.
func (s Shape) Nodes() int {
	return s.Layout.World() / s.GPUsPerNode
}

// home puts ranks in order: node after node.
func (s Shape) home() falcon.Placement {
	p := make(falcon.Placement, s.Layout.World())
	for r := range p {
		p[r] = falcon.NewDevice(nodeName(r/s.GPUsPerNode), r%s.GPUsPerNode)
	}
	return p
}

func (s Shape) even() []int32 {
	m := make([]int32, s.Layout.DP)
	for i := range m {
		m[i] = int32(s.Micro)
	}
	return m
}

// Job is one job under way: where its ranks are, how it is split, and what is
// slow. One goroutine owns it.
type Job struct {
	Shape
	Placement falcon.Placement
	Split     []int32 // micro-batches per replica

	device map[falcon.Device]float64 // times as slow; absent = 1
	link   map[falcon.Link]float64
	slow   []float64 // by rank, from device and Placement
	calls  map[callKey]uint64
	next   int64
	rng    *rand.Rand // nil = no noise

	network *flow.Network // of Shape.Flows
	graph   *flow.Iteration
	drawn   drawnFor
}

type callKey struct {
	rank falcon.Rank
	comm uint64
}

// NewJob is a healthy job with its ranks in order.
func NewJob(s Shape, rng *rand.Rand) *Job {
	j := &Job{
		Shape:     s,
		Placement: s.home(),
		Split:     s.even(),
		calls:     map[callKey]uint64{},
		rng:       rng,
	}
	if s.Flows != nil {
		j.network = s.fabric().Build()
	}
	j.Disturb(nil)
	return j
}

// Disturb makes exactly these faults the present ones; several on one device
// or link multiply.
func (j *Job) Disturb(active []Fault) {
	j.device, j.link = map[falcon.Device]float64{}, map[falcon.Link]float64{}
	for _, f := range active {
		if f.Device != "" {
			j.device[f.Device] = times(j.device[f.Device]) * f.Times
		} else {
			j.link[f.Link] = times(j.link[f.Link]) * f.Times
		}
	}
	j.disturbNetwork()
	j.placed()
}

// Move puts the ranks onto other devices.
func (j *Job) Move(p falcon.Placement) {
	j.Placement = slices.Clone(p)
	j.placed()
}

func (j *Job) placed() {
	j.slow = make([]float64, len(j.Placement))
	for r, d := range j.Placement {
		j.slow[r] = times(j.device[d])
	}
}

// times is a factor that 0 stands for 1 in.
func times(v float64) float64 {
	if v == 0 {
		return 1
	}
	return v
}

// noisy draws around ms; three deviations are the most.
func (j *Job) noisy(ms, cov float64) float64 {
	if j.rng == nil || cov == 0 {
		return ms
	}
	return ms * (1 + cov*max(-3, min(3, j.rng.NormFloat64())))
}

// played is one iteration: what it took, and what was computed and sent.
type played struct {
	ms   float64
	self []float64 // by rank: device time outside communication
	sent [][]sent  // by rank, in order; only when recorded
}

// sent is one communication call as the device saw it.
type sent struct {
	comm       uint64
	op         falcon.Op
	peer       int
	bytes      int64
	start, end float64
}

// Play runs one iteration; with record set, calls are kept for a profile.
func (j *Job) Play(record bool) played {
	if j.Flows != nil {
		return j.playFlows(record)
	}
	l := j.Layout
	out := played{self: make([]float64, l.World())}
	if record {
		out.sent = make([][]sent, l.World())
	}
	pace := j.noisy(1, j.JobCoV)
	ready := make([]float64, l.DP*l.PP) // by stage and replica: its backward passes are done
	for d := range l.DP {
		p := newPipeline(j, d, pace, &out)
		p.run()
		for s := range l.PP {
			ready[s*l.DP+d] = p.free[s]
		}
	}
	for s := range l.PP {
		end := j.reduce(s, ready[s*l.DP:(s+1)*l.DP], &out)
		out.ms = max(out.ms, end+j.noisy(j.StepMs, j.OpCoV))
	}
	j.next++
	return out
}

// edgeMs is one message between two ranks, by the link that joins their nodes.
func (j *Job) edgeMs(a, b falcon.Rank, mb float64) float64 {
	x, y := j.Placement[a].Node(), j.Placement[b].Node()
	if x == y {
		return mb/j.NVLinkMBs*1000 + j.LatencyMs
	}
	return mb/j.NICMBs*1000*times(j.link[falcon.NewLink(x, y)]) + j.LatencyMs
}

// reduce plays the ring all-reduce of one stage's gradients: in each of
// 2(k−1) steps every member passes a k-th of them on, once its own step before
// and its neighbour's are done. Tensor-parallel lanes run alike: one stands for
// all. It returns when the last member is done.
func (j *Job) reduce(stage int, ready []float64, out *played) float64 {
	l, k := j.Layout, len(ready)
	done := slices.Clone(ready)
	if k > 1 {
		edge := make([]float64, k) // from member i to the next
		for i := range edge {
			a := l.RankOf(falcon.Coord{DP: i, PP: stage})
			b := l.RankOf(falcon.Coord{DP: (i + 1) % k, PP: stage})
			edge[i] = j.edgeMs(a, b, j.GradientMB/float64(k))
		}
		next := make([]float64, k)
		for range 2 * (k - 1) {
			for i := range next {
				from := (i + k - 1) % k
				next[i] = max(done[i], done[from]) + j.noisy(edge[from], j.OpCoV)
			}
			done, next = next, done
		}
		if out.sent != nil {
			j.recordReduce(stage, ready, slices.Max(done), out)
		}
	}
	return slices.Max(done)
}

func (j *Job) recordReduce(stage int, ready []float64, end float64, out *played) {
	for i, start := range ready {
		for t := range j.Layout.TP {
			r := j.Layout.RankOf(falcon.Coord{TP: t, DP: i, PP: stage})
			out.sent[r] = append(out.sent[r], sent{
				comm:  j.comm(falcon.DimDP, r),
				op:    falcon.OpAllReduce,
				peer:  -1,
				bytes: int64(j.GradientMB * 1e6),
				start: start,
				end:   end,
			})
		}
	}
}

// MeanMs is the mean iteration under these faults, with the job's noise.
func (s Shape) MeanMs(active []Fault, plays int) float64 {
	j, sum := NewJob(s, rand.New(rand.NewPCG(calibrationSeed, 0))), 0.0
	j.Disturb(active)
	for range plays {
		sum += j.Play(false).ms
	}
	return sum / float64(plays)
}

// Plays and steps of a calibration.
const (
	calibrationSeed  = 1
	calibrationPlays = 60
	calibrationSteps = 8
)

// ScaledTo is the shape with StageMs such that a healthy iteration, its noise
// included, takes ms on average.
func (s Shape) ScaledTo(ms float64) Shape {
	for range calibrationSteps {
		s.StageMs += (ms - s.MeanMs(nil, calibrationPlays)) / float64(s.Micro+s.Layout.PP-1)
	}
	return s
}
