package period

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/failslow/falcon"
)

// writer writes the calls of one rank with the times between them, as a framework makes them.
type writer struct {
	job
	noise float64
}

// Operations, as the hook reports them.
const (
	reduceOp, scatterOp, gatherOp, castOp, exchangeOp = uint32(
		falcon.OpAllReduce,
	), uint32(falcon.OpReduceScatter),
		uint32(falcon.OpAllGather), uint32(falcon.OpBroadcast), uint32(falcon.OpAlltoAll)
)

// work passes ms, less or more by the noise.
func (w *writer) work(ms float64) {
	w.at += int64(max(ms*1e6*(1+w.noise*w.rng.NormFloat64()), 1e3))
}

func (w *writer) do(op uint32, comm uint64, bytes ...int64) {
	for _, n := range bytes {
		w.calls = append(w.calls, Call{
			Op:      op,
			Comm:    comm,
			Bytes:   n,
			TimeNs:  w.at,
			Ordinal: w.next[comm],
		})
		w.next[comm]++
		w.at += 2e4
	}
}

// end notes that an optimizer step has ended.
func (w *writer) end() {
	w.ends = append(w.ends, w.at)
	w.at += 1e3
}

// loss is the extra of a script that logs a number each n-th step.
func (w *writer) loss(k, n int) {
	if (k+1)%n == 0 {
		w.do(reduceOp, world, 4)
	}
}

// buckets are a backward pass of DistributedDataParallel.
func (w *writer) buckets(comm uint64, sizes ...int64) {
	for _, n := range sizes {
		w.work(12)
		w.do(reduceOp, comm, n)
	}
}

var threeBuckets = []int64{1 << 20, 26<<20 + 4096, 17 << 20}

// ddp is a step of a data-parallel job: forward, backward, optimizer.
func (w *writer) ddp(buckets ...int64) {
	w.work(30)
	w.buckets(world, buckets...)
	w.work(9)
	w.end()
}

// fsdp is a pass of FullyShardedDataParallel forth and back.
func (w *writer) fsdp() {
	for range 4 {
		w.work(5)
		w.do(gatherOp, data, 6<<20)
	}
	for range 4 {
		w.do(gatherOp, data, 6<<20)
		w.work(10)
		w.do(scatterOp, data, 48<<20)
	}
}

// layers are the reductions of activations of one pass over tensor-parallel layers.
func (w *writer) layers(comm uint64) {
	for range 8 {
		w.work(3)
		w.do(reduceOp, comm, 8<<20)
	}
}

// pattern is a rank's part in one iteration of a job, the k-th.
type pattern struct {
	name  string
	step  func(w *writer, k int)
	calls int // of an iteration as the user counts it
}

