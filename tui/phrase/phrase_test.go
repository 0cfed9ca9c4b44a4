package phrase

import (
	"math"
	"testing"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestPhrases(t *testing.T) {
	for _, pair := range [][2]string{
		{Ms(0), "—"},
		{Ms(math.NaN()), "—"},
		{Ms(31.04), "31.0 ms"},
		{Ms(212.4), "212 ms"},
		{Ms(12_340), "12.3 s"},
		{Ms(90_000), "1.5 min"},
		{Percent(0.904), "+90%"},
		{Percent(-0.346), "-35%"},
		{Percent(0.001), "0%"},
		{Percent(24), "+25x"},
		{Change(400, 262), "-35%"},
		{Change(0, 5), "—"},
		{Count(184220), "184,220"},
		{Count(-1234), "-1,234"},
		{Count(12), "12"},
		{Iteration(-1), "—"},
		{Span(0), ""},
		{Span(math.NaN()), ""},
		{Span(200), "1 s"},
		{Span(119_000), "119 s"},
		{Span(4_560_000), "76 min"},
		{Span(3 * 3_600_000), "3 h"},
		{Span(72 * 3_600_000), "3 days"},
		{Span(math.Inf(1)), "over a year"},
		{Mode(&falconv1.Policy{Mode: "auto", Cap: "S2"}), "AUTO ≤ S2"},
		{Mode(&falconv1.Policy{Mode: "auto", Cap: "S1"}), "APPROVE"},
		{Mode(&falconv1.Policy{Mode: "auto", Cap: "S3", Frozen: true}), "FROZEN"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("got %q, want %q", pair[0], pair[1])
		}
	}
}

func TestPlan(t *testing.T) {
	prev := []int32{8, 8, 8, 8}
	next := []int32{9, 9, 5, 9}
	for w, want := range map[int]string{
		80: "8,8,8,8 → 9,9,5,9",
		14: "replica 2: 8 → 5",
	} {
		if got := Plan(prev, next, w); got != want {
			t.Errorf("width %d: %q, want %q", w, got, want)
		}
	}
	many := make([]int32, 512)
	for i := range many {
		many[i] = 8
	}
	fewer := append([]int32(nil), many...)
	fewer[7], fewer[8] = 3, 9
	if got, want := Plan(many, fewer, 60), "replica 7: 8 → 3; 511 others: 8 or 9 each"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestVerdict(t *testing.T) {
	v := &falconv1.Verdict{
		Cause: "network_congestion",
		Also:  []string{"cpu_contention"},
		Links: []string{"n1-n3"},
		Ranks: []int32{1, 2, 3, 4, 5, 6},
	}
	want := "network congestion and CPU contention on link n1-n3 (ranks 1-6)"
	if got := Verdict(v); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	stalled := &falconv1.Verdict{
		Cause:  "not_hardware",
		Reason: "data_stall",
		Ranks:  []int32{3},
	}
	if got, want := Verdict(stalled), "not hardware: data stall on (rank 3)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, r := range falcon.Reasons() {
		if _, known := reasons[r]; !known {
			t.Errorf("no words for the reason %s", r)
		}
	}
	if got := Verdict(nil); got != "looking for the culprit" {
		t.Errorf("no verdict: %q", got)
	}
}

func TestBecause(t *testing.T) {
	for want, a := range map[string]*falconv1.Action{
		"": {State: "kept"},
		": the fault has cleared": {
			State:        "reverted",
			Reason:       "automatic up to S2",
			RevertReason: "the fault has cleared",
		},
		": maintenance": {State: "vetoed", Reason: "maintenance"},
	} {
		if got := Because(a); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
