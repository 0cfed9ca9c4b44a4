package engine

import (
	"maps"
	"math"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func protoRecovery(v falcon.Recovery) *falconv1.Recovery {
	out := &falconv1.Recovery{
		Id: v.ID, State: string(v.State), Generation: v.Generation, Attempts: int32(min(v.Attempts, math.MaxInt32)),
		Survivors: protoRanks(v.Survivors), Fenced: texts(v.Fenced), ResumeIteration: v.Resume, BeforeIteration: v.Before,
		Moves: protoMoves(v.Moves), Checkpoint: v.Checkpoint, Reason: v.Reason,
		PhasesMs: maps.Clone(v.PhaseMs), PredictedMs: maps.Clone(v.PredictMs), PlanHash: v.PlanHash,
		DecidedBy: v.DecidedBy, DecidedFrom: v.DecidedFrom, NoReturn: v.NoReturn,
		StartedUnixNs: v.StartedNs, EndedUnixNs: v.EndedNs, DeadlineUnixNs: v.DeadlineNs,
		Whole: v.Whole,
	}
	if v.Shrink != nil {
		out.Shrink = &falconv1.Shrink{Of: int32(min(v.Shrink.Of, math.MaxInt32))}
		for _, k := range v.Shrink.Kept {
			out.Shrink.Kept = append(out.Shrink.Kept, int32(min(k, math.MaxInt32)))
		}
	}
	for _, f := range v.Faults {
		out.Faults = append(out.Faults, &falconv1.Fault{
			Kind: string(f.Kind), Node: string(f.Node), Device: string(f.Device), Ranks: protoRanks(f.Ranks), Evidence: f.Evidence,
			FirstUnixNs: f.FirstNs, DetectedUnixNs: f.DetectedNs,
		})
	}
	if len(v.Replaced) > 0 {
		out.Replaced = make(map[int32]string, len(v.Replaced))
		for r, d := range v.Replaced {
			out.Replaced[int32(r)] = string(d)
		}
	}
	return out
}

func protoRanks(in []falcon.Rank) []int32 {
	out := make([]int32, len(in))
	for i, r := range in {
		out[i] = int32(r)
	}
	return out
}

func protoMoves(in []falcon.ShardMove) []*falconv1.ShardMove {
	out := make([]*falconv1.ShardMove, len(in))
	for i, m := range in {
		out[i] = &falconv1.ShardMove{Rank: int32(m.Rank), From: int32(m.From), Why: m.Why}
	}
	return out
}

func recoveryPolicyFrom(p *falconv1.RecoveryPolicy) falcon.RecoveryPolicy {
	return falcon.RecoveryPolicy{
		Approval: clean(p.GetApproval()), Countdown: p.GetCountdownS(), FenceAlone: p.GetFenceAlone(), AllowShrink: p.GetAllowShrink(),
		InPlace: int(p.GetInPlace()), PerHour: int(p.GetPerHour()),
	}
}

func protoRecoveryPolicy(p falcon.RecoveryPolicy) *falconv1.RecoveryPolicy {
	return &falconv1.RecoveryPolicy{
		Approval: p.Approval, CountdownS: p.Countdown, FenceAlone: p.FenceAlone, AllowShrink: p.AllowShrink,
		InPlace: int32(p.InPlace), PerHour: int32(p.PerHour),
	}
}
