package convert

import (
	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// ActionToProto leaves out what only the planner needs.
func ActionToProto(a falcon.Action) *falconv1.Action {
	out := &falconv1.Action{
		Id:                a.ID,
		Incident:          a.Incident,
		Rung:              string(a.Rung),
		State:             string(a.State),
		PlanHash:          a.PlanHash,
		MicroBatches:      a.MicroBatches,
		Previous:          a.Previous,
		ProposedIteration: a.ProposedIteration,
		DecidedBy:         a.DecidedBy,
		Reason:            a.Reason,
		AppliedIteration:  a.AppliedIteration,
		RevertedIteration: a.RevertedIteration,
		BeforeMs:          a.BeforeMs,
		PredictedMs:       a.PredictedMs,
		MeasuredMs:        a.MeasuredMs,
		OverheadMs:        a.OverheadMs,
		Why:               a.Why,
		RevertReason:      a.RevertReason,
		RevertKind:        string(a.RevertKind),
		Variant:           string(a.Variant),
		Placement:         Strings(a.Placement),
		Preview:           previewToProto(a.Preview),
		DecidedFrom:       a.DecidedFrom,
		DecidedUnixNs:     a.DecidedUnixNs,
		DeadlineUnixNs:    a.DeadlineUnixNs,
		ErrorShare:        a.ErrorShare,
		JobEpoch:          a.JobEpoch,
		Approvals:         mapped(a.Approvals, approvalToProto),
		Phase:             string(a.Phase),
		ResumeIteration:   a.Resume,
		Generation:        a.Generation,
		Recovery:          a.Recovery,
	}
	if a.Swap != nil {
		out.StepMs = a.Swap.StepMs[:]
		out.MovedMb = a.Swap.MovedMB
	}
	return out
}

// ActionFromProto is the action as far as the contract carries it.
func ActionFromProto(p *falconv1.Action) falcon.Action {
	out := falcon.Action{
		ID:       p.GetId(),
		Incident: p.GetIncident(),
		Rung:     falcon.Rung(p.GetRung()),
		State:    falcon.ActionState(p.GetState()),
		Plan: falcon.Plan{
			PlanHash:          p.GetPlanHash(),
			Variant:           falcon.Variant(p.GetVariant()),
			MicroBatches:      p.GetMicroBatches(),
			Previous:          p.GetPrevious(),
			Preview:           previewFromProto(p.GetPreview()),
			Placement:         names[falcon.Device](p.GetPlacement()),
			JobEpoch:          p.GetJobEpoch(),
			ProposedIteration: p.GetProposedIteration(),
			BeforeMs:          p.GetBeforeMs(),
			PredictedMs:       p.GetPredictedMs(),
			OverheadMs:        p.GetOverheadMs(),
			Why:               p.GetWhy(),
		},
		Decision: falcon.Decision{
			DecidedBy:      p.GetDecidedBy(),
			DecidedFrom:    p.GetDecidedFrom(),
			DecidedUnixNs:  p.GetDecidedUnixNs(),
			Reason:         p.GetReason(),
			Approvals:      mapped(p.GetApprovals(), approvalFromProto),
			DeadlineUnixNs: p.GetDeadlineUnixNs(),
		},
		Execution: falcon.Execution{
			AppliedIteration: p.GetAppliedIteration(),
			Phase:            falcon.ActionPhase(p.GetPhase()),
			Resume:           p.GetResumeIteration(),
			Generation:       p.GetGeneration(),
			Recovery:         p.GetRecovery(),
		},
		Outcome: falcon.Outcome{
			MeasuredMs:        p.GetMeasuredMs(),
			ErrorShare:        p.GetErrorShare(),
			RevertedIteration: p.GetRevertedIteration(),
			RevertReason:      p.GetRevertReason(),
			RevertKind:        falcon.RevertKind(p.GetRevertKind()),
		},
	}
	if steps := p.GetStepMs(); len(steps) > 0 {
		out.Swap = &falcon.Swap{MovedMB: p.GetMovedMb()}
		copy(out.Swap.StepMs[:], steps)
	}
	return out
}

func approvalToProto(a falcon.Approval) *falconv1.Approval {
	return &falconv1.Approval{
		By:     a.By,
		From:   a.From,
		UnixNs: a.UnixNs,
		Reason: a.Reason,
	}
}

func approvalFromProto(p *falconv1.Approval) falcon.Approval {
	return falcon.Approval{
		By:     p.GetBy(),
		From:   p.GetFrom(),
		UnixNs: p.GetUnixNs(),
		Reason: p.GetReason(),
	}
}

func previewToProto(p *falcon.Preview) *falconv1.Preview {
	if p == nil {
		return nil
	}
	out := &falconv1.Preview{
		Swaps:     mapped(p.Swaps, pairToProto),
		Groups:    mapped(p.Groups, pairToProto),
		Left:      linksToProto(p.Left),
		Joined:    linksToProto(p.Joined),
		MovedMb:   p.MovedMB,
		CopyMs:    p.CopyMs,
		Stages:    mapped(p.Stages, clamped[int]),
		Replicas:  mapped(p.Replicas, clamped[int]),
		Splits:    p.Splits,
		TrafficMb: make(map[string]float64, len(p.Traffic)),
	}
	for d, mb := range p.Traffic {
		out.TrafficMb[string(d)] = mb
	}
	return out
}

func previewFromProto(p *falconv1.Preview) *falcon.Preview {
	if p == nil {
		return nil
	}
	out := &falcon.Preview{
		Swaps:    mapped(p.GetSwaps(), pairFromProto[falcon.Node]),
		Groups:   mapped(p.GetGroups(), pairFromProto[falcon.Device]),
		Left:     linksFromProto(p.GetLeft()),
		Joined:   linksFromProto(p.GetJoined()),
		MovedMB:  p.GetMovedMb(),
		CopyMs:   p.GetCopyMs(),
		Stages:   mapped(p.GetStages(), widened),
		Replicas: mapped(p.GetReplicas(), widened),
		Splits:   p.GetSplits(),
		Traffic:  make(map[falcon.Dimension]float64, len(p.GetTrafficMb())),
	}
	for d, mb := range p.GetTrafficMb() {
		out.Traffic[falcon.Dimension(d)] = mb
	}
	return out
}

func pairToProto[T ~string](s [2]T) *falconv1.NodeSwap {
	return &falconv1.NodeSwap{A: string(s[0]), B: string(s[1])}
}

func pairFromProto[T ~string](s *falconv1.NodeSwap) [2]T {
	return [2]T{T(s.GetA()), T(s.GetB())}
}

func linksToProto(m map[falcon.Dimension][]falcon.Link) []*falconv1.LinksOf {
	return mapped(sortedKeys(m), func(d falcon.Dimension) *falconv1.LinksOf {
		return &falconv1.LinksOf{
			Dimension: string(d),
			Links:     mapped(m[d], falcon.Link.String),
		}
	})
}

func linksFromProto(in []*falconv1.LinksOf) map[falcon.Dimension][]falcon.Link {
	out := map[falcon.Dimension][]falcon.Link{}
	for _, of := range in {
		if links := parsedLinks(of.GetLinks()); len(links) > 0 {
			d := falcon.Dimension(of.GetDimension())
			out[d] = append(out[d], links...)
		}
	}
	return out
}

// parsedLinks leaves out what is no name of a link. It is never nil.
func parsedLinks(in []string) []falcon.Link {
	out := make([]falcon.Link, 0, len(in))
	for _, name := range in {
		if l, err := falcon.ParseLink(name); err == nil {
			out = append(out, l)
		}
	}
	return out
}

// LadderToProto is the whole ladder.
func LadderToProto(l falcon.Ladder) *falconv1.Ladder {
	out := &falconv1.Ladder{
		Incident:              l.Incident,
		ImpactMs:              l.ImpactMs,
		LostGpuHours:          l.LostGPUh,
		LossPerMinuteGpuHours: l.LossPerMinuteGPUh,
		Model:                 l.Model,
		Rungs:                 mapped(l.Rungs, rungToProto),
		Actions:               mapped(l.Actions, ActionToProto),
	}
	if l.Proposal != nil {
		out.Proposal = ActionToProto(*l.Proposal)
	}
	return out
}

// LadderFromProto is the whole ladder.
func LadderFromProto(p *falconv1.Ladder) falcon.Ladder {
	out := falcon.Ladder{
		Incident:          p.GetIncident(),
		ImpactMs:          p.GetImpactMs(),
		LostGPUh:          p.GetLostGpuHours(),
		LossPerMinuteGPUh: p.GetLossPerMinuteGpuHours(),
		Model:             p.GetModel(),
		Rungs:             mapped(p.GetRungs(), rungFromProto),
		Actions:           mapped(p.GetActions(), ActionFromProto),
	}
	if p.GetProposal() != nil {
		proposal := ActionFromProto(p.GetProposal())
		out.Proposal = &proposal
	}
	return out
}

func rungToProto(r falcon.RungView) *falconv1.RungView {
	return &falconv1.RungView{
		Rung:         string(r.Rung),
		Applicable:   r.Applicable,
		Reason:       r.Reason,
		OverheadMs:   r.OverheadMs,
		GainMs:       r.GainMs,
		BreakEven:    r.BreakEven,
		ImpactMs:     r.ImpactMs,
		PredictedMs:  r.PredictMs,
		Current:      r.Current,
		PlanHash:     r.PlanHash,
		Variant:      string(r.Variant),
		ClockMs:      r.ClockMs,
		Approval:     r.Approval,
		Next:         r.Next,
		IfWrong:      r.IfWrong,
		Preview:      previewToProto(r.Preview),
		MicroBatches: r.MicroBatches,
		TakenHour:    clamped(r.TakenHour),
		DueInMs:      r.DueInMs,
	}
}

func rungFromProto(p *falconv1.RungView) falcon.RungView {
	return falcon.RungView{
		Rung:         falcon.Rung(p.GetRung()),
		Applicable:   p.GetApplicable(),
		Reason:       p.GetReason(),
		OverheadMs:   p.GetOverheadMs(),
		GainMs:       p.GetGainMs(),
		BreakEven:    p.GetBreakEven(),
		ImpactMs:     p.GetImpactMs(),
		PredictMs:    p.GetPredictedMs(),
		Current:      p.GetCurrent(),
		PlanHash:     p.GetPlanHash(),
		Variant:      falcon.Variant(p.GetVariant()),
		ClockMs:      p.GetClockMs(),
		Approval:     p.GetApproval(),
		Next:         p.GetNext(),
		IfWrong:      p.GetIfWrong(),
		Preview:      previewFromProto(p.GetPreview()),
		MicroBatches: p.GetMicroBatches(),
		TakenHour:    int(p.GetTakenHour()),
		DueInMs:      p.GetDueInMs(),
	}
}

// OrderToProto lacks the generation, which is the sender's to add.
func OrderToProto(o falcon.Order) *falconv1.OrderCommand {
	return &falconv1.OrderCommand{
		Order:        o.ID,
		Kind:         string(o.Kind),
		MicroBatches: o.MicroBatches,
		JobEpoch:     o.Epoch,
		Blocks:       o.Blocks,
		Leave:        o.Leave,
	}
}

// OrderFromProto is the order itself, whatever generation it is for.
func OrderFromProto(p *falconv1.OrderCommand) falcon.Order {
	return falcon.Order{
		Epoch:        p.GetJobEpoch(),
		ID:           p.GetOrder(),
		Kind:         falcon.OrderKind(p.GetKind()),
		MicroBatches: p.GetMicroBatches(),
		Blocks:       p.GetBlocks(),
		Leave:        p.GetLeave(),
	}
}
