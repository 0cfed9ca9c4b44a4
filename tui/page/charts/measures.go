package charts

import (
	"fmt"
	"math"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// measure is how one is drawn.
type measure struct {
	name   string // of its pane
	title  string
	absent string // where nothing was measured
	value  func(float64) string
	label  func(float64) string // on the scale
	top    float64              // of the scale; 0 = by the values
	fits   bool                 // the scale follows the values at both ends: it has no honest zero
}

func number(x float64) string { return fmt.Sprintf("%.0f", x) }

func unit(format string) func(float64) string {
	return func(x float64) string { return fmt.Sprintf(format, x) }
}

var measures = [page.Measures]measure{
	page.IterationTime: {
		"iteration time", "ITERATION TIME ms", "no iteration on screen", phrase.Ms, number, 0,
		false,
	},
	page.Throughput: {
		"throughput",
		"THROUGHPUT iterations a minute",
		"no two iterations on screen",
		unit("%.1f/min"),
		number,
		0,
		false,
	},
	page.SelfRatio: {
		"self time",
		"SELF TIME × peers, of all ranks",
		"no profile on screen",
		unit("%.2f×"),
		unit("%.2f"),
		0,
		false,
	},
	page.WaitMs: {
		"waits", "WAIT FOR OTHERS ms, of all ranks", "no profile on screen", phrase.Ms, number, 0,
		false,
	},
	page.ClockMHz: {
		"clocks",
		"SM CLOCK MHz, of all GPUs",
		"no GPU is read",
		unit("%.0f MHz"),
		number,
		0,
		false,
	},
	page.TemperatureC: {
		"temperature",
		"TEMPERATURE °C, of all GPUs",
		"no GPU is read",
		unit("%.0f °C"),
		number,
		0,
		true,
	},
	page.Change: {
		"change",
		"P(change) of the job",
		"no filter of the job on screen",
		unit("%.3f"),
		unit("%.1f"),
		1,
		false,
	},
}

// fitLeast is the least range of a scale that fits its values, so that noise does not fill it.
const fitLeast = 10

// headroom is left above the greatest value.
const headroom = 1.05

// scale is the values at the lower and the upper edge.
func (m measure) scale(least, greatest float64) (from, to float64) {
	switch {
	case m.top > 0:
		return 0, m.top
	case m.fits:
		from = math.Floor(least/5) * 5
		to = math.Ceil(greatest/5) * 5
		return from, max(to, from+fitLeast)
	}
	return 0, widget.NiceTop(headroom * greatest)
}

// line is the value of the dashed line, 0 for none.
func (m measure) line(s *page.State) float64 {
	switch m.name {
	case measures[page.IterationTime].name:
		return s.Snap().GetJob().GetBaselineMs()
	case measures[page.Change].name:
		return s.Snap().GetSeries().GetThreshold()
	}
	return 0
}

// role is how a value is drawn.
func (m measure) role(s *page.State, x float64) themes.Role {
	base := s.Snap().GetJob().GetBaselineMs()
	switch {
	case m.name != measures[page.IterationTime].name || base <= 0:
		return themes.Accent
	case x >= base*(1+badExcess):
		return themes.Bad
	case x >= base*(1+falcon.MinorBelow):
		return themes.Warn
	}
	return themes.Good
}

// badExcess is what an iteration takes beyond the baseline where it is drawn as bad.
const badExcess = 0.5
