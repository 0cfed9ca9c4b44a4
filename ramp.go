package falcon

// Ramp is how a measurement becomes a level, 0 to 6, that an operator sees.
// Bounds are fixed, so that a level means the same in each job.
type Ramp struct {
	From  [6]float64 // where levels 1 to 6 begin, in the measurement's unit and in order of level
	Falls bool       // low values are bad
	Hold  float64    // a level is left once the value is beyond this share of its bound
}

// The ramps. 1.1 is where FALCON calls a rank slow against its peers (§4.2).
// GPUs reach 60 to 70 °C under load, and throttle from 85 to 90 °C on. Congestion
// notifications rise by powers of ten: a quiet port has a few in a second. Each
// holds a level through what its measurement varies by from look to look.
var (
	// of the healthy time
	SlowdownRamp = Ramp{
		From: [6]float64{0.05, 0.10, 0.20, 0.40, 0.80, 1.50},
		Hold: 0.8,
	}
	// % of the iteration
	WaitRamp        = Ramp{From: [6]float64{20, 30, 40, 50, 65, 80}, Hold: 0.9}
	TemperatureRamp = Ramp{
		From: [6]float64{70, 75, 80, 85, 90, 95},
		Hold: 0.97,
	} // °C
	// % of FastClock
	ClockRamp = Ramp{
		From:  [6]float64{97, 94, 90, 80, 65, 50},
		Falls: true,
		Hold:  0.985,
	}
	CNPRamp = Ramp{
		From: [6]float64{10, 100, 1e3, 1e4, 1e5, 1e6},
		Hold: 0.5,
	} // a second
)

// Level is the level of a value that was not seen before.
func (r *Ramp) Level(x float64) int { return r.After(0, x) }

// After is the level of a value after a level: up at once, down only with a
// distance, so that a rank at a bound does not flicker.
func (r *Ramp) After(was int, x float64) int {
	level := 0
	for i, from := range r.From {
		if r.reached(x, from) || i < was && r.holds(x, from) {
			level = i + 1
		}
	}
	return level
}

func (r *Ramp) reached(x, from float64) bool {
	if r.Falls {
		return x < from
	}
	return x >= from
}

func (r *Ramp) holds(x, from float64) bool {
	if r.Falls {
		return x*r.Hold < from
	}
	return x >= from*r.Hold
}

// clocksMost bounds the clocks that count, MHz.
const clocksMost = 8192

// FastClock is the clock, MHz, that 95 % of the measured GPUs of a job do not
// exceed: what its fast GPUs run at, whatever one that boosts alone does. 0 and
// nonsense are not measured; 0 where none is.
func FastClock[T uint16 | int32 | uint32](clocks []T) float64 {
	var count [clocksMost]int32
	n := 0
	for _, mhz := range clocks {
		if mhz > 0 && uint64(mhz) < clocksMost {
			count[mhz]++
			n++
		}
	}
	left := n - n*95/100
	for mhz := clocksMost - 1; mhz > 0 && n > 0; mhz-- {
		if left -= int(count[mhz]); left <= 0 && count[mhz] > 0 {
			return float64(mhz)
		}
	}
	return 0
}
