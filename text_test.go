package falcon_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

func TestDurationText(t *testing.T) {
	for ms, want := range map[float64]string{
		0:           "0 ms",
		105270:      "105.3 s",
		46632.6:     "46.63 s",
		999.94:      "999.9 ms",
		999.96:      "1 s",
		1:           "1 ms",
		34:          "34 ms",
		59.5:        "59.5 ms",
		1234.5:      "1.234 s",
		119940:      "119.9 s",
		120000:      "120 s",
		599949:      "599.9 s",
		599951:      "10 min",
		0.9999:      "999.9 µs",
		0.99999:     "1 ms",
		0.812:       "812 µs",
		0.0005:      "500 ns",
		1e-8:        "0.01 ns",
		122e3:       "122 s",
		7.2e6:       "2 h",
		7.1e6:       "118.3 min",
		3.6e12:      "1000000 h",
		-1500:       "-1.5 s",
		math.Inf(1): "+Inf ms",
	} {
		if got := falcon.DurationText(ms); got != want {
			t.Errorf("%v: %q, want %q", ms, got, want)
		}
	}
	if got := falcon.DurationText(math.NaN()); got != "NaN ms" {
		t.Error(got)
	}
}

// Of any length the text has no exponent, and is right to four digits.
func TestDurationTextIsRight(t *testing.T) {
	units := map[string]float64{
		"ns":  1e-6,
		"µs":  1e-3,
		"ms":  1,
		"s":   1e3,
		"min": 60e3,
		"h":   3600e3,
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10000 {
		ms := math.Exp(40*rng.Float64() - 10)
		text := falcon.DurationText(ms)
		var n float64
		var unit string
		_, err := fmt.Sscan(text, &n, &unit)
		if err != nil ||
			units[unit] == 0 ||
			strings.Contains(text, "e+") ||
			math.Abs(n*units[unit]-ms) > 0.0011*ms {
			t.Fatalf("%v: %q (%v)", ms, text, err)
		}
	}
}
