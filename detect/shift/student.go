package shift

import "gonum.org/v1/gonum/stat/distuv"

// studentQuantile is the value that the mean of n+1 values exceeds with probability
// p, in estimated standard errors.
func studentQuantile(n int, p float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(n)}.Quantile(1 - p)
}
