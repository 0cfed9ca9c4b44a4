package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/failslow/falcon/agent/lab"
)

// A machine that others use too takes CPU time from the emulated job, which
// then is slower in truth, and Falcon says so. A run is disturbed when the
// hypervisor gave the CPUs to others for more than stealMost of the time, or
// when the job's iterations without any fault scatter by more than scatterMost.
const (
	stealMost   = 0.005
	scatterMost = 1.15
)

// cpuTimes are the stolen and all ticks of /proc/stat since boot.
func cpuTimes(stat string) (stolen, all uint64) {
	line, _, _ := strings.Cut(stat, "\n")
	for i, f := range strings.Fields(line) {
		v, err := strconv.ParseUint(f, 10, 64)
		if i == 0 || i > 8 || err != nil { // peer time is in user time already
			continue
		}
		all += v
		if i == 8 {
			stolen = v
		}
	}
	return stolen, all
}

// stealMeter starts counting; the function tells the share since then.
func stealMeter() func() float64 {
	read := func() (uint64, uint64) {
		b, _ := os.ReadFile("/proc/stat") // without it nothing was stolen
		return cpuTimes(string(b))
	}
	s0, a0 := read()
	return func() float64 {
		s1, a1 := read()
		if a1 <= a0 {
			return 0
		}
		return float64(s1-s0) / float64(a1-a0)
	}
}

// scatter is the ninth decile over the first of the iterations that no fault
// and no action touched, after the warm-up; 1 where there are none.
func scatter(r lab.Report) float64 {
	first := int64(len(r.Iterations))
	for _, i := range r.Injected {
		first = min(first, i.FirstIteration)
	}
	var ms []float64
	for _, i := range r.Iterations {
		if i.Index >= 10 && i.Index < first {
			ms = append(ms, i.Ms)
		}
	}
	if len(ms) < 10 {
		return 1
	}
	slices.Sort(ms)
	return ms[len(ms)*9/10] / ms[len(ms)/10]
}

func disturbed(r lab.Report, steal float64) bool {
	return steal > stealMost || scatter(r) > scatterMost
}

func TestDisturbedRuns(t *testing.T) {
	if s, all := cpuTimes("cpu  100 0 50 800 10 0 0 40 7 7\ncpu0 1 1 1\n"); s != 40 || all != 1000 {
		t.Errorf("stolen %d of %d ticks", s, all)
	}
	calm := lab.Report{Injected: []lab.Injected{{FirstIteration: 40}}}
	for i := range int64(60) {
		it := lab.Iteration{Index: i, Ms: 140 + float64(i%5)}
		if i >= 40 {
			it.Ms = 280
		}
		calm.Iterations = append(calm.Iterations, it)
	}
	if disturbed(calm, 0.001) || !disturbed(calm, 0.02) {
		t.Errorf("calm run: scatter %.2f", scatter(calm))
	}
	calm.Iterations[20].Ms = 300
	calm.Iterations[21].Ms = 310
	calm.Iterations[22].Ms = 290
	calm.Iterations[23].Ms = 280
	if !disturbed(calm, 0) {
		t.Errorf("a burst went unseen: scatter %.2f", scatter(calm))
	}
}
