package lab

import (
	"slices"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// IncidentReport is one incident with what was done about it.
type IncidentReport struct {
	ID                string         `json:"id"`
	State             string         `json:"state"`
	OnsetIteration    int64          `json:"onset_iteration"`
	DetectedIteration int64          `json:"detected_iteration"`
	RelievedIteration *int64         `json:"relieved_iteration"`
	Verdict           VerdictReport  `json:"verdict"`
	Actions           []ActionReport `json:"actions"`
	Cost              map[string]any `json:"cost"`
}

// VerdictReport is a verdict as reports show it.
type VerdictReport struct {
	Cause      string   `json:"cause"`
	Reason     string   `json:"reason,omitempty"` // of not_hardware
	Also       []string `json:"also,omitempty"`
	Devices    []string `json:"devices"`
	Ranks      []int32  `json:"ranks"`
	Links      []string `json:"links"`
	Severity   int32    `json:"severity"`
	Confidence float64  `json:"confidence"`
	Evidence   []string `json:"evidence"`
}

// ActionReport is an action as reports show it.
type ActionReport struct {
	ID                string  `json:"id"`
	Rung              string  `json:"rung"`
	Variant           string  `json:"variant,omitempty"` // of S4
	ProposedIteration int64   `json:"proposed_iteration"`
	DecidedBy         string  `json:"decided_by"`
	AppliedIteration  *int64  `json:"applied_iteration"`
	RevertedIteration *int64  `json:"reverted_iteration"`
	MicroBatches      []int32 `json:"micro_batches"`
	BeforeMs          float64 `json:"before_ms"`
	PredictedMs       float64 `json:"predicted_ms"`
	MeasuredMs        float64 `json:"measured_ms"`
	OverheadMs        float64 `json:"overhead_ms"`
	State             string  `json:"state"` // where it ended, as the console shows it
	// "kept" when its gain was verified, also if it was undone after relief
	Outcome string `json:"outcome"`

	// measured over predicted − 1, 0 before it was measured
	ErrorShare   float64            `json:"prediction_error"`
	StepMs       map[string]float64 `json:"step_ms,omitempty"`
	MovedMB      float64            `json:"moved_mb,omitempty"`
	Placement    []string           `json:"placement,omitempty"`
	Preview      *PreviewReport     `json:"preview,omitempty"`
	Why          string             `json:"why"`
	RevertReason string             `json:"revert_reason,omitempty"`
}

// PreviewReport is what a placement was to change, as reports show it.
type PreviewReport struct {
	Swaps    [][2]string         `json:"swaps"`
	Groups   [][2]string         `json:"groups,omitempty"`
	Left     map[string][]string `json:"left"`   // links by the dimension that they left
	Joined   map[string][]string `json:"joined"` // and joined
	MovedMB  float64             `json:"moved_mb"`
	CopyMs   float64             `json:"copy_ms"`
	Stages   []int32             `json:"stages"`
	Replicas []int32             `json:"replicas"`
	Splits   []int32             `json:"splits"`
	Traffic  map[string]float64  `json:"traffic_mb"`
}

func incidentReports(reply *falconv1.IncidentsReply) []IncidentReport {
	out := []IncidentReport{}
	for i, in := range reply.GetIncidents() {
		s := IncidentReport{
			ID:                in.GetId(),
			State:             in.GetState(),
			OnsetIteration:    in.GetOnsetIteration(),
			DetectedIteration: in.GetDetectedIteration(),
			RelievedIteration: nilIfNone(in.GetRelievedIteration()),
			Verdict:           verdictReport(in.GetVerdict()),
			Actions:           []ActionReport{},
			Cost:              map[string]any{},
		}
		if i < len(reply.GetLadders()) {
			ladder := reply.GetLadders()[i]
			s.Cost["lost_gpu_hours"] = ladder.GetLostGpuHours()
			s.Cost["lost_ms"] = ladder.GetImpactMs()
			for _, a := range ladder.GetActions() {
				s.Actions = append(s.Actions, actionReport(a, s.RelievedIteration))
			}
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b IncidentReport) int {
		return int(a.OnsetIteration - b.OnsetIteration)
	})
	return out
}

// nilIfNone turns the wire's −1 into null.
func nilIfNone(i int64) *int64 {
	if i == falcon.NoIteration {
		return nil
	}
	return &i
}

func verdictReport(v *falconv1.Verdict) VerdictReport {
	out := VerdictReport{
		Cause:      v.GetCause(),
		Reason:     v.GetReason(),
		Also:       v.GetAlso(),
		Devices:    emptyIfNil(v.GetDevices()),
		Ranks:      emptyIfNil(v.GetRanks()),
		Links:      emptyIfNil(v.GetLinks()),
		Severity:   v.GetSeverity(),
		Confidence: v.GetConfidence(),
		Evidence:   []string{},
	}
	for _, e := range v.GetEvidence() {
		text := e.GetText()
		if e.GetAgainst() {
			text = "against: " + text
		}
		out.Evidence = append(out.Evidence, text)
	}
	return out
}

func emptyIfNil[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}

func actionReport(a *falconv1.Action, relieved *int64) ActionReport {
	s := ActionReport{
		ID:                a.GetId(),
		Variant:           a.GetVariant(),
		ErrorShare:        a.GetErrorShare(),
		MovedMB:           a.GetMovedMb(),
		Placement:         a.GetPlacement(),
		Preview:           previewReport(a.GetPreview()),
		Why:               a.GetWhy(),
		RevertReason:      a.GetRevertReason(),
		Rung:              a.GetRung(),
		ProposedIteration: a.GetProposedIteration(),
		DecidedBy:         a.GetDecidedBy(),
		AppliedIteration:  nilIfNone(a.GetAppliedIteration()),
		RevertedIteration: nilIfNone(a.GetRevertedIteration()),
		MicroBatches:      emptyIfNil(a.GetMicroBatches()),
		BeforeMs:          a.GetBeforeMs(),
		PredictedMs:       a.GetPredictedMs(),
		MeasuredMs:        a.GetMeasuredMs(),
		OverheadMs:        a.GetOverheadMs(),
		State:             a.GetState(),
		Outcome:           a.GetState(),
	}
	for i, ms := range a.GetStepMs() {
		if i < len(falcon.SwapSteps) {
			if s.StepMs == nil {
				s.StepMs = map[string]float64{}
			}
			s.StepMs[falcon.SwapSteps[i]] = ms
		}
	}
	undoneEarly := s.RevertedIteration != nil && (relieved == nil || *s.RevertedIteration < *relieved)
	if s.MeasuredMs > 0 && !undoneEarly {
		s.Outcome = outcomeKept
	}
	return s
}

func previewReport(p *falconv1.Preview) *PreviewReport {
	if p == nil {
		return nil
	}
	out := &PreviewReport{
		Swaps:    emptyIfNil(pairsOf(p.GetSwaps())),
		Groups:   pairsOf(p.GetGroups()),
		Left:     linksByDimension(p.GetLeft()),
		Joined:   linksByDimension(p.GetJoined()),
		MovedMB:  p.GetMovedMb(),
		CopyMs:   p.GetCopyMs(),
		Stages:   emptyIfNil(p.GetStages()),
		Replicas: emptyIfNil(p.GetReplicas()),
		Splits:   emptyIfNil(p.GetSplits()),
		Traffic:  p.GetTrafficMb(),
	}
	return out
}

func pairsOf(list []*falconv1.NodeSwap) (out [][2]string) {
	for _, w := range list {
		out = append(out, [2]string{w.GetA(), w.GetB()})
	}
	return out
}

func linksByDimension(list []*falconv1.LinksOf) map[string][]string {
	out := map[string][]string{}
	for _, l := range list {
		out[l.GetDimension()] = l.GetLinks()
	}
	return out
}
