package microbatch

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// mixedLimit bounds replicas × total × choices of the table used when the
// replicas have different granularities (a subset-sum in disguise).
const mixedLimit = 200_000_000

// solveMixed handles different granularities by dynamic programming over the
// sum: first the least reachable limit, then the least Σ(T_i − T*)².
func (s *solver) solveMixed() ([]int, error) {
	choices := 0
	for i := range s.t {
		choices += (s.hi[i]-s.lo[i])/s.q[i] + 1
	}
	if float64(choices)*float64(s.total) > mixedLimit {
		return nil, fmt.Errorf(
			"%w: different multiple_of values with %d choices and a total of %d are too large to solve exactly; use one multiple_of or bounds",
			ErrInput, choices, s.total,
		)
	}
	limits := s.candidates(choices)
	// capAt never goes under lo, so no limit below makespan(lo) is real.
	limits = limits[sort.SearchFloat64s(limits, s.makespan(s.lo)):]
	k := sort.Search(len(limits), func(k int) bool {
		return s.reachable(s.capsWithin(limits[k]))
	})
	if k == len(limits) {
		return nil, fmt.Errorf("%w: no sum of the allowed multiples is %d", ErrInfeasible, s.total)
	}
	return s.spreadMixed(s.capsWithin(limits[k])), nil
}

// candidates are all values that the makespan can take, ascending.
func (s *solver) candidates(n int) []float64 {
	out := make([]float64, 0, n)
	for i := range s.t {
		for m := s.lo[i]; m <= s.hi[i]; m += s.q[i] {
			out = append(out, s.timeOf(i, m))
		}
	}
	slices.Sort(out)
	return out
}

// reachable reports whether some choice within [lo, caps] sums to the total.
func (s *solver) reachable(caps []int) bool {
	sums := make([]bool, s.total+1)
	sums[0] = true
	for i := range caps {
		next := make([]bool, s.total+1)
		for have, ok := range sums {
			if !ok {
				continue
			}
			for m := s.lo[i]; m <= caps[i] && have+m <= s.total; m += s.q[i] {
				next[have+m] = true
			}
		}
		sums = next
	}
	return sums[s.total]
}

// spreadMixed fills costs from the back, then reads the lexicographically
// smallest of the cheapest choices from the front.
func (s *solver) spreadMixed(caps []int) []int {
	n := len(caps)
	best := make([][]float64, n+1)
	for i := range best {
		best[i] = slices.Repeat([]float64{math.Inf(1)}, s.total+1)
	}
	best[n][0] = 0
	for i := n - 1; i >= 0; i-- {
		for rest := range best[i] {
			for m := s.lo[i]; m <= caps[i] && m <= rest; m += s.q[i] {
				best[i][rest] = min(best[i][rest], s.squareError(i, m)+best[i+1][rest-m])
			}
		}
	}
	out := make([]int, n)
	rest := s.total
	for i := range out {
		out[i] = s.firstBest(i, caps[i], rest, best)
		rest -= out[i]
	}
	return out
}

func (s *solver) squareError(i, m int) float64 {
	d := s.timeOf(i, m) - s.target
	return d * d
}

func (s *solver) firstBest(i, ceiling, rest int, best [][]float64) int {
	tol := relTol * 16 * (best[i][rest] + s.target*s.target)
	for m := s.lo[i]; m <= ceiling && m <= rest; m += s.q[i] {
		if s.squareError(i, m)+best[i+1][rest-m] <= best[i][rest]+tol {
			return m
		}
	}
	panic("microbatch: the table lost its own optimum")
}
