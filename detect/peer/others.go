package peer

import "slices"

// others gives medians of values without one of them, in logarithmic time each:
// every rank is compared with all the others that do its work.
type others struct{ sorted []float64 }

// othersOf takes over v.
func othersOf(v []float64) others {
	slices.Sort(v)
	return others{v}
}

// count is how many are left without one.
func (o others) count() int {
	return max(0, len(o.sorted)-1)
}

// medianWithout is the median of the values without x, one of them; 0 for none.
func (o others) medianWithout(x float64) float64 {
	n := o.count()
	if n == 0 {
		return 0
	}
	left, _ := slices.BinarySearch(o.sorted, x)
	at := func(i int) float64 {
		if i >= left {
			i++
		}
		return o.sorted[i]
	}
	if n%2 == 1 {
		return at(n / 2)
	}
	return (at(n/2-1) + at(n/2)) / 2
}
