package peer

import (
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
)

// Of ratios of one kind, chance accuses any at most at its rate: in normal noise, and
// within a few times it where the tails are heavier.
func TestChanceHoldsItsRate(t *testing.T) {
	const windows = 4000
	for _, n := range []int{4, 8, 16, 64, 384} {
		normal, heavy := 0, 0
		for seed := range uint64(windows / max(1, n/16)) {
			rng := rand.New(rand.NewPCG(seed, uint64(n)))
			a := make([]float64, n)
			b := make([]float64, n)
			for i := range n {
				x := rng.NormFloat64()
				a[i], b[i] = 1+0.003*x, 1+0.003*x*(1+0.5*rng.ExpFloat64())
			}
			if accuses(a) {
				normal++
			}
			if accuses(b) {
				heavy++
			}
		}
		of := float64(windows / max(1, n/16))
		t.Logf("%d ratios: %.4f of the windows accuse one in normal noise, %.4f in heavier tails",
			n, float64(normal)/of, float64(heavy)/of)
		if float64(normal) > 4*accuseRate*of+3 {
			t.Errorf("%d ratios: %d of %.0f windows accuse one, want %g", n, normal, of, accuseRate)
		}
	}
}

func accuses(ratios []float64) bool {
	c := chanceOf(ratios)
	for _, x := range ratios {
		if !c.explains(x) {
			return true
		}
	}
	return false
}

// chanceOf is robust: a fault in a quarter of the ratios hardly widens the limit.
func TestChanceSurvivesFaults(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	ratios := make([]float64, 32)
	for i := range ratios {
		ratios[i] = 1 + 0.003*rng.NormFloat64()
	}
	clean := chanceOf(ratios)
	for i := range 8 {
		ratios[i] += 0.05
	}
	with := chanceOf(ratios)
	if with.most > 2*clean.most || with.explains(ratios[0]) {
		t.Errorf("limit %.4f without and %.4f with faults; spread %.4f",
			clean.most, with.most, stat.StdDev(ratios, nil))
	}
	if c := chanceOf([]float64{1}); !c.explains(9) {
		t.Error("one ratio alone has no peers")
	}
}

// By the rules of a small slowdown a healthy job accuses no rank, group or pair, however
// much its devices differ all the time; a rank that becomes 6 % slower is accused.
func TestSmallRulesAccuseNoHealthyRank(t *testing.T) {
	rules := Rules{
		Suspect: 1.01,
		Margin:  1.003,
		Matter:  0.01,
		Small:   true,
	}
	accused, found := 0, 0
	const seeds = 40
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 7))
		j := jobtest.New(falcon.Layout{TP: 2, DP: 8, PP: 2}, 4, 4, seed)
		j.Noise = 0.01
		for _, d := range j.Placement {
			j.Clock[d] = 1 - 0.1*rng.Float64()
		}
		judge := func(h *Healthy) Result {
			_, profiles := j.Iteration(4, 1)
			return Judge(Window{
				Layout:    j.Layout,
				Placement: j.Placement,
				Comms:     j.Comms,
				Profiles:  profiles,
				Healthy:   h,
				Rules:     rules,
			})
		}
		h := &Healthy{}
		h.Learn(judge(nil))
		res := judge(h)
		for _, g := range res.Groups {
			if g.Suspect {
				accused++
			}
		}
		for _, p := range res.Pairs {
			if p.Suspect {
				accused++
			}
		}
		accused += len(res.Slow)
		slow := falcon.Rank(rng.IntN(32))
		j.Clock[j.Placement[slow]] *= 0.9
		if res = judge(h); len(res.Slow) == 1 && res.Slow[0] == slow {
			found++
		} else if len(res.Slow) > 0 && res.Slow[0] != slow {
			accused++
		}
	}
	t.Logf("%d accused in %d healthy windows; the slow rank in %d", accused, seeds, found)
	if accused > 0 {
		t.Errorf("%d accused in %d healthy windows", accused, seeds)
	}
}
