package detect

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
)

// One Step takes an iteration of all ranks. cpu-ns/sample is the process's CPU time for
// each rank's share, however busy the machine is: 100,000 ranks at 4 iterations a second
// take half a core at 1250.
func BenchmarkStep(b *testing.B) {
	for _, verification := range []string{bocd.VerifyPaper, bocd.VerifyAdaptive} {
		for _, ranks := range []int{1024, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/ranks=%d", verification, ranks), func(b *testing.B) {
				benchmarkStep(b, verification, ranks)
			})
		}
	}
}

func benchmarkStep(b *testing.B, verification string, ranks int) {
	l := falcon.Layout{TP: 1, DP: ranks / 4, PP: 4}
	cfg := DefaultConfig()
	cfg.Tracker.Verification = verification
	m := New(cfg)
	var p falcon.Placement
	for r := range ranks {
		p = append(p, falcon.NewDevice(falcon.Node(fmt.Sprintf("n%d", r/8)), r%8))
	}
	now := time.Unix(0, 0)
	m.Step(now, Job{Epoch: 1, Layout: l, Placement: p})
	rng := rand.New(rand.NewPCG(1, 1))
	in := Samples{Samples: make([]falcon.Sample, ranks)}
	iteration := int64(0)
	step := func() {
		ms := 1000 + 5*rng.NormFloat64()
		for r := range in.Samples {
			in.Samples[r] = falcon.Sample{
				Rank:      falcon.Rank(r),
				Iteration: iteration,
				Ms:        ms + rng.Float64(),
			}
		}
		iteration++
		now = now.Add(time.Second)
		m.Step(now, in)
		m.Advance()
	}
	for range 130 { // the levels are learnt, and the ranks at rest
		step()
	}
	b.ReportAllocs()
	from := cpuTime(b)
	for b.Loop() {
		step()
	}
	b.ReportMetric(float64((cpuTime(b)-from).Nanoseconds())/float64(b.N)/float64(ranks), "cpu-ns/sample")
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
