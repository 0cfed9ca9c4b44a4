package detect

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
)

var namedSeeds = flag.Int("named-seeds", 4, "jobs with one slightly slow GPU, of each layout")

// slightly is a job one of whose GPUs becomes a little slower.
type slightly struct {
	name   string
	layout falcon.Layout
	nodes  int
	micro  int
	size   float64 // by which the iteration gets slower
	spread float64 // by which the GPUs' paces differ all the time
}

// slightlySlow is what became of one.
type slightlySlow struct {
	cov      float64 // of the healthy iterations
	detected int     // slow iterations up to verification, 0 = never
	named    int     // up to the verdict with the right device, 0 = never
	wrong    bool    // a bystander was named, or something before the fault
}

// clockFor is the share of its clock at which one GPU makes the iteration slower by size.
func (s slightly) clockFor(w *world, d falcon.Device) float64 {
	play := func(clock float64) float64 {
		j := jobtest.New(s.layout, s.nodes, s.micro, 1)
		j.Noise = w.job.Noise
		maps.Copy(j.Clock, w.job.Clock)
		j.Clock[d] *= clock
		const n = 6
		var ms []float64
		for _, x := range j.Samples(n) {
			ms = append(ms, x.Ms)
		}
		return stat.Mean(ms, nil)
	}
	healthy := play(1)
	low := 0.7
	high := 1.0
	for range 9 {
		if mid := (low + high) / 2; play(mid) > healthy*(1+s.size) {
			low = mid
		} else {
			high = mid
		}
	}
	return (low + high) / 2
}

// play is the whole story: healthy iterations, then the slow GPU.
func (s slightly) play(seed uint64) (out slightlySlow, text string) {
	rng := rand.New(rand.NewPCG(seed, 56))
	w := newWorld(s.layout, s.nodes, s.micro, seed)
	w.cov, w.weather, w.job.Noise = 0.003, rand.New(rand.NewPCG(seed, 57)), 0.004
	for _, d := range w.job.Placement {
		w.job.Clock[d] = 1 - s.spread*rng.Float64()
	}
	w.run(300)
	out.cov = stat.StdDev(
		w.m.samples.slowest.newestValues(100),
		nil,
	) / stat.Mean(w.m.samples.slowest.newestValues(100), nil)
	victim := w.job.Placement[rng.IntN(len(w.job.Placement))]
	w.job.Clock[victim] *= s.clockFor(w, victim)
	onset := w.job.Next()
	out.wrong = len(w.all) > 0
	for w.job.Next() < onset+60 && out.named == 0 {
		w.run(1)
		if out.detected == 0 && len(w.m.incidents.list) > 0 {
			out.detected = int(w.m.incidents.list[0].DetectedIteration-onset) + 1
		}
		for _, inc := range w.all {
			if len(inc.Verdict.Devices) == 1 && inc.Verdict.Devices[0] == victim {
				out.named = int(w.job.Next() - onset)
			}
		}
	}
	w.run(40)
	for _, inc := range w.all {
		out.wrong = out.wrong ||
			len(inc.Verdict.Links) > 0 ||
			slices.ContainsFunc(inc.Verdict.Devices, func(d falcon.Device) bool { return d != victim })
	}
	return out, fmt.Sprintf("%s\n%s", victim, w.out.String())
}

// One GPU makes the whole job 5.6 % slower, at a noise of 0.3 %: it is detected within 5
// iterations, named, and no other is. With -named-seeds 200 that is the published figure.
func TestOneGPUThatCosts56PermilleIsNamed(t *testing.T) {
	for _, s := range []slightly{
		{"16 GPUs", falcon.Layout{TP: 2, DP: 4, PP: 2}, 2, 8, 0.056, 0},
		{"16 GPUs whose paces differ by 3 %", falcon.Layout{TP: 1, DP: 16, PP: 1}, 2, 4, 0.056, 0.03},
		{"16 GPUs whose paces differ by 12 %", falcon.Layout{TP: 1, DP: 16, PP: 1}, 2, 4, 0.056, 0.12},
		{"384 GPUs", falcon.Layout{TP: 8, DP: 24, PP: 2}, 48, 2, 0.056, 0},
	} {
		seeds := *namedSeeds
		if s.layout.World() > 100 {
			seeds = (seeds + 3) / 4
		}
		var detected, named []float64
		var cov float64
		wrong := 0
		for seed := range uint64(seeds) {
			one, text := s.play(seed)
			cov += one.cov / float64(seeds)
			if one.detected > 0 {
				detected = append(detected, float64(one.detected))
			}
			if one.named > 0 {
				named = append(named, float64(one.named))
			}
			if one.wrong {
				wrong++
			}
			if one.wrong || one.named == 0 {
				t.Logf("%s, seed %d: %+v\n%s", s.name, seed, one, text)
			}
		}
		t.Logf(
			"%s at a noise of %.2f %%: detected in %d of %d, after %.0f slow iterations (median); named in %d, after %.0f; a bystander in %d",
			s.name, 100*cov, len(detected), seeds, falcon.Median(detected), len(named),
			falcon.Median(named), wrong,
		)
		if wrong > 0 ||
			100*len(detected) < 99*seeds ||
			100*len(named) < 99*seeds ||
			falcon.Median(detected) > 5 {
			t.Errorf("%s: want all detected within 5 iterations and named, and no other", s.name)
		}
	}
}
