package sheet

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/failslow/falcon"
)

// Text states what was found, and what to look at. The model comes from an agent.
func (r Report) Text(s Slow) string {
	who := "the job's GPUs"
	if r.Model != "" {
		who += " (" + printable(r.Model) + ")"
	}
	clock, _ := r.Clock.Value()
	switch s {
	case Clocks:
		return fmt.Sprintf(
			"%s run at %d %% of their maximum SM clock, all alike, and report no limit: were clocks locked or application clocks set?",
			who, clock,
		)
	case Limited:
		return fmt.Sprintf("%s run at %d %% of their maximum SM clock, all alike, held by %s",
			who, clock, r.limits())
	case Products:
		matrix, _ := r.Matrix.Value()
		return fmt.Sprintf(
			"the best matrix test of %s reached %d %% of the %.0f TFLOP/s of their data sheet (%d bit)",
			who, matrix, r.Sheet.Peak(r.Bits), r.Bits,
		)
	case Nothing:
	}
	return ""
}

// limits names what holds the clocks, and what to look at.
func (r Report) limits() string {
	var by []string
	for _, x := range []struct {
		reasons uint64
		text    string
	}{
		{falcon.ReasonSwPowerCap, "their power limit (nvidia-smi -q -d POWER)"},
		{falcon.ReasonSwThermal | falcon.ReasonHwThermal, "heat (the room's cooling, the fans)"},
		{falcon.ReasonHwPowerBrake, "the power brake (the rack's power supply)"},
	} {
		if r.Reasons&x.reasons != 0 {
			by = append(by, x.text)
		}
	}
	if len(by) == 0 {
		return "the hardware's slowdown"
	}
	return strings.Join(by, " and ")
}

func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, s)
	return s[:min(len(s), 64)]
}