// extras are patterns in which something small comes at every n-th optimizer step.
var extras = []pattern{
	{
		name:  "DDP, a loss every 10th step",
		calls: 3,
		step: func(w *writer, k int) {
			w.ddp(threeBuckets...)
			w.loss(k, 10)
		},
	},
	{
		name:  "DDP, one bucket, a loss every 10th step",
		calls: 1,
		step: func(w *writer, k int) {
			w.ddp(40 << 20)
			w.loss(k, 10)
		},
	},
	{
		name:  "DDP, one small bucket, a loss every 10th step",
		calls: 1,
		step: func(w *writer, k int) {
			w.ddp(40 << 10)
			w.loss(k, 10)
		},
	},
	{
		name:  "DDP, buckets of one size class, a loss every 10th step",
		calls: 3,
		step: func(w *writer, k int) {
			w.ddp(26<<20, 25<<20, 27<<20)
			w.loss(k, 10)
		},
	},
	{
		name:  "DDP, a loss every 4th step",
		calls: 3,
		step: func(w *writer, k int) {
			w.ddp(threeBuckets...)
			w.loss(k, 4)
		},
	},
	{
		name:  "DDP, a loss every 50th step",
		calls: 3,
		step: func(w *writer, k int) {
			w.ddp(threeBuckets...)
			w.loss(k, 50)
		},
	},
	{
		name:  "DDP, a loss at step 0 and every 10th",
		calls: 3,
		step: func(w *writer, k int) {
			w.ddp(threeBuckets...)
			w.loss(k+9, 10)
		},
	},
	{
		name:  "DDP, loss and accuracy every 10th step",
		calls: 3,
		step: func(w *writer, k int) {
			w.ddp(threeBuckets...)
			w.loss(k, 10)
			w.loss(k, 10)
		},
	},
	{
		name:  "DDP, losses gathered as objects every 10th step",
		calls: 3,
		step: func(w *writer, k int) {
			w.ddp(threeBuckets...)
			if (k+1)%10 == 0 {
				w.do(gatherOp, world, 8, 512)
			}
		},
	},
	{
		name:  "DDP, a loss every 10th step, a barrier of a checkpoint every 40th",
		calls: 3,
		step: func(w *writer, k int) {
			w.ddp(threeBuckets...)
			w.loss(k, 10)
			if (k+1)%40 == 0 {
				w.work(900)
				w.loss(k, 40)
			}
		},
	},
	{
		name:  "DDP, an evaluation of four steps' time every 30th step",
		calls: 3,
		step: func(w *writer, k int) {
			w.ddp(threeBuckets...)
			if (k+1)%30 == 0 {
				w.work(300)
				w.loss(k, 30)
			}
		},
	},
	{
		name:  "DDP, losses every 10th and every 25th step",
		calls: 3,
		step: func(w *writer, k int) {
			w.ddp(threeBuckets...)
			w.loss(k, 10)
			w.loss(k, 25)
		},
	},
	{
		name:  "DDP, the host waits for the loss of every 10th step",
		calls: 3,
		step: func(w *writer, k int) {
			// The host is 40 ms ahead of the device, until it waits for a loss. It is ahead
			// again in the next step.
			if k%10 == 0 && k > 0 {
				w.at -= 40e6
			}
			w.ddp(threeBuckets...)
			if (k+1)%10 == 0 {
				w.do(reduceOp, world, 4)
				w.at += 40e6
			}
		},
	},
	{
		name:  "DDP with accumulation, gradients reduced at the step, a loss every 10th step",
		calls: 3,
		step: func(w *writer, k int) {
			for range 7 {
				w.work(60)
			}
			w.ddp(threeBuckets...)
			w.loss(k, 10)
		},
	},
	{
		name:  "DDP, batch statistics in each forward pass, a loss every 10th step",
		calls: 15,
		step: func(w *writer, k int) {
			for range 6 {
				w.work(4)
				w.do(gatherOp, world, 2048+16)
			}
			w.work(6)
			for _, n := range threeBuckets {
				w.work(6)
				w.do(reduceOp, world, 1024, 1024, n)
			}
			w.work(9)
			w.end()
			w.loss(k, 10)
		},
	},
	{
		name:  "FSDP that clips, a loss over other communicators every 10th step",
		calls: 13,
		step: func(w *writer, k int) {
			w.fsdp()
			w.do(reduceOp, data, 4)
			w.work(4)
			w.end()
			if (k+1)%10 == 0 {
				w.do(reduceOp, world, 4, 4)
			}
		},
	},
	{
		name:  "FSDP that clips, a loss every 10th step",
		calls: 13,
		step: func(w *writer, k int) {
			w.fsdp()
			w.do(reduceOp, data, 4)
			w.work(4)
			w.end()
			if (k+1)%10 == 0 {
				w.do(reduceOp, data, 4, 8)
			}
		},
	},
	{
		name:  "Megatron with a distributed optimizer, statistics of experts every 10th step",
		calls: 8*16 + 4,
		step: func(w *writer, k int) {
			for range 8 {
				w.layers(tensor)
				w.layers(tensor)
			}
			w.do(scatterOp, data, 400<<20)
			w.do(reduceOp, world, 4, 4)
			w.work(6)
			w.do(gatherOp, data, 50<<20)
			w.end()
			if (k+1)%10 == 0 {
				w.do(reduceOp, pipe, 2048)
				w.do(castOp, data, 64)
			}
		},
	},
	{
		name:  "tensor parallel with votes, a loss every 5th step",
		calls: 34,
		step: func(w *writer, k int) {
			w.layers(tensor)
			w.layers(tensor)
			w.layers(tensor)
			w.layers(tensor)
			w.do(reduceOp, world, 8, 8)
			w.work(9)
			w.end()
			w.loss(k, 5)
		},
	},
	{
		name:  "data and tensor parallel, a loss every 10th step",
		calls: 18,
		step: func(w *writer, k int) {
			w.layers(tensor)
			w.layers(tensor)
			w.work(3)
			w.do(reduceOp, data, 30<<20, 41<<20)
			w.work(12)
			w.end()
			if (k+1)%10 == 0 {
				w.do(reduceOp, data, 4)
			}
		},
	},
	{
		name:  "DDP, a loss after 7 to 13 steps, by the clock",
		calls: 3,
		step: func(w *writer, k int) {
			w.ddp(threeBuckets...)
			if k%20 == 6 || k%20 == 19 {
				w.do(reduceOp, world, 4)
			}
		},
	},
	{
		name:  "DDP, noisy, a loss every 10th step",
		calls: 3,
		step: func(w *writer, k int) {
			w.noise = 0.05
			w.ddp(threeBuckets...)
			w.loss(k, 10)
		},
	},
}

