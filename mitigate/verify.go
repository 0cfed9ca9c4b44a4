package mitigate

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// An action that makes the job slower by this share in so many settled
// iterations running is undone without waiting for the whole measurement:
// SettleIterations + worseIterations after it took force.
const (
	worseIterations = 3
	worseShare      = 0.1
)

// measureGain verifies the gain of an applied action: the median of the first
// settled iterations against the time before. An action that brought less
// than its share of the prediction is undone, except S4, which can't be.
func (v *verifier) measureGain(s *incidentState) {
	i := s.underWayIndex()
	if i < 0 || s.actions[i].State != falcon.ActionApplied {
		return
	}
	a := &s.actions[i]
	settled := a.AppliedIteration + int64(v.cfg.SettleIterations)
	after := v.heardTimes(s, a, settled)
	need := v.cfg.MeasureIterations
	if a.Rung != falcon.RungS4 && isSlower(a, after) {
		need = min(need, worseIterations)
	}
	enough := len(after) >= need
	// the first ones seen: some may have gone by while the engine was down
	after = after[:min(len(after), need)]
	if len(after) < min(need, worseIterations) {
		return
	}
	measured := falcon.Median(slices.Clone(after))
	other, waits := v.blamesAnother(s, a, measured) // asked for as soon as it looks so
	if waits || !enough {
		return
	}
	a.MeasuredMs = measured
	if a.PredictedMs > 0 {
		a.ErrorShare = a.MeasuredMs/a.PredictedMs - 1
	}
	v.recordOverhead(a, settled)
	a.State = falcon.ActionKept
	v.out.addNote(a.ID, "action", "%s measured: %.1f ms, predicted %.1f ms, before %.1f ms",
		a.ID, a.MeasuredMs, a.PredictedMs, a.BeforeMs)
	switch short := v.isShort(a, measured); {
	case !short || !s.incident.Open():
		v.replaceOlder(s, i)
	case a.Variant == falcon.VariantFence:
		v.out.addNote(a.ID, "action",
			"%s did not help enough, and is not undone: %s stays fenced until a person lifts that; %s stays open",
			a.ID, nodeNames(nodesLeft(a)), a.Incident)
	case a.Rung == falcon.RungS4:
		v.out.addNote(a.ID, "action", "%s did not help enough, and a restart can't be undone; %s stays open",
			a.ID, a.Incident)
	case other != "":
		v.out.addNote(a.ID, "action",
			"%s is kept: %s is slow too since, so that this measurement does not show whether it helped",
			a.ID, other)
	default:
		a.RevertKind = falcon.RevertUnhelpful
		a.RevertReason = fmt.Sprintf(
			"it did not help enough: %.1f ms before, %.1f ms after, %.1f ms predicted",
			a.BeforeMs, a.MeasuredMs, a.PredictedMs,
		)
	}
	v.out.addAction(*a)
}

// silenceMost is how long a measurement waits for nodes of the incident that can't be heard.
const silenceMost = 10 * time.Minute

// heardTimes lists the times of iterations from one on that all nodes which the
// incident names had a part in. The others' times do not show whether an
// action helped, until the wait is over.
func (v *verifier) heardTimes(s *incidentState, a *falcon.Action, from int64) (out []float64) {
	silent := falcon.Node("")
	for _, it := range v.iterations.since(from) {
		i := slices.IndexFunc(it.Unheard, func(n falcon.Node) bool {
			return s.incident.Verdict.NamesNode(n, v.job.desc.Placement)
		})
		if i >= 0 {
			silent = it.Unheard[i]
			continue
		}
		out = append(out, it.Ms)
	}
	switch {
	case silent == "":
		s.silentSince = time.Time{}
	case s.silentSince.IsZero():
		s.silentSince = v.clock.now
		v.out.addNote(a.ID, "action", "%s is measured without the iterations in which %s could not be heard",
			a.ID, silent)
	case v.clock.now.Sub(s.silentSince) >= silenceMost && len(out) < v.cfg.MeasureIterations:
		return v.iterations.between(from, math.MaxInt64)
	}
	return out
}

func isSlower(a *falcon.Action, after []float64) bool {
	return len(after) >= worseIterations &&
		slices.Min(after[:worseIterations]) > a.BeforeMs*(1+worseShare)
}

// blamesAnother finds a device that has become slow while an action was measured which seems
// not to help: undoing the action would bring the first fault back. The ranks are measured for
// it; waits: not yet.
func (v *verifier) blamesAnother(
	s *incidentState,
	a *falcon.Action,
	measuredMs float64,
) (other falcon.Device, waits bool) {
	if !v.isShort(a, measuredMs) || !s.incident.Open() || a.Rung == falcon.RungS4 {
		return "", false
	}
	switch v.look.measuredFor(a, measuredMs, a.ID+" seems not to help: is another rank slow?") {
	case lookWaits:
		return "", true
	case lookDone:
		other, _ = v.plans.slowBesides(a)
	}
	return other, false
}

// isShort reports whether an action brings less than its share of what it promised.
func (v *verifier) isShort(a *falcon.Action, measuredMs float64) bool {
	gain := a.BeforeMs - measuredMs
	wanted := a.BeforeMs - a.PredictedMs
	return gain < max(v.cfg.KeepShare*wanted, v.cfg.MinGain*a.BeforeMs/2)
}

// recordOverhead learns what the action cost: for S2 the settling iterations' excess,
// for S3 its four steps where they count more, for S4 the time without training.
func (v *verifier) recordOverhead(a *falcon.Action, settled int64) {
	from := a.AppliedIteration
	if a.Rung == falcon.RungS3 {
		from-- // the ranks change places at that iteration's end
	}
	excess := 0.0
	for _, ms := range v.iterations.between(from, settled) {
		excess += max(0, ms-a.MeasuredMs)
	}
	switch {
	case a.Rung == falcon.RungS4 && a.OverheadMs == 0:
		return // it is unknown when the job stopped
	case a.Rung == falcon.RungS4:
	case a.Swap != nil:
		steps := 0.0
		for _, ms := range a.Swap.StepMs {
			steps += ms
		}
		a.OverheadMs = max(steps, excess)
	default:
		a.OverheadMs += excess
	}
	v.overheads.addMeasured(costName(a.Rung, a.Variant), a.OverheadMs)
}

// replaceOlder ends the older splits of the incident that a verified action has
// replaced, and takes its gain off what the incident costs beside later ones.
func (v *verifier) replaceOlder(s *incidentState, i int) {
	a := &s.actions[i]
	if s.cost.LevelMs > 0 {
		s.cost.LevelMs = max(0, s.cost.LevelMs-(a.BeforeMs-a.MeasuredMs))
	}
	if len(a.MicroBatches) == 0 {
		return
	}
	for k := range s.actions[:i] {
		o := &s.actions[k]
		if o.Rung == falcon.RungS2 && o.State == falcon.ActionKept {
			o.State = falcon.ActionReverted
			o.RevertKind = falcon.RevertReplaced
			o.RevertReason = replacedBy + a.ID
			o.RevertedIteration = a.AppliedIteration
			v.out.addAction(*o)
		}
	}
}

// verifier measures whether actions in force helped.
type verifier struct {
	cfg        *Config
	clock      *clock
	iterations *iterationLog
	out        *output
	job        *jobState
	overheads  *overheadBook
	plans      *planMaker
	look       *remeasurer
}
