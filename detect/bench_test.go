package detect

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// One Step takes an iteration of all ranks; the figure per rank is its share.
func BenchmarkStep(b *testing.B) {
	for _, ranks := range []int{1024, 10_000} {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) {
			l := falcon.Layout{TP: 1, DP: ranks / 4, PP: 4}
			m := New(Config{})
			var p falcon.Placement
			for r := range ranks {
				p = append(p, falcon.NewDevice(falcon.Node(fmt.Sprintf("n%d", r/8)), r%8))
			}
			now := time.Unix(0, 0)
			m.Step(now, Job{Epoch: 1, Layout: l, Placement: p})
			rng := rand.New(rand.NewPCG(1, 1))
			in := Samples{Samples: make([]falcon.Sample, ranks)}
			iteration := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				ms := 1000 + 5*rng.NormFloat64()
				for r := range in.Samples {
					in.Samples[r] = falcon.Sample{Rank: falcon.Rank(r), Iteration: iteration, Ms: ms + rng.Float64()}
				}
				iteration++
				now = now.Add(time.Second)
				m.Step(now, in)
				m.Advance()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(ranks), "ns/sample")
		})
	}
}
