package main

import (
	"fmt"

	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/tui/report"
)

// incidentAnswer is an incident of a live job as the answer of an autopsy, for the same page.
func incidentAnswer(s report.Incident) autopsy.Answer {
	a := autopsy.Answer{
		Kind:       autopsy.KindSlow,
		Summary:    s.ID + ": " + s.Headline(),
		Confidence: s.Verdict.Confidence,
		Ranks:      []int{},
		Hosts:      []string{},
		Devices:    []string{},
		Next:       []string{},
	}
	for _, r := range s.Verdict.Ranks {
		a.Ranks = append(a.Ranks, int(r))
	}
	for _, d := range s.Verdict.Devices {
		a.Devices = append(a.Devices, string(d))
	}
	if s.HealthyMs > 0 {
		a.Slowdown = s.SlowMs / s.HealthyMs
	}
	for _, e := range s.Verdict.Evidence {
		a.Findings = append(a.Findings, autopsy.Finding{
			Kind:    string(e.Kind),
			Against: e.Against,
			Text:    e.Text,
		})
	}
	for _, x := range s.Actions {
		a.Findings = append(a.Findings, autopsy.Finding{
			Kind: "action",
			Text: fmt.Sprintf("%s %s: %s", x.ID, x.Rung, x.Outcome),
		})
	}
	at := s.OnsetIteration
	a.Onset = &autopsy.Onset{Iteration: &at}
	if s.Chart != nil {
		a.Onset.Index = int(max(0, at-s.Chart.FirstIteration))
	}
	return a
}

// incidentFacts are the iteration times around it.
func incidentFacts(s report.Incident) *autopsy.Facts {
	if s.Chart == nil {
		return &autopsy.Facts{}
	}
	series := autopsy.Series{
		Name: fmt.Sprintf("iterations of rank %d", s.Chart.Rank),
		Unit: "ms",
		Who:  autopsy.Nobody,
	}
	for i, ms := range s.Chart.Ms {
		if ms > 0 {
			series.Points = append(series.Points, autopsy.Point{
				Value:     float64(ms),
				Iteration: s.Chart.FirstIteration + int64(i),
			})
		}
	}
	return &autopsy.Facts{Series: []autopsy.Series{series}}
}
