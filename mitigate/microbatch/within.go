package microbatch

import (
	"fmt"
	"slices"
)

// Bounds limit what each replica may be given: how many micro-batches fit its
// memory, and of what a count must be a multiple (interleaved schedules want
// multiples of the stages). Nil slices mean the defaults: 1, no limit, 1.
type Bounds struct {
	Min, Max, MultipleOf []int
}

// SolveCurvesWithin is SolveCurves within bounds. With one multiple for all it
// is the same exact greedy in steps of that multiple; with different ones it
// is a table over the sum, bounded by mixedLimit.
func SolveCurvesWithin(curves [][]float64, total int, b Bounds) ([]int, float64, error) {
	if b.Min == nil && b.Max == nil && b.MultipleOf == nil {
		return SolveCurves(curves, total)
	}
	lo, hi, step, err := b.roundedRanges(curves)
	if err != nil {
		return nil, 0, err
	}
	if sumCounts(lo) > total || sumCounts(hi) < total {
		return nil, 0, fmt.Errorf(
			"%w: the replicas take between %d and %d micro-batches together, the total is %d",
			ErrInfeasible, sumCounts(lo), sumCounts(hi), total,
		)
	}
	var m []int
	if allEqual(step) {
		m, err = raiseWithin(curves, total, lo, hi, step[0])
	} else {
		m, err = tableWithin(curves, total, lo, hi, step)
	}
	if err != nil {
		return nil, 0, err
	}
	return m, longestTime(curves, m), nil
}

// roundedRanges are the least and greatest counts and the steps, rounded inwards.
func (b Bounds) roundedRanges(curves [][]float64) (lo, hi, step []int, err error) {
	n := len(curves)
	for name, l := range map[string]int{
		"min":         len(b.Min),
		"max":         len(b.Max),
		"multiple_of": len(b.MultipleOf),
	} {
		if l != 0 && l != n {
			return nil, nil, nil, fmt.Errorf("%w: %s has %d entries for %d replicas", ErrInput, name, l, n)
		}
	}
	lo, hi, step = slices.Repeat([]int{1}, n), make([]int, n), slices.Repeat([]int{1}, n)
	for i := range curves {
		hi[i] = len(curves[i]) - 1
		if b.MultipleOf != nil {
			step[i] = b.MultipleOf[i]
		}
		if b.Min != nil {
			lo[i] = max(lo[i], b.Min[i])
		}
		if b.Max != nil {
			hi[i] = min(hi[i], b.Max[i])
		}
		if step[i] < 1 {
			return nil, nil, nil, fmt.Errorf("%w: multiple_of[%d] is %d, it must be at least 1",
				ErrInput, i, step[i])
		}
		lo[i] = (lo[i] + step[i] - 1) / step[i] * step[i]
		if hi[i] = hi[i] / step[i] * step[i]; lo[i] > hi[i] {
			return nil, nil, nil, fmt.Errorf(
				"%w: replica %d has no count between its min and max that is a multiple of %d",
				ErrInfeasible, i, step[i],
			)
		}
	}
	return lo, hi, step, nil
}

func allEqual(v []int) bool {
	return !slices.ContainsFunc(v, func(x int) bool { return x != v[0] })
}

func longestTime(curves [][]float64, m []int) float64 {
	worst := 0.0
	for i, k := range m {
		worst = max(worst, curves[i][k])
	}
	return worst
}

// raiseWithin raises, step by step, the replica whose next step ends soonest.
func raiseWithin(curves [][]float64, total int, lo, hi []int, step int) ([]int, error) {
	if (total-sumCounts(lo))%step != 0 {
		return nil, fmt.Errorf("%w: the total %d is no multiple of %d", ErrInfeasible, total, step)
	}
	coarse := make([][]float64, len(curves))
	for i, c := range curves {
		for m := lo[i]; m <= hi[i]; m += step {
			coarse[i] = append(coarse[i], c[m])
		}
	}
	h := &raises{curves: coarse, m: make([]int, len(curves))}
	for i := range coarse {
		if len(coarse[i]) > 1 {
			h.order = append(h.order, i)
		}
	}
	h.raiseBy((total - sumCounts(lo)) / step)
	out := make([]int, len(curves))
	for i, k := range h.m {
		out[i] = lo[i] + k*step
	}
	return out, nil
}

// tableWithin keeps, for every sum that the first replicas can reach, the least
// makespan and the last replica's count.
func tableWithin(curves [][]float64, total int, lo, hi, step []int) ([]int, error) {
	choices := 0
	for i := range curves {
		choices += (hi[i]-lo[i])/step[i] + 1
	}
	if float64(choices)*float64(total) > mixedLimit {
		return nil, fmt.Errorf(
			"%w: different multiple_of values with %d choices and a total of %d are too large to solve exactly; use one multiple_of or bounds",
			ErrInput, choices, total,
		)
	}
	best := make([]float64, total+1) // makespan, −1 = not reachable
	for have := range best {
		best[have] = -1
	}
	best[0] = 0
	last := make([][]int32, len(curves))
	for i := range curves {
		best, last[i] = addReplica(curves[i], best, lo[i], hi[i], step[i])
	}
	if best[total] < 0 {
		return nil, fmt.Errorf("%w: no sum of the allowed multiples is %d", ErrInfeasible, total)
	}
	out := make([]int, len(curves))
	left := total
	for i := len(curves) - 1; i >= 0; i-- {
		out[i] = int(last[i][left])
		left -= out[i]
	}
	return out, nil
}

func addReplica(curve, best []float64, lo, hi, step int) ([]float64, []int32) {
	next := make([]float64, len(best))
	last := make([]int32, len(best))
	for have := range next {
		next[have] = -1
	}
	for have, ms := range best {
		if ms < 0 {
			continue
		}
		for m := lo; m <= hi && have+m < len(next); m += step {
			if t := max(ms, curve[m]); next[have+m] < 0 || t < next[have+m] {
				next[have+m] = t
				last[have+m] = int32(m)
			}
		}
	}
	return next, last
}

func sumCounts(v []int) int {
	t := 0
	for _, x := range v {
		t += x
	}
	return t
}
