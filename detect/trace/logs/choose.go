package logs

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/column"
)

// Want holds the user's settings for a file.
type Want struct {
	Column string      // "" to choose it by name
	Unit   column.Unit // "" to take it from the file
	Items  float64     // tokens or samples per iteration; 0 if not known
	Run    int         // number of the run, from 1, in a file with several; 0 if not set
	Raw    bool        // use the numbers unchanged: they need no unit and may be negative
}

// choice is the chosen column and how its numbers become times.
type choice struct {
	*series
	role  column.Role // by its name and its values
	unit  column.Unit
	why   string
	notes []string
}

// choose finds the column with the iteration times.
func (f *frame) choose(want Want) (choice, error) {
	if want.Column != "" {
		return f.chooseNamed(want)
	}
	by := map[column.Role][]*series{}
	for _, s := range f.cols {
		if s.count > 0 && !column.Bound(s.name) {
			role := s.role()
			by[role] = append(by[role], s)
		}
	}
	for _, role := range []column.Role{column.IterTime, column.Mean, column.Time, column.Rate, column.Items} {
		found := by[role]
		switch {
		case len(found) == 0 || role == column.Items && want.Items == 0:
			continue
		case len(found) > 1:
			return choice{}, ask("the %s has %s, and each may be the time; choose one with --column",
				f.format, listNames(found))
		}
		return f.finish(choice{series: found[0], role: role, why: "the only " + roleWords[role]}, want)
	}
	if c, err, ok := f.chooseClock(
		append(by[column.Clock], by[column.Elapsed]...),
		by[column.Step],
		want,
	); ok {
		return c, err
	}
	return f.chooseRest(by, want)
}

var roleWords = map[column.Role]string{
	column.IterTime: "iteration time",
	column.Mean:     "mean iteration time",
	column.Time:     "duration",
	column.Rate:     "number of iterations per second",
	column.Items:    "number of tokens or samples per second",
	column.Clock:    "clock",
	column.Elapsed:  "time since the start",
}

// chooseRest explains why no column was chosen and lists the columns. With Raw, a
// single numeric column is used.
func (f *frame) chooseRest(by map[column.Role][]*series, want Want) (choice, error) {
	rest := by[column.Other]
	if want.Raw && len(rest) == 1 {
		return f.finish(choice{series: rest[0], why: "the only numeric column"}, want)
	}
	var holds []*series
	for _, s := range f.cols {
		if s.count > 0 && !column.Bound(s.name) {
			holds = append(holds, s)
		}
	}
	for _, s := range f.cols {
		if s.bad != nil &&
			s.count == 0 &&
			(s.means.Role == column.IterTime || s.means.Role == column.Time) {
			return choice{}, s.noNumbers()
		}
	}
	switch {
	case len(by[column.Items]) > 0:
		return choice{}, ask(
			"the %s has %s per second and no time; set --tokens to the number per iteration, such as --tokens 8192",
			f.format, listNames(by[column.Items]),
		)
	case len(holds) == 0:
		return choice{}, trace.Malformed(0, "the %s has no numbers; %s", f.format, example)
	case len(rest) == 1 && len(holds) <= 2:
		return choice{}, ask(
			"the name %s does not identify a time; if it is one, use --column %s --unit ms (or s)",
			listNames(rest), quoteArg(rest[0].name),
		)
	}
	return choice{}, ask(
		"no column of the %s is named as an iteration time; it has %s; choose one with --column, or %s",
		f.format, listNames(holds), example,
	)
}

const example = `give a log with such times, as in: step,iter_time_ms and below it 10,235.4`

// quoteArg quotes an argument for a shell.
func quoteArg(s string) string {
	if strings.ContainsAny(s, " \t()|&;<>*?$'\"\\") {
		return "'" + strings.ReplaceAll(trace.Clip(s), "'", "?") + "'"
	}
	return trace.Clip(s)
}

// chooseNamed finds the column of --column by its full name or its last part.
func (f *frame) chooseNamed(want Want) (choice, error) {
	var found []*series
	for _, s := range f.cols {
		if strings.EqualFold(s.name, want.Column) {
			found = []*series{s}
			break
		}
		if !column.Bound(s.name) &&
			(strings.EqualFold(column.Short(s.name), want.Column) ||
				strings.EqualFold(lastKey(s.name), want.Column)) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 0:
		return choice{}, trace.Malformed(0, "no column %q; the %s has %s",
			trace.Clip(want.Column), f.format, listNames(f.cols))
	case len(found) > 1:
		return choice{}, ask("%q can be %s; give the full name", trace.Clip(want.Column), listNames(found))
	}
	s := found[0]
	if s.count == 0 {
		return choice{}, s.noNumbers()
	}
	return f.finish(choice{series: s, role: s.role(), why: "named with --column"}, want)
}

func (s *series) noNumbers() error {
	if s.bad != nil {
		return trace.Malformed(s.bad.line, "column %s holds %q, which is not a number",
			trace.Clip(s.name), trace.Clip(s.bad.text))
	}
	return trace.Malformed(0, "column %s has no numbers", trace.Clip(s.name))
}

