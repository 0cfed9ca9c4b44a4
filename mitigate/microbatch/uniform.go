package microbatch

import (
	"container/heap"
	"math"
	"slices"
)

// bisections is enough to pin any float64 limit to its last bits.
const bisections = 100

// solveUniform handles one granularity q for all replicas: find the least
// limit whose capacities reach the total, then spread within the capacities.
func (s *solver) solveUniform() ([]int, error) {
	caps := s.capsWithin(s.leastLimit())
	return s.minimizeSpread(caps), nil
}

// leastLimit is min max T_i. Bisection brackets it, then the few replicas
// that tie at the bracket are raised one by one to land on an exact T_i(m).
func (s *solver) leastLimit() float64 {
	floor := s.makespan(s.lo)
	lo := 0.0
	hi := s.makespan(s.hi)
	for range bisections {
		mid := lo + (hi-lo)/2
		if mid <= lo || mid >= hi {
			break
		}
		if s.capacity(mid) < s.total {
			lo = mid
		} else {
			hi = mid
		}
	}
	return max(floor, s.addSteps(s.capsWithin(lo)))
}

func (s *solver) capacity(limit float64) int {
	sum := 0
	for i := range s.t {
		sum += s.capWithin(i, limit)
		if sum >= s.total {
			break // only "enough or not" matters; keeps the sum from overflowing
		}
	}
	return sum
}

func (s *solver) capsWithin(limit float64) []int {
	caps := make([]int, len(s.t))
	for i := range caps {
		caps[i] = s.capWithin(i, limit)
	}
	return caps
}

// addSteps adds single steps, cheapest result first, until the total is reached,
// and returns the makespan of what it added.
func (s *solver) addSteps(m []int) float64 {
	sum := 0
	for _, k := range m {
		sum += k
	}
	worst := s.makespan(m)
	if sum >= s.total {
		return worst
	}
	h := &steps{}
	for i := range m {
		if m[i] < s.hi[i] {
			h.items = append(h.items, step{s.timeOf(i, m[i]+s.q[i]), i})
		}
	}
	heap.Init(h)
	for sum < s.total {
		top := h.items[0]
		m[top.i] += s.q[top.i]
		sum += s.q[top.i]
		worst = max(worst, top.cost)
		if m[top.i] < s.hi[top.i] {
			h.items[0].cost = s.timeOf(top.i, m[top.i]+s.q[top.i])
			heap.Fix(h, 0)
		} else {
			heap.Pop(h)
		}
	}
	return worst
}

// minimizeSpread minimises Σ(T_i − T*)² within [lo, caps]: separable and strictly
// convex, so steps are taken in order of marginal cost. Bisection on the
// marginal takes all but the ties; of steps that tie, the last replicas get
// theirs first, which is the lexicographically smallest vector.
func (s *solver) minimizeSpread(caps []int) []int {
	lo := math.Inf(1)
	hi := math.Inf(-1)
	for i := range caps {
		lo = min(lo, s.marginal(i, s.lo[i]))
		hi = max(hi, s.marginal(i, caps[i]))
	}
	lo -= math.Abs(lo)*relTol + math.SmallestNonzeroFloat64
	for range bisections {
		mid := lo + (hi-lo)/2
		if mid <= lo || mid >= hi {
			break
		}
		if s.countBelow(caps, mid) < s.total {
			lo = mid
		} else {
			hi = mid
		}
	}
	m := make([]int, len(caps))
	sum := 0
	for i := range m {
		m[i] = s.takenBelow(i, caps[i], lo)
		sum += m[i]
	}
	s.fillTies(m, caps, sum)
	return m
}

// marginal is the rise of (T_i − T*)² from m to m+q.
func (s *solver) marginal(i, m int) float64 {
	rise := s.t[i] * float64(s.q[i])
	return rise * (2*(s.timeOf(i, m)-s.target) + rise)
}

// takenBelow is m_i after all of i's steps with a marginal up to limit.
func (s *solver) takenBelow(i, ceiling int, limit float64) int {
	rise := s.t[i] * float64(s.q[i])
	// marginal(m) <= limit  <=>  m <= ((limit/rise − rise)/2 + T* − c)/t
	last := ((limit/rise-rise)/2 + s.target - s.c[i]) / s.t[i]
	if last < float64(s.lo[i]) {
		return s.lo[i]
	}
	if last >= float64(ceiling) {
		return ceiling
	}
	return min(ceiling, int(last)/s.q[i]*s.q[i]+s.q[i])
}

