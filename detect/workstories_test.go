package detect

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// workKinds are what the job itself does to be slower, and mixtures with a slow GPU.
var workKinds = []string{
	"data", "data-all", "data-unmarked", "save", "garbage", "evaluate", "micro", "fewer-lengths",
	"lengths-sized",
	"data+gpu", "lengths+gpu", "evaluate+gpu", "garbage+gpu", "blocking+gpu", "blocking+link", "link",
}

// truth is what the verdicts of a story must say.
type truth struct {
	reason falcon.Reason // of the job's own work
	ranks  []falcon.Rank // that wait for data
	device falcon.Device // that is slow besides
	link   falcon.Link   // likewise
}

// What the job itself does is named as such, and hardware is blamed for hardware alone.
func TestRandomStoriesOfTheJobsOwnWork(t *testing.T) {
	n := *stories
	if testing.Short() {
		n /= 5
	}
	skipped := 0
	for seed := range n {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		sh := shapes[rng.IntN(len(shapes))]
		kind := workKinds[seed%len(workKinds)]
		t.Run(fmt.Sprintf("%d-%s-%v", seed, kind, sh.layout), func(t *testing.T) {
			defer func() {
				if t.Skipped() {
					skipped++
				}
			}()
			tellWork(t, sh, kind, uint64(seed), rng)
		})
	}
	if n >= len(workKinds) && 3*skipped > n {
		t.Errorf("%d of %d stories hardly slow their job: they test nothing", skipped, n)
	}
}

func tellWork(t *testing.T, sh shape, kind string, seed uint64, rng *rand.Rand) {
	w := newWorld(sh.layout, sh.nodes, 4+rng.IntN(9), seed)
	w.job.Noise, w.job.Hiccup = 0.005+0.015*rng.Float64(), 0.03*rng.Float64()
	w.job.Unmarked = kind == "data-unmarked"
	w.job.Blocking = strings.HasPrefix(kind, "blocking")
	if kind == "lengths+gpu" { // always: such a job is noisy, and that is its healthy pace
		w.job.Lengths, w.job.Sized = 0.1+0.1*rng.Float64(), true
	}
	w.run(30 + rng.IntN(20))
	want := injectWork(w, kind, rng)
	w.run(30)
	least := 1.15
	if w.job.Lengths > 0 { // an onset is verified through that much noise where it is large
		least = 1.3
	}
	slow := falcon.Median(w.m.samples.slowest.newestValues(25))
	if slow < least*w.m.Steady().BaselineMs {
		t.Skip("it hardly slows the job: below the threshold of verification")
	}
	w.clearFaults()
	w.run(40)
	if len(w.all) == 0 && want.reason == falcon.ReasonLengths {
		t.Skip("no onset was verified through work that differs so much")
	}
	judgeWork(t, w, want)
}

// judgeWork: something is reported, all that is reported is true, and all that is true is reported.
func judgeWork(t *testing.T, w *world, want truth) {
	t.Helper()
	reason := want.reason == ""
	device := want.device == ""
	named := want.link == (falcon.Link{})
	for _, inc := range w.all {
		v := inc.Verdict
		for _, d := range v.Devices {
			if d != want.device {
				t.Errorf("%s blames %s (%s)", inc.ID, d, v.Cause)
			}
		}
		if want.link != (falcon.Link{}) {
			named = named || slices.Equal(v.Links, []falcon.Link{want.link}) && v.Reason == ""
			continue
		}
		if len(v.Links) > 0 ||
			v.HasCause(falcon.CauseNetwork) ||
			v.HasCause(falcon.CauseCPU) ||
			v.HasCause(falcon.CauseFacility) {
			t.Errorf("%s says %s %v %v", inc.ID, v.Cause, v.Also, v.Links)
		}
		if v.HasCause(falcon.CauseNotHardware) && v.Reason == want.reason && want.reason != "" {
			reason = true
			d := slices.DeleteFunc(slices.Clone(v.Ranks), func(r falcon.Rank) bool {
				return w.job.Placement[r] == want.device
			})
			if !slices.Equal(d, want.ranks) {
				t.Errorf("%s: ranks %v wait for data, want %v", inc.ID, d, want.ranks)
			}
		}
		silent := w.job.Layout.PP*w.job.Layout.TP == 1 // no call says how many passes there are, or how long
		if silent &&
			(want.reason == falcon.ReasonEvaluation ||
				want.reason == falcon.ReasonMicroBatches ||
				want.reason == falcon.ReasonLengths) {
			reason = reason || v.Cause == falcon.CauseNotHardware
		}
		if want.reason != "" && v.Reason != "" && v.Reason != want.reason {
			t.Errorf("%s says %s, want %s", inc.ID, v.Reason, want.reason)
		}
		// all computation lies before the first call: data and a slow device look alike
		if silent && w.job.Unmarked {
			reason = reason || v.Cause == falcon.CauseUnknown
			continue
		}
		if v.Cause == falcon.CauseUnknown && want.device == "" {
			t.Errorf("%s: cause unknown", inc.ID)
		}
		device = device || slices.Contains(v.Devices, want.device) && v.HasCause(falcon.CauseGPU)
		if inc.State != falcon.IncidentClosed {
			t.Errorf("%s stays %s", inc.ID, inc.State)
		}
	}
	if !reason || !device || !named {
		t.Errorf("%d incidents name not all of %+v", len(w.all), want)
	}
	if t.Failed() {
		t.Log(w.out.String())
	}
}

