package main

import (
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/tui/report"
)

// An incident of a live job is the same page as that of an autopsy.
func TestAnIncidentAsAPage(t *testing.T) {
	s := report.Incident{Chart: &report.Chart{Rank: 2, FirstIteration: 30}}
	s.ID = "INC-0001"
	s.OnsetIteration = 40
	s.HealthyMs = 140
	s.SlowMs = 249
	s.Verdict = falcon.Verdict{
		Cause:      falcon.CauseGPU,
		Ranks:      []falcon.Rank{2},
		Devices:    []falcon.Device{"n1.g0"},
		Confidence: 0.97,
		Evidence: []falcon.Evidence{
			{Text: "<script>rank 2 computes twice as long"},
			{Text: "its node is not loaded", Against: true},
		},
	}
	for i := range 30 {
		ms := float32(140)
		if i >= 10 {
			ms = 249
		}
		s.Chart.Ms = append(s.Chart.Ms, ms)
	}
	a := incidentAnswer(s)
	if a.Kind != autopsy.KindSlow ||
		a.Onset.Index != 10 ||
		a.Devices[0] != "n1.g0" ||
		a.Slowdown < 1.77 {
		t.Errorf("%+v", a)
	}
	var b strings.Builder
	if err := renderAutopsy(&b, a, incidentFacts(s)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"INC-0001",
		"rank 2 computes twice as long",
		"its node is not loaded",
		"<polyline",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(b.String(), "<script>") {
		t.Error("an engine's text is the page's code")
	}
}
