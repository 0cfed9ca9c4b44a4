package convert

import (
	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// HangToProto is who holds up a job that stands still.
func HangToProto(v falcon.Hang) *falconv1.Hang {
	return &falconv1.Hang{
		SinceUnixNs:  v.SinceNs,
		JudgedUnixNs: v.JudgedNs,
		Waiting:      clamped(v.Waiting),
		World:        clamped(v.World),
		Culprits:     mapped(v.Culprits, hangPartToProto),
		Candidates:   mapped(v.Candidates, hangPartToProto),
		Doubts:       v.Doubts,
	}
}

// HangFromProto is its inverse.
func HangFromProto(p *falconv1.Hang) falcon.Hang {
	return falcon.Hang{
		SinceNs:    p.GetSinceUnixNs(),
		JudgedNs:   p.GetJudgedUnixNs(),
		Waiting:    int(p.GetWaiting()),
		World:      int(p.GetWorld()),
		Culprits:   mapped(p.GetCulprits(), hangPartFromProto),
		Candidates: mapped(p.GetCandidates(), hangPartFromProto),
		Doubts:     p.GetDoubts(),
	}
}

func hangPartToProto(v falcon.HangPart) *falconv1.HangPart {
	return &falconv1.HangPart{
		Kind:    v.Kind,
		Ranks:   Ranks(v.Ranks),
		Devices: Strings(v.Devices),
		Comm:    v.Comm,
		Members: Ranks(v.Members),
		Seq:     v.Seq,
		Call:    v.Call,
		Waiting: Ranks(v.Waiting),
		Text:    v.Text,
		Advice:  v.Advice,
	}
}

func hangPartFromProto(p *falconv1.HangPart) falcon.HangPart {
	return falcon.HangPart{
		Kind:    p.GetKind(),
		Ranks:   RanksFromProto(p.GetRanks()),
		Devices: names[falcon.Device](p.GetDevices()),
		Comm:    p.GetComm(),
		Members: RanksFromProto(p.GetMembers()),
		Seq:     p.GetSeq(),
		Call:    p.GetCall(),
		Waiting: RanksFromProto(p.GetWaiting()),
		Text:    p.GetText(),
		Advice:  p.GetAdvice(),
	}
}
