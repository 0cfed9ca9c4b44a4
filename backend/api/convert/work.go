package convert

import (
	"math"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// workToProto is nil where the iteration is as usual.
func workToProto(w *falcon.Work) *falconv1.Work {
	if w == nil {
		return nil
	}
	return &falconv1.Work{
		WaitMs:     w.WaitMs,
		PauseMs:    w.PauseMs,
		TailMs:     w.TailMs,
		Calls:      clamped(w.Calls),
		UsualCalls: clamped(w.UsualCalls),
		Bytes:      w.Bytes,
		UsualBytes: w.UsualBytes,
		Changed:    mapped(w.Changed, callChangeToProto),
		Kept:       clamped(w.Kept),
	}
}

// workFromProto takes no more changes than an agent sends, and no times that are none.
func workFromProto(p *falconv1.Work) *falcon.Work {
	if p == nil {
		return nil
	}
	return &falcon.Work{
		WaitMs:     plausibleMs(p.GetWaitMs()),
		PauseMs:    plausibleMs(p.GetPauseMs()),
		TailMs:     plausibleMs(p.GetTailMs()),
		Calls:      int(max(p.GetCalls(), 0)),
		UsualCalls: int(max(p.GetUsualCalls(), 0)),
		Bytes:      max(p.GetBytes(), 0),
		UsualBytes: max(p.GetUsualBytes(), 0),
		Changed: mapped(
			p.GetChanged()[:min(len(p.GetChanged()), falcon.ChangesMost)],
			callChangeFromProto,
		),
		Kept: int(max(p.GetKept(), 0)),
	}
}

// plausibleMs is a time, 0 for what is none.
func plausibleMs(ms float64) float64 {
	if ms > 0 && !math.IsInf(ms, 0) {
		return ms
	}
	return 0
}

func callChangeToProto(c falcon.CallChange) *falconv1.CallChange {
	return &falconv1.CallChange{
		Op:    uint32(c.Op),
		Calls: clamped(c.Calls),
		Usual: clamped(c.Usual),
	}
}

func callChangeFromProto(p *falconv1.CallChange) falcon.CallChange {
	return falcon.CallChange{
		Op:    falcon.Op(min(p.GetOp(), math.MaxUint8)),
		Calls: int(max(p.GetCalls(), 0)),
		Usual: int(max(p.GetUsual(), 0)),
	} //#nosec G115 -- bounded
}
