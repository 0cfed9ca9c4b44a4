package engine

import (
	"slices"

	"github.com/failslow/falcon"
)

// levelFrom are the slowdowns at which levels 1 to 6 begin; levelHold is the
// share of it below which a level is left again, so that a rank on a border
// does not flicker.
var levelFrom = [...]float64{0.05, 0.10, 0.20, 0.40, 0.80, 1.50}

const levelHold = 0.8

// level moves from the level shown so far: up at once, down with hysteresis.
func level(was int32, slowdown float64) int32 {
	now := int32(0)
	for i, from := range levelFrom {
		if slowdown >= from || (int32(i) < was && slowdown >= from*levelHold) {
			now = int32(i + 1)
		}
	}
	return now
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
// in the last profile. In a synchronous job only the last tells the culprit
// from those who wait for it.
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
