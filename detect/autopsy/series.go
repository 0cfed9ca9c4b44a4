package autopsy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

const (
	endedCost    = 0.01 // share of all time that a slow time that has ended must have cost
	endedPoints  = 10
	stallLeast   = 5 * time.Minute
	stallTimes   = 20 // usual times
	stallsMost   = 3  // more are the job's own work, such as checkpoints
	sureOfLevel  = 0.85
	sureOfFew    = 0.6
	sureOfEnded  = 0.6
	sureOfStall  = 0.65
	fewPoints    = 6 // at a level: it is said to be beginning
	seriesListed = 8
)

// measured is a series with its levels.
type measured struct {
	Series
	values []float64
	levels Levels
}

func measure(all []Series) []measured {
	out := make([]measured, len(all))
	for i, s := range all {
		values := make([]float64, len(s.Points))
		for k, p := range s.Points {
			values[k] = p.Value
		}
		out[i] = measured{s, values, levels(values)}
	}
	return out
}

// judgeSeries finds where iterations became slower.
func judgeSeries(series []measured) opinion {
	var best opinion
	of := -1 // the series of the best opinion
	agree := 0
	slow := make([]bool, len(series))
	for i, s := range series {
		o := judgeOne(s)
		slow[i] = o.kind != ""
		switch {
		case o.kind != "" &&
			best.kind != "" &&
			best.onset.Index == o.onset.Index &&
			best.summary == o.summary:
			agree++
		case o.kind != "" &&
			(best.kind == "" || o.confidence*o.slowdown > best.confidence*best.slowdown):
			o.judged = true
			best, of = o, i
		case o.kind == "":
			best.findings = append(best.findings, o.findings...)
		}
		best.judged = best.judged || o.judged
	}
	if agree > 0 {
		best.findings = append(best.findings, Finding{
			Kind: "series",
			Text: fmt.Sprintf("%d other files have the same", agree),
		})
	}
	if of >= 0 && only(series, slow, of) {
		best.who = []Who{series[of].Who}
		best.summary = names(best.who) + ": " + best.summary
	}
	return best
}

// only reports whether a series is of somebody, and is the only slow one among those of the same name.
func only(series []measured, slow []bool, of int) bool {
	if series[of].Who == Nobody {
		return false
	}
	others := 0
	for i, s := range series {
		switch {
		case i == of || s.Label() != series[of].Label() || s.Who == Nobody:
		case slow[i]:
			return false
		default:
			others++
		}
	}
	return others > 0
}

func judgeOne(s measured) opinion {
	if len(s.values) < leastSeries {
		return opinion{}
	}
	if o := lasting(s.Series, s.values, s.levels); o.kind != "" {
		return o
	}
	pauses := stall(s.Series, s.values)
	if pauses.kind != "" {
		return pauses
	}
	if s.levels.Drift != nil {
		return s.drifting(s.values, s.levels.Drift, s.levels.Noise)
	}
	if r := recurring(s.values, s.levels.Noise); r != nil {
		return s.recurs(r)
	}
	return opinion{judged: true, findings: append(s.turnedDown(), pauses.findings...)}
}

// turnedDown lists the changes that were looked at and are none.
func (s measured) turnedDown() []Finding {
	var out []Finding
	for _, x := range s.levels.Turned {
		p := s.Points[x.At]
		out = append(out, Finding{
			Kind:    "turned_down",
			Against: true,
			File:    s.File,
			Line:    p.Line,
			Time:    timeOf(p),
			Text: fmt.Sprintf("%s: %+.1f %% at %s: %s",
				s.Name, 100*x.Change, s.where(x.At), x.Why),
		})
	}
	return out
}

// lasting finds the change since which iterations take longer, or the largest one that has ended.
func lasting(s Series, values []float64, l Levels) opinion {
	base := math.Inf(1)
	onset := -1
	level := 0.0
	for i, shift := range l.Shifts {
		if i == 0 {
			base = shift.Before
		}
		switch {
		case shift.After >= base*(1+leastChange) && onset < 0:
			onset = i
		case shift.After < base*(1+leastChange) && onset >= 0:
			if long(values, l.Shifts, onset, i, base) {
				return s.slow(
					values,
					l.Shifts[onset],
					base,
					median(values[l.Shifts[onset].At:shift.At]),
					shift.At,
					l,
				)
			}
			onset = -1
		}
		base = min(base, shift.After)
		level = shift.After
	}
	if onset < 0 {
		return opinion{}
	}
	return s.slow(values, l.Shifts[onset], base, level, len(values), l)
}

// long reports whether a slow time that has ended matters.
func long(values []float64, shifts []Shift, from, to int, base float64) bool {
	a := shifts[from].At
	b := shifts[to].At
	lost, all := 0.0, 0.0
	for i, v := range values {
		all += v
		if i >= a && i < b {
			lost += v - base
		}
	}
	return b-a >= endedPoints && lost >= endedCost*all
}