// accumulations are patterns in which a step has micro-batches: each looks like a step, and what
// comes behind the last of them like an extra.
var accumulations = []pattern{
	{
		name:  "DDP that reduces in each of 10 micro-batches, a loss with each step",
		calls: 31,
		step: func(w *writer, _ int) {
			for range 10 {
				w.work(30)
				w.buckets(world, threeBuckets...)
			}
			w.work(12)
			w.do(reduceOp, world, 4)
			w.end()
		},
	},
	{
		name:  "DDP, one bucket in each of 8 micro-batches, a loss with each step",
		calls: 9,
		step: func(w *writer, _ int) {
			for range 8 {
				w.work(60)
				w.do(reduceOp, world, 40<<20)
			}
			w.work(12)
			w.do(reduceOp, world, 4)
			w.end()
		},
	},
	{
		name:  "DDP, micro-batches, a large optimizer on the host",
		calls: 31,
		step: func(w *writer, _ int) {
			for range 10 {
				w.work(30)
				w.buckets(world, threeBuckets...)
			}
			w.work(400)
			w.do(reduceOp, world, 4)
			w.end()
		},
	},
	{
		name:  "DDP without synchronisation in 7 of 8 micro-batches",
		calls: 3,
		step: func(w *writer, _ int) {
			w.work(7 * 50)
			w.ddp(threeBuckets...)
		},
	},
	{
		name:  "FSDP, 8 micro-batches, the norm with each step",
		calls: 8*12 + 1,
		step: func(w *writer, _ int) {
			for range 8 {
				w.fsdp()
			}
			w.do(reduceOp, data, 4)
			w.work(3)
			w.end()
		},
	},
	{
		name:  "FSDP, 8 micro-batches, the norm over other communicators",
		calls: 8*12 + 2,
		step: func(w *writer, _ int) {
			for range 8 {
				w.fsdp()
			}
			w.do(reduceOp, world, 4, 4)
			w.work(3)
			w.end()
		},
	},
	{
		name:  "hybrid sharding, 6 micro-batches, the norm with each step",
		calls: 6*14 + 1,
		step: func(w *writer, _ int) {
			for range 6 {
				w.fsdp()
				w.do(reduceOp, world, 6<<20, 7<<20)
			}
			w.do(reduceOp, data, 4)
			w.work(3)
			w.end()
		},
	},
	{
		name:  "ZeRO 2, 6 micro-batches, parameters gathered with each step",
		calls: 6*3 + 2,
		step: func(w *writer, _ int) {
			for range 6 {
				w.work(30)
				for range 3 {
					w.work(10)
					w.do(scatterOp, world, 30<<20)
				}
			}
			w.do(reduceOp, world, 4)
			w.work(5)
			w.do(gatherOp, world, 90<<20)
			w.end()
		},
	},
	{
		name:  "tensor parallel alone, 10 micro-batches, the norm on the same communicator",
		calls: 161,
		step: func(w *writer, _ int) {
			for range 10 {
				w.layers(world)
				w.layers(world)
			}
			w.do(reduceOp, world, 4)
			w.work(9)
			w.end()
		},
	},
	{
		name:  "tensor parallel alone, losses of tokens reduced, 10 micro-batches",
		calls: 191,
		step: func(w *writer, _ int) {
			for range 10 {
				w.layers(world)
				w.do(reduceOp, world, 1<<17, 1<<17, 1<<17)
				w.layers(world)
			}
			w.do(reduceOp, world, 4)
			w.end()
		},
	},
	{
		name:  "sequence parallel alone, 8 micro-batches, the norm over another communicator",
		calls: 129,
		step: func(w *writer, _ int) {
			for range 8 {
				for range 8 {
					w.work(3)
					w.do(gatherOp, tensor, 8<<20)
					w.work(3)
					w.do(scatterOp, tensor, 8<<20)
				}
			}
			w.do(reduceOp, world, 4)
			w.end()
		},
	},
	{
		name:  "context parallel: each of 8 micro-batches reduces its loss where gradients are reduced",
		calls: 8*17 + 1,
		step: func(w *writer, _ int) {
			for range 8 {
				w.layers(tensor)
				w.do(reduceOp, data, 4)
				w.layers(tensor)
			}
			w.do(reduceOp, data, 400<<20)
			w.work(9)
			w.end()
		},
	},
	{
		name:  "a stage of a pipeline, 10 micro-batches, votes with each step",
		calls: 42,
		step: func(w *writer, _ int) {
			for range 10 {
				w.do(uint32(falcon.OpRecv), pipe, 1<<18)
				w.work(10)
				w.do(uint32(falcon.OpSend), pipe, 1<<18)
				w.do(uint32(falcon.OpRecv), pipe, 1<<18)
				w.work(20)
				w.do(uint32(falcon.OpSend), pipe, 1<<18)
			}
			w.do(reduceOp, world, 4, 4)
			w.work(9)
			w.end()
		},
	},
	{
		name:  "experts, 6 micro-batches with a small loss of balance each, the norm with each step",
		calls: 6*9 + 2,
		step: func(w *writer, _ int) {
			for range 6 {
				for range 8 {
					w.work(3)
					w.do(exchangeOp, tensor, 3<<20)
				}
				w.do(reduceOp, tensor, 256)
			}
			w.do(reduceOp, world, 4, 4)
			w.end()
		},
	},
	{
		name:  "local steps: models averaged each 20 steps",
		calls: 2,
		step: func(w *writer, _ int) {
			w.work(20 * 50)
			w.do(reduceOp, world, 100<<20, 30<<20)
			w.end()
		},
	},
}

