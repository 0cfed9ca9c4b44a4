package outage

import (
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// Every column of figures says what it is, and the paper's stand in their rows.
func TestReport(t *testing.T) {
	var all []Outcome
	var base []Baseline
	for _, n := range []int{32, 4800, 18000} {
		all = append(all, Outcome{
			Devices: n,
			Detect:  6,
			Wall:    float64(n) / 1000,
			Replace: 60,
			Restore: 0.4,
			Phases:  map[string]float64{falcon.PhaseTable: 0.125},
		})
		base = append(base, Baseline{Devices: n})
	}
	var b strings.Builder
	if err := Report(&b, "# head\n", all, base, DefaultModel()); err != nil {
		t.Fatal(err)
	}
	out := b.String()
	for _, want := range []string{
		"# head\n", "| 4800 | 6.000 | 4.800 | 60.0 | 0.400 | 65.2 | 1.08 | 7 | 116 |",
		"| 249 | < 0.5 |", "0.125", "| 1115 | +15 % |", "read off fig. 10",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	for _, line := range strings.Split(out, "\n") {
		if !strings.HasPrefix(line, "| Devices") {
			continue
		}
		for _, cell := range strings.Split(strings.Trim(line, "| "), " | ")[1:] {
			tagged := false
			for _, tag := range []string{
				"measured", "emulated", "simulated", "aper", "Ratio", "Sum", "Bytes",
				"Detection (constant", "Error", "above",
			} {
				tagged = tagged || strings.Contains(cell, tag)
			}
			if !tagged {
				t.Errorf("column %q does not say what it is", cell)
			}
		}
	}
}
