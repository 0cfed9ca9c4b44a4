package logs

import (
	"fmt"
	"math"

	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/column"
)

// role derives the content of a column from its name and its values. A column that
// always grows is a clock or a time since the start, even if its name differs.
func (s *series) role() column.Role {
	role := s.means.Role
	if s.preset {
		return role
	}
	switch {
	case s.texts > 0:
		return column.Clock
	case role == column.Step && !s.whole():
		return column.Other
	case role == column.IterTime ||
		role == column.Time ||
		role == column.Other ||
		role == column.Mean:
		switch grows, epoch := s.growth(); {
		case epoch != "" && role != column.Other:
			return column.Clock
		case grows && role != column.Other:
			return column.Elapsed
		}
	}
	return role
}

// whole reports whether all numbers are integers.
func (s *series) whole() bool {
	for _, v := range s.values {
		if !math.IsNaN(v) && v != math.Trunc(v) {
			return false
		}
	}
	return true
}

// growth reports whether a column always rises, except where a run restarts, and
// whether it is a time since 1970.
func (s *series) growth() (grows bool, epoch column.Unit) {
	first := math.NaN()
	last := math.NaN()
	before := math.NaN()
	low := math.Inf(1)
	high := math.Inf(-1)
	n, rises, falls := 0, 0, 0
	for _, v := range s.values {
		if math.IsNaN(v) {
			continue
		}
		switch {
		case n == 0:
			first = v
		case v < before:
			falls++
		case v > before:
			rises++
		}
		n++
		before = v
		last = v
		low = min(low, v)
		high = max(high, v)
	}
	if n > 0 {
		epoch = epochUnit(low, high)
	}
	const few, many, perFall = 7, 11, 20 // noise rises as often as it falls
	return rises >= many && falls*perFall <= rises ||
		rises >= few && falls == 0 && first >= 0 && last > 4*first, epoch
}

// epochUnit is the unit of numbers that are times since 1970 within 2001 to 2100.
func epochUnit(low, high float64) column.Unit {
	for _, u := range []column.Unit{"s", "ms", "us", "ns"} {
		one := 1000 / u.ToMs()
		if low > 1e9*one && high < 4.2e9*one {
			return u
		}
	}
	return ""
}

// clockUnit is the unit of a clock, "" if it is not known.
func (s *series) clockUnit(want Want) column.Unit {
	if want.Unit != "" {
		return want.Unit
	}
	if s.texts > 0 {
		return "s"
	}
	if _, epoch := s.growth(); epoch != "" {
		return epoch
	}
	if s.means.Unit != "" {
		return s.means.Unit
	}
	switch s.name {
	case "_timestamp", "_runtime": // W&B's, in seconds
		return "s"
	}
	return ""
}

// chooseClock computes times from the differences of a clock if a column counts the
// iterations. ok is false if there is no clock.
func (f *frame) chooseClock(clocks, steps []*series, want Want) (c choice, err error, ok bool) {
	if len(clocks) == 0 {
		return c, nil, false
	}
	if len(steps) == 0 {
		return c, ask(
			"the %s has a clock (%s) and no column that counts iterations; if each row is one iteration, use --column %s",
			f.format, listNames(clocks[:1]), quoteArg(clocks[0].name),
		), true
	}
	var first error
	for _, s := range clocks {
		c, err := f.finish(
			choice{
				series: s,
				role:   s.role(),
				why:    "no column has iteration times; they are the differences of this clock",
			},
			want,
		)
		if err == nil {
			err = f.checkTick(c)
		}
		if err == nil {
			err = f.checkCount(c, steps[0])
		}
		if err == nil {
			return c, nil, true
		}
		if first == nil {
			first = err
		}
	}
	return c, first, true
}

// checkCount refuses numbers that may not count iterations: MLPerf's steps are
// samples.
func (f *frame) checkCount(c choice, step *series) error {
	if step.preset {
		return nil
	}
	ones := 0
	all := 0
	before := math.NaN()
	for row := range f.lines {
		if v := step.at(row); !math.IsNaN(v) && !math.IsNaN(c.at(row)) {
			if d := v - before; d > 0 {
				all++
				if d == 1 {
					ones++
				}
			}
			before = v
		}
	}
	if ones*2 >= all {
		return nil
	}
	return ask(
		"the %s has no iteration times, only a clock, %s, and its %s does not increase by 1, so it may count samples; if it counts iterations, use --column %s",
		f.format, trace.Clip(c.name), trace.Clip(step.name), quoteArg(c.name),
	)
}

// checkTick refuses a clock that is too coarse for its rows.
func (f *frame) checkTick(c choice) error {
	const coarse = 0.05 // of the time between two rows
	tick := c.tick
	if tick == 0 && c.whole() {
		tick = 1
	}
	n := float64(c.count - 1)
	if tick == 0 || n < 1 {
		return nil
	}
	low := math.Inf(1)
	high := math.Inf(-1)
	for _, v := range c.values {
		if !math.IsNaN(v) {
			low = min(low, v)
			high = max(high, v)
		}
	}
	if between := (high - low) / n; tick > coarse*between {
		return ask(
			"the %s has no iteration times, and the resolution of its clock %s, %.3g %s, is too coarse for rows %.3g %s apart; log the iteration time or finer timestamps",
			f.format, trace.Clip(c.name), tick, c.unit, between, c.unit,
		)
	}
	return nil
}

// toMs converts the number of a row to milliseconds. For a clock that is the time
// itself; differences are computed later.
func (c choice) toMs(v float64, want Want) (float64, error) {
	switch c.role {
	case column.Rate:
		v = 1000 / v
	case column.Items:
		v = 1000 * want.Items / v
	default:
		if c.unit != "" {
			v *= c.unit.ToMs()
		}
	}
	if math.IsNaN(v) ||
		math.IsInf(v, 0) ||
		!want.Raw && v < 0 ||
		!want.Raw && v == 0 && !c.isClock() {
		return 0, fmt.Errorf("is not an iteration time")
	}
	return v, nil
}

func (c choice) isClock() bool {
	return c.role == column.Clock || c.role == column.Elapsed
}
