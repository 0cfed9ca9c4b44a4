package bocd

import "math"

// The filter takes a logarithm and an exponential per run length and
// observation, of arguments in known ranges; these two are made for them.
// logexp_test.go holds both against package math.
const (
	logBits  = 8
	expBits  = 10
	expSteps = 1 << expBits
)

// toInteger is 1.5 · 2⁵²: a small number added to it is rounded to an integer.
const toInteger = 3 << 51

var (
	logParts [1 << logBits]struct{ inverse, log float64 }
	expParts [expSteps]uint64
)

func init() {
	for i := range logParts {
		inverse := 1 / (1 + (float64(i)+0.5)/(1<<logBits))
		logParts[i].inverse, logParts[i].log = inverse, -math.Log(inverse)
	}
	for i := range expParts {
		expParts[i] = math.Float64bits(math.Exp2(float64(i) / expSteps))
	}
}

// leastNormal is a bound below which fastLog is not used.
const leastNormal = 1e-300

// fastLog is log x for finite x ≥ leastNormal, off by less than 1e-15 of it or 3e-16.
func fastLog(x float64) float64 {
	bits := math.Float64bits(x)
	part := &logParts[bits>>(52-logBits)&(1<<logBits-1)]
	r := math.Float64frombits(bits&(1<<52-1)|1023<<52)*part.inverse - 1
	tail := r * r * (-1.0/2 + r*(1.0/3+r*(-1.0/4+r*(1.0/5))))
	return float64(int(bits>>52)-1023)*math.Ln2 + part.log + (r + tail)
}

// expNegative is exp x for x ≤ 0, off by less than 1e-13 of it, or 0 below the exponent's range.
func expNegative(x float64) float64 {
	if !(x > -700) {
		return 0
	}
	near := x*(expSteps/math.Ln2) + toInteger // the integer is in its last bits
	k := math.Float64bits(near)
	t := x - (near-toInteger)*(math.Ln2/expSteps)
	e := 1 + t*(1+t*(1.0/2+t*(1.0/6)))
	return e * math.Float64frombits(expParts[k&(expSteps-1)]+k>>expBits<<52)
}
