package bocd

import "math"

// tabled is how many run lengths have their constant looked up; longer ones
// use the asymptotic series, exact to 1e-13 there.
const tabled = 2048

// terms holds, per run length, the part of the log predictive that does not
// depend on the data: log Γ(α+½) − log Γ(α) + ½ log(κ/(2π(κ+1))).
type terms struct {
	prior Prior
	table [tabled]float64
}

// unitTerms is shared by all filters with the unit prior: a fleet has one
// filter per rank, and it is not written after initialisation.
var unitTerms = newTerms(UnitPrior)

func termsFor(p Prior) *terms {
	switch p {
	case UnitPrior:
		return unitTerms
	}
	return newTerms(p)
}

func newTerms(p Prior) *terms {
	t := &terms{prior: p}
	for r := range t.table {
		kappa, alpha := p.Kappa+float64(r), p.Alpha+0.5*float64(r)
		hi, _ := math.Lgamma(alpha + 0.5)
		lo, _ := math.Lgamma(alpha)
		t.table[r] = hi - lo + predictiveScale(kappa)
	}
	return t
}

func (t *terms) constantFor(r int) float64 {
	if r < tabled {
		return t.table[r]
	}
	return t.asymptoticFor(r)
}

// asymptoticFor is the constant for a long run, by
// log Γ(α+½) − log Γ(α) = ½ log α − 1/(8α) + 1/(192α³) − …
func (t *terms) asymptoticFor(r int) float64 {
	alpha, kappa := t.prior.Alpha+0.5*float64(r), t.prior.Kappa+float64(r)
	by := 1 / alpha
	return 0.5*logFrom1(alpha*kappa/(2*math.Pi*(kappa+1))) - by*(1.0/8-by*by*(1.0/192))
}

func predictiveScale(kappa float64) float64 {
	return -0.5 * math.Log(2*math.Pi*(1+1/kappa))
}
