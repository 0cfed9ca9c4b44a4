package microbatch

import (
	"container/heap"
	"fmt"
)

// SolveCurves minimises max_i curves[i][m_i] with Σ m_i = total and
// 1 ≤ m_i < len(curves[i]), for curves that never decrease: T_i(m) of a
// simulated pipeline, which no straight line fits. Raising the replica whose
// next step ends soonest is exact for such curves. Ties go to the replica that
// has fewer micro-batches, then to the lower index.
func SolveCurves(curves [][]float64, total int) ([]int, float64, error) {
	h := &raises{curves: curves, m: make([]int, len(curves))}
	room := 0
	for i, c := range curves {
		if len(c) < 2 {
			return nil, 0, fmt.Errorf("%w: curve %d has no time for one micro-batch", ErrInput, i)
		}
		h.m[i] = 1
		room += len(c) - 1
		if len(c) > 2 {
			h.order = append(h.order, i)
		}
	}
	if total < len(curves) || total > room {
		return nil, 0, fmt.Errorf("%w: %d micro-batches over %d replicas that take at most %d",
			ErrInfeasible, total, len(curves), room)
	}
	h.raiseBy(total - len(curves))
	worst := 0.0
	for i, k := range h.m {
		worst = max(worst, curves[i][k])
	}
	return h.m, worst, nil
}

// raises is a heap of replicas by the end of their next step.
type raises struct {
	curves [][]float64
	m      []int
	order  []int
}

// raiseBy takes n steps, each the one that ends first.
func (h *raises) raiseBy(n int) {
	heap.Init(h)
	for range n {
		i := h.order[0]
		h.m[i]++
		if h.m[i]+1 < len(h.curves[i]) {
			heap.Fix(h, 0)
		} else {
			heap.Pop(h)
		}
	}
}

func (h *raises) Len() int { return len(h.order) }
func (h *raises) Less(a, b int) bool {
	i, j := h.order[a], h.order[b]
	x := h.curves[i][h.m[i]+1]
	y := h.curves[j][h.m[j]+1]
	switch {
	case x != y:
		return x < y
	case h.m[i] != h.m[j]:
		return h.m[i] < h.m[j]
	}
	return i < j
}

func (h *raises) Swap(a, b int) {
	h.order[a], h.order[b] = h.order[b], h.order[a]
}

func (h *raises) Push(x any) {
	h.order = append(h.order, x.(int))
}

func (h *raises) Pop() any {
	last := h.order[len(h.order)-1]
	h.order = h.order[:len(h.order)-1]
	return last
}
