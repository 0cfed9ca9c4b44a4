// Package report makes the report of one incident out of the engine's answer:
// what was slow, the evidence for and against, who decided what, what was
// predicted and what came, the recoveries that belong to it, iteration time
// around it in text, and each line with its hash in the journal.
//
// The console and the command line write the same reports by it. It guarantees
// that every string in a report has been cleaned and that every number can be
// held by JSON. It is pure: no I/O, no clocks.
package report

import (
	"fmt"
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
)

// Incident is the report of one incident: the field names of the
// incidents in the lab's report. Every string in it has been cleaned.
type Incident struct {
	ID                string   `json:"id"`
	State             string   `json:"state"`
	FromStart         bool     `json:"from_start"`
	OnsetIteration    int64    `json:"onset_iteration"`
	DetectedIteration int64    `json:"detected_iteration"`
	RelievedIteration *int64   `json:"relieved_iteration"`
	HealthyMs         float64  `json:"healthy_ms"`
	SlowMs            float64  `json:"slow_ms"`
	Probability       float64  `json:"probability"`
	Verdict           Verdict  `json:"verdict"`
	Ladder            Ladder   `json:"ladder"`
	Actions           []Action `json:"actions"`
	Cost              Cost     `json:"cost"`
	// Validations are the tests made for it, newest first.
	Validations []falcon.Validation `json:"validations"`

	// What follows is there when one incident was asked for.
	Job       *Job       `json:"job,omitempty"`
	Timeline  []Line     `json:"timeline,omitempty"`
	Decisions []Decision `json:"decisions,omitempty"`
	Chart     *Chart     `json:"chart,omitempty"`
	// Recoveries are those from while it lasted, or of a node that it names, oldest first.
	Recoveries []falcon.Recovery `json:"recoveries,omitempty"`
	Emulated   []string          `json:"emulated,omitempty"` // what of the cluster is emulated
	ExportedAt string            `json:"exported_at,omitempty"`
	Engine     string            `json:"engine,omitempty"`
	Recording  string            `json:"recording,omitempty"` // file of a session that holds it
}

// Verdict is who is to blame, and why.
type Verdict struct {
	Cause      string            `json:"cause"`
	Also       []string          `json:"also,omitempty"`
	Devices    []string          `json:"devices"`
	Ranks      []int32           `json:"ranks"`
	Links      []string          `json:"links"`
	Severity   int32             `json:"severity"`
	Confidence float64           `json:"confidence"`
	Evidence   []falcon.Evidence `json:"evidence"`
}

// Ladder is what each mitigation costs and gains.
type Ladder struct {
	ImpactMs float64           `json:"impact_ms"`
	Rungs    []falcon.RungView `json:"rungs"`

	LossPerMinuteGPUh float64 `json:"loss_per_minute_gpu_hours"`
	Model             string  `json:"model,omitempty"` // what the prices rest on
}

// Action adds the names of the lab's report to the action.
type Action struct {
	falcon.Action
	Outcome string `json:"outcome"` // kept, reverted, or the state that it ended in
}

// Cost is what the incident has cost.
type Cost struct {
	LostGPUHours float64 `json:"lost_gpu_hours"`
}

// Of makes the reports of all incidents in an answer; an answer about one
// incident makes a whole one.
func Of(r *falconv1.IncidentsReply) []Incident {
	out := make([]Incident, 0, len(r.GetIncidents()))
	for i, v := range r.GetIncidents() {
		var l *falconv1.Ladder
		if i < len(r.GetLadders()) {
			l = r.GetLadders()[i]
		}
		s := of(v, l)
		for _, t := range r.GetValidations() {
			if t.GetIncident() == v.GetId() {
				s.Validations = append(s.Validations, ValidationOf(t))
			}
		}
		if len(r.GetIncidents()) == 1 {
			s.complete(r)
		}
		out = append(out, s)
	}
	return out
}

func of(v *falconv1.Incident, l *falconv1.Ladder) Incident {
	s := Incident{
		ID: clean.String(v.GetId()), State: clean.String(v.GetState()), FromStart: v.GetFromStart(),
		OnsetIteration: v.GetOnsetIteration(), DetectedIteration: v.GetDetectedIteration(),
		HealthyMs: v.GetHealthyMs(), SlowMs: v.GetSlowMs(), Probability: v.GetProbability(),
		Verdict: verdictOf(v.GetVerdict()), Actions: []Action{}, Validations: []falcon.Validation{},
		Cost: Cost{l.GetLostGpuHours()}, Ladder: Ladder{
			ImpactMs: l.GetImpactMs(), Rungs: []falcon.RungView{}, LossPerMinuteGPUh: l.GetLossPerMinuteGpuHours(), Model: clean.String(l.GetModel()),
		},
	}
	if r := v.GetRelievedIteration(); r != falcon.NoIteration {
		s.RelievedIteration = &r
	}
	for _, a := range l.GetActions() {
		s.Actions = append(s.Actions, ActionOf(a))
	}
	for _, r := range l.GetRungs() {
		s.Ladder.Rungs = append(s.Ladder.Rungs, rungOf(r))
	}
	return s
}

func verdictOf(v *falconv1.Verdict) Verdict {
	out := Verdict{
		Cause: clean.String(v.GetCause()), Also: cleanAll(v.GetAlso()), Devices: cleanAll(v.GetDevices()),
		Ranks: append([]int32{}, v.GetRanks()...), Links: cleanAll(v.GetLinks()),
		Severity: v.GetSeverity(), Confidence: v.GetConfidence(), Evidence: []falcon.Evidence{},
	}
	for _, e := range v.GetEvidence() {
		out.Evidence = append(out.Evidence, falcon.Evidence{Kind: falcon.EvidenceKind(clean.String(e.GetKind())), Text: clean.String(e.GetText()), Against: e.GetAgainst()})
	}
	return out
}

func cleanAll(in []string) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = clean.String(s)
	}
	return out
}

// Slowdown is how much slower iterations were, "+80 %".
func (s Incident) Slowdown() string {
	if s.HealthyMs <= 0 {
		return "?"
	}
	return fmt.Sprintf("%+.0f %%", (s.SlowMs/s.HealthyMs-1)*100)
}

// Where names devices and links.
func (s Incident) Where() string {
	if places := append(append([]string{}, s.Verdict.Devices...), s.Verdict.Links...); len(places) > 0 {
		return strings.Join(places, ",")
	}
	return "-"
}

// Newest is the newest action and its state.
func (s Incident) Newest() string {
	if n := len(s.Actions); n > 0 {
		return fmt.Sprintf("%s %s", s.Actions[n-1].Rung, s.Actions[n-1].State)
	}
	return "-"
}

// Headline is the verdict in a line.
func (s Incident) Headline() string {
	if s.Verdict.Cause == "" {
		return "slow, culprit not yet known"
	}
	return fmt.Sprintf("%s at %s, confidence %.2f", s.Verdict.Cause, s.Where(), s.Verdict.Confidence)
}

// IterationText says when, or "not yet".
func IterationText(i *int64) string {
	if i == nil {
		return "not yet"
	}
	return fmt.Sprint("at iteration ", *i)
}
