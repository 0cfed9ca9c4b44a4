package detect

import (
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

// A healthy rank most of whose peers are culprits is as fast as its healthy peer, and one that has no
// healthy peer is compared with nobody.
func TestHealthyRanksAreComparedWithHealthyPeers(t *testing.T) {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 1}, 4, 8, 5)
	w.run(40)
	for i, d := range []falcon.Device{"n1.g0", "n2.g0", "n3.g0"} { // each slower than those before
		w.job.Clock[d] = []float64{0.55, 0.4, 0.28}[i]
		w.run(60)
		var named []falcon.Rank
		for _, v := range w.m.Open() {
			named = append(named, v.Verdict.Ranks...)
		}
		slices.Sort(named)
		if want := []falcon.Rank{1, 2, 3}[:i+1]; !slices.Equal(named, want) {
			t.Fatalf("named are %v, not %v\n%s", named, want, w.out.String())
		}
		for r := range falcon.Rank(4) {
			got, _ := w.m.Rank(r)
			switch healthy := !slices.Contains(named, r); {
			case healthy && i == 2 && got.SelfRatio != 0:
				t.Errorf("rank %d, without a healthy peer, has %.2f", r, got.SelfRatio)
			case healthy && i < 2 && (got.SelfRatio < 0.9 || got.SelfRatio > 1.1):
				t.Errorf("%d culprits: healthy rank %d has %.2f", i+1, r, got.SelfRatio)
			case !healthy && got.SelfRatio < 1.7:
				t.Errorf("%d culprits: rank %d has %.2f", i+1, r, got.SelfRatio)
			}
			t.Logf("%d culprits: rank %d: %.2f, among all peers %.2f",
				i+1, r, got.SelfRatio, w.m.profile.shown[r].Ratio)
		}
	}
}
