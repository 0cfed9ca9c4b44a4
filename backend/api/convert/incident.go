package convert

import (
	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// IncidentToProto is the whole incident with its verdict.
func IncidentToProto(v falcon.Incident) *falconv1.Incident {
	return &falconv1.Incident{
		Id:                  v.ID,
		State:               string(v.State),
		FromStart:           v.FromStart,
		OnsetIteration:      v.OnsetIteration,
		DetectedIteration:   v.DetectedIteration,
		RelievedIteration:   v.RelievedIteration,
		HealthyMs:           v.HealthyMs,
		SlowMs:              v.SlowMs,
		BeforeMs:            v.BeforeMs,
		Departed:            v.Departed,
		Times:               clamped(v.Times),
		FirstOnsetIteration: v.FirstOnset,
		Probability:         v.Probability,
		Verdict:             verdictToProto(v.Verdict),
	}
}

// IncidentFromProto is the whole incident with its verdict.
func IncidentFromProto(p *falconv1.Incident) falcon.Incident {
	return falcon.Incident{
		ID:                p.GetId(),
		State:             falcon.IncidentState(p.GetState()),
		FromStart:         p.GetFromStart(),
		OnsetIteration:    p.GetOnsetIteration(),
		DetectedIteration: p.GetDetectedIteration(),
		RelievedIteration: p.GetRelievedIteration(),
		HealthyMs:         p.GetHealthyMs(),
		SlowMs:            p.GetSlowMs(),
		BeforeMs:          p.GetBeforeMs(),
		Departed:          p.GetDeparted(),
		Times:             int(p.GetTimes()),
		FirstOnset:        p.GetFirstOnsetIteration(),
		Probability:       p.GetProbability(),
		Verdict:           verdictFromProto(p.GetVerdict()),
	}
}

func verdictToProto(v falcon.Verdict) *falconv1.Verdict {
	return &falconv1.Verdict{
		Cause:      string(v.Cause),
		Reason:     string(v.Reason),
		Also:       Strings(v.Also),
		Devices:    Strings(v.Devices),
		Ranks:      Ranks(v.Ranks),
		Links:      mapped(v.Links, falcon.Link.String),
		Severity:   clamped(v.Severity),
		Confidence: v.Confidence,
		Evidence:   mapped(v.Evidence, evidenceToProto),
		Nics:       Strings(v.NICs),
		Paths:      mapped(v.Paths, pathToProto),
		Untested:   untestedToProto(v.Untested),
	}
}

// verdictFromProto leaves out links whose names are none.
func verdictFromProto(p *falconv1.Verdict) falcon.Verdict {
	return falcon.Verdict{
		Cause:      falcon.Cause(p.GetCause()),
		Reason:     falcon.Reason(p.GetReason()),
		Also:       names[falcon.Cause](p.GetAlso()),
		Devices:    names[falcon.Device](p.GetDevices()),
		Ranks:      RanksFromProto(p.GetRanks()),
		Links:      parsedLinks(p.GetLinks()),
		Severity:   int(p.GetSeverity()),
		Confidence: p.GetConfidence(),
		Evidence:   mapped(p.GetEvidence(), evidenceFromProto),
		NICs:       names[falcon.NIC](p.GetNics()),
		Paths:      mapped(p.GetPaths(), pathFromProto),
		Untested:   untestedFromProto(p.GetUntested()),
	}
}

func untestedToProto(u *falcon.Untested) *falconv1.Untested {
	if u == nil {
		return nil
	}
	return &falconv1.Untested{
		Bar:      string(u.Bar),
		Question: string(u.Question),
		Gpus:     clamped(u.GPUs),
		Links:    clamped(u.Links),
	}
}

func untestedFromProto(p *falconv1.Untested) *falcon.Untested {
	if p == nil {
		return nil
	}
	return &falcon.Untested{
		Bar:      falcon.TestBar(p.GetBar()),
		Question: falcon.TestQuestion(p.GetQuestion()),
		GPUs:     int(p.GetGpus()),
		Links:    int(p.GetLinks()),
	}
}

func evidenceToProto(e falcon.Evidence) *falconv1.Evidence {
	return &falconv1.Evidence{
		Kind:    string(e.Kind),
		Text:    e.Text,
		Against: e.Against,
	}
}

func evidenceFromProto(p *falconv1.Evidence) falcon.Evidence {
	return falcon.Evidence{
		Kind:    falcon.EvidenceKind(p.GetKind()),
		Text:    p.GetText(),
		Against: p.GetAgainst(),
	}
}

// PolicyToProto is the policy with the version that a change has to name.
func PolicyToProto(p falcon.Policy, version uint64) *falconv1.Policy {
	out := &falconv1.Policy{
		Mode:      string(p.Mode),
		Cap:       string(p.Cap),
		Frozen:    p.Frozen,
		Owner:     p.Owner,
		Version:   version,
		Hours:     p.Hours,
		AllowDrop: p.AllowDrop,
		Variants:  Strings(p.Variants),
		Recovery:  recoveryPolicyToProto(p.Recovery),
		Tests:     p.Tests,
		Rungs:     make(map[string]*falconv1.RungPolicy, len(p.Rungs)),
	}
	for r, v := range p.Rungs {
		out.Rungs[string(r)] = &falconv1.RungPolicy{
			Approval:   v.Approval,
			CountdownS: v.Countdown,
			PerHour:    clamped(v.PerHour),
			UndoS:      v.Undo,
			Second:     v.Second,
		}
	}
	return out
}

// PolicyFromProto keeps what is empty nil, as a policy that was set to nothing.
func PolicyFromProto(p *falconv1.Policy) falcon.Policy {
	out := falcon.Policy{
		Mode:      falcon.Mode(p.GetMode()),
		Cap:       falcon.Rung(p.GetCap()),
		Frozen:    p.GetFrozen(),
		Owner:     p.GetOwner(),
		Hours:     p.GetHours(),
		AllowDrop: p.GetAllowDrop(),
		Recovery:  recoveryPolicyFromProto(p.GetRecovery()),
		Tests:     p.GetTests(),
		Variants: mapped(p.GetVariants(), func(v string) falcon.Variant {
			return falcon.Variant(v)
		}),
	}
	if len(p.GetRungs()) > 0 {
		out.Rungs = make(map[falcon.Rung]falcon.RungPolicy, len(p.GetRungs()))
	}
	for name, r := range p.GetRungs() {
		out.Rungs[falcon.Rung(name)] = falcon.RungPolicy{
			Approval:  r.GetApproval(),
			Countdown: r.GetCountdownS(),
			PerHour:   int(r.GetPerHour()),
			Undo:      r.GetUndoS(),
			Second:    r.GetSecond(),
		}
	}
	return out
}

func recoveryPolicyToProto(p falcon.RecoveryPolicy) *falconv1.RecoveryPolicy {
	return &falconv1.RecoveryPolicy{
		Approval:    p.Approval,
		CountdownS:  p.Countdown,
		FenceAlone:  p.FenceAlone,
		AllowShrink: p.AllowShrink,
		InPlace:     clamped(p.InPlace),
		PerHour:     clamped(p.PerHour),
	}
}

func recoveryPolicyFromProto(p *falconv1.RecoveryPolicy) falcon.RecoveryPolicy {
	return falcon.RecoveryPolicy{
		Approval:    p.GetApproval(),
		Countdown:   p.GetCountdownS(),
		FenceAlone:  p.GetFenceAlone(),
		AllowShrink: p.GetAllowShrink(),
		InPlace:     int(p.GetInPlace()),
		PerHour:     int(p.GetPerHour()),
	}
}
