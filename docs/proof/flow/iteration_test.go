package flow

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// plain is a job of one lane whose ranks are on nodes of one GPU, in Megatron's order.
func plain(replicas, stages, micro int) (Job, *Network) {
	j := Job{
		Lanes:      1,
		Replicas:   replicas,
		Stages:     stages,
		Rank:       func(lane, replica, stage int) int { return lane + replica + replicas*stage },
		GradientMB: make([]float64, stages),
	}
	n, at := separate(replicas * stages)
	j.At = at
	for range replicas {
		j.Split = append(j.Split, micro)
	}
	for range stages {
		j.ForwardMs, j.BackwardMs = append(j.ForwardMs, 1), append(j.BackwardMs, 2)
	}
	return j, n
}

// A pipeline's bubble is (p − 1)/(m + p − 1) of its time; with v chunks a v-th of it.
func TestPipelineBubble(t *testing.T) {
	for _, p := range []int{1, 2, 4, 8} {
		for _, m := range []int{8, 16} {
			for _, chunks := range []int{1, 2} {
				j, n := plain(1, p, m)
				j.Chunks = chunks
				want := float64(3*m) + float64(3*(p-1))/float64(chunks)
				if p == 1 {
					want = float64(3 * m)
				}
				near(
					t,
					fmt.Sprintf("%d stages, %d micro-batches, %d chunks", p, m, chunks),
					n.Iteration(j).Ms(),
					want,
				)
			}
		}
	}
}

func TestMessagesInAPipeline(t *testing.T) {
	j, n := plain(1, 4, 1)
	j.ActivationMB = 25 // 0.5 ms
	near(t, "one micro-batch there and back", n.Iteration(j).Ms(), 4*3+2*3*0.5)
}

func TestOverlap(t *testing.T) {
	ring := func(mb float64) float64 { return 2. * 3 / 4 * mb / 50 }
	for _, mb := range []float64{40, 400, 4000} {
		j, n := plain(4, 1, 1)
		j.ForwardMs[0], j.BackwardMs[0], j.GradientMB[0], j.Serial = 10, 20, mb, true
		near(t, "nothing overlaps", n.Iteration(j).Ms(), 30+ring(mb))
		j.Serial, j.Buckets = false, 4
		part := ring(mb) / 4
		near(
			t,
			"buckets beside the backward pass",
			n.Iteration(j).Ms(),
			10+max(20+part, 5+4*part),
		)
	}
}

func TestTensorParallel(t *testing.T) {
	j, _ := plain(1, 1, 8)
	j.Lanes, j.At = 4, []GPU{{0, 0}, {0, 1}, {0, 2}, {0, 3}}
	n := Fabric{Nodes: 1, GPUs: 4, NVLink: 300, Port: 50}.Build()
	j.Inner = []Inner{{Stride: 1, Size: 4, MB: 100}}
	ring := 2. * 3 / 4 * 100 / 300
	near(t, "tensor parallel", n.Iteration(j).Ms(), 8*(3+2*ring))
	j.Slow = []float64{1, 1, 2, 1}
	near(t, "its slowest lane", n.Iteration(j).Ms(), 8*(6+2*ring))
	j.Slow, j.Inner = nil, []Inner{{Stride: 1, Size: 4, MB: 1000, Beside: true}}
	near(
		t,
		"context parallel, beside",
		n.Iteration(j).Ms(),
		8*2*max(1, 10*ring),
	) // 5 ms > 2 ms
	j.Inner = []Inner{{Stride: 2, Size: 2, MB: 120, Exchange: true}}
	near(t, "experts two by two", n.Iteration(j).Ms(), 8*(3+2*60./300))
}

// Four lanes of eight GPUs leave a node through as many ports as it has.
func TestReductionsShareThePorts(t *testing.T) {
	for _, ports := range []int{1, 4} {
		j, _ := plain(2, 1, 1)
		j.Lanes, j.At, j.GradientMB[0] = 4, nil, 100
		j.Rank = func(lane, replica, _ int) int { return lane + 4*replica }
		for r := range 8 {
			j.At = append(j.At, GPU{r / 4, r % 4})
		}
		n := Fabric{Nodes: 2, GPUs: 4, Ports: ports, NVLink: 300, Port: 50}.Build()
		near(
			t,
			fmt.Sprintf("%d ports for 4 lanes", ports),
			n.Iteration(j).Ms(),
			3+100./50*4/float64(ports),
		)
	}
}