// finish determines the unit and refuses a column that can't be read completely.
func (f *frame) finish(c choice, want Want) (choice, error) {
	const few = 50 // lines for each one that another rank's output broke
	switch {
	case c.bad != nil && f.garbles && c.bads*few <= c.count:
		c.notes = append(c.notes, fmt.Sprintf(
			"%d lines have no number in this column, possibly because another rank wrote into them; the first is line %d",
			c.bads, c.bad.line,
		))
	case c.bad != nil:
		return c, trace.Malformed(c.bad.line, "column %s holds %q, which is not a number",
			trace.Clip(c.name), trace.Clip(c.bad.text))
	}
	if c.commas > 0 && c.clear == 0 {
		return c, ask(
			"the commas in column %s may separate thousands or decimals; write its numbers without thousands separators",
			trace.Clip(c.name),
		)
	}
	c.unit = c.means.Unit
	switch {
	case want.Unit != "":
		c.unit = want.Unit
		c.why += ", unit set with --unit"
	case len(c.units) == 1 && c.unit == "":
		for u := range c.units {
			c.unit = u
		}
	}
	if len(c.units) > 1 {
		return c, trace.Malformed(0, "column %s mixes units; write all its times in one unit",
			trace.Clip(c.name))
	}
	switch c.role {
	case column.Items:
		if want.Items <= 0 {
			return c, ask(
				"%s counts tokens or samples per second; set --tokens to the number per iteration, such as --tokens 8192",
				trace.Clip(c.name),
			)
		}
		return c, nil
	case column.Rate:
		return c, nil
	case column.Clock, column.Elapsed:
		c.unit = c.clockUnit(want)
		if c.unit == "" {
			return c, ask("the unit of the clock %s is unknown; set --unit s (or ms)", trace.Clip(c.name))
		}
		return c, nil
	case column.Mean:
		c.notes = append(c.notes, "the column is a mean by its name, so changes appear late and smaller")
	case column.Part:
		c.notes = append(c.notes, "by its name the column is not the time of a whole training iteration")
	case column.Known, column.Step, column.Rank:
		if !want.Raw && want.Unit == "" {
			return c, ask(
				"the name of column %s does not identify a time; if it is one, set --unit ms (or s)",
				trace.Clip(c.name),
			)
		}
	}
	c, err := f.checkUnit(c, want)
	ms := c.median() * c.unit.ToMs()
	if err == nil && (ms < shortest || ms > longest) && ms > 0 && want.Unit == "" {
		c.notes = append(c.notes, fmt.Sprintf(
			"an iteration of %s is unusual; if the unit is wrong, set --unit",
			falcon.DurationText(ms),
		))
	}
	return c, err
}

// Usual range of iteration times, in milliseconds.
const (
	shortest = 2
	longest  = 30 * 60 * 1000
)

// checkUnit compares the times with a clock of the same table. The clock determines
// a unit that the name lacks, and a contradicting unit is refused.
func (f *frame) checkUnit(c choice, want Want) (choice, error) {
	if want.Unit != "" || want.Raw {
		return c, nil
	}
	clockMs := f.clockPerStep(c.series)
	typical := c.median()
	if c.unit != "" {
		ratio := clockMs / (typical * c.unit.ToMs())
		if !c.preset && (ratio > 300 && ratio < 3000 || ratio > 1./3000 && ratio < 1./300) {
			return c, ask(
				"column %s is in %s by its name, but an iteration takes about %s by the clock column; choose with --unit %s (or ms, s, us)",
				trace.Clip(c.name), c.unit.Word(), falcon.DurationText(clockMs), c.unit,
			)
		}
		return c, nil
	}
	for _, u := range []column.Unit{"us", "ms", "s"} {
		if ratio := clockMs / (typical * u.ToMs()); ratio > 0.4 && ratio < 6 {
			c.unit, c.why = u, c.why+", "+u.Word()+" by the clock column"
			return c, nil
		}
	}
	return c, ask("the unit of column %s is unknown; set --unit ms or --unit s", trace.Clip(c.name))
}

// clockPerStep is the mean time of an iteration by the first clock of the table,
// in milliseconds; NaN if there is none.
func (f *frame) clockPerStep(of *series) float64 {
	var clock, step *series
	for _, s := range f.cols {
		switch s.role() {
		case column.Clock, column.Elapsed:
			if clock == nil && s.clockUnit(Want{}) != "" {
				clock = s
			}
		case column.Step:
			if step == nil {
				step = s
			}
		}
	}
	if clock == nil || step == nil || step == of {
		return math.NaN()
	}
	first, last := -1, -1
	for row := range f.lines {
		if !math.IsNaN(of.at(row)) &&
			!math.IsNaN(clock.at(row)) &&
			!math.IsNaN(step.at(row)) {
			if first < 0 {
				first = row
			}
			last = row
		}
	}
	if first < 0 || step.at(last) <= step.at(first) || last-first < 2 {
		return math.NaN()
	}
	return (clock.at(last) -
		clock.at(first)) * clock.clockUnit(Want{}).ToMs() / (step.at(last) - step.at(first))
}

func (s *series) median() float64 {
	all := make([]float64, 0, s.count)
	for _, v := range s.values {
		if !math.IsNaN(v) {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	if len(all) == 0 {
		return math.NaN()
	}
	return all[len(all)/2]
}

// listNames lists columns for a message.
func listNames(cols []*series) string {
	const most = 12
	var names []string
	for i, s := range cols {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(cols)-most))
			break
		}
		names = append(names, trace.Clip(s.name))
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
