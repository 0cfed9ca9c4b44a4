package roster

import (
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/columns"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Tables from columns: numbers that lie side by side, where views lie all over
// the memory. What the snapshot before has too needs no look, and a table in
// which few ranks are otherwise is mended.

// fewOf is up to what share of the ranks a table is mended rather than made.
const fewOf = 32

// stand enters what each rank is, and lists the ranks that are not what they
// are in prev; few is false where they are too many, or prev is nil.
func (t *Roster) stand(prev *Roster) (moved []int32, few bool) {
	if prev == nil {
		t.standAll()
		return nil, false
	}
	if t.over == prev.over && t.fencedLike(prev) {
		moved, few = t.differing(prev, columns.Health, nil)
	}
	if !few {
		t.standAll()
		moved, few = differ(t.standings, prev.standings, nil)
	} else if len(moved) > 0 {
		t.standings = slices.Clone(prev.standings)
		for _, r := range moved {
			t.standings[r] = t.StandingOf(t.Ranks[r])
		}
		t.tally()
	}
	if few && len(moved) == 0 {
		t.standings, t.Count, t.Anomalies, t.Critical = prev.standings, prev.Count, prev.Anomalies, prev.Critical
	}
	return moved, few
}

// fencedLike says that those who are gone are fenced or lost as in prev.
func (t *Roster) fencedLike(prev *Roster) bool {
	return maps.Equal(t.fenced, prev.fenced) && maps.Equal(t.apart, prev.apart) && (!t.fences() || t.from.SharesDevices(prev.from))
}

// fences says that some rank that is gone may be fenced.
func (t *Roster) fences() bool { return len(t.fenced)+len(t.apart) > 0 }

func (t *Roster) standAll() {
	var of [falconv1.RankHealth_RANK_HEALTH_LOST + 1]Standing
	for h := range of {
		of[h] = t.StandingOf(&falconv1.RankView{Health: falconv1.RankHealth(h)})
	}
	healths, fences := t.from.Units(columns.Health), t.fences()
	t.standings = make([]Standing, t.from.World())
	for i := range t.standings {
		h := at(healths, i)
		if uint32(h) >= uint32(len(of)) {
			h = 0
		}
		if t.standings[i] = of[h]; fences && h == int32(falconv1.RankHealth_RANK_HEALTH_LOST) {
			t.standings[i] = t.StandingOf(t.Ranks[i])
		}
	}
	t.tally()
}

// at is a rank's value in a column; of a column without values 0.
func at(column []int32, rank int) int32 {
	if column == nil {
		return 0
	}
	return column[rank]
}

// differing adds to list the ranks whose value is not as in prev; few is false
// where they are too many.
func (t *Roster) differing(prev *Roster, c columns.Column, list []int32) (_ []int32, few bool) {
	if t.from.Shares(prev.from, c) {
		return list, true
	}
	now, was := t.from.Units(c), prev.from.Units(c)
	if now == nil || was == nil {
		return nil, false
	}
	return differ(now, was, list)
}

// block is how many values are compared at once.
const block = 64

// differ adds to list where a and b, which are as long, differ.
func differ[T comparable](a, b []T, list []int32) (_ []int32, few bool) {
	for lo := 0; lo < len(a); lo += block {
		hi := min(lo+block, len(a))
		if hi-lo == block && *(*[block]T)(a[lo:]) == *(*[block]T)(b[lo:]) {
			continue
		}
		for i := lo; i < hi; i++ {
			if a[i] == b[i] {
				continue
			}
			if len(list) > len(a)/fewOf {
				return nil, false
			}
			list = append(list, int32(i))
		}
	}
	return list, true
}

// source is what a metric's codes are read from, beside the standings.
type source struct {
	step columns.Column   // what the engine says that ranks show; never = nothing
	raw  []columns.Column // what was measured, for an engine that does not say
}

var sources = [metrics]source{
	Self:        {never, []columns.Column{columns.SelfRatio}},
	Slowdown:    {never, []columns.Column{columns.Level, columns.Ms}},
	Wait:        {columns.WaitStep, []columns.Column{columns.WaitMs, columns.Ms, columns.SelfRatio}},
	Temperature: {columns.TemperatureStep, []columns.Column{columns.TemperatureC}},
	Clock:       {columns.ClockStep, []columns.Column{columns.SmClockMhz}},
	CNP:         {columns.CnpStep, []columns.Column{columns.CnpPerS}},
}

// never stands for no column.
const never columns.Column = -1

// steps is what the engine says that ranks show by a metric; nil = nothing.
func (t *Roster) steps(m Metric) []int32 {
	if sources[m].step == never {
		return nil
	}
	return t.from.Units(sources[m].step)
}

// hear notes by which metrics the engine says of every rank what it shows.
func (t *Roster) hear(prev *Roster) {
	for m := Self; m < metrics; m++ {
		if c := sources[m].step; c != never && prev != nil && t.from.Shares(prev.from, c) {
			t.told[m] = prev.told[m]
			continue
		}
		steps := t.steps(m)
		t.told[m] = steps != nil && !slices.ContainsFunc(steps, func(s int32) bool { return saidCode(s) == None })
	}
}

// clockLike enters the fast clock.
func (t *Roster) clockLike(prev *Roster) {
	t.clock.once.Do(func() {
		if prev != nil && t.from.Shares(prev.from, columns.SmClockMhz) {
			t.clock.mhz = prev.clock.mhz
		} else {
			t.clock.mhz = falcon.FastClock(t.from.Units(columns.SmClockMhz))
		}
	})
}

// colour enters what each rank shows by each metric.
func (t *Roster) colour(prev *Roster, moved []int32, few bool) {
	for m := Self; m < metrics; m++ {
		dirty, mend := moved, few
		if mend {
			dirty, mend = t.dirty(prev, m, slices.Clip(moved))
		}
		switch {
		case !mend:
			t.codes[m] = make([]Code, len(t.standings))
			t.fill(m, t.codes[m])
		case len(dirty) == 0:
			t.codes[m] = prev.codes[m]
		default:
			t.codes[m] = slices.Clone(prev.codes[m])
			fast := t.fast(m)
			for _, r := range dirty {
				t.codes[m][r] = codeOf(m, t.standings[r], t.Ranks[r], fast)
			}
		}
	}
}

// dirty adds to list the ranks that may show something else by a metric than in
// prev; few is false where those are too many, or all.
func (t *Roster) dirty(prev *Roster, m Metric, list []int32) (_ []int32, few bool) {
	if t.told[m] {
		return t.differing(prev, sources[m].step, list)
	}
	if c := sources[m].step; c != never && !t.from.Shares(prev.from, c) || m == Clock && t.clock.mhz != prev.clock.mhz {
		return nil, false
	}
	for _, c := range sources[m].raw {
		if m == Slowdown && c == columns.Ms {
			list = appear(t.from.Units(c), prev.from.Units(c), list)
		} else if list, few = t.differing(prev, c, list); !few {
			return nil, false
		}
	}
	return list, len(list) <= len(t.standings)/fewOf
}

// appear adds to list the ranks that have a time now and had none, or the other
// way round: times change with each iteration, that there is one seldom.
func appear(now, was, list []int32) []int32 {
	for i := range max(len(now), len(was)) {
		if (at(now, i) > 0) != (at(was, i) > 0) {
			list = append(list, int32(i))
		}
	}
	return list
}

// rate finds the worst rank.
func (t *Roster) rate(prev *Roster, moved []int32, few bool) {
	if few && t.from.Shares(prev.from, columns.SelfRatio) {
		t.Measured = prev.Measured
		dirty, some := t.differing(prev, columns.Level, slices.Clip(moved))
		if some && !slices.Contains(dirty, prev.Worst) {
			t.rateSome(prev.Worst, dirty)
			return
		}
	}
	t.rateAll()
}

// rateSome knows the worst of all ranks but some.
func (t *Roster) rateSome(worst int32, some []int32) {
	weight := func(r int32) weight { return weigh(t.standings[r], t.Ranks[r]) &^ hasSelf }
	t.Worst = worst
	if len(t.standings) == 0 {
		return
	}
	best := weight(worst)
	for _, r := range some {
		if w := weight(r); w > best || w == best && r < t.Worst {
			best, t.Worst = w, r
		}
	}
}

func (t *Roster) rateAll() {
	steps, self, levels := t.units(Self), t.from.Units(columns.SelfRatio), t.from.Units(columns.Level)
	best, measured := weight(0), false
	for i, s := range t.standings {
		u, level := at(self, i), at(levels, i)
		measured = measured || u > 0
		if s == OK && u < steps.from[0] && level <= 0 && best != 0 {
			continue // as most, no more than known
		}
		w := s.weight(level)
		if u > 0 {
			w |= weight(steps.level(u)) << selfAt
		}
		if w > best {
			best, t.Worst = w, int32(i)
		}
	}
	t.Measured = measured
}

// units are a scale's bounds in whole units of a column.
type units struct {
	least int32    // what was measured is at least so much
	from  [6]int32 // a value reaches a bound from so many units on
	falls bool
}

// units finds the bounds of a metric that is measured in one column.
func (t *Roster) units(m Metric) *units {
	value, s := t.unitsOf(m), &scales[m]
	out := &units{least: 1, falls: s.Falls}
	if m == CNP {
		out.least = 0 // none is a measurement
	}
	for i, bound := range s.From {
		out.from[i] = int32(sort.Search(math.MaxInt32, func(u int) bool { return value(u) >= bound }))
	}
	return out
}

// unitsOf tells a metric's value by the units of its column, as its measure
// tells it by the view.
func (t *Roster) unitsOf(m Metric) func(units int) float64 {
	if m == Clock {
		fast := t.fastClock()
		return func(u int) float64 { return 100 * float64(u) / fast }
	}
	per := sources[m].raw[0].Per()
	return func(u int) float64 { return float64(u) / per }
}

func (s *units) code(units int32) Code {
	if units < s.least {
		return Unmeasured
	}
	return ofLevel[s.level(units)]
}

func (s *units) level(units int32) int {
	n := 0
	for n < len(s.from) && (units >= s.from[n]) != s.falls {
		n++
	}
	return n
}
