package evaltest

import "gonum.org/v1/gonum/stat/distuv"

// confidence is that of Upper.
const confidence = 0.95

// Upper is the one-sided 95 % upper bound of a share of which k of n were seen
// (Clopper and Pearson 1934): the share p at which k or fewer of n have a
// probability of 5 %. It is 1 where all were seen or n is 0.
func Upper(k, n int) float64 {
	if k >= n {
		return 1
	}
	return distuv.Beta{Alpha: float64(k + 1), Beta: float64(n - k)}.Quantile(confidence)
}
