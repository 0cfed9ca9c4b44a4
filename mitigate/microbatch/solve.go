package microbatch

import (
	"errors"
	"fmt"
	"math"
)

// Sentinel errors; each is wrapped with the numbers that led to it.
var (
	ErrInput      = errors.New("microbatch: bad input")
	ErrInfeasible = errors.New("microbatch: no split meets the bounds")
)

// relTol is the relative difference below which two times count as equal, so
// that ties in real arithmetic stay ties in binary fractions.
const relTol = 1e-12

// maxTotal bounds the sum of micro-batches: counts stay exact in float64, loops stay short.
const maxTotal = 1 << 30

// Problem is one S2 instance. Slices other than MicroBatchMs may be nil for their defaults.
type Problem struct {
	MicroBatchMs []float64 // t_i: forward + backward of replica i's slowest stage, ms
	Total        int       // micro-batches in a global batch
	Stages       int       // pipeline stages; fill and drain cost stages−1 micro-batches
	FillMs       []float64 // overrides stages·t_i: T_i(m) = (m−1)·t_i + FillMs[i]
	Min, Max     []int     // bounds per replica; defaults 1 and Total
	MultipleOf   []int     // granularity per replica; default 1
}

// Solution is the best split.
type Solution struct {
	MicroBatches    []int
	IterationMs     float64 // max_i T_i(m_i)
	EvenIterationMs float64 // the same for the even split, remainder to the first replicas
}

// Solve minimises max_i T_i(m_i). Ties: smallest Σ(T_i(m_i) − T*)² with
// T* = (Total + Σ(fill_i/t_i − 1)) / Σ(1/t_i), then lexicographically smallest.
func Solve(p Problem) (Solution, error) {
	s, err := newSolver(p)
	if err != nil {
		return Solution{}, err
	}
	var m []int
	if s.uniform {
		m, err = s.solveUniform()
	} else {
		m, err = s.solveMixed()
	}
	if err != nil {
		return Solution{}, err
	}
	return Solution{
		MicroBatches:    m,
		IterationMs:     s.makespan(m),
		EvenIterationMs: s.makespan(Even(p.Total, len(m))),
	}, nil
}

// Even splits total over n replicas, the remainder to the first ones.
func Even(total, n int) []int {
	m := make([]int, n)
	for i := range m {
		m[i] = total / n
		if i < total%n {
			m[i]++
		}
	}
	return m
}

// solver holds a checked problem: T_i(m) = t·m + c, lo and hi multiples of q.
type solver struct {
	t, c    []float64
	lo, hi  []int
	q       []int
	total   int
	target  float64 // T*
	uniform bool    // one granularity for all
}

func newSolver(p Problem) (*solver, error) {
	if err := validate(p); err != nil {
		return nil, err
	}
	n := len(p.MicroBatchMs)
	s := &solver{
		t:       p.MicroBatchMs,
		c:       make([]float64, n),
		lo:      make([]int, n),
		hi:      make([]int, n),
		q:       make([]int, n),
		total:   p.Total,
		uniform: true,
	}
	for i := range n {
		s.setBounds(p, i)
		s.uniform = s.uniform && s.q[i] == s.q[0]
	}
	s.target = s.idealMs()
	return s, s.feasible()
}

func validate(p Problem) error {
	n := len(p.MicroBatchMs)
	switch {
	case n == 0:
		return fmt.Errorf("%w: micro_batch_ms is empty, give one time per replica", ErrInput)
	case p.Total < 1 || p.Total > maxTotal:
		return fmt.Errorf("%w: total %d is not between 1 and %d", ErrInput, p.Total, maxTotal)
	case p.Stages < 1 || p.Stages > maxTotal:
		return fmt.Errorf("%w: stages %d is not between 1 and %d", ErrInput, p.Stages, maxTotal)
	}
	for i, t := range p.MicroBatchMs {
		if !(t > 0) || math.IsInf(t, 0) {
			return fmt.Errorf("%w: micro_batch_ms[%d] is %v, it must be a positive number", ErrInput, i, t)
		}
	}
	for name, l := range map[string]int{
		"fill_ms":     len(p.FillMs),
		"min":         len(p.Min),
		"max":         len(p.Max),
		"multiple_of": len(p.MultipleOf),
	} {
		if l != 0 && l != n {
			return fmt.Errorf("%w: %s has %d entries for %d replicas", ErrInput, name, l, n)
		}
	}
	for i, f := range p.FillMs {
		if !(f >= 0) || math.IsInf(f, 0) {
			return fmt.Errorf("%w: fill_ms[%d] is %v, it must not be negative", ErrInput, i, f)
		}
	}
	for i, q := range p.MultipleOf {
		if q < 1 || q > maxTotal {
			return fmt.Errorf("%w: multiple_of[%d] is %d, it must be at least 1", ErrInput, i, q)
		}
	}
	return nil
}

// setBounds fills replica i's line and its bounds, rounded inwards to multiples.
func (s *solver) setBounds(p Problem, i int) {
	fill := float64(p.Stages) * s.t[i]
	if p.FillMs != nil {
		fill = p.FillMs[i]
	}
	s.c[i] = fill - s.t[i]
	s.q[i] = 1
	if p.MultipleOf != nil {
		s.q[i] = p.MultipleOf[i]
	}
	lo := 1
	hi := p.Total
	if p.Min != nil {
		lo = max(lo, p.Min[i])
	}
	if p.Max != nil {
		hi = min(hi, p.Max[i])
	}
	s.lo[i] = (lo + s.q[i] - 1) / s.q[i] * s.q[i]
	s.hi[i] = hi / s.q[i] * s.q[i]
}

func (s *solver) feasible() error {
	sumLo, sumHi := 0, 0
	for i := range s.lo {
		if s.lo[i] > s.hi[i] {
			return fmt.Errorf("%w: replica %d has no count between its min and max that is a multiple of %d",
				ErrInfeasible, i, s.q[i])
		}
		sumLo += s.lo[i]
		sumHi += s.hi[i]
	}
	if sumLo > s.total || sumHi < s.total {
		return fmt.Errorf("%w: the replicas take between %d and %d micro-batches together, the total is %d",
			ErrInfeasible, sumLo, sumHi, s.total)
	}
	if s.uniform && s.total%s.q[0] != 0 {
		return fmt.Errorf("%w: the total %d is no multiple of %d", ErrInfeasible, s.total, s.q[0])
	}
	return nil
}

// idealMs is T*: the time at which fractional counts would all end together.
func (s *solver) idealMs() float64 {
	work := float64(s.total)
	rate := 0.0
	for i, t := range s.t {
		work += s.c[i] / t
		rate += 1 / t
	}
	return work / rate
}

func (s *solver) timeOf(i, m int) float64 {
	return s.t[i]*float64(m) + s.c[i]
}

func (s *solver) makespan(m []int) float64 {
	worst := 0.0
	for i, k := range m {
		worst = max(worst, s.timeOf(i, k))
	}
	return worst
}

// capWithin is the most that replica i can do within limit ms, never under lo.
func (s *solver) capWithin(i int, limit float64) int {
	slack := relTol * math.Abs(limit)
	k := math.Floor((limit + slack - s.c[i]) / s.t[i])
	if k >= float64(s.hi[i]) {
		return s.hi[i]
	}
	m := int(k) / s.q[i] * s.q[i]
	if next := m + s.q[i]; next <= s.hi[i] && s.timeOf(i, next) <= limit+slack {
		m = next // the division rounded down across an exact tie
	}
	return max(m, s.lo[i])
}
