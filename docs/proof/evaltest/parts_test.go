package evaltest

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

// TestUpper holds the bound to its definition, the binomial sum.
func TestUpper(t *testing.T) {
	for _, c := range [][2]int{{0, 10}, {0, 5972}, {3, 100}, {17, 40}, {9, 10}} {
		k, n := c[0], c[1]
		p, sum := Upper(k, n), 0.0
		for i := range k + 1 {
			choose, _ := math.Lgamma(float64(n + 1))
			a, _ := math.Lgamma(float64(i + 1))
			b, _ := math.Lgamma(float64(n - i + 1))
			sum += math.Exp(choose - a - b + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
		}
		if math.Abs(sum-0.05) > 1e-6 {
			t.Errorf("%d of %d: bound %g has P %g, want 0.05", k, n, p, sum)
		}
	}
	if Upper(0, 0) != 1 || Upper(4, 4) != 1 {
		t.Error("nothing or everything seen bounds nothing")
	}
}

// TestSweep holds the watch to the exact chance of a run of C in n steps.
func TestSweep(t *testing.T) {
	for _, c := range []struct {
		p float64
		c int
	}{{0.05, 2}, {0.2, 3}, {0.5, 10}} {
		const runs, steps = 400, 500
		got := Sweep(c.p, c.c, runs, steps, 3)
		want := runChance(c.p, c.c, steps)
		if sd := math.Sqrt(want * (1 - want) / runs); math.Abs(part(got.Condemned, runs)-want) > 4*sd+0.002 ||
			got.Others > 0 {
			t.Errorf("p %g, C %d: condemned in %d of %d, others in %d, want %.3f",
				c.p, c.c, got.Condemned, runs, got.Others, want)
		}
	}
	if b := Sweep(1, 7, 20, 100, 3); b.Condemned != 20 || b.Survived != 20*7 {
		t.Errorf("a failing rank: %+v", b)
	}
}

// runChance is the probability of c successes running within n steps: state k
// is the length of the present run.
func runChance(p float64, c, n int) float64 {
	at := make([]float64, c+1)
	at[0] = 1
	for range n {
		next := make([]float64, c+1)
		next[c] = at[c]
		for k := range c {
			next[0] += at[k] * (1 - p)
			next[k+1] += at[k] * p
		}
		at = next
	}
	return at[c]
}

// TestGenerate: the same number gives the same job, the shares are table 1's,
// and the truth is what the level was.
func TestGenerate(t *testing.T) {
	for _, m := range []Mix{SingleNode(), FourNode(), AtScale()} {
		const jobs = 3000
		slow := 0
		for number := range uint64(jobs) {
			j := Generate(m, 9, number, 600)
			if number%500 == 0 && !reflect.DeepEqual(j, Generate(m, 9, number, 600)) {
				t.Fatalf("%s: job %d differs from itself", m.Name, number)
			}
			if len(j.Spells) > 0 {
				slow++
			}
			for _, s := range j.Spells {
				if j.Cause == Healthy || s.To-s.From < m.least() || s.Depth < 0.1 {
					t.Fatalf("%s: job %d, %s: spell %+v", m.Name, number, j.Cause, s)
				}
			}
		}
		want := m.share()
		if sd := math.Sqrt(want * (1 - want) / jobs); math.Abs(part(slow, jobs)-want) > 4*sd+0.02*want {
			t.Errorf("%s: %d of %d slow, want %.3f", m.Name, slow, jobs, want)
		}
	}
}

// TestDisturbancesAreShort: no more than three long iterations running but by
// a spell, as the package says.
func TestDisturbancesAreShort(t *testing.T) {
	for seed := range uint64(300) {
		ms := make([]float64, 3000)
		for i := range ms {
			ms[i] = 1
		}
		disturb(rand.New(rand.NewPCG(seed, 1)), ms)
		run, long := 0, 0
		for i, x := range ms {
			if x > 1.1 {
				run, long = run+1, long+1
			} else {
				run = 0
			}
			if run > burstMost {
				t.Fatalf("seed %d: %d long iterations running at %d", seed, run, i)
			}
		}
		if long == 0 {
			t.Errorf("seed %d: nothing was disturbed", seed)
		}
	}
}

// TestScore: each kind of judgement once.
func TestScore(t *testing.T) {
	slow := Job{
		Spells: []Spell{{From: 100, To: 200, Depth: 0.5}},
		Ms:     make([]float64, 300),
	}
	healthy := Job{Ms: make([]float64, 300)}
	var s Score
	s.Take(0, slow, []Report{{99, 103}, {200, 204}})
	s.Take(1, slow, []Report{{30, 40}})
	s.Take(2, healthy, nil)
	s.Take(3, healthy, []Report{{30, 40}})
	want := Score{
		TruePositive:  1,
		FalseNegative: 1,
		TrueNegative:  1,
		FalsePositive: 1,
		Spells:        2,
		Found:         1,
		Stray:         2,
		Points:        1200,
		Delays:        []int{3},
		Misses:        []int{1, 3},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("%+v\nwant %+v", s, want)
	}
	if s.Accuracy() != 0.5 || s.FPR() != 0.5 || s.FNR() != 0.5 {
		t.Error(s.Accuracy(), s.FPR(), s.FNR())
	}
}
