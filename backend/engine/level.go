package engine

import (
	"slices"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// shown are the levels that a rank showed last, by each measurement that has a
// ramp of its own.
type shown struct{ slowdown, wait, temperature, clock, cnp int }

// Steps that are no level: RankView's wait_step and its like hold 2 + level.
const (
	stepUnmeasured = 1
	stepLevel      = 2
)

// stepOf moves a level by a value that was measured or not.
func stepOf(ramp *falcon.Ramp, level *int, x float64, measured bool) int32 {
	if !measured {
		*level = 0
		return stepUnmeasured
	}
	*level = ramp.After(*level, x)
	return stepLevel + int32(*level)
}

// enterSteps enters the levels of a rank but that of the slowdown. Its clock is
// compared with that of the job's fast GPUs.
func (was *shown) enterSteps(v *falconv1.RankView, fastClock float64) {
	v.WaitStep = stepOf(
		&falcon.WaitRamp,
		&was.wait,
		100*v.WaitMs/v.Ms,
		v.Ms > 0 && v.WaitMs >= 0 && v.SelfRatio > 0,
	)
	v.TemperatureStep = stepOf(
		&falcon.TemperatureRamp,
		&was.temperature,
		float64(v.TemperatureC),
		v.TemperatureC > 0,
	)
	v.ClockStep = stepOf(
		&falcon.ClockRamp,
		&was.clock,
		100*float64(v.SmClockMhz)/fastClock,
		v.SmClockMhz > 0,
	)
	v.CnpStep = stepOf(&falcon.CNPRamp, &was.cnp, v.CnpPerS, v.CnpPerS >= 0)
}

// stageMedians are the median iteration times by pipeline stage: ranks of one
// stage do the same work, whatever the replica.
func stageMedians(l falcon.Layout, ms []float64) []float64 {
	byStage := make([][]float64, max(l.PP, 1))
	for r, v := range ms {
		if v > 0 {
			s := l.Coord(falcon.Rank(r)).PP
			byStage[s] = append(byStage[s], v)
		}
	}
	out := make([]float64, len(byStage))
	for s, v := range byStage {
		if len(v) > 0 {
			slices.Sort(v)
			out[s] = (v[(len(v)-1)/2] + v[len(v)/2]) / 2
		}
	}
	return out
}

// worst is the largest of the three ways in which a rank can be slow: against
// its own past, against the same stage of other replicas, and by its self time
// in the last profile. In a synchronous job only the last distinguishes the
// culprit from those who wait for it.
func worst(slowdown, ms, stageMs, selfRatio float64) float64 {
	w := max(slowdown, 0)
	if stageMs > 0 && ms > 0 {
		w = max(w, ms/stageMs-1)
	}
	if selfRatio > 0 {
		w = max(w, selfRatio-1)
	}
	return w
}
