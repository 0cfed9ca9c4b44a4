package shift

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// naive stores every point and computes every comparison from scratch.
type naive struct {
	xs   []float64
	from int
}

func middle(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	cut := len(xs) / 4
	sum := 0.0
	for _, x := range xs[cut : len(xs)-cut] {
		sum += x
	}
	return sum / float64(len(xs)-2*cut)
}

// blocks returns the levels of the complete blocks between two indexes.
func (n *naive) blocks(from, to int) []float64 {
	var out []float64
	for b := (from + 7) / 8 * 8; b+8 <= to; b += 8 {
		out = append(out, middle(n.xs[b:b+8]))
	}
	return out
}

// compare compares a window of k points with the 16 blocks before it.
func (n *naive) compare(k int) (before, after float64, parts int) {
	i := len(n.xs) - k
	blocks := n.blocks(n.from, i)
	blocks = blocks[max(0, len(blocks)-16):]
	if len(blocks) == 0 {
		return 0, 0, 0
	}
	if k <= 16 {
		return middle(blocks), middle(n.xs[i:]), len(blocks)
	}
	return middle(blocks), middle(n.blocks(i, len(n.xs))), len(blocks)
}

// lasts is Watch.lasts over a slice.
func (n *naive) lasts(k int, before, after float64) bool {
	beyond := func(xs []float64) (count int) {
		for _, x := range xs {
			if (x > (before+after)/2) == (after > before) {
				count++
			}
		}
		return count
	}
	i := len(n.xs) - k
	old := n.blocks(n.from, i)
	old = old[max(0, len(old)-16):]
	window := n.xs[i:]
	off := k / 8
	if k > 16 {
		window = n.blocks(i, len(n.xs))
		off = len(window) / 5
	}
	return beyond(n.xs[len(n.xs)-5:]) >= 4 &&
		beyond(window) >= len(window)-off &&
		4*beyond(old) <= len(old)
}

// TestAgainstNaive compares levels and lasts with naive, at every point of series
// with steps, pauses and a second level.
func TestAgainstNaive(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := New(Config{})
		n := &naive{}
		for i := range 700 {
			ms := 100 * (1 + 0.02*rng.NormFloat64())
			if i > 400 && i < 500 {
				ms *= 1.05
			}
			if rng.IntN(20) == 0 {
				ms *= 3
			}
			n.xs = append(n.xs, math.Log(ms))
			w.Observe(ms)
			if i == 450 {
				w.SetLevel(401)
				n.from = 401
			}
			for _, k := range lengths[1:] {
				if k > 16 && w.next%8 != 0 || w.next-k < n.from {
					continue
				}
				before, after, parts := n.compare(k)
				level, held := w.reference(w.next-k, refBlocks)
				if parts != held {
					t.Fatalf("%d points at %d: %d blocks, want %d", k, i, held, parts)
				}
				if parts < refLeast {
					continue
				}
				got := w.level(w.next - k)
				if math.Abs(got-after) > 1e-12 || math.Abs(level-before) > 1e-12 {
					t.Fatalf("%d points at %d: %g after %g, want %g after %g",
						k, i, got, level, after, before)
				}
				if w.lasts(w.next-k, before, after) != n.lasts(k, before, after) {
					t.Fatalf("%d points at %d: lasts is %v",
						k, i, w.lasts(w.next-k, before, after))
				}
			}
		}
	}
}

// TestThresholdsHoldTheirRate: on independent noise a comparison exceeds a
// threshold at its nominal rate at most, and for frequent events nearly at it.
func TestThresholdsHoldTheirRate(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 3))
	w := New(Config{Floor: 1e-9})
	for i := range w.scales {
		w.scales[i].allow = 0.02
	}
	looks, over := 0, 0
	for i := range 30_000 {
		w.Observe(100 * (1 + 0.01*rng.NormFloat64()))
		if i < 3000 || i%16 != 0 {
			continue
		}
		before, _ := w.reference(w.next-16, refBlocks)
		if looks++; math.Abs(w.level(w.next-16)-before) > w.threshold(4) {
			over++
		}
	}
	if share := float64(over) / float64(looks); share > 0.02 || share < 0.001 {
		t.Errorf("%d of %d comparisons exceed a threshold for 2 %%", over, looks)
	}
}
