package engine

import (
	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect"
)

// decisionsSent bounds the decisions of a chart.
const decisionsSent = 16

// decisionsFrom are what decided the alarms from an iteration on: those of the job's series and those
// that opened an incident, the newest.
func decisionsFrom(all []*detect.Decision, first int64) []*falconv1.ChangeDecision {
	var out []*falconv1.ChangeDecision
	for _, d := range all {
		if d.DecidedAt >= first && (d.Rank < 0 || d.Opened) {
			out = append(out, decisionToProto(d))
		}
	}
	return out[max(0, len(out)-decisionsSent):]
}

func decisionToProto(d *detect.Decision) *falconv1.ChangeDecision {
	out := &falconv1.ChangeDecision{
		By:               string(d.By),
		Kind:             string(d.Kind),
		Rank:             int32(d.Rank),
		Iteration:        d.Iteration,
		DecidedIteration: d.DecidedAt,
		BeforeMs:         d.BeforeMs,
		AfterMs:          d.AfterMs,
		Points:           int32(d.Points),
		Drift:            d.Drift,
		Opened:           d.Opened,
		Onset:            d.Onset,
		Window:           d.Window,
		Ranks:            ranksToProto(d.Ranks),
		Confirming:       d.Confirming,
	}
	if f := d.Filter; f != nil {
		out.Filter = filterToProto(f)
	}
	return out
}

func ranksToProto(all []falcon.Rank) (out []int32) {
	for _, r := range all {
		out = append(out, int32(r))
	}
	return out
}

func filterToProto(f *detect.FilterState) *falconv1.FilterState {
	out := &falconv1.FilterState{
		Probability:    f.PRecent,
		MapRunLength:   int32(f.MAP),
		MapProbability: f.PMAP,
		Alarm:          f.Alarm,
		CentreMs:       f.CentreMs,
		ScaleMs:        f.ScaleMs,
		From:           f.From,
		Seen:           int32(f.Seen),
	}
	for _, r := range f.Runs {
		out.RunLengths = append(out.RunLengths, int32(r.Length))
		out.Chances = append(out.Chances, r.P)
	}
	for _, r := range f.Removed {
		out.Removed = append(out.Removed, &falconv1.RemovedIteration{
			Iteration: r.Iteration,
			Ms:        r.Ms,
			AsMs:      r.As,
		})
	}
	return out
}
