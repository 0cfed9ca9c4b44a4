package rivals

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"
)

func noisySteps(seed uint64, sigma float64, levels ...float64) []float64 {
	rng := rand.New(rand.NewPCG(seed, 3))
	var out []float64
	for _, l := range levels {
		for range 60 {
			out = append(out, l+sigma*rng.NormFloat64())
		}
	}
	return out
}

// enumerated is the posterior of every segmentation with at most two change points,
// one by one, from least squares on design matrices: no running sums, no chain. The
// precision is fixed.
func enumerated(values []float64, apart int, precision float64) (counts []float64, often []float64) {
	n := len(values)
	centre, scale := stat.MeanStdDev(values, nil)
	y := make([]float64, n)
	for i := range y {
		y[i] = (values[i] - centre) / scale
	}
	counts, often = make([]float64, 3), make([]float64, n)
	ways := make([]float64, 3)
	type found struct {
		cuts []int
		log  float64
	}
	var all []found
	try := func(cuts []int) {
		ways[len(cuts)]++
		ends := append(append([]int{0}, cuts...), n)
		segments := len(ends) - 1
		for orders := range 1 << segments {
			left, log := 0.0, -float64(segments)*math.Ln2
			for s := range segments {
				part := y[ends[s]:ends[s+1]]
				left += residual(part, orders>>s&1, precision)
				log += float64(1+orders>>s&1) / 2 * math.Log(precision/(float64(len(part))+precision))
			}
			all = append(all, found{cuts, log - (vague+float64(n)/2)*math.Log(vague+left/2)})
		}
	}
	try(nil)
	for a := apart; a <= n-apart; a++ {
		try([]int{a})
		for b := a + apart; b <= n-apart; b++ {
			try([]int{a, b})
		}
	}
	total, top := 0.0, math.Inf(-1)
	for _, f := range all {
		top = max(top, f.log)
	}
	for _, f := range all {
		p := math.Exp(f.log-top) / ways[len(f.cuts)]
		total += p
		counts[len(f.cuts)] += p
		for _, c := range f.cuts {
			often[c] += p
		}
	}
	for i := range counts {
		counts[i] /= total
	}
	for i := range often {
		often[i] /= total
	}
	return counts, often
}

// residual is the penalised sum of squares of a part by its basis functions, each
// projected by hand.
func residual(part []float64, order int, precision float64) float64 {
	n := float64(len(part))
	left := 0.0
	for _, v := range part {
		left += v * v
	}
	line := make([]float64, len(part))
	for i := range line {
		line[i] = float64(i)
	}
	centre, scale := stat.PopMeanStdDev(line, nil)
	for k := range order + 1 {
		product := 0.0
		for i, v := range part {
			if k == 0 {
				product += v
			} else {
				product += v * (line[i] - centre) / scale
			}
		}
		left -= product * product / (n + precision)
	}
	return left
}

// The chain visits segmentations as often as their posterior says.
func TestBeastEqualsEnumeration(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	values := make([]float64, 24)
	for i := range values {
		values[i] = rng.NormFloat64()
		if i >= 14 {
			values[i] += 1.2
		}
	}
	b := Beast{
		Most:    2,
		Apart:   3,
		Chains:  1,
		Burn:    1000,
		Samples: 60000,
		Thin:    3,
	}
	centre, scale := stat.MeanStdDev(values, nil)
	c := newChain(b, newSums(values, centre, scale), rand.New(rand.NewPCG(1, 1)))
	counts, often := make([]int, 3), make([]float64, len(values))
	for range b.Burn {
		c.step()
	}
	for range b.Samples {
		for range b.Thin {
			c.step()
		}
		counts[len(c.pieces)-1]++
		for _, p := range c.pieces[1:] {
			often[p.from]++
		}
	}
	wantCounts, wantOften := enumerated(values, b.Apart, firstPrecision)
	for k := range counts {
		if got := float64(counts[k]) / float64(b.Samples); math.Abs(got-wantCounts[k]) > 0.02 {
			t.Errorf("%d change points: probability %.3f, want %.3f", k, got, wantCounts[k])
		}
	}
	for i := range often {
		if got := often[i] / float64(b.Samples); math.Abs(got-wantOften[i]) > 0.02 {
			t.Errorf("change at %d: probability %.3f, want %.3f", i, got, wantOften[i])
		}
	}
}

// On its own kind of data, levels in normal noise, BEAST finds each change and no
// other, and none in noise alone.
func TestBeastOnSteps(t *testing.T) {
	for seed := range uint64(8) {
		b := ShortBeast().Breaks(noisySteps(seed, 1, 10, 20, 12), seed)
		var at []int
		for _, x := range b {
			if x.Probability < 0.8 {
				t.Errorf("seed %d: probability %.2f at %d", seed, x.Probability, x.At)
			}
			at = append(at, x.At)
		}
		slices.Sort(at)
		if len(at) != 2 ||
			max(at[0]-60, 60-at[0]) > 1 ||
			max(at[1]-120, 120-at[1]) > 1 {
			t.Errorf("seed %d: %v", seed, b)
		}
		for _, x := range ShortBeast().Breaks(noisySteps(seed, 1, 10, 10), seed) {
			if x.Probability > 0.8 {
				t.Errorf("seed %d: a change of probability %.2f at %d in noise", seed, x.Probability, x.At)
			}
		}
	}
}

// The river Nile's flow fell in 1899, 28 years into the record.
func TestBeastOnTheNile(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(dataDir(), "golden", "nile_lam100.json"))
	if err != nil {
		t.Skipf("no shared records here: %v", err)
	}
	var nile struct{ X []float64 }
	if err := json.Unmarshal(raw, &nile); err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]Beast{"default": DefaultBeast(), "short": ShortBeast()} {
		b := set.Breaks(nile.X, 1)
		t.Logf("%s: %+v", name, b)
		if len(b) != 1 ||
			max(b[0].At-28, 28-b[0].At) > 1 ||
			b[0].Probability < 0.8 {
			t.Errorf("%s: %+v, want one change at 28", name, b)
		}
	}
}

func TestBeastRefusesNothing(t *testing.T) {
	for _, values := range [][]float64{
		nil,
		{1},
		make([]float64, 50),
		{1, 2, 3, 4, 5},
		append(make([]float64, 40), math.Inf(1)),
		append(make([]float64, 40), math.NaN()),
	} {
		if b := ShortBeast().Breaks(values, 1); len(b) > 0 {
			t.Errorf("%v: %v", values, b)
		}
	}
}

func dataDir() string {
	if dir := os.Getenv("FALCON_DATA"); dir != "" {
		return dir
	}
	return filepath.Join("..", "..", "..", "shared", "data")
}

func BenchmarkBeast(b *testing.B) {
	values := noisySteps(1, 1, 10, 20, 12, 12, 12, 12, 12, 12, 12, 12)
	for b.Loop() {
		ShortBeast().Breaks(values, 1)
	}
}
