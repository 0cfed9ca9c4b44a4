package cost

import (
	"math"
	"math/rand/v2"
	"testing"
)

// slow is a deliberately simple second implementation: it repeats "find any
// op whose predecessors are done" over explicit dependency times.
func slow(stages []Stage, m int, hopMs float64) float64 {
	p := len(stages)
	type key struct {
		s, k int
		b    bool
	}
	end := map[key]float64{}
	order := func(s int) []key {
		var out []key
		f, b := 0, 0
		for range min(p-s-1, m) {
			out = append(out, key{s, f, false})
			f++
		}
		for b < m {
			if f < m {
				out = append(out, key{s, f, false})
				f++
			}
			out = append(out, key{s, b, true})
			b++
		}
		return out
	}
	for len(end) < 2*m*p {
		for s := range stages {
			free := 0.0
			for _, o := range order(s) {
				if e, ok := end[o]; ok {
					free = e
					continue
				}
				in, ok := 0.0, true
				if o.b && s < p-1 {
					in, ok = end[key{s + 1, o.k, true}]
					in += hopMs
				} else if !o.b && s > 0 {
					in, ok = end[key{s - 1, o.k, false}]
					in += hopMs
				}
				if !ok {
					break
				}
				d := stages[s].ForwardMs
				if o.b {
					d = stages[s].BackwardMs
				}
				free = max(free, in) + d
				end[o] = free
			}
		}
	}
	worst := 0.0
	for _, e := range end {
		worst = max(worst, e)
	}
	return worst
}

func TestPipelineAgainstSlow(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	for range 3000 {
		stages := make([]Stage, 1+r.IntN(6))
		for i := range stages {
			stages[i] = Stage{float64(r.IntN(5)), float64(r.IntN(9))}
		}
		m, hop := 1+r.IntN(12), float64(r.IntN(3))
		if got, want := PipelineMs(stages, m, hop), slow(stages, m, hop); math.Abs(got-want) > 1e-9 {
			t.Fatalf("stages %v m %d hop %v: got %v, want %v", stages, m, hop, got, want)
		}
	}
}

// Equal stages meet the closed formula (m + p − 1)(f + b).
func TestPipelineClosedForm(t *testing.T) {
	for p := 1; p <= 8; p++ {
		for m := p; m <= 24; m++ {
			stages := make([]Stage, p)
			for i := range stages {
				stages[i] = Stage{5, 10}
			}
			if got, want := PipelineMs(stages, m, 0), float64(m+p-1)*15; math.Abs(got-want) > 1e-9 {
				t.Fatalf("p %d m %d: got %v, want %v", p, m, got, want)
			}
		}
	}
}

func TestCurveNeverDecreases(t *testing.T) {
	c := Curve([]Stage{{5, 10}, {10, 20}}, 16, 0.2)
	for m := 1; m < len(c); m++ {
		if c[m] < c[m-1] {
			t.Fatalf("T(%d) = %v under T(%d) = %v", m, c[m], m-1, c[m-1])
		}
	}
}

func BenchmarkPipeline(b *testing.B) {
	stages := StagesFromSelf([]float64{15, 15, 30, 15, 15, 15, 15, 15})
	for b.Loop() {
		PipelineMs(stages, 64, 0.1)
	}
}
