package falcon

import (
	"testing"

	"pgregory.net/rapid"
)

func TestLevelsOfARamp(t *testing.T) {
	for _, c := range []struct {
		ramp   *Ramp
		values []float64
		want   []int
	}{
		{
			&SlowdownRamp,
			[]float64{0, 0.049, 0.05, 0.045, 0.039, 1.6, 1.3, 1.1, 0.41, 0.33, 0.31, 0},
			[]int{0, 0, 1, 1, 0, 6, 6, 5, 4, 4, 3, 0},
		},
		{
			&TemperatureRamp,
			[]float64{69, 70, 69, 68, 67, 86, 83, 82, 91, 60},
			[]int{0, 1, 1, 1, 0, 4, 4, 3, 5, 0},
		},
		{
			&ClockRamp,
			[]float64{100, 96.9, 97.5, 98.4, 98.5, 50, 49, 50.5, 51, 100},
			[]int{0, 1, 1, 1, 0, 5, 6, 6, 5, 0},
		},
		{&CNPRamp, []float64{9, 10, 5, 4.9, 2e6, 5e5, 4e5}, []int{0, 1, 1, 0, 6, 6, 5}},
		{&WaitRamp, []float64{25, 19, 18, 17.9}, []int{1, 1, 1, 0}},
	} {
		was := 0
		for i, x := range c.values {
			if was = c.ramp.After(was, x); was != c.want[i] {
				t.Errorf("%v: value %d, %v, is level %d, want %d",
					c.ramp.From, i, x, was, c.want[i])
			}
		}
	}
}

// A level rises at once to what the value alone says, never holds above what it
// was, and a value that goes no further back than the hold keeps its level.
func TestRampsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom([]*Ramp{
			&SlowdownRamp, &WaitRamp, &TemperatureRamp, &ClockRamp, &CNPRamp,
		}).Draw(t, "ramp")
		was := rapid.IntRange(0, 6).Draw(t, "was")
		x := rapid.Float64Range(0, 2*max(r.From[0], r.From[5])).Draw(t, "x")
		now := r.After(was, x)
		alone := r.Level(x)
		if now < alone || now > max(was, alone) {
			t.Fatalf("level %d after %d at %v, which alone is %d", now, was, x, alone)
		}
		back := x * (1 - 0.999*(1-r.Hold))
		if r.Falls {
			back = x / (1 - 0.999*(1-r.Hold))
		}
		if again := r.After(alone, back); again < alone {
			t.Fatalf("level %d at %v is left at %v for %d", alone, x, back, again)
		}
	})
}

func TestFastClock(t *testing.T) {
	many := make([]uint32, 100)
	for i := range many {
		many[i] = 1700
	}
	many[99] = 1980
	for _, c := range []struct {
		clocks []uint32
		want   float64
	}{
		{nil, 0},
		{[]uint32{0, 9999}, 0},
		{[]uint32{1410}, 1410},
		{many, 1700},
		{[]uint32{1000, 1980, 0, 1980}, 1980},
	} {
		if got := FastClock(c.clocks); got != c.want {
			t.Errorf("%v: %v, want %v", c.clocks, got, c.want)
		}
	}
}
