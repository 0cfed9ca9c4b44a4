package cause

import (
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// Lost timings are said in the verdict and lower its confidence, the more the more were lost.
func TestLostTimingsLowerTheConfidence(t *testing.T) {
	last := 2.0
	for _, dropped := range []uint64{0, 100, 1000, 10_000} {
		ranks := make([]peer.Rank, 8)
		for r := range ranks {
			ranks[r] = peer.Rank{
				Rank:     falcon.Rank(r),
				Measured: true,
				SelfMs:   10,
				PeerMs:   10,
				Peers:    7,
				Ratio:    1,
				Basis:    peer.ByPeers,
			}
		}
		ranks[3].SelfMs, ranks[3].Ratio, ranks[3].Slow = 20, 2, true
		v := Judge(Case{
			Layout:    falcon.Layout{TP: 1, DP: 8, PP: 1},
			HealthyMs: 100,
			SlowMs:    200,
			Timing: peer.Result{
				Ranks:   ranks,
				Slow:    []falcon.Rank{3},
				Clear:   true,
				Timed:   1000,
				Dropped: dropped,
			},
		})
		said := false
		for _, e := range v.Evidence {
			said = said || e.Against && strings.Contains(e.Text, "were lost")
		}
		if v.Confidence >= last || said != (dropped > 0) {
			t.Errorf("%d dropped: confidence %.3f after %.3f, said %t", dropped, v.Confidence, last, said)
		}
		last = v.Confidence
	}
}
