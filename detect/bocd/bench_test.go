package bocd

import (
	"math/rand/v2"
	"testing"
)

func stationary(n int) []float64 {
	rng := rand.New(rand.NewPCG(1, 2))
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = rng.NormFloat64()
	}
	return xs
}

// BenchmarkFilter is one observation under the production setting.
func BenchmarkFilter(b *testing.B) {
	xs := stationary(1 << 16)
	f := New(DefaultConfig())
	b.ReportAllocs()
	runs := 0
	for i := range b.N {
		s, _ := f.Observe(xs[i&(1<<16-1)])
		runs += s.Runs
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "obs/s")
	b.ReportMetric(float64(runs)/float64(b.N), "runs")
}