// slow makes the opinion of a change.
func (s Series) slow(values []float64, at Shift, base, level float64, end int, l Levels) opinion {
	o := opinion{
		kind:       KindSlow,
		rank:       orderSlow,
		confidence: sureOfLevel,
		judged:     true,
		slowdown:   level / base,
	}
	p := s.Points[at.At]
	o.onset = s.onset(at.At)
	words := fmt.Sprintf("iterations take %.1f %% longer since %s",
		100*(level/base-1), s.where(at.At))
	switch {
	case end < len(values):
		o.confidence = sureOfEnded
		words = fmt.Sprintf("iterations took %.1f %% longer from %s to %s",
			100*(level/base-1), s.where(at.At), s.where(end))
	case at.Points < fewPoints && end-at.At < fewPoints:
		o.confidence = sureOfFew
		words += fmt.Sprintf("; only %d points are slower: it is beginning, and more are needed to be sure",
			end-at.At)
	}
	if s.Unit == "ms" {
		for _, v := range values[at.At:end] {
			o.costS += max(0, v-base) / 1e3 * float64(max(1, s.Every))
		}
		words += fmt.Sprintf(" (%s, was %s)", ms(level), ms(base))
	}
	o.summary = words
	text := fmt.Sprintf("%s: %s; noise of a point %.2g %%, chance of this without a change below %.1g",
		s.Name, words, 100*l.Noise, max(at.Chance, 1e-9))
	o.findings = append(o.findings, Finding{
		Kind: "series",
		File: s.File,
		Line: p.Line,
		Time: timeOf(p),
		Text: text,
	})
	o.findings = append(o.findings, Finding{
		Kind: "column",
		File: s.File,
		Text: s.Name + ": " + s.Why,
	})
	o.next = []string{
		"compare what ranks report for the time after " + s.where(at.At) +
			" (per-rank timers, clocks, a profile): the series alone names nobody",
	}
	return o
}

func (s Series) onset(i int) *Onset {
	out := &Onset{Index: i, Time: timeOf(s.Points[i])}
	if s.Points[i].Iteration >= 0 {
		out.Iteration = &s.Points[i].Iteration
	}
	return out
}

func timeOf(p Point) *time.Time {
	if p.Time.IsZero() {
		return nil
	}
	return &p.Time
}

func (s Series) where(i int) string {
	if p := s.Points[min(i, len(s.Points)-1)]; p.Iteration >= 0 {
		return fmt.Sprintf("iteration %d", p.Iteration)
	}
	return fmt.Sprintf("row %d", i)
}

func ms(v float64) string { return falcon.DurationText(v) }

// stall finds single iterations that took so long that they matter, and are too few to be the job's own work.
func stall(s Series, values []float64) opinion {
	if s.Unit != "ms" {
		return opinion{}
	}
	usual := median(values)
	var at []int
	lost := 0.0
	for i, v := range values {
		over := (v - usual) * float64(max(1, s.Every))
		if i >= leastPoints && over >= float64(stallLeast/time.Millisecond) && v >= stallTimes*usual {
			at = append(at, i)
			lost += over / 1e3
		}
	}
	if len(at) == 0 || len(at) > stallsMost {
		return pauses(s, values, usual)
	}
	o := opinion{
		kind:       KindSlow,
		rank:       orderSlow,
		confidence: sureOfStall,
		judged:     true,
		costS:      lost,
		onset:      s.onset(at[0]),
		slowdown:   values[at[0]] / usual,
		summary: fmt.Sprintf("one iteration took %s, usually %s: %s",
			ms(values[at[0]]), ms(usual), s.where(at[0])),
	}
	for _, i := range at {
		o.findings = append(o.findings, Finding{
			Kind: "stall",
			File: s.File,
			Line: s.Points[i].Line,
			Time: timeOf(s.Points[i]),
			Text: fmt.Sprintf("%s took %s", s.where(i), ms(values[i])),
		})
	}
	o.next = []string{"look at what happened at that time: storage, the network, a checkpoint, another job"}
	return o
}

// pauses finds a series that stands still so often that most of its time is lost.
func pauses(s Series, values []float64, usual float64) opinion {
	all, lost := 0.0, 0.0
	n, first := 0, -1
	for i, v := range values {
		if all += v; v >= pauseTimes*usual && i >= leastPoints {
			lost += v - usual
			if n++; first < 0 {
				first = i
			}
		}
	}
	if n == 0 {
		return opinion{}
	}
	text := fmt.Sprintf("%d of %d iterations take over %d times the usual one: %.2g %% of all time",
		n, len(values), pauseTimes, 100*lost/all)
	if n <= stallsMost || lost < pauseShare*all { // the job's own work, such as checkpoints and evaluations
		return opinion{findings: []Finding{{
			Kind:    "pauses",
			Against: true,
			File:    s.File,
			Line:    s.Points[first].Line,
			Time:    timeOf(s.Points[first]),
			Text:    s.Name + ": " + text,
		}}}
	}
	return opinion{
		kind:       KindSlow,
		rank:       orderSlow,
		confidence: sureOfStall,
		judged:     true,
		onset:      s.onset(first),
		slowdown:   all / (all - lost),
		costS:      lost / 1e3,
		summary:    text,
		findings: []Finding{{
			Kind: "stall",
			File: s.File,
			Line: s.Points[first].Line,
			Time: timeOf(s.Points[first]),
			Text: s.Name + ": " + text,
		}},
		next: []string{
			"look at what those iterations have in common: saving, data, evaluation, a summary",
		},
	}
}

const (
	pauseTimes = 5   // usual times
	pauseShare = 0.5 // of all time that is lost in them
)

// power says what could not have been reported.
func power(series []measured) []Finding {
	var out []Finding
	for _, s := range series[:min(seriesListed, len(series))] {
		text := fmt.Sprintf("%s: %d points are too few for any test", s.Name, len(s.values))
		if len(s.values) >= leastSeries {
			text = fmt.Sprintf(
				"%s: %d points, noise of a point %.2g %%: a change of the last quarter below %.2g %% could not be determined",
				s.Name, len(s.values), 100*s.levels.Noise, 100*max(leastChange, s.levels.Least),
			)
		}
		out = append(out, Finding{Kind: "power", File: s.File, Text: text})
	}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Compare(a.File, b.File)
	})
	return out
}
