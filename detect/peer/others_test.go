package peer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
)

func TestOthersEqualTheNaiveMedian(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 5000 {
		v := make([]float64, 1+rng.IntN(9))
		for i := range v {
			v[i] = float64(rng.IntN(6)) // many alike
		}
		all := othersOf(slices.Clone(v))
		for i, x := range v {
			got := all.medianWithout(x)
			want := naiveMedian(slices.Delete(slices.Clone(v), i, i+1))
			if got != want || all.count() != len(v)-1 {
				t.Fatalf("%v without %v: %v of %d, want %v", v, x, got, all.count(), want)
			}
		}
	}
}

// wide is a window of many replicas, made of those of a small job.
func wide(dp int) Window {
	const few, pp = 8, 4
	j := jobtest.New(falcon.Layout{TP: 1, DP: few, PP: pp}, few, 8, 8)
	_, small := j.Iteration(2, 1)
	w := Window{Layout: falcon.Layout{TP: 1, DP: dp, PP: pp}}
	for r := range falcon.Rank(w.Layout.World()) {
		at := w.Layout.Coord(r)
		p := small[j.Layout.RankOf(falcon.Coord{DP: at.DP % few, PP: at.PP})]
		p.Rank = r
		p.Calls = slices.Clone(p.Calls)
		for i := range p.Calls {
			if c := &p.Calls[i]; c.Op == falcon.OpSend || c.Op == falcon.OpRecv {
				c.Comm = 1_000_000 + uint64(at.DP)
			} else if c.Comm != jobtest.WorldComm {
				c.Comm = 1000 + uint64(at.PP)
			}
		}
		w.Profiles = append(w.Profiles, p)
	}
	return w
}

// The cost of a window grows with its calls, not with the square of the ranks.
func BenchmarkJudgeWide(b *testing.B) {
	for _, dp := range []int{256, 1024, 2048} {
		w := wide(dp)
		b.Run(fmt.Sprintf("ranks=%d", w.Layout.World()), func(b *testing.B) {
			for b.Loop() {
				Judge(w)
			}
			b.ReportMetric(
				float64(b.Elapsed().Microseconds())/float64(b.N)/float64(w.Layout.World()),
				"µs/rank",
			)
		})
	}
}
