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
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/phrase"
)

// Incident is the report of one incident: the field names of the
// incidents in the lab's report. Every string in it has been cleaned.
type Incident struct {
	falcon.Incident
	FromStart         bool   `json:"from_start"`         // also where it is false
	RelievedIteration *int64 `json:"relieved_iteration"` // null while it lasts
	OnsetUnixNs       int64  `json:"onset_unix_ns"`      // estimated; 0 = not known
	// when its relief was seen; 0 while it lasts
	EndUnixNs int64 `json:"end_unix_ns"`
	// of the first occurrence, where there were several
	FirstOnsetUnixNs int64    `json:"first_onset_unix_ns,omitempty"`
	Ladder           Ladder   `json:"ladder"`
	Actions          []Action `json:"actions"`
	Cost             Cost     `json:"cost"`
	// Validations are the tests made for it, newest first.
	Validations []falcon.Validation `json:"validations"`
	// Triage is who looks after it; nil where no one has said anything.
	Triage *Triage `json:"triage,omitempty"`

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

	since string
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

// Of makes the reports of all incidents in an answer; that of a single one is complete.
func Of(answer *falconv1.IncidentsReply) []Incident {
	r := received(answer)
	out := make([]Incident, len(r.GetIncidents()))
	for i, v := range r.GetIncidents() {
		var l *falconv1.Ladder
		if i < len(r.GetLadders()) {
			l = r.GetLadders()[i]
		}
		s := &out[i]
		*s = incidentOf(convert.IncidentFromProto(v), convert.LadderFromProto(l))
		s.OnsetUnixNs = v.GetOnsetUnixNs()
		s.EndUnixNs = v.GetEndUnixNs()
		s.FirstOnsetUnixNs = v.GetFirstOnsetUnixNs()
		s.since = phrase.Since(v, time.Unix(0, r.GetAtUnixNs()), nil)
		for _, t := range r.GetValidations() {
			if t.GetIncident() == v.GetId() {
				s.Validations = append(s.Validations, convert.ValidationFromProto(t))
			}
		}
	}
	for _, t := range TriageOf(r.GetTriage(), r.GetAtUnixNs()) {
		for i := range out {
			if out[i].ID == t.Incident {
				out[i].Triage = t
			}
		}
	}
	if len(out) == 1 {
		out[0].complete(r)
	}
	return out
}

func incidentOf(v falcon.Incident, l falcon.Ladder) Incident {
	s := Incident{
		Incident:    v,
		FromStart:   v.FromStart,
		Validations: []falcon.Validation{},
		Cost:        Cost{l.LostGPUh},
		Ladder: Ladder{
			l.ImpactMs,
			append([]falcon.RungView{}, l.Rungs...),
			l.LossPerMinuteGPUh,
			l.Model,
		},
		Actions: make([]Action, len(l.Actions)),
	}
	s.Verdict.Evidence = append([]falcon.Evidence{}, v.Verdict.Evidence...)
	if v.RelievedIteration != falcon.NoIteration {
		s.RelievedIteration = &v.RelievedIteration
	}
	for i, a := range l.Actions {
		s.Actions[i] = actionOf(a)
	}
	return s
}

// Since is when it began, UTC, and for how long it lasted or lasts; "-" where that is not known.
func (s Incident) Since() string {
	return cmp.Or(s.since, "-")
}

// Onset is where it began: its iteration, and by the clock where that is known.
func (s Incident) Onset() string {
	t := fmt.Sprintf("iteration %d", s.OnsetIteration)
	if s.since == "" {
		return t
	}
	return t + ", " + s.since
}

// Slowdown is how much slower iterations were than just before, "+80 %", and than the healthy
// ones where those are others.
func (s Incident) Slowdown() string {
	if s.HealthyMs <= 0 {
		return "?"
	}
	t := fmt.Sprintf("%+.0f %%", (s.SlowMs/s.Before()-1)*100)
	if s.Before() != s.HealthyMs {
		t += fmt.Sprintf(" since just before, %+.0f %% against healthy", (s.SlowMs/s.HealthyMs-1)*100)
	}
	return t
}

// Where names devices and links.
func (s Incident) Where() string {
	places := append(stringsOf(s.Verdict.Devices), linkNames(s.Verdict.Links)...)
	if len(places) > 0 {
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
	return fmt.Sprintf("%s at %s, confidence %.2f",
		s.Verdict.Cause, s.Where(), s.Verdict.Confidence)
}

// IterationText says when, or "not yet".
func IterationText(i *int64) string {
	if i == nil {
		return "not yet"
	}
	return fmt.Sprint("at iteration ", *i)
}

func linkNames(links []falcon.Link) []string {
	out := make([]string, len(links))
	for i, l := range links {
		out[i] = l.String()
	}
	return out
}
