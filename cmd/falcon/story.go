package main

import (
	"fmt"
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// incidentStory is one incident as commands write it: the field names of the
// incidents in the lab's report. Every string in it has been cleaned.
type incidentStory struct {
	ID                string        `json:"id"`
	State             string        `json:"state"`
	FromStart         bool          `json:"from_start"`
	OnsetIteration    int64         `json:"onset_iteration"`
	DetectedIteration int64         `json:"detected_iteration"`
	RelievedIteration *int64        `json:"relieved_iteration"`
	HealthyMs         float64       `json:"healthy_ms"`
	SlowMs            float64       `json:"slow_ms"`
	Probability       float64       `json:"probability"`
	Verdict           storyVerdict  `json:"verdict"`
	Ladder            storyLadder   `json:"ladder"`
	Actions           []storyAction `json:"actions"`
	Cost              storyCost     `json:"cost"`
	// Validations are the tests made for it, newest first.
	Validations []falcon.Validation `json:"validations"`
}

type storyVerdict struct {
	Cause      string            `json:"cause"`
	Also       []string          `json:"also,omitempty"`
	Devices    []string          `json:"devices"`
	Ranks      []int32           `json:"ranks"`
	Links      []string          `json:"links"`
	Severity   int32             `json:"severity"`
	Confidence float64           `json:"confidence"`
	Evidence   []falcon.Evidence `json:"evidence"`
}

type storyLadder struct {
	ImpactMs float64           `json:"impact_ms"`
	Rungs    []falcon.RungView `json:"rungs"`

	LossPerMinuteGPUh float64 `json:"loss_per_minute_gpu_hours"`
	Model             string  `json:"model,omitempty"` // what the prices rest on
}

// storyAction adds the names of the lab's report to the action.
type storyAction struct {
	falcon.Action
	Outcome string `json:"outcome"` // kept, reverted, or the state that it ended in
}

type storyCost struct {
	LostGPUHours float64 `json:"lost_gpu_hours"`
}

func storiesOf(r *falconv1.IncidentsReply) []incidentStory {
	out := make([]incidentStory, 0, len(r.GetIncidents()))
	for i, v := range r.GetIncidents() {
		var l *falconv1.Ladder
		if i < len(r.GetLadders()) {
			l = r.GetLadders()[i]
		}
		s := storyOf(v, l)
		for _, t := range r.GetValidations() {
			if t.GetIncident() == v.GetId() {
				s.Validations = append(s.Validations, validationOf(t))
			}
		}
		out = append(out, s)
	}
	return out
}

func storyOf(v *falconv1.Incident, l *falconv1.Ladder) incidentStory {
	s := incidentStory{
		ID: clean(v.GetId()), State: clean(v.GetState()), FromStart: v.GetFromStart(),
		OnsetIteration: v.GetOnsetIteration(), DetectedIteration: v.GetDetectedIteration(),
		HealthyMs: v.GetHealthyMs(), SlowMs: v.GetSlowMs(), Probability: v.GetProbability(),
		Verdict: verdictOf(v.GetVerdict()), Actions: []storyAction{}, Validations: []falcon.Validation{},
		Cost: storyCost{l.GetLostGpuHours()}, Ladder: storyLadder{
			ImpactMs: l.GetImpactMs(), Rungs: []falcon.RungView{}, LossPerMinuteGPUh: l.GetLossPerMinuteGpuHours(), Model: clean(l.GetModel()),
		},
	}
	if r := v.GetRelievedIteration(); r != falcon.NoIteration {
		s.RelievedIteration = &r
	}
	for _, a := range l.GetActions() {
		s.Actions = append(s.Actions, actionOf(a))
	}
	for _, r := range l.GetRungs() {
		s.Ladder.Rungs = append(s.Ladder.Rungs, rungOf(r))
	}
	return s
}

func verdictOf(v *falconv1.Verdict) storyVerdict {
	out := storyVerdict{
		Cause: clean(v.GetCause()), Also: cleanAll(v.GetAlso()), Devices: cleanAll(v.GetDevices()),
		Ranks: append([]int32{}, v.GetRanks()...), Links: cleanAll(v.GetLinks()),
		Severity: v.GetSeverity(), Confidence: v.GetConfidence(), Evidence: []falcon.Evidence{},
	}
	for _, e := range v.GetEvidence() {
		out.Evidence = append(out.Evidence, falcon.Evidence{Kind: falcon.EvidenceKind(clean(e.GetKind())), Text: clean(e.GetText()), Against: e.GetAgainst()})
	}
	return out
}

func cleanAll(in []string) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = clean(s)
	}
	return out
}

func (s incidentStory) slowdown() string {
	if s.HealthyMs <= 0 {
		return "?"
	}
	return fmt.Sprintf("%+.0f %%", (s.SlowMs/s.HealthyMs-1)*100)
}

func (s incidentStory) where() string {
	if places := append(append([]string{}, s.Verdict.Devices...), s.Verdict.Links...); len(places) > 0 {
		return strings.Join(places, ",")
	}
	return "-"
}

func (s incidentStory) newest() string {
	if n := len(s.Actions); n > 0 {
		return fmt.Sprintf("%s %s", s.Actions[n-1].Rung, s.Actions[n-1].State)
	}
	return "-"
}

func (s incidentStory) headline() string {
	if s.Verdict.Cause == "" {
		return "slow, culprit not yet known"
	}
	return fmt.Sprintf("%s at %s, confidence %.2f", s.Verdict.Cause, s.where(), s.Verdict.Confidence)
}

func iterationText(i *int64) string {
	if i == nil {
		return "not yet"
	}
	return fmt.Sprint("at iteration ", *i)
}
