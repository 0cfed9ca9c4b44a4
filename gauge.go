package falcon

import "math"

// Gauge is a number that a GPU shows of itself. People look at it and filter by it; nothing is
// decided on it. A new one needs its place and its line here, and whoever reads it.
type Gauge int

// The gauges. Their order is a promise on the wire: add at the end.
const (
	GaugePower  Gauge = iota // at present
	GaugeMemory              // in use, of all the GPU's
	gauges
)

// GaugeCount is how many gauges there are.
const GaugeCount = int(gauges)

// gaugeShapes say how each is asked for and shown.
var gaugeShapes = [gauges]struct{ key, name, unit string }{
	GaugePower:  {"power", "power", "W"},
	GaugeMemory: {"mem", "memory", "%"},
}

// AllGauges lists the gauges in their order.
func AllGauges() []Gauge {
	out := make([]Gauge, GaugeCount)
	for i := range out {
		out[i] = Gauge(i)
	}
	return out
}

// Key is its word in a filter.
func (g Gauge) Key() string { return gaugeShapes[g].key }

// Name is what it measures.
func (g Gauge) Name() string { return gaugeShapes[g].name }

// Unit is that of its value.
func (g Gauge) Unit() string { return gaugeShapes[g].unit }

// Gauges are the values of one GPU by gauge, each plus 1; 0, or no place, is "not known". A
// reader passes over places that it does not know.
type Gauges []uint32

// Set enters a value, rounded to a whole number of its unit. What is negative, or no number, is
// not known.
func (v *Gauges) Set(g Gauge, x float64) {
	for len(*v) <= int(g) {
		*v = append(*v, 0)
	}
	(*v)[g] = 0
	if x >= 0 && x < math.MaxInt32-1 {
		(*v)[g] = uint32(math.Round(x)) + 1
	}
}

// Value is a gauge's value; ok is false where it is not known.
func (v Gauges) Value(g Gauge) (x int, ok bool) {
	if int(g) >= len(v) || v[g] == 0 || v[g] > math.MaxInt32 {
		return 0, false
	}
	return int(v[g]) - 1, true
}
