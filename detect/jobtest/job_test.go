package jobtest

import (
	"testing"

	"github.com/failslow/falcon"
)

// A healthy pipeline takes (m + p − 1) passes, and the slow stage of a
// replica paces it.
func TestIterationFollowsTheSchedule(t *testing.T) {
	j := New(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 1)
	j.Noise = 0
	s, p := j.Iteration(1, 0)
	healthy := s[0].Ms
	if ideal := 9 * 15.0; healthy < ideal || healthy > ideal*1.1 {
		t.Fatalf("healthy iteration %.1f ms, want a little over %.1f", healthy, ideal)
	}
	for _, q := range p {
		if q.SelfMs < 14.9 || q.SelfMs > 15.5 {
			t.Errorf("rank %d: healthy self time %.2f ms, want 15", q.Rank, q.SelfMs)
		}
	}
	j.Clock["n1.g0"] = 0.5
	s, p = j.Iteration(1, 0)
	if slow := s[0].Ms; slow < 8*30 {
		t.Errorf("slow iteration %.1f ms, want at least 240", slow)
	}
	for _, q := range p {
		want := 15.0
		if j.Placement[q.Rank] == "n1.g0" {
			want = 30
		}
		if q.SelfMs < want*0.97 || q.SelfMs > want*1.06 {
			t.Errorf("rank %d: self time %.2f ms, want %.0f", q.Rank, q.SelfMs, want)
		}
	}
}
