package detect

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

var noisy = flag.Int("noisy", 2, "how many noisy jobs are played, and as much longer each")

// millisecondJob is a job with iterations of about 4 ms.
func millisecondJob(seed uint64, within time.Duration) *world {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 4, seed)
	j := w.job
	for _, ms := range []*float64{&j.ForwardMs, &j.DPMs, &j.PPMs, &j.TPMs, &j.StepMs, &j.LaunchMs} {
		*ms /= 20
	}
	w.m = New(Config{ReturnWithin: within})
	w.describe()
	w.cov, w.weather = 0.04, rand.New(rand.NewPCG(seed, 1))
	return w
}

// busyHost plays iterations of a job beside others that take its machine again and again: for 20 to
// 80 iterations all ranks are 1.3 to 2 times as slow. The profiles show nothing of it.
func busyHost(w *world, iterations int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	for ran := 0; ran < iterations; {
		calm, busy, factor := 40+rng.IntN(200), 20+rng.IntN(60), 1.3+0.7*rng.Float64()
		w.run(calm)
		for range busy {
			w.spike = factor
			w.run(1)
		}
		ran += calm + busy
	}
}

// A job of milliseconds that is slow again and again opens few incidents, and loses none of the
// slowdowns. A fault that comes after is an incident of its own, found as soon.
func TestAJobThatComesAndGoesOpensFewIncidents(t *testing.T) {
	before, after := 0, 0
	for seed := range uint64(*noisy) {
		var opened [2]int
		for i, within := range []time.Duration{none, 0} {
			w := millisecondJob(seed, within)
			w.run(300)
			began := w.now
			busyHost(w, 1500**noisy/2, seed)
			times := 0
			for _, v := range w.all {
				times += max(v.Times, 1)
			}
			opened[i] = len(w.all)
			t.Logf("seed %d, within %v: %d incidents of %d slowdowns in %.0f s",
				seed, within, len(w.all), times, w.now.Sub(began).Seconds())
			checkNewFault(t, w)
		}
		before += opened[0]
		after += opened[1]
	}
	t.Logf("%d incidents before, %d after", before, after)
	if before < 5**noisy || after > 3**noisy {
		t.Errorf(
			"%d incidents where each counts, %d where those that are back do not: the job is not noisy, or few are recognized",
			before, after,
		)
	}
}

// checkNewFault slows a GPU and wants it named by an incident of its own.
func checkNewFault(t *testing.T, w *world) {
	t.Helper()
	w.run(60)
	at := w.job.Next()
	w.job.Clock["n1.g0"] = 0.5
	w.run(60)
	v := w.all[len(w.all)-1]
	if len(v.Verdict.Devices) != 1 ||
		v.Verdict.Devices[0] != "n1.g0" ||
		v.Times > 1 ||
		v.DetectedIteration > at+4 {
		t.Errorf("the fault from %d on: %+v\n%s", at, v, w.out.String())
	}
}

// A GPU that throttles again and again, for a second each, is one incident, with the times that it
// came and what is right of the newest.
func TestAGPUThatComesAndGoesIsOneIncident(t *testing.T) {
	w := millisecondJob(3, 0)
	w.run(300)
	const times = 5
	for range times {
		w.job.Clock["n1.g0"] = 0.5
		w.run(100)
		w.clearFaults()
		w.run(150)
	}
	named := 0
	for _, v := range w.all {
		if len(v.Verdict.Devices) > 0 {
			named++
		}
		t.Logf("%s: time %d, onset %d, the first %d, %v",
			v.ID, v.Times, v.OnsetIteration, v.FirstOnset, v.Verdict.Devices)
	}
	if v := w.all[0]; named != 1 ||
		v.Times != times ||
		v.State != falcon.IncidentClosed ||
		v.FirstOnset > 302 ||
		v.OnsetIteration < 1290 {
		t.Errorf("%+v\n%s", w.all, w.out.String())
	}
}
