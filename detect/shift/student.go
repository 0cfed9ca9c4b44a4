package shift

import "gonum.org/v1/gonum/stat/distuv"

// studentQuantile is what a mean of n+1 values exceeds with probability p, in
// standard errors that were estimated from them.
func studentQuantile(n int, p float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(n)}.Quantile(1 - p)
}
