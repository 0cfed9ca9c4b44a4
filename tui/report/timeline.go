package report

import (
	"cmp"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Line is one line of the journal about the incident.
type Line struct {
	Record    uint64 `json:"record"` // number in the journal, 0 = unknown
	Hash      string `json:"hash"`   // the record's link in the chain, hex
	At        string `json:"at"`     // RFC 3339, UTC
	Iteration int64  `json:"iteration"`
	Kind      string `json:"kind"`
	Text      string `json:"text"`
}

// Decision is one decision of a person, or of policy.
type Decision struct {
	Action      string  `json:"action"`
	Rung        string  `json:"rung"`
	Verb        string  `json:"verb"`
	By          string  `json:"by"`
	Role        string  `json:"role"`
	From        string  `json:"from"`
	At          string  `json:"at"`
	PlanHash    string  `json:"plan_hash"`
	Reason      string  `json:"reason"`
	PredictedMs float64 `json:"predicted_ms"`
	MeasuredMs  float64 `json:"measured_ms"` // 0 = not measured
	Outcome     string  `json:"outcome"`
	Hash        string  `json:"hash"`
}

// Job is the job that the incident is of, when the report was made.
type Job struct {
	Name     string `json:"name"`
	TP       int32  `json:"tp"`
	DP       int32  `json:"dp"`
	PP       int32  `json:"pp"`
	Ranks    int32  `json:"ranks"`
	Epoch    uint64 `json:"epoch"`
	Exact    bool   `json:"exact"` // iterations from the framework's step marks
	Emulated bool   `json:"emulated"`
	Mesh     string `json:"mesh,omitempty"` // dimensions, innermost first, where TP, DP and PP do not say all
}

// Chart is iteration time around the incident, one entry an iteration.
type Chart struct {
	Rank           int32     `json:"rank"`
	FirstIteration int64     `json:"first_iteration"`
	Ms             []float32 `json:"ms"`
	Probability    []float32 `json:"probability"` // of a change just before, aligned with ms
	Threshold      float64   `json:"threshold"`
	Marks          []Mark    `json:"marks"`
	Alarms         []Alarm   `json:"alarms,omitempty"` // what decided each, as it was then
	// CutFrom is the onset where the chart begins after it: the engine keeps the newest iterations.
	CutFrom *int64 `json:"cut_from_iteration,omitempty"`
}

// Mark is what happened at an iteration: "onset", "applied", "reverted", "relief".
type Mark struct {
	Iteration int64  `json:"iteration"`
	Kind      string `json:"kind"`
}

// complete adds what a reply about one incident says beyond the incident.
func (s *Incident) complete(r *falconv1.IncidentsReply) {
	if j := r.GetJob(); j != nil {
		s.Job = &Job{
			j.GetName(),
			j.GetTp(),
			j.GetDp(),
			j.GetPp(),
			j.GetWorld(),
			j.GetEpoch(),
			j.GetExact(),
			j.GetEmulated(),
			j.GetMesh(),
		}
		if j.GetEmulated() {
			s.Emulated = []string{"GPU pace, link pace and the counters of the nodes"}
		}
	}
	s.ExportedAt = timestamp(r.GetAtUnixNs())
	s.Engine = r.GetEngineId()
	audits := map[string]*falconv1.EventLine{}
	for _, e := range r.GetEvents() {
		s.Timeline = append(s.Timeline, Line{
			e.GetRecord(),
			e.GetHash(),
			timestamp(e.GetAtUnixNs()),
			e.GetIteration(),
			e.GetKind(),
			e.GetText(),
		})
		if about := e.GetAudit().GetAbout(); about != "" {
			audits[about] = e
		}
	}
	for _, a := range s.Actions {
		s.Decisions = append(s.Decisions, approvalsOf(a, r.GetEvents())...)
		if a.DecidedBy != "" && !lastApprovalDecided(a) {
			s.Decisions = append(s.Decisions, decisionOf(a, audits[a.ID]))
		}
	}
	for _, v := range r.GetRecoveries() {
		s.Recoveries = append(s.Recoveries, convert.RecoveryFromProto(v))
	}
	s.Chart = chartOf(r.GetChart())
	if s.Chart != nil && s.Chart.FirstIteration > s.OnsetIteration {
		s.Chart.CutFrom = &s.OnsetIteration
	}
}

// lastApprovalDecided reports whether the decision is the last of the approvals.
func lastApprovalDecided(a Action) bool {
	return len(a.Approvals) > 0 && a.State != falcon.ActionVetoed
}

// approvalsOf are the approvals of an action, each with its line of the journal.
func approvalsOf(a Action, events []*falconv1.EventLine) []Decision {
	var out []Decision
	for i, v := range a.Approvals {
		d := decisionOf(a, approvalLine(a, v, i, events))
		d.By = v.By
		d.From = v.From
		d.At = timestamp(v.UnixNs)
		d.Reason = v.Reason
		if a.State == falcon.ActionVetoed && !strings.HasPrefix(d.Verb, "approve") {
			d.Verb = "approve"
		}
		out = append(out, d)
	}
	return out
}

// approvalLine is the audit line of the nth approval of an action.
func approvalLine(a Action, v falcon.Approval, n int, events []*falconv1.EventLine) *falconv1.EventLine {
	for _, e := range events {
		d := e.GetAudit()
		if d.GetAbout() != a.ID || !strings.HasPrefix(d.GetVerb(), "approve") {
			continue
		}
		if n == 0 && d.GetActor() == v.By {
			return e
		}
		n--
	}
	return nil
}

func decisionOf(a Action, audit *falconv1.EventLine) Decision {
	return Decision{
		Action:      a.ID,
		Rung:        string(a.Rung),
		Verb:        verbOf(a, audit),
		By:          a.DecidedBy,
		Role:        audit.GetAudit().GetRole(),
		From:        a.DecidedFrom,
		At:          timestamp(a.DecidedUnixNs),
		PlanHash:    a.PlanHash,
		Reason:      a.Reason,
		PredictedMs: a.PredictedMs,
		MeasuredMs:  a.MeasuredMs,
		Outcome:     a.Outcome,
		Hash:        audit.GetHash(),
	}
}

func verbOf(a Action, audit *falconv1.EventLine) string {
	said := "approve"
	if a.State == falcon.ActionVetoed {
		said = "veto"
	}
	return cmp.Or(audit.GetAudit().GetVerb(), said)
}

func chartOf(c *falconv1.Series) *Chart {
	if len(c.GetMs()) == 0 {
		return nil
	}
	out := &Chart{
		Rank:           c.GetRank(),
		FirstIteration: c.GetFirstIteration(),
		Threshold:      c.GetThreshold(),
		Ms:             c.GetMs(),
		Probability:    make([]float32, len(c.GetMs())),
	}
	copy(out.Probability, c.GetProbability())
	for _, m := range c.GetMarks() {
		if m.GetKind() != "jitter" {
			out.Marks = append(out.Marks, Mark{m.GetIteration(), m.GetKind()})
		}
	}
	out.Alarms = alarmsOf(c)
	return out
}

// timestamp is a time, or "" for none.
func timestamp(ns int64) string {
	if ns == 0 {
		return ""
	}
	return time.Unix(0, ns).UTC().Format(time.RFC3339)
}