// slowly is the second implementation of a pipeline without noise and messages'
// sharing: a pass ends when both the pass before it on its device and the one it
// needs have ended, asked for one by one.
func slowly(j Job, replica int, hopMs float64) float64 {
	memo := map[[3]int]float64{}
	var end func(s int, p pass) float64
	end = func(s int, p pass) float64 {
		key := [3]int{s, p.micro, 0}
		ms := j.ForwardMs[s]
		if p.backward {
			key[2], ms = 1, j.BackwardMs[s]
		}
		if v, ok := memo[key]; ok {
			return v
		}
		order := passOrder(s, j.Stages, 1, j.Split[replica])
		at := 0.0
		if i := slices.Index(order, p); i > 0 {
			at = end(s, order[i-1])
		}
		from := s - 1
		if p.backward {
			from = s + 1
		}
		if from >= 0 && from < j.Stages {
			made := end(from, p)
			if !j.Eager {
				made = max(made, at) // it begins when the receiver is there
			}
			at = max(at, made+hopMs)
		}
		memo[key] = at + ms*j.slowOf(j.Rank(0, replica, s))
		return memo[key]
	}
	worst := 0.0
	for s := range j.Stages {
		worst = max(worst, end(s, pass{0, j.Split[replica] - 1, true}))
	}
	return worst
}

func TestPipelinesAgainstSlow(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for range 300 {
		j, n := plain(1+rng.IntN(3), 1+rng.IntN(5), 1)
		j.Eager = rng.IntN(2) == 0
		worst := 0.0
		j.Slow = make([]float64, len(j.At))
		for r := range j.Slow {
			j.Slow[r] = 1 + rng.Float64()
		}
		for s := range j.Stages {
			j.ForwardMs[s], j.BackwardMs[s] = 1+rng.Float64(), 2+rng.Float64()
		}
		j.ActivationMB = 1 // 0.02 ms: short enough that no two share a port
		if j.Eager {
			j.ActivationMB = 0
		}
		for d := range j.Replicas {
			j.Split[d] = 1 + rng.IntN(7)
			worst = max(worst, slowly(j, d, j.ActivationMB/50))
		}
		it := n.Iteration(j)
		near(t, fmt.Sprintf("%+v", j.Split), it.Ms(), worst)
	}
}

// What a device saw of its communication lies within the iteration, and a message
// is over at both ends at once unless its receiver came late.
func TestCalls(t *testing.T) {
	j, n := plain(2, 4, 8)
	j.ActivationMB, j.GradientMB, j.Buckets = 5, []float64{50, 50, 50, 50}, 2
	p := n.Iteration(j).Play(Noise{Op: 0.1, Rank: 0.1, Job: 0.1, Rng: rand.New(rand.NewPCG(1, 1))}, true)
	for r, calls := range p.Calls {
		sums := 0
		for _, c := range calls {
			if c.Start > c.End || c.End > p.Ms {
				t.Errorf("rank %d: a call from %v to %v ms of %v", r, c.Start, c.End, p.Ms)
			}
			if c.Kind == CallSum {
				sums++
			}
		}
		ends := 2
		if r < 2 || r >= 6 {
			ends = 1
		}
		if sums != 2 || len(calls) != 2+ends*2*8 {
			t.Errorf("rank %d has %d calls, %d of them sums", r, len(calls), sums)
		}
	}
}

func TestSameSeedSameTimes(t *testing.T) {
	j, n := plain(4, 4, 8)
	j.ActivationMB, j.GradientMB = 5, []float64{500, 500, 500, 500}
	play := func() float64 {
		it := n.Iteration(j)
		noise := Noise{
			Op:  0.1,
			Rng: rand.New(rand.NewPCG(1, 1)),
		}
		return it.Play(noise, false).Ms + it.Play(noise, false).Ms
	}
	if a, b := play(), play(); a != b {
		t.Errorf("%v and %v ms", a, b)
	}
}

func BenchmarkIteration64(b *testing.B) {
	j, n := plain(16, 4, 32)
	j.ActivationMB, j.GradientMB, j.Buckets = 21, []float64{6500, 6500, 6500, 6500}, 4
	it := n.Iteration(j)
	for b.Loop() {
		it.Play(Noise{Op: 0.02, Rank: 0.01, Rng: rand.New(rand.NewPCG(1, 1))}, false)
	}
}