// unknown are patterns whose calls do not show what a step is: what is shown instead.
var unknown = []pattern{
	{
		name:  "DDP, even buckets and a small one, a loss every 10th step",
		calls: 71,
		step: func(w *writer, k int) {
			w.work(150)
			w.buckets(
				world,
				28<<20,
				28<<20,
				28<<20,
				28<<20,
				28<<20,
				28<<20,
				200<<10,
			)
			w.work(20)
			w.end()
			w.loss(k, 10)
		},
	},
	{
		name:  "FSDP that does not clip, a loss every 10th step",
		calls: 121,
		step: func(w *writer, k int) {
			w.fsdp()
			w.work(4)
			w.end()
			if (k+1)%10 == 0 {
				w.do(reduceOp, data, 4)
			}
		},
	},
	{
		name:  "DDP, a loss every second step",
		calls: 7,
		step: func(w *writer, k int) {
			w.ddp(threeBuckets...)
			w.loss(k, 2)
		},
	},
	{
		name:  "DDP, the host runs ahead until it waits for the loss of every 10th step",
		calls: 31,
		step: func(w *writer, k int) {
			w.ddp(threeBuckets...)
			if (k+1)%10 == 0 {
				w.work(700)
				w.loss(k, 10)
			}
		},
	},
	{
		name:  "DDP, an extra every 10th step that takes as long as an optimizer",
		calls: 31,
		step: func(w *writer, k int) {
			w.ddp(threeBuckets...)
			if (k+1)%10 == 0 {
				w.work(20)
				w.loss(k, 10)
			}
		},
	},
	{
		name:  "tensor parallel alone, a loss every 5th step",
		calls: 81,
		step: func(w *writer, k int) {
			w.layers(world)
			w.layers(world)
			w.work(9)
			w.end()
			w.loss(k, 5)
		},
	},
	{
		name:  "DDP that reduces in each of 10 micro-batches, hardly an optimizer",
		calls: 3,
		step: func(w *writer, _ int) {
			for range 10 {
				w.work(30)
				w.buckets(world, threeBuckets...)
			}
			w.work(1)
			w.do(reduceOp, world, 4)
			w.end()
		},
	},
}

func (p pattern) play(steps int, seed uint64, noise float64) *writer {
	w := &writer{
		job:   job{next: map[uint64]uint64{}, rng: rand.New(rand.NewPCG(seed, 6))},
		noise: noise,
	}
	w.do(castOp, world, 1<<20, 1<<10, 1<<10, 7)
	for k := range steps {
		p.step(w, k)
	}
	return w
}

