package detect

import (
	"math"
	"testing"

	"github.com/failslow/falcon"
)

// Results that make no sense name no rank and break nothing.
func TestNonsensicalValidations(t *testing.T) {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 8, 8, 5)
	w.tests = "off"
	w.run(40)
	w.job.Link[falcon.NewLink("n1", "n2")] = 0.05
	w.run(12)
	id := w.m.Open()[0].ID
	nan := math.NaN()
	inf := math.Inf(1)
	for _, v := range []falcon.Validation{
		{},
		{State: "no such state"},
		{
			State: falcon.ValidationTesting,
			Ask:   falcon.ValidationAsk{Incident: id},
			Links: []falcon.LinkResult{{
				FromDevice: "n1.g0",
				ToDevice:   "n2.g0",
				Ms:         9,
				BaseMs:     1,
				Ratio:      9,
				Slow:       true,
			}},
		},
		{
			State: falcon.ValidationDone,
			Ask:   falcon.ValidationAsk{Incident: "INC-9999"},
			GEMM: []falcon.GEMMResult{{
				Rank:   -7,
				Device: "n1.g0",
				Ms:     1,
				Slow:   true,
			}},
		},
		{
			State:  falcon.ValidationFailed,
			Ask:    falcon.ValidationAsk{Incident: id},
			Reason: "an agent was lost",
		},
		{
			State: falcon.ValidationDone,
			Ask:   falcon.ValidationAsk{Incident: id},
			GEMM: []falcon.GEMMResult{
				{Rank: 1 << 20, Device: "", Ms: nan, Ratio: inf, Slow: true},
				{Device: "n9.g9", Ms: -1, Ratio: nan, Slow: true},
			},
			Links: []falcon.LinkResult{
				{From: -1, To: 1 << 20, Slow: true, Ms: inf, BaseMs: nan, Ratio: nan},
				{FromDevice: "n1.g0", ToDevice: "n1.g0", Ms: 1, BaseMs: 1, Ratio: 5, Slow: true},
				{FromDevice: "n1", ToDevice: "x", Ms: 1, BaseMs: 1, Ratio: 5, Slow: true},
			},
		},
	} {
		w.step(Validated{Validation: v})
	}
	open := w.m.Open()
	if len(open) != 1 ||
		len(open[0].Verdict.Links)+len(open[0].Verdict.Devices) > 0 ||
		open[0].Verdict.Cause != falcon.CauseNetwork {
		t.Errorf("open %+v\n%s", open, w.out.String())
	}
}

// A validation of another moment proves nothing about an incident.
func TestAnOldValidationIsNoEvidence(t *testing.T) {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 5)
	w.run(40)
	old := w.job.Validate(falcon.ValidationAsk{
		By:   "alice",
		GEMM: []falcon.Rank{0, 1, 2, 3},
	})
	w.job.Clock["n1.g0"] = 0.5
	w.run(20)
	before := w.m.Open()[0].Verdict
	w.step(Validated{Validation: old})
	after := w.m.Open()[0].Verdict
	if len(after.Evidence) != len(before.Evidence) || after.Confidence != before.Confidence {
		t.Errorf("before %+v, after %+v", before, after)
	}
	w.step(Validated{
		Validation: w.job.Validate(falcon.ValidationAsk{
			By:   "alice",
			GEMM: []falcon.Rank{0, 1, 2, 3},
		}),
	})
	now := w.m.Open()[0].Verdict
	if len(now.Evidence) <= len(before.Evidence) || now.Confidence < before.Confidence {
		t.Errorf("a fresh one by an operator added nothing: %+v", now)
	}
}
