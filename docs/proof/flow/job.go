package flow

import (
	"math/rand/v2"
)

// Job is a hybrid-parallel training job: Replicas of Stages of Lanes. A lane is one
// of the ranks that compute a micro-batch of a stage together (tensor, context or
// expert parallel).
type Job struct {
	Lanes, Replicas, Stages int
	Chunks                  int                                // of the model on a stage, interleaved; 0 = 1
	Rank                    func(lane, replica, stage int) int // the rank with these coordinates

	At    []GPU     // by rank
	Slow  []float64 // by rank: its computation takes so many times as long; nil or 0 = 1
	Split []int     // by replica: micro-batches; multiples of Stages where Chunks > 1

	ForwardMs, BackwardMs []float64 // by stage: one micro-batch, all chunks
	OptimizerMs           float64

	ActivationMB float64   // of one lane and micro-batch, between stages
	GradientMB   []float64 // by stage: of one rank
	Buckets      int       // parts in which gradients are reduced; 0 = 1
	Channels     int       // of a reduction
	Tree         bool      // reductions by trees
	Serial       bool      // reductions wait until a rank's last backward pass is over
	Eager        bool      // messages leave whether or not the receiver waits for them

	Inner []Inner // communication among lanes, in every pass
}

// Inner is communication among the lanes of one stage of one replica.
type Inner struct {
	Stride, Size int // groups of Size lanes, Stride apart
	// of one lane, micro-batch and pass: the forward pass has so much, the backward pass too
	MB       float64
	Exchange bool // an all-to-all (experts), otherwise a ring
	Beside   bool // beside the computation (context parallel), otherwise after it (tensor parallel)
}

// Noise is how much durations vary: relative standard deviations of one
// operation, of a rank's iteration and of the job's. Draws beyond three
// deviations are cut. A nil Rng is none.
type Noise struct {
	Op, Rank, Job float64
	Rng           *rand.Rand
}

func (n Noise) draw(deviation float64) float64 {
	if n.Rng == nil || deviation == 0 {
		return 1
	}
	return 1 + deviation*max(-3, min(3, n.Rng.NormFloat64()))
}

// Iteration is a job's graph on a network, made once and played often.
type Iteration struct {
	job      Job
	net      *Network
	graph    Graph
	passes   []passOp
	messages []messageOp
	sums     []sumOp
	rests    []Op
}

// passOp is a computation that is part of a pass.
type passOp struct {
	op   Op
	rank int
	ms   float64
}

// messageOp is a message between stages: made is the end of the pass that makes
// it, posted the receiver's end of what it does before.
type messageOp struct {
	op, made, posted Op
	hasPosted        bool
	from, to         int // ranks
}

// sumOp is one bucket's reduction.
type sumOp struct {
	op, before Op // before: the bucket before it
	hasBefore  bool
	ranks      []int
	ready      []Op // by rank of ranks
	mb         float64
}

// Kinds of calls.
const (
	CallSend = iota
	CallReceive
	CallSum
)

// Call is one communication of a rank as its device sees it: from when its part
// of it begins to wait until it is over.
type Call struct {
	Kind       int
	Peer       int // rank, of a message
	MB         float64
	Start, End float64
}

// Played is what one iteration took.
type Played struct {
	Ms    float64
	Self  []float64 // by rank: computation
	Calls [][]Call  // by rank, as they begin; on request
}

// Play runs one iteration. Where record is set, calls are listed.
func (it *Iteration) Play(noise Noise, record bool) Played {
	j := it.job
	out := Played{Self: make([]float64, len(j.At))}
	pace := make([]float64, len(j.At))
	all := noise.draw(noise.Job)
	for r := range pace {
		pace[r] = all * noise.draw(noise.Rank) * j.slowOf(r)
	}
	for _, p := range it.passes {
		ms := p.ms * pace[p.rank] * noise.draw(noise.Op)
		it.graph.SetMs(p.op, ms)
		out.Self[p.rank] += ms
	}
	for _, op := range it.rests {
		it.graph.SetMs(op, j.OptimizerMs*noise.draw(noise.Op))
	}
	times := it.graph.Run(it.net.Capacity)
	out.Ms = times.Last
	if record {
		out.Calls = it.calls(times)
	}
	return out
}

func (j Job) slowOf(rank int) float64 {
	if j.Slow == nil {
		return 1
	}
	return orOne(j.Slow[rank])
}

// Ms is what an iteration takes without noise.
func (it *Iteration) Ms() float64 {
	return it.Play(Noise{}, false).Ms
}