// settled are the iterations since the tracker last changed its mind.
func settled(its []Iteration) []Iteration {
	for i := len(its) - 1; i >= 0; i-- {
		if its[i].Fresh {
			return its[i:]
		}
	}
	return its
}

// follow plays the calls to a tracker: the iterations, and how many calls it had seen when it last
// changed its mind.
func follow(calls []Call) (tr *Tracker, its []Iteration, sure int) {
	tr = NewTracker(Config{Op: LiveOp})
	for i, c := range calls {
		for _, it := range tr.Observe(c) {
			if it.Fresh {
				sure = i
			}
			its = append(its, it)
		}
	}
	return tr, its, sure
}

func TestTheIterationIsTheOptimizerStep(t *testing.T) {
	const steps = 160
	for i, p := range slices.Concat(extras, accumulations) {
		for seed := range uint64(2) {
			w := p.play(steps, seed, 0.01)
			tr, its, sure := follow(w.calls)
			its = settled(its)
			known := sort.Search(len(w.ends), func(k int) bool {
				return w.ends[k] >= w.calls[sure].TimeNs
			})
			what := fmt.Sprintf("%d %s: %d calls an iteration from step %d on",
				i+1, p.name, tr.Period(), known)
			err := w.judge(its)
			if err != nil ||
				tr.Period() != p.calls ||
				len(its) < steps/2 ||
				known > steps/2 {
				t.Errorf("%s, %d iterations; want %d calls: %v", what, len(its), p.calls, err)
			} else if seed == 0 {
				t.Log(what)
			}
		}
	}
}

// What can't be known is shown as it was, and where an accumulating script hides its optimizer, as
// micro-batches: docs/runbook.md says so.
func TestTheIterationThatCallsDoNotShow(t *testing.T) {
	for _, p := range unknown {
		if tr, _, _ := follow(p.play(160, 1, 0.01).calls); tr.Period() != p.calls {
			t.Errorf("%s: period %d, want %d", p.name, tr.Period(), p.calls)
		}
	}
}

// Without knowing what operations mean, nothing is taken for gradients.
func TestUnknownOperationsSplitNothing(t *testing.T) {
	r, err := Infer(extras[0].play(100, 1, 0.01).calls)
	if err != nil || r.Period != 31 {
		t.Errorf("period %d, want 31: %v", r.Period, err)
	}
}

// dumbStep is the period by trying every lag on what is left of a data-parallel job's calls without
// small ones, by their exact bytes.
func dumbStep(calls []Call) int {
	var bulk []int64
	for _, c := range calls {
		if c.Bytes >= 1<<17 && c.Op == reduceOp {
			bulk = append(bulk, c.Bytes)
		}
	}
	for lag := 1; lag < len(bulk); lag++ {
		if slices.Equal(bulk[lag:], bulk[:len(bulk)-lag]) {
			return lag
		}
	}
	return 0
}

// Random data-parallel jobs: a step that reduces once is a step however often a loss comes; one of
// micro-batches that all reduce is one where its optimizer can be seen.
func TestRandomJobsAreCountedInSteps(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 1))
	for trial := range 60 {
		var buckets []int64
		for range 1 + rng.IntN(9) {
			buckets = append(buckets, 1<<20+rng.Int64N(30<<20))
		}
		buckets[0] = 32 << 20 // no shorter period, and nothing is small beside it
		every, optimizer := 3+rng.IntN(30), 0.12+0.3*rng.Float64()
		micro := trial%2 == 1
		p := pattern{
			calls: len(buckets),
			step: func(w *writer, k int) {
				w.ddp(buckets...)
				if micro && (k+1)%every == 0 {
					w.work(optimizer * float64(39+12*len(buckets)))
				}
				w.loss(k, every)
			},
		}
		if micro {
			p.calls = every*len(buckets) + 1
		}
		w := p.play(8*every+60, uint64(trial), 0.02)
		if dumb := dumbStep(w.calls); dumb != len(buckets) {
			t.Fatalf("trial %d: by exact bytes a step has %d calls, want %d", trial, dumb, len(buckets))
		}
		if tr, _, _ := follow(w.calls); tr.Period() != p.calls {
			t.Errorf("trial %d: %v, every %d, micro-batches %v, optimizer %.2f: period %d, want %d",
				trial, buckets, every, micro, optimizer, tr.Period(), p.calls)
		}
	}
}
