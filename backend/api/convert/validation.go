package convert

import (
	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// ValidationToProto leaves out which ranks and links were asked for: results
// name them.
func ValidationToProto(v falcon.Validation) *falconv1.Validation {
	return &falconv1.Validation{
		Id:           v.ID,
		Incident:     v.Ask.Incident,
		By:           v.Ask.By,
		Why:          v.Ask.Why,
		State:        string(v.State),
		Reason:       v.Reason,
		Iteration:    v.Iteration,
		Passes:       clamped(v.Passes),
		ExtraPasses:  clamped(v.ExtraPasses),
		PassesDone:   clamped(v.PassesDone),
		PausedMs:     v.PausedMs,
		QuietMs:      v.QuietMs,
		Attempts:     clamped(v.Attempts),
		Emulated:     v.Emulated,
		AtUnixNs:     v.AtNs,
		GemmN:        clamped(v.Ask.GEMMSide),
		MessageBytes: v.Ask.MessageBytes,
		Gemm:         mapped(v.GEMM, gemmToProto),
		Links:        mapped(v.Links, linkResultToProto),
	}
}

// ValidationFromProto is the validation as far as the contract carries it.
func ValidationFromProto(p *falconv1.Validation) falcon.Validation {
	return falcon.Validation{
		ID:     p.GetId(),
		State:  falcon.ValidationState(p.GetState()),
		Reason: p.GetReason(),
		Ask: falcon.ValidationAsk{
			Incident:     p.GetIncident(),
			By:           p.GetBy(),
			Why:          p.GetWhy(),
			GEMMSide:     int(p.GetGemmN()),
			MessageBytes: p.GetMessageBytes(),
		},
		Iteration:   p.GetIteration(),
		Passes:      int(p.GetPasses()),
		ExtraPasses: int(p.GetExtraPasses()),
		PassesDone:  int(p.GetPassesDone()),
		PausedMs:    p.GetPausedMs(),
		QuietMs:     p.GetQuietMs(),
		Attempts:    int(p.GetAttempts()),
		Emulated:    p.GetEmulated(),
		AtNs:        p.GetAtUnixNs(),
		GEMM:        mapped(p.GetGemm(), gemmFromProto),
		Links:       mapped(p.GetLinks(), linkResultFromProto),
	}
}

func gemmToProto(g falcon.GEMMResult) *falconv1.GemmResult {
	return &falconv1.GemmResult{
		Rank:      clamped(g.Rank),
		Device:    string(g.Device),
		Ms:        g.Ms,
		MedianMs:  g.MedianMs,
		Ratio:     g.Ratio,
		Slow:      g.Slow,
		Err:       g.Err,
		BestMs:    g.BestMs,
		Runs:      clamped(g.Runs),
		Limit:     g.Limit,
		Unjudged:  g.Unjudged,
		Reference: g.Reference,
		Bits:      clamped(g.Bits),
	}
}

func gemmFromProto(p *falconv1.GemmResult) falcon.GEMMResult {
	return falcon.GEMMResult{
		Rank:      falcon.Rank(p.GetRank()),
		Device:    falcon.Device(p.GetDevice()),
		Ms:        p.GetMs(),
		MedianMs:  p.GetMedianMs(),
		Ratio:     p.GetRatio(),
		Slow:      p.GetSlow(),
		Err:       p.GetErr(),
		BestMs:    p.GetBestMs(),
		Runs:      int(p.GetRuns()),
		Limit:     p.GetLimit(),
		Unjudged:  p.GetUnjudged(),
		Reference: p.GetReference(),
		Bits:      int(p.GetBits()),
	}
}

func linkResultToProto(l falcon.LinkResult) *falconv1.LinkResult {
	return &falconv1.LinkResult{
		From:       clamped(l.From),
		To:         clamped(l.To),
		FromDevice: string(l.FromDevice),
		ToDevice:   string(l.ToDevice),
		Link:       l.Link,
		Class:      string(l.Class),
		Pass:       clamped(l.Pass),
		Bytes:      l.Bytes,
		Ms:         l.Ms,
		BaseMs:     l.BaseMs,
		Ratio:      l.Ratio,
		Slow:       l.Slow,
		Err:        l.Err,
		Basis:      l.Basis,
		BestMs:     l.BestMs,
		Runs:       clamped(l.Runs),
		Limit:      l.Limit,
		Unjudged:   l.Unjudged,
		Reference:  l.Reference,
		BaseFrom:   l.BaseFrom,
	}
}

func linkResultFromProto(p *falconv1.LinkResult) falcon.LinkResult {
	return falcon.LinkResult{
		From:       falcon.Rank(p.GetFrom()),
		To:         falcon.Rank(p.GetTo()),
		FromDevice: falcon.Device(p.GetFromDevice()),
		ToDevice:   falcon.Device(p.GetToDevice()),
		Link:       p.GetLink(),
		Class:      falcon.LinkClass(p.GetClass()),
		Pass:       int(p.GetPass()),
		Bytes:      p.GetBytes(),
		Ms:         p.GetMs(),
		BaseMs:     p.GetBaseMs(),
		Ratio:      p.GetRatio(),
		Slow:       p.GetSlow(),
		Err:        p.GetErr(),
		Basis:      p.GetBasis(),
		BestMs:     p.GetBestMs(),
		Runs:       int(p.GetRuns()),
		Limit:      p.GetLimit(),
		Unjudged:   p.GetUnjudged(),
		Reference:  p.GetReference(),
		BaseFrom:   p.GetBaseFrom(),
	}
}
