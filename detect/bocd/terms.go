package bocd

import "math"

// tabled is the number of run lengths whose factors are in a table. Longer ones use
// the asymptotic series, which is exact to 1e-13 there.
const tabled = 2048

// factors are the parts of an update that depend on the run length alone, with κ and
// α of the run before the observation. Four fields stay in registers.
type factors struct {
	constant float64 // log Γ(α+½) − log Γ(α) − ½ log α + ½ log(κ/(2π(κ+1)))
	step     float64 // 1/(κ+1): share of the deviation that is added to the mean
	shrink   float64 // log((α+½)/α): decrease of log(β/α) by the larger α
	power    float64 // α+½
}

// shortFactors are the same for a short run.
type shortFactors struct {
	constant float64 // that of factors less power · shrink
	step     float64
	byAlpha  float64 // 1/(α+½)
	power    float64
}

// terms holds the factors of a prior by run length.
type terms struct {
	prior Prior
	short [seriesFrom]shortFactors
	table [tabled]factors
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
		kappa := p.Kappa + float64(r)
		alpha := p.Alpha + 0.5*float64(r)
		hi, _ := math.Lgamma(alpha + 0.5)
		lo, _ := math.Lgamma(alpha)
		constant := hi - lo - 0.5*math.Log(2*math.Pi*alpha*(1+1/kappa))
		t.table[r] = factors{constant, 1 / (kappa + 1), math.Log1p(0.5 / alpha), alpha + 0.5}
	}
	for r := range t.short {
		c := t.table[r]
		t.short[r] = shortFactors{c.constant - c.power*c.shrink, c.step, 1 / c.power, c.power}
	}
	return t
}

// factorsFor returns the factors of a run length.
func (t *terms) factorsFor(r int) factors {
	if uint(r) < tabled {
		return t.table[r]
	}
	return t.asymptoticFor(r)
}

// asymptoticFor returns the factors of a long run, by the series
//
//	log Γ(α+½) − log Γ(α) − ½ log α = −u/4 + u³/24 − …, u = 1/(2α)
//	log(1+u) = u − u²/2 + u³/3 − u⁴/4 + …
//	log(1−s) = −(s + s²/2 + s³/3 + …), s = 1/(κ+1)
func (t *terms) asymptoticFor(r int) factors {
	kappa := t.prior.Kappa + float64(r)
	alpha := t.prior.Alpha + 0.5*float64(r)
	by := 1 / (alpha * (kappa + 1)) // one division for both
	s := by * alpha
	u := 0.5 * by * (kappa + 1)
	constant := -halfLog2Pi - s*(1.0/2+s*(1.0/4+s*(1.0/6))) - u*(1.0/4-u*u*(1.0/24))
	return factors{constant, s, u * (1 - u*(1.0/2-u*(1.0/3-u*(1.0/4)))), alpha + 0.5}
}

const halfLog2Pi = 0.918938533204672741780329736405617639861397473637783412817
