package falcon

import "slices"

// Median is the middle of v, or the mean of the middle two; 0 for none. It
// sorts v. Two huge values have a median too: each is halved before the sum.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	half := len(v) / 2
	if len(v)%2 == 1 {
		return v[half]
	}
	return v[half-1]/2 + v[half]/2
}
