package lab

import (
	"slices"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// validations are the engine's validations as reports show them, oldest first.
func validations(reply *falconv1.IncidentsReply) []falcon.Validation {
	out := []falcon.Validation{}
	for _, v := range reply.GetValidations() {
		out = append(out, validation(v))
	}
	slices.Reverse(out)
	return out
}

func validation(v *falconv1.Validation) falcon.Validation {
	out := falcon.Validation{
		ID:    v.GetId(),
		Ask:   falcon.ValidationAsk{Incident: v.GetIncident(), By: v.GetBy(), Why: v.GetWhy(), GEMMSide: int(v.GetGemmN()), MessageBytes: v.GetMessageBytes()},
		State: falcon.ValidationState(v.GetState()), Reason: v.GetReason(), Iteration: v.GetIteration(),
		Passes: int(v.GetPasses()), ExtraPasses: int(v.GetExtraPasses()), PassesDone: int(v.GetPassesDone()),
		PausedMs: v.GetPausedMs(), QuietMs: v.GetQuietMs(), Attempts: int(v.GetAttempts()),
		Emulated: v.GetEmulated(), AtNs: v.GetAtUnixNs(),
	}
	for _, g := range v.GetGemm() {
		out.GEMM = append(out.GEMM, falcon.GEMMResult{
			Rank: falcon.Rank(g.GetRank()), Device: falcon.Device(g.GetDevice()), Ms: g.GetMs(),
			MedianMs: g.GetMedianMs(), Ratio: g.GetRatio(), Slow: g.GetSlow(), Err: g.GetErr(),
		})
	}
	for _, l := range v.GetLinks() {
		out.Links = append(out.Links, falcon.LinkResult{
			From: falcon.Rank(l.GetFrom()), To: falcon.Rank(l.GetTo()),
			FromDevice: falcon.Device(l.GetFromDevice()), ToDevice: falcon.Device(l.GetToDevice()),
			Link: l.GetLink(), Class: falcon.LinkClass(l.GetClass()), Pass: int(l.GetPass()), Bytes: l.GetBytes(),
			Ms: l.GetMs(), BaseMs: l.GetBaseMs(), Basis: l.GetBasis(), Ratio: l.GetRatio(), Slow: l.GetSlow(), Err: l.GetErr(),
		})
	}
	return out
}
