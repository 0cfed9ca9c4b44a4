package roster

import (
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/failslow/falcon/backend/api/columns"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Tables from columns: numbers that lie side by side, where views lie all over
// the memory, and a column that the snapshot before has too needs no look.

// stand enters what each rank is.
func (t *Roster) stand(prev *Roster) {
	if prev != nil && t.standLike(prev) {
		t.standings, t.Count, t.Anomalies, t.Critical = prev.standings, prev.Count, prev.Anomalies, prev.Critical
		return
	}
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

// standLike says that all that standings depend on is as in prev.
func (t *Roster) standLike(prev *Roster) bool {
	return t.over == prev.over && t.from.Shares(prev.from, columns.Health) &&
		maps.Equal(t.fenced, prev.fenced) && maps.Equal(t.apart, prev.apart) && (!t.fences() || t.from.SharesDevices(prev.from))
}

// fences says that some rank that is gone may be fenced.
func (t *Roster) fences() bool { return len(t.fenced)+len(t.apart) > 0 }

// at is a rank's value in a column; of a column without values 0.
func at(column []int32, rank int) int32 {
	if column == nil {
		return 0
	}
	return column[rank]
}

// reads are the columns that a metric's codes depend on, beside the standings.
var reads = [metrics][]columns.Column{
	Self:        {columns.SelfRatio},
	Slowdown:    {columns.Level, columns.Ms},
	Wait:        {columns.WaitMs, columns.Ms, columns.SelfRatio},
	Temperature: {columns.TemperatureC},
	Clock:       {columns.SmClockMhz},
	CNP:         {columns.CnpPerS},
}

// clockLike enters the fast clock.
func (t *Roster) clockLike(prev *Roster) {
	t.clock.once.Do(func() {
		if prev != nil && t.from.Shares(prev.from, columns.SmClockMhz) {
			t.clock.mhz = prev.clock.mhz
		} else {
			t.clock.mhz = fastest(t.from.Units(columns.SmClockMhz))
		}
	})
}

// shares says that columns are as in prev.
func (t *Roster) shares(prev *Roster, cols []columns.Column) bool {
	return !slices.ContainsFunc(cols, func(c columns.Column) bool { return !t.from.Shares(prev.from, c) })
}

// fewMoved is up to what share of the ranks a table is mended rather than made.
const fewMoved = 32

// moved lists the ranks that stand otherwise than in prev; few is false where
// they are too many to be mended one by one.
func (t *Roster) moved(prev *Roster) (list []int32, few bool) {
	if prev == nil {
		return nil, false
	}
	if one(t.standings, prev.standings) {
		return nil, true
	}
	was := prev.standings[:len(t.standings)]
	for i, s := range t.standings {
		if s == was[i] {
			continue
		}
		if len(list) == len(was)/fewMoved {
			return nil, false
		}
		list = append(list, int32(i))
	}
	return list, true
}

// one says that two tables are the same object.
func one[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// colour enters what each rank shows by each metric.
func (t *Roster) colour(prev *Roster) {
	moved, few := t.moved(prev)
	for m := Self; m < metrics; m++ {
		switch {
		case !few || !t.shares(prev, reads[m]):
			t.codes[m] = make([]Code, len(t.standings))
			t.fill(m, t.codes[m])
		case len(moved) == 0:
			t.codes[m] = prev.codes[m]
		default:
			t.codes[m] = slices.Clone(prev.codes[m])
			fast := t.fast(m)
			for _, r := range moved {
				t.codes[m][r] = codeOf(m, t.standings[r], t.Ranks[r], fast)
			}
		}
	}
}

// fill enters what ranks show by a metric; out and standings are as long.
func (t *Roster) fill(m Metric, out []Code) {
	switch m {
	case Slowdown:
		fillSlowdown(out, t.standings, t.from.Units(columns.Level), t.from.Units(columns.Ms))
	case Wait:
		fillWait(out, t.standings, t.from.Units(columns.WaitMs), t.from.Units(columns.Ms), t.from.Units(columns.SelfRatio))
	default:
		t.steps(m).fill(out, t.standings, t.from.Units(reads[m][0]))
	}
}

// ofStanding is byStanding, where an index needs no check.
const ofStanding = Standings - 1

func fillSlowdown(out []Code, standings []Standing, levels, ms []int32) {
	for i, s := range standings {
		c := byStanding[s&ofStanding]
		if c == None {
			c = Unmeasured
			if at(ms, i) > 0 {
				c = ofLevel[min(6, max(0, at(levels, i)))]
			}
		}
		out[i] = c
	}
}

func fillWait(out []Code, standings []Standing, waits, ms, self []int32) {
	scale := &scales[Wait]
	surely := 0.99 * scale.bounds[0] / 100 // of the iteration: below the first bound without a division
	for i, s := range standings {
		c := byStanding[s&ofStanding]
		if c == None {
			w, of := at(waits, i), at(ms, i)
			switch {
			case of <= 0 || w < 0 || at(self, i) <= 0:
				c = Unmeasured
			case float64(w) < surely*float64(of):
				c = Level0
			default:
				c = scale.step(share(w, of), true)
			}
		}
		out[i] = c
	}
}

// share is what wait tells of a view, from the columns that the view is of.
func share(waitMs, ms int32) float64 {
	return 100 * (float64(waitMs) / columns.WaitMs.Per()) / (float64(ms) / columns.Ms.Per())
}

// steps are a scale's bounds in whole units of a column.
type steps struct {
	least int32    // what was measured is at least so much
	from  [6]int32 // a value reaches a bound from so many units on
	falls bool
}

// fill is short for what most ranks have, the first level.
func (s *steps) fill(out []Code, standings []Standing, units []int32) {
	first, span := s.least, uint32(s.from[0]-s.least)
	if s.falls {
		first, span = s.from[0], uint32(math.MaxInt32-s.from[0])
	}
	for i, st := range standings {
		c := byStanding[st&ofStanding]
		if c == None {
			if u := at(units, i); uint32(u-first) < span {
				c = Level0
			} else {
				c = s.code(u)
			}
		}
		out[i] = c
	}
}

func (s *steps) code(units int32) Code {
	if units < s.least {
		return Unmeasured
	}
	return ofLevel[s.level(units)]
}

func (s *steps) level(units int32) int {
	n := 0
	for n < len(s.from) && (units >= s.from[n]) != s.falls {
		n++
	}
	return n
}

// steps finds the bounds of a metric that has one column.
func (t *Roster) steps(m Metric) *steps {
	value := t.unitsOf(m)
	s := &steps{least: 1, falls: scales[m].falls}
	if m == CNP {
		s.least = 0 // none is a measurement
	}
	for i, bound := range scales[m].bounds {
		s.from[i] = int32(sort.Search(math.MaxInt32, func(u int) bool { return value(u) >= bound }))
	}
	return s
}

// unitsOf tells a metric's value by the units of its column, as its measure
// tells it by the view.
func (t *Roster) unitsOf(m Metric) func(units int) float64 {
	if m == Clock {
		fast := t.fastClock()
		return func(u int) float64 { return 100 * float64(u) / fast }
	}
	per := reads[m][0].Per()
	return func(u int) float64 { return float64(u) / per }
}

// rate finds the worst rank.
func (t *Roster) rate(prev *Roster) {
	if prev != nil && one(t.standings, prev.standings) && t.shares(prev, rates) {
		t.Worst, t.Measured = prev.Worst, prev.Measured
		return
	}
	steps, self, levels := t.steps(Self), t.from.Units(columns.SelfRatio), t.from.Units(columns.Level)
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

// rates are the columns that the worst rank depends on, beside the standings.
var rates = []columns.Column{columns.SelfRatio, columns.Level}