func (s *solver) countBelow(caps []int, limit float64) int {
	sum := 0
	for i := range caps {
		sum += s.takenBelow(i, caps[i], limit)
	}
	return sum
}

// fillTies corrects the count by single steps: the bisection may be off by
// steps whose marginals are equal within rounding.
func (s *solver) fillTies(m, caps []int, sum int) {
	for sum != s.total {
		if sum < s.total {
			sum += s.addCheapest(m, caps, s.total-sum)
		} else {
			sum -= s.dropDearest(m, sum-s.total)
		}
	}
	s.settleTies(m, caps)
}

// addCheapest takes up to missing of the steps that tie at the least
// marginal, from the last replica backwards.
func (s *solver) addCheapest(m, caps []int, missing int) int {
	least := math.Inf(1)
	for i := range m {
		if m[i] < caps[i] {
			least = min(least, s.marginal(i, m[i]))
		}
	}
	added := 0
	for i := len(m) - 1; i >= 0 && added < missing; i-- {
		if m[i] < caps[i] && s.isTied(i, s.marginal(i, m[i]), least) {
			m[i] += s.q[i]
			added += s.q[i]
		}
	}
	return added
}

func (s *solver) dropDearest(m []int, surplus int) int {
	most := math.Inf(-1)
	for i := range m {
		if m[i] > s.lo[i] {
			most = max(most, s.marginal(i, m[i]-s.q[i]))
		}
	}
	dropped := 0
	for i := 0; i < len(m) && dropped < surplus; i++ {
		if m[i] > s.lo[i] && s.isTied(i, s.marginal(i, m[i]-s.q[i]), most) {
			m[i] -= s.q[i]
			dropped += s.q[i]
		}
	}
	return dropped
}

// settleTies moves steps of equal marginal from earlier to later replicas, so
// that rounding in the bisection can't decide the lexicographic tie.
func (s *solver) settleTies(m, caps []int) {
	type open struct {
		marginal float64
		i        int
	}
	var free []open // next steps not taken, cheapest first, then last replica first
	for i := range m {
		if m[i] < caps[i] {
			free = append(free, open{s.marginal(i, m[i]), i})
		}
	}
	slices.SortFunc(free, func(a, b open) int {
		switch {
		case s.isTied(a.i, a.marginal, b.marginal):
			return b.i - a.i
		case a.marginal < b.marginal:
			return -1
		}
		return 1
	})
	k := 0
	for i := 0; i < len(m) && k < len(free); i++ {
		if m[i] <= s.lo[i] || free[k].i <= i {
			continue
		}
		if s.isTied(i, s.marginal(i, m[i]-s.q[i]), free[k].marginal) {
			m[i] -= s.q[i]
			m[free[k].i] += s.q[free[k].i]
			k++
		}
	}
}

// isTied compares marginals at the scale of what they were computed from.
func (s *solver) isTied(i int, a, b float64) bool {
	scale := s.t[i] * float64(s.q[i]) * (s.target + math.Abs(s.c[i]) + s.t[i]*float64(s.hi[i]))
	return math.Abs(a-b) <= 4*relTol*max(scale, math.Abs(a), math.Abs(b))
}

type step struct {
	cost float64
	i    int
}

// steps is a heap of next steps by cost, then by index.
type steps struct{ items []step }

func (h *steps) Len() int { return len(h.items) }
func (h *steps) Less(a, b int) bool {
	x, y := h.items[a], h.items[b]
	return x.cost < y.cost || (x.cost == y.cost && x.i < y.i)
}

func (h *steps) Swap(a, b int) {
	h.items[a], h.items[b] = h.items[b], h.items[a]
}

func (h *steps) Push(x any) {
	h.items = append(h.items, x.(step))
}

func (h *steps) Pop() any {
	last := h.items[len(h.items)-1]
	h.items = h.items[:len(h.items)-1]
	return last
}
