package roster

import (
	"fmt"
	"strconv"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Metric is what maps colour ranks by.
type Metric int

// The metrics. All ranks of a job slow down together, so iteration time shows
// that the job is slow and self time shows who makes it slow.
const (
	Auto        Metric = iota // self time once a profile has measured it, else slowdown
	Self                      // self time against same-stage peers, in the last profile
	Slowdown                  // iteration time, by the engine's level
	Wait                      // wait for others, as a share of the iteration, in the last profile
	Temperature               // of the GPU
	Clock                     // SM clock against the job's fast GPUs
	CNP                       // congestion notification packets at the NIC
	metrics
)

// Cycle is the order in which an operator steps through the metrics.
var Cycle = []Metric{Slowdown, Self, Wait, Temperature, Clock, CNP}

// Code is what a rank shows by a metric. Codes are ordered by how much they
// must be seen, so that the worst of several is their maximum: what was not
// measured hides nothing, and stale data hides no rank at level 2 or above,
// where a rank counts as slow.
type Code uint8

// The codes.
const (
	None Code = iota
	Excluded
	Unmeasured
	Level0
	Level1
	StaleCode
	Level2
	Level3
	Level4
	Level5
	Level6
	LostCode
	CulpritCode
)

// Level is the code of a level, 0 to 6.
func Level(n int) Code {
	switch {
	case n <= 0:
		return Level0
	case n == 1:
		return Level1
	}
	return Level2 + Code(min(n, 6)-2)
}

// scale is a metric's ramp: the bounds of levels 1 to 6. Bounds are fixed, not
// stretched over what is there, so that a colour means the same in each job
// and a healthy job is not painted in all colours.
type scale struct {
	name   string
	bounds [6]float64
	unit   string
	falls  bool // low values are bad
	of     measure
}

// measure is what was measured of a rank, in the metric's unit; ok is false
// where nothing was. fast is the job's fast clock, MHz.
type measure func(v *falconv1.RankView, fast float64) (x float64, ok bool)

// Slowdown has the engine's own bounds and hysteresis (backend/engine): the
// worst of iteration time against its own baseline and against the stage, and
// of self time. 1.1 is where FALCON calls a rank slow against its peers (§4.2).
// GPUs reach 60 to 70 °C under load, and throttle from 85 to 90 °C on. Congestion
// marks rise by powers of ten: a quiet port has a few in a second.
var scales = [metrics]scale{
	Self:        {name: "self time vs peers", bounds: [6]float64{1.05, 1.1, 1.25, 1.5, 1.75, 2}, unit: "×", of: self},
	Slowdown:    {name: "slowdown", bounds: [6]float64{5, 10, 20, 40, 80, 150}, unit: "%", of: slowdown},
	Wait:        {name: "wait for others", bounds: [6]float64{20, 30, 40, 50, 65, 80}, unit: "% of iteration", of: wait},
	Temperature: {name: "GPU temperature", bounds: [6]float64{70, 75, 80, 85, 90, 95}, unit: "°C", of: temperature},
	Clock:       {name: "SM clock", bounds: [6]float64{97, 94, 90, 80, 65, 50}, unit: "%", falls: true, of: clock},
	CNP:         {name: "congestion marks", bounds: [6]float64{10, 100, 1e3, 1e4, 1e5, 1e6}, unit: "CNP/s", of: cnp},
}

// Resolve makes Auto one of the others.
func (t *Roster) Resolve(m Metric) Metric {
	switch {
	case m > Auto && m < metrics:
		return m
	case t.Measured:
		return Self
	}
	return Slowdown
}

// Name is what a metric measures, in a few words.
func (t *Roster) Name(m Metric) string { return scales[t.Resolve(m)].name }

// Bounds lists where levels 1 to 6 begin, and their unit.
func (t *Roster) Bounds(m Metric) (bounds []string, unit string) {
	m = t.Resolve(m)
	s := scales[m]
	for _, b := range s.bounds {
		text := strconv.FormatFloat(b, 'f', -1, 64)
		switch {
		case b >= 1e6:
			text = strconv.FormatFloat(b/1e6, 'f', -1, 64) + "M"
		case b >= 1e3:
			text = strconv.FormatFloat(b/1e3, 'f', -1, 64) + "k"
		}
		if s.falls {
			text = "<" + text
		}
		bounds = append(bounds, text)
	}
	if m == Clock && t.fastClock() > 0 {
		return bounds, fmt.Sprintf("%% of %.0f MHz", t.fastClock())
	}
	return bounds, s.unit
}

// Value is what was measured of a rank, in the metric's unit; ok is false
// where nothing was.
func (t *Roster) Value(m Metric, v *falconv1.RankView) (x float64, ok bool) {
	if v == nil {
		return 0, false
	}
	m = t.Resolve(m)
	return scales[m].of(v, t.fast(m))
}

func self(v *falconv1.RankView, _ float64) (float64, bool) { return v.SelfRatio, v.SelfRatio > 0 }

func slowdown(v *falconv1.RankView, _ float64) (float64, bool) { return 100 * v.Slowdown, v.Ms > 0 }

func wait(v *falconv1.RankView, _ float64) (float64, bool) {
	return 100 * v.WaitMs / v.Ms, v.Ms > 0 && v.WaitMs >= 0 && v.SelfRatio > 0
}

func temperature(v *falconv1.RankView, _ float64) (float64, bool) {
	return float64(v.TemperatureC), v.TemperatureC > 0
}

func clock(v *falconv1.RankView, fast float64) (float64, bool) {
	return 100 * float64(v.SmClockMhz) / fast, v.SmClockMhz > 0
}

func cnp(v *falconv1.RankView, _ float64) (float64, bool) { return v.CnpPerS, v.CnpPerS >= 0 }

// LevelOf is a rank's step on a metric's ramp, 0 to 6; ok is false where
// nothing was measured.
func (t *Roster) LevelOf(m Metric, v *falconv1.RankView) (level int, ok bool) {
	m = t.Resolve(m)
	x, ok := t.Value(m, v)
	switch {
	case !ok:
		return 0, false
	case m == Slowdown:
		return engineLevel(v), true
	}
	return scales[m].level(x), true
}

func engineLevel(v *falconv1.RankView) int { return int(min(6, max(0, v.Level))) }

// level counts the bounds that a value has reached, which are in order.
func (s *scale) level(x float64) int {
	n := 0
	if s.falls {
		for n < len(s.bounds) && x < s.bounds[n] {
			n++
		}
		return n
	}
	for n < len(s.bounds) && x >= s.bounds[n] {
		n++
	}
	return n
}

// SelfLevel is a self-time ratio's step on the heat ramp. The engine's own
// hysteresis is in the profile: a ratio changes only when one is taken.
func SelfLevel(ratio float64) int { return scales[Self].level(ratio) }

// clocksMost bounds the clocks that count, MHz.
const clocksMost = 8192

// fast is the clock that a metric is told against; 0 where none is.
func (t *Roster) fast(m Metric) float64 {
	if m != Clock {
		return 0
	}
	return t.fastClock()
}

// fastClock is the SM clock that 95 % of the measured GPUs do not exceed: what
// this job's fast GPUs run at, whatever one that boosts alone does.
func (t *Roster) fastClock() float64 {
	t.clock.once.Do(func() { t.clock.mhz = fastest(t.clock.of) })
	return t.clock.mhz
}

func fastest[T uint16 | int32](of []T) float64 {
	var count [clocksMost]int32
	n := 0
	for _, mhz := range of {
		if mhz > 0 && mhz < clocksMost {
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
