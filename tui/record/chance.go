package record

import "math"

// span is a range of fractions that are kept equally fine.
type span struct {
	from, step float64
	first      int64 // steps before it
}

// roundingSlack keeps 1.1 in the step that begins there, although its binary is less.
const roundingSlack = 1e-6

// stepOf is the step that x lies in; 0 stays 0.
func stepOf(spans []span, x float64) int64 {
	if x <= 0 || math.IsNaN(x) {
		return 0
	}
	for _, s := range spans {
		if x >= s.from {
			return 1 + s.first + int64(math.Floor((x-s.from)/s.step+roundingSlack))
		}
	}
	return 0
}

// middleOf is the middle of a step.
func middleOf(spans []span, n int64) float64 {
	for _, s := range spans {
		if n > s.first {
			return s.from + s.step*(float64(n-1-s.first)+0.5)
		}
	}
	return 0
}

// leastChance is the least probability that is kept; less is 0.
const leastChance = 1e-20

// chances are the steps of probabilities, finest first. Pages print them with
// three digits after the point, near 1 with five, below 0.001 with one digit,
// which change at whole steps. They colour them by their logarithm, where a step
// is a twentieth at most, so that now and then a shade is its neighbour's.
var chances = func() []span {
	var out []span
	add := func(from, step float64) {
		first := int64(0)
		if len(out) > 0 {
			first = out[0].first + int64((from-out[0].from)/out[0].step+0.5)
		}
		out = append([]span{{from, step, first}}, out...)
	}
	for from := leastChance; from < 0.5e-6; from *= 10 {
		add(from, from/2)
	}
	for _, s := range [][2]float64{
		{1e-6, 5e-8},
		{1e-5, 5e-7},
		{1e-4, 5e-6},
		{1e-3, 5e-5},
		{0.01, 0.00025},
		{0.1, 0.0005},
		{0.999, 0.000005},
	} {
		add(s[0], s[1])
	}
	return out
}()

// chanceLevel is the step of a probability.
func chanceLevel(p float32) int64 {
	return stepOf(chances, min(float64(p), 1))
}

// chanceOf is level's inverse: the middle of a step.
func chanceOf(n int64) float32 {
	return float32(min(middleOf(chances, max(n, 0)), 1))
}
