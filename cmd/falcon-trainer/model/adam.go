package model

import "math"

// Adam is the optimizer's setting (Kingma and Ba 2015, algorithm 1).
type Adam struct {
	Rate, Beta1, Beta2, Epsilon float64
}

// NewAdam is the setting that the trainer uses. Epsilon is larger than the
// usual 1e-8 so that a weight without a gradient to speak of is not moved by
// rounding alone: the losses of different splits of a batch must agree.
func NewAdam(rate float64) Adam {
	return Adam{
		Rate:    rate,
		Beta1:   0.9,
		Beta2:   0.95,
		Epsilon: 1e-5,
	}
}

// Corrections are the factors that undo the bias of the two moments towards
// their start at zero; step counts from 1.
func (a Adam) Corrections(step int64) (first, second float64) {
	return 1 / (1 - math.Pow(a.Beta1, float64(step))), 1 / (1 - math.Pow(a.Beta2, float64(step)))
}
