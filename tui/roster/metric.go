package roster

import (
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/columns"
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

// scale is a metric's ramp.
type scale struct {
	name string
	falcon.Ramp
	unit string
	of   measure
}

// measure is what was measured of a rank, in the metric's unit; ok is false
// where nothing was. fast is the job's fast clock, MHz.
type measure func(v *falconv1.RankView, fast float64) (x float64, ok bool)

// Levels are the engine's own where it says one: it sees each sample, and holds
// a level that is only just left. Slowdown is the worst of iteration time against
// its own baseline and against the stage, and of self time. 1.1 is where FALCON
// calls a rank slow against its peers (§4.2).
var scales = [metrics]scale{
	Self: {
		"self time vs peers",
		falcon.Ramp{From: [6]float64{1.05, 1.1, 1.25, 1.5, 1.75, 2}},
		"×",
		selfRatio,
	},
	Slowdown:    {"slowdown", inPercent(falcon.SlowdownRamp), "%", slowdownPercent},
	Wait:        {"wait for others", falcon.WaitRamp, "% of iteration", waitShare},
	Temperature: {"GPU temperature", falcon.TemperatureRamp, "°C", temperatureC},
	Clock:       {"SM clock", falcon.ClockRamp, "%", clockShare},
	CNP:         {"congestion marks", falcon.CNPRamp, "CNP/s", packetRate},
}

func inPercent(r falcon.Ramp) falcon.Ramp {
	for i := range r.From {
		r.From[i] *= 100
	}
	return r
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
func (t *Roster) Name(m Metric) string {
	return scales[t.Resolve(m)].name
}

// Bounds lists where levels 1 to 6 begin, and their unit.
func (t *Roster) Bounds(m Metric) (bounds []string, unit string) {
	m = t.Resolve(m)
	s := scales[m]
	for _, b := range s.From {
		text := strconv.FormatFloat(b, 'f', -1, 64)
		switch {
		case b >= 1e6:
			text = strconv.FormatFloat(b/1e6, 'f', -1, 64) + "M"
		case b >= 1e3:
			text = strconv.FormatFloat(b/1e3, 'f', -1, 64) + "k"
		}
		if s.Falls {
			text = "<" + text
		}
		bounds = append(bounds, text)
	}
	if m == Clock && t.fastClock() > 0 {
		return bounds, fmt.Sprintf("%% of %.0f MHz", t.fastClock())
	}
	return bounds, s.unit
}

// Value is what was measured of a rank, in the metric's unit; ok is false without a value.
func (t *Roster) Value(m Metric, v *falconv1.RankView) (x float64, ok bool) {
	if v == nil {
		return 0, false
	}
	m = t.Resolve(m)
	return scales[m].of(v, t.fastClock())
}

func selfRatio(v *falconv1.RankView, _ float64) (float64, bool) {
	return v.SelfRatio, v.SelfRatio > 0
}

func slowdownPercent(v *falconv1.RankView, _ float64) (float64, bool) {
	return 100 * v.Slowdown, v.Ms > 0
}

func waitShare(v *falconv1.RankView, _ float64) (float64, bool) {
	return 100 * v.WaitMs / v.Ms, v.Ms > 0 && v.WaitMs >= 0 && v.SelfRatio > 0
}

func temperatureC(v *falconv1.RankView, _ float64) (float64, bool) {
	return float64(v.TemperatureC), v.TemperatureC > 0
}

func clockShare(v *falconv1.RankView, fast float64) (float64, bool) {
	return 100 * float64(v.SmClockMhz) / fast, v.SmClockMhz > 0
}

func packetRate(v *falconv1.RankView, _ float64) (float64, bool) {
	return v.CnpPerS, v.CnpPerS >= 0
}

// LevelOf is a rank's step on a metric's ramp, 0 to 6; ok is false without a value.
func (t *Roster) LevelOf(m Metric, v *falconv1.RankView) (level int, ok bool) {
	if v == nil {
		return 0, false
	}
	c := measuredCode(t.Resolve(m), v)
	return max(0, slices.Index(ofLevel[:], c)), c != Unmeasured
}

// SelfLevel is a self-time ratio's step on the heat ramp. The engine's own
// hysteresis is in the profile: a ratio changes only when one is taken.
func SelfLevel(ratio float64) int { return scales[Self].Level(ratio) }

// lazyClock is what the job's fast GPUs run at, computed on demand.
type lazyClock struct {
	once sync.Once
	mhz  float64
}

// fastClock is the clock that clocks are compared with, MHz; 0 where none is known.
func (t *Roster) fastClock() float64 {
	t.clock.once.Do(func() {
		t.clock.mhz = falcon.FastClock(t.table.Units(columns.SmClockMhz))
	})
	return t.clock.mhz
}
