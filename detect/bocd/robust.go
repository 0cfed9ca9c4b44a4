package bocd

import (
	"math"

	"github.com/failslow/falcon"
)

// spreadOf is the robust standard deviation 1.4826·MAD around centre, never
// below scaleFloor of the level, so that a constant series has a scale too.
func spreadOf(values []float64, centre float64) float64 {
	return max(noiseOf(values, centre), scaleFloor*math.Abs(centre), math.SmallestNonzeroFloat64)
}

// noiseOf is the same without a floor.
func noiseOf(values []float64, centre float64) float64 {
	off := make([]float64, len(values))
	for i, v := range values {
		off[i] = math.Abs(v/2 - centre/2) // halves, so that the difference stays finite
	}
	return min(2*1.4826*falcon.Median(off), math.MaxFloat64)
}

// relative is |after − before| / min(|before|, |after|), finite: the largest
// float stands for a change from or to nothing, 0 for no change.
func relative(before, after float64) float64 {
	if before == after {
		return 0
	}
	least := min(math.Abs(before), math.Abs(after))
	return clampFinite(math.Abs(after/2-before/2) / (least / 2))
}

// relativeChange is after/before − 1, finite.
func relativeChange(before, after float64) float64 {
	if before == after {
		return 0
	}
	return clampFinite(after/before - 1)
}

func clampFinite(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return min(max(x, -math.MaxFloat64), math.MaxFloat64)
}