// injectWork begins what the job does, and says what is to be reported of it.
func injectWork(w *world, kind string, rng *rand.Rand) truth {
	ms := w.m.Steady().BaselineMs
	r := falcon.Rank(rng.IntN(len(w.job.Placement)))
	slowGPU := func() falcon.Device {
		d := w.job.Placement[(int(r)+1+rng.IntN(len(w.job.Placement)-1))%len(w.job.Placement)]
		w.job.Clock[d] = 0.4 + 0.2*rng.Float64()
		return d
	}
	switch kind {
	case "data", "data-unmarked":
		w.job.DataMs[r] = ms * (0.3 + rng.Float64())
		return truth{reason: falcon.ReasonData, ranks: []falcon.Rank{r}}
	case "data-all":
		for q := range w.job.Placement {
			w.job.DataMs[falcon.Rank(q)] = ms * (0.3 + 0.02*rng.Float64())
		}
		return truth{reason: falcon.ReasonData}
	case "save":
		w.job.SaveMs = ms * (0.3 + rng.Float64())
		return truth{reason: falcon.ReasonCheckpoint}
	case "garbage":
		w.job.Garbage, w.job.GarbageMs = 0.9, ms*(0.8+rng.Float64())
		return truth{reason: falcon.ReasonGarbage}
	case "evaluate":
		w.job.Evaluate = 2 + w.job.MicroBatches[0]*(1+rng.IntN(3))
		return truth{reason: falcon.ReasonEvaluation}
	case "micro":
		w.moreMicroBatches(1.5 + rng.Float64())
		return truth{reason: falcon.ReasonMicroBatches}
	case "fewer-lengths", "lengths-sized":
		w.job.Lengths, w.job.Sized = 0.5, true
		return truth{reason: falcon.ReasonLengths}
	case "data+gpu":
		w.job.DataMs[r] = ms * (0.6 + rng.Float64())
		return truth{
			reason: falcon.ReasonData,
			ranks:  []falcon.Rank{r},
			device: slowGPU(),
		}
	case "lengths+gpu":
		return truth{device: slowGPU()}
	case "evaluate+gpu":
		w.job.Evaluate = 1 + rng.IntN(w.job.MicroBatches[0])
		return truth{device: slowGPU()}
	case "blocking+gpu":
		return truth{device: slowGPU()}
	case "link", "blocking+link":
		l := ringLink(w, rng, 0)
		w.job.Link[l] = 0.03
		return truth{link: l}
	case "garbage+gpu":
		w.job.Garbage = 0.2
		w.job.GarbageMs = ms * 0.5
		return truth{device: slowGPU()}
	}
	panic(kind)
}

// moreMicroBatches has the job do more of them without a word.
func (w *world) moreMicroBatches(factor float64) {
	w.job.Undeclared = true
	for i, n := range w.job.MicroBatches {
		w.job.MicroBatches[i] = int(float64(n)*factor + 0.5)
	}
}

// The first iterations of a job are slow for its compiler and its caches: no incident, and the log
// says what it was. A job that gets faster later has not warmed up.
func TestWarmUpIsNamed(t *testing.T) {
	for _, after := range []int{25, 60} {
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 3)
		w.job.Load = []float64{1.6, 1.6}
		w.run(after)
		w.job.Load = nil
		w.run(30)
		got := strings.Contains(w.out.String(), fmt.Sprintf(
			"iterations 0 to %d were slower, as while a job warms up",
			after-1,
		))
		if got != (after == 25) || len(w.all) > 0 {
			t.Errorf("faster after %d iterations: warm-up named: %v, %d incidents\n%s",
				after, got, len(w.all), w.out.String())
		}
	}
}
