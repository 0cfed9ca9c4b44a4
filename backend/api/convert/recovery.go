package convert

import (
	"maps"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// RecoveryToProto leaves out what only the recovery machine needs.
func RecoveryToProto(v falcon.Recovery) *falconv1.Recovery {
	out := &falconv1.Recovery{
		Id:              v.ID,
		State:           string(v.State),
		Generation:      v.Generation,
		Attempts:        clamped(v.Attempts),
		Faults:          mapped(v.Faults, faultToProto),
		Survivors:       Ranks(v.Survivors),
		Fenced:          Strings(v.Fenced),
		ResumeIteration: v.Resume,
		BeforeIteration: v.Before,
		Moves:           MovesToProto(v.Moves),
		Checkpoint:      v.Checkpoint,
		Reason:          v.Reason,
		PhasesMs:        maps.Clone(v.PhaseMs),
		PredictedMs:     maps.Clone(v.PredictMs),
		PlanHash:        v.PlanHash,
		DecidedBy:       v.DecidedBy,
		DecidedFrom:     v.DecidedFrom,
		NoReturn:        v.NoReturn,
		AwaitsProof:     v.AwaitsProof,
		StatedBy:        v.StatedBy,
		Together:        string(v.Together),
		StartedUnixNs:   v.StartedNs,
		EndedUnixNs:     v.EndedNs,
		DeadlineUnixNs:  v.DeadlineNs,
		Whole:           v.Whole,
		WholeWhy:        v.WholeWhy,
		EndedJob:        v.EndedJob,
		Replaced:        make(map[int32]string, len(v.Replaced)),
	}
	for r, d := range v.Replaced {
		out.Replaced[clamped(r)] = string(d)
	}
	if v.Shrink != nil {
		out.Shrink = &falconv1.Shrink{
			Of:   clamped(v.Shrink.Of),
			Kept: mapped(v.Shrink.Kept, clamped[int]),
		}
	}
	if w := v.Wait; w != nil {
		out.Wait = &falconv1.RecoveryWait{
			Nodes:       Strings(w.Nodes),
			Spare:       w.Spare,
			UntilUnixNs: w.UntilNs,
			Then:        string(w.Then),
			RedoMs:      w.RedoMs,
			LaunchMs:    w.LaunchMs,
		}
	}
	return out
}

// RecoveryFromProto is the recovery as far as the contract carries it.
func RecoveryFromProto(p *falconv1.Recovery) falcon.Recovery {
	out := falcon.Recovery{
		ID:     p.GetId(),
		State:  falcon.RecoveryState(p.GetState()),
		Faults: mapped(p.GetFaults(), faultFromProto),
		RecoveryPlan: falcon.RecoveryPlan{
			PlanHash:   p.GetPlanHash(),
			Replaced:   make(map[falcon.Rank]falcon.Device, len(p.GetReplaced())),
			Survivors:  RanksFromProto(p.GetSurvivors()),
			Fenced:     names[falcon.Node](p.GetFenced()),
			Resume:     p.GetResumeIteration(),
			Before:     p.GetBeforeIteration(),
			Moves:      mapped(p.GetMoves(), moveFromProto),
			Checkpoint: p.GetCheckpoint(),
			Whole:      p.GetWhole(),
			WholeWhy:   p.GetWholeWhy(),
		},
		RecoveryDecision: falcon.RecoveryDecision{
			DecidedBy:   p.GetDecidedBy(),
			DecidedFrom: p.GetDecidedFrom(),
			StatedBy:    p.GetStatedBy(),
		},
		RecoveryExecution: falcon.RecoveryExecution{
			Generation:  p.GetGeneration(),
			Attempts:    int(p.GetAttempts()),
			NoReturn:    p.GetNoReturn(),
			DeadlineNs:  p.GetDeadlineUnixNs(),
			AwaitsProof: p.GetAwaitsProof(),
			Together:    falcon.EndsTogether(p.GetTogether()),
		},
		RecoveryOutcome: falcon.RecoveryOutcome{
			Reason:    p.GetReason(),
			StartedNs: p.GetStartedUnixNs(),
			EndedNs:   p.GetEndedUnixNs(),
			PhaseMs:   copied(p.GetPhasesMs()),
			PredictMs: copied(p.GetPredictedMs()),
			EndedJob:  p.GetEndedJob(),
		},
	}
	for r, d := range p.GetReplaced() {
		out.Replaced[falcon.Rank(r)] = falcon.Device(d)
	}
	if s := p.GetShrink(); s != nil {
		out.Shrink = &falcon.Shrink{
			Of:   int(s.GetOf()),
			Kept: mapped(s.GetKept(), widened),
		}
	}
	if w := p.GetWait(); w != nil {
		out.Wait = &falcon.RecoveryWait{
			Nodes:    names[falcon.Node](w.GetNodes()),
			Spare:    w.GetSpare(),
			UntilNs:  w.GetUntilUnixNs(),
			Then:     falcon.AfterWait(w.GetThen()),
			RedoMs:   w.GetRedoMs(),
			LaunchMs: w.GetLaunchMs(),
		}
	}
	return out
}

func faultToProto(f falcon.Fault) *falconv1.Fault {
	return &falconv1.Fault{
		Kind:           string(f.Kind),
		Node:           string(f.Node),
		Device:         string(f.Device),
		Ranks:          Ranks(f.Ranks),
		Evidence:       f.Evidence,
		FirstUnixNs:    f.FirstNs,
		DetectedUnixNs: f.DetectedNs,
		Silent:         f.Silent,
		ReturnedUnixNs: f.ReturnedNs,
		Action:         f.Action,
		Spare:          string(f.Spare),
		Unanswered:     f.Unanswered,
		Sign:           string(f.Sign),
		Words:          f.Words,
		AskedBy:        f.AskedBy,
	}
}

func faultFromProto(p *falconv1.Fault) falcon.Fault {
	return falcon.Fault{
		Kind:       falcon.FaultKind(p.GetKind()),
		Node:       falcon.Node(p.GetNode()),
		Device:     falcon.Device(p.GetDevice()),
		Ranks:      RanksFromProto(p.GetRanks()),
		Evidence:   names[string](p.GetEvidence()),
		FirstNs:    p.GetFirstUnixNs(),
		DetectedNs: p.GetDetectedUnixNs(),
		Action:     p.GetAction(),
		Spare:      falcon.Node(p.GetSpare()),
		Silent:     p.GetSilent(),
		ReturnedNs: p.GetReturnedUnixNs(),
		Unanswered: p.GetUnanswered(),
		Sign:       falcon.FaultSign(p.GetSign()),
		Words:      p.GetWords(),
		AskedBy:    p.GetAskedBy(),
	}
}

// MovesToProto is where ranks get their state from.
func MovesToProto(in []falcon.ShardMove) []*falconv1.ShardMove {
	return mapped(in, func(m falcon.ShardMove) *falconv1.ShardMove {
		return &falconv1.ShardMove{
			Rank: clamped(m.Rank),
			From: clamped(m.From),
			Why:  m.Why,
		}
	})
}

func moveFromProto(p *falconv1.ShardMove) falcon.ShardMove {
	return falcon.ShardMove{
		Rank: falcon.Rank(p.GetRank()),
		From: falcon.Rank(p.GetFrom()),
		Why:  p.GetWhy(),
	}
}
