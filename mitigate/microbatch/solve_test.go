package microbatch

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// brute tries every split. Times are small integers, so all comparisons of
// makespans are exact; squares are compared scaled by Σ(1/t)² in rationals
// that fit float64, with a tolerance far below their spacing.
func brute(p Problem) ([]int, bool) {
	n := len(p.MicroBatchMs)
	target := float64(p.Total)
	rate := 0.0
	ms := func(i, m int) float64 {
		fill := float64(p.Stages) * p.MicroBatchMs[i]
		if p.FillMs != nil {
			fill = p.FillMs[i]
		}
		return float64(m-1)*p.MicroBatchMs[i] + fill
	}
	for i, t := range p.MicroBatchMs {
		target += ms(i, 0) / t
		rate += 1 / t
	}
	target /= rate
	var best []int
	bestMax := math.Inf(1)
	bestSq := math.Inf(1)
	m := make([]int, n)
	var walk func(i, rest int, worst, sq float64)
	walk = func(i, rest int, worst, sq float64) {
		if i == n {
			if rest != 0 {
				return
			}
			better := worst < bestMax-1e-9 || (worst < bestMax+1e-9 && sq < bestSq-1e-7)
			if better { // vectors come in lexicographic order: first of equals wins
				best = slices.Clone(m)
				bestMax = worst
				bestSq = sq
			}
			return
		}
		lo := 1
		hi := p.Total
		q := 1
		if p.Min != nil {
			lo = max(lo, p.Min[i])
		}
		if p.Max != nil {
			hi = p.Max[i]
		}
		if p.MultipleOf != nil {
			q = p.MultipleOf[i]
		}
		for k := lo; k <= hi && k <= rest; k++ {
			if k%q != 0 {
				continue
			}
			m[i] = k
			d := ms(i, k) - target
			walk(i+1, rest-k, max(worst, ms(i, k)), sq+d*d)
		}
	}
	walk(0, p.Total, 0, 0)
	return best, best != nil
}

func randomProblem(r *rand.Rand) Problem {
	n := 1 + r.IntN(4)
	p := Problem{
		Total:        n + r.IntN(16),
		Stages:       1 + r.IntN(4),
		MicroBatchMs: make([]float64, n),
	}
	for i := range p.MicroBatchMs {
		p.MicroBatchMs[i] = float64(1 + r.IntN(6))
	}
	if r.IntN(3) == 0 {
		p.FillMs = make([]float64, n)
		for i := range p.FillMs {
			p.FillMs[i] = float64(r.IntN(12))
		}
	}
	if r.IntN(3) == 0 {
		p.Min = make([]int, n)
		for i := range p.Min {
			p.Min[i] = r.IntN(4)
		}
	}
	if r.IntN(3) == 0 {
		p.Max = make([]int, n)
		for i := range p.Max {
			p.Max[i] = 1 + r.IntN(p.Total)
		}
	}
	switch r.IntN(4) {
	case 0:
		q := 1 + r.IntN(3)
		p.MultipleOf = slices.Repeat([]int{q}, n)
	case 1:
		p.MultipleOf = make([]int, n)
		for i := range p.MultipleOf {
			p.MultipleOf[i] = 1 + r.IntN(3)
		}
	}
	return p
}

func TestSolveAgainstBruteForce(t *testing.T) {
	const cases = 50_000
	r := rand.New(rand.NewPCG(2, 7))
	solved := 0
	for k := range cases {
		p := randomProblem(r)
		want, ok := brute(p)
		got, err := Solve(p)
		if !ok {
			if !errors.Is(err, ErrInfeasible) {
				t.Fatalf("case %d %+v: no split exists, Solve said %v, %v", k, p, got.MicroBatches, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("case %d %+v: %v, brute force found %v", k, p, err, want)
		}
		if !slices.Equal(got.MicroBatches, want) {
			t.Fatalf("case %d %+v: got %v, want %v", k, p, got.MicroBatches, want)
		}
		solved++
	}
	if solved < cases/3 {
		t.Fatalf("only %d of %d random cases had a solution: the generator is off", solved, cases)
	}
}

func TestSolveExample(t *testing.T) {
	got, err := Solve(Problem{
		MicroBatchMs: []float64{1, 1, 2, 1},
		Total:        32,
		Stages:       1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.MicroBatches, []int{9, 9, 5, 9}) ||
		got.IterationMs != 10 ||
		got.EvenIterationMs != 16 {
		t.Fatalf("got %+v", got)
	}
}

// Tenths are not binary fractions: ties in real arithmetic must stay ties.
func TestSolveDecimalTies(t *testing.T) {
	got, err := Solve(Problem{
		MicroBatchMs: []float64{0.1, 0.1, 0.1},
		Total:        10,
		Stages:       1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.MicroBatches, []int{3, 3, 4}) {
		t.Fatalf("got %v", got.MicroBatches)
	}
}

func TestSolveRefuses(t *testing.T) {
	one := []float64{1, 1}
	for name, p := range map[string]Problem{
		"empty": {Total: 4, Stages: 1},
		"nan": {
			MicroBatchMs: []float64{1, math.NaN()},
			Total:        4,
			Stages:       1,
		},
		"negative": {MicroBatchMs: []float64{1, -1}, Total: 4, Stages: 1},
		"infinite": {
			MicroBatchMs: []float64{1, math.Inf(1)},
			Total:        4,
			Stages:       1,
		},
		"no total":     {MicroBatchMs: one, Stages: 1},
		"no stages":    {MicroBatchMs: one, Total: 4},
		"short bounds": {MicroBatchMs: one, Total: 4, Stages: 1, Min: []int{1}},
		"bad multiple": {
			MicroBatchMs: one,
			Total:        4,
			Stages:       1,
			MultipleOf:   []int{1, 0},
		},
	} {
		if _, err := Solve(p); !errors.Is(err, ErrInput) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := Solve(Problem{MicroBatchMs: one, Total: 1, Stages: 1}); !errors.Is(err, ErrInfeasible) {
		t.Errorf("fewer micro-batches than replicas: got %v", err)
	}
}

// Large random instances: the makespan equals the one-at-a-time greedy's,
// which is optimal for non-decreasing T_i.
func TestSolveAgainstGreedy(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 11))
	for range 50 {
		p := large(r, 64+r.IntN(64))
		got, err := Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		m := slices.Repeat([]int{1}, len(p.MicroBatchMs))
		at := func(i int) float64 {
			return float64(m[i]+p.Stages) * p.MicroBatchMs[i]
		}
		for range p.Total - len(m) {
			least := 0
			for i := range m {
				if at(i) < at(least) {
					least = i
				}
			}
			m[least]++
		}
		want := 0.0
		for i := range m {
			want = max(want, float64(m[i]+p.Stages-1)*p.MicroBatchMs[i])
		}
		if math.Abs(got.IterationMs-want) > 1e-9*want {
			t.Fatalf("makespan %v, greedy %v", got.IterationMs, want)
		}
	}
}

func large(r *rand.Rand, n int) Problem {
	p := Problem{
		Total:        8 * n,
		Stages:       4,
		MicroBatchMs: make([]float64, n),
	}
	for i := range p.MicroBatchMs {
		p.MicroBatchMs[i] = 10 * (1 + r.Float64())
	}
	return p
}

func BenchmarkSolve(b *testing.B) {
	for _, n := range []int{8, 512, 16384} {
		b.Run(map[int]string{8: "8", 512: "512", 16384: "16384"}[n], func(b *testing.B) {
			p := large(rand.New(rand.NewPCG(1, 2)), n)
			for b.Loop() {
				if _, err := Solve(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
