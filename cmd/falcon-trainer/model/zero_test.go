package model

import (
	"errors"
	"slices"
	"testing"
)

// Every instance holds every slice once, and the replicas of a slice stand a
// whole instance apart (recovery of index i from (i + m·DP/N) mod DP).
func TestEveryInstanceHoldsEverySliceOnce(t *testing.T) {
	for dp := 1; dp <= 12; dp++ {
		for n := 0; n <= dp; n++ {
			s := Slices{DP: dp, Instances: n}
			if n > 0 && dp%n != 0 {
				if err := s.Validate(); !errors.Is(err, ErrShape) {
					t.Errorf("%d instances of %d replicas were not refused: %v", n, dp, err)
				}
				continue
			}
			holders := map[int]int{}
			for r := range dp {
				holders[s.Of(r)]++
				var held []int
				for _, q := range s.Instance(r) {
					held = append(held, s.Of(q))
				}
				if !slices.IsSorted(held) ||
					len(held) != s.Count() ||
					held[s.Of(r)] != s.Of(r) ||
					!slices.Contains(s.Instance(r), r) {
					t.Errorf("%+v, rank %d: instance %v holds %v", s, r, s.Instance(r), held)
				}
			}
			for slice, count := range holders {
				if want := dp / s.Count(); count != want {
					t.Errorf("%+v: slice %d has %d replicas, want %d", s, slice, count, want)
				}
			}
		}
	}
}
