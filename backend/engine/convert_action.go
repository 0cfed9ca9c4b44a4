package engine

import (
	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func protoAction(a falcon.Action) *falconv1.Action {
	out := &falconv1.Action{
		Id: a.ID, Incident: a.Incident, Rung: string(a.Rung), State: string(a.State), PlanHash: a.PlanHash,
		MicroBatches: a.MicroBatches, Previous: a.Previous, ProposedIteration: a.ProposedIteration,
		DecidedBy: a.DecidedBy, Reason: a.Reason, AppliedIteration: a.AppliedIteration,
		RevertedIteration: a.RevertedIteration, BeforeMs: a.BeforeMs, PredictedMs: a.PredictedMs,
		MeasuredMs: a.MeasuredMs, OverheadMs: a.OverheadMs, Why: a.Why, RevertReason: a.RevertReason,
		Variant: string(a.Variant), Placement: texts(a.Placement), Preview: protoPreview(a.Preview),
		DecidedFrom: a.DecidedFrom, DecidedUnixNs: a.DecidedUnixNs, DeadlineUnixNs: a.DeadlineUnixNs,
		ErrorShare: a.ErrorShare, JobEpoch: a.JobEpoch,
		Phase: a.Phase, ResumeIteration: a.Resume, Generation: a.Generation,
	}
	for _, v := range a.Approvals {
		out.Approvals = append(out.Approvals, &falconv1.Approval{By: v.By, From: v.From, UnixNs: v.UnixNs, Reason: v.Reason})
	}
	if a.Swap != nil {
		out.StepMs, out.MovedMb = a.Swap.StepMs[:], a.Swap.MovedMB
	}
	return out
}

func protoPreview(p *falcon.Preview) *falconv1.Preview {
	if p == nil {
		return nil
	}
	out := &falconv1.Preview{
		Left: protoLinksOf(p.Left), Joined: protoLinksOf(p.Joined), MovedMb: p.MovedMB, CopyMs: p.CopyMs,
		Stages: int32s(p.Stages), Replicas: int32s(p.Replicas), Splits: p.Splits,
	}
	for _, s := range p.Swaps {
		out.Swaps = append(out.Swaps, &falconv1.NodeSwap{A: string(s[0]), B: string(s[1])})
	}
	for d, mb := range p.Traffic {
		if out.TrafficMb == nil {
			out.TrafficMb = map[string]float64{}
		}
		out.TrafficMb[string(d)] = mb
	}
	return out
}

func protoLinksOf(m map[falcon.Dimension][]falcon.Link) []*falconv1.LinksOf {
	var out []*falconv1.LinksOf
	for _, d := range sortedKeys(m) {
		of := &falconv1.LinksOf{Dimension: string(d)}
		for _, l := range m[d] {
			of.Links = append(of.Links, l.String())
		}
		out = append(out, of)
	}
	return out
}

func int32s(in []int) []int32 {
	var out []int32
	for _, v := range in {
		out = append(out, int32(v))
	}
	return out
}

func protoLadder(l falcon.Ladder) *falconv1.Ladder {
	out := &falconv1.Ladder{
		Incident: l.Incident, ImpactMs: l.ImpactMs, LostGpuHours: l.LostGPUh,
		LossPerMinuteGpuHours: l.LossPerMinuteGPUh, Model: l.Model,
	}
	for _, r := range l.Rungs {
		out.Rungs = append(out.Rungs, &falconv1.RungView{
			Rung: string(r.Rung), Applicable: r.Applicable, Reason: r.Reason, OverheadMs: r.OverheadMs,
			GainMs: r.GainMs, BreakEven: r.BreakEven, ImpactMs: r.ImpactMs, PredictedMs: r.PredictMs, Current: r.Current,
			PlanHash: r.PlanHash, Variant: string(r.Variant), ClockMs: r.ClockMs, Approval: r.Approval, Next: r.Next,
			IfWrong: r.IfWrong, Preview: protoPreview(r.Preview), MicroBatches: r.MicroBatches,
			TakenHour: int32(r.TakenHour),
		})
	}
	if l.Proposal != nil {
		out.Proposal = protoAction(*l.Proposal)
	}
	for _, a := range l.Actions {
		out.Actions = append(out.Actions, protoAction(a))
	}
	return out
}
