package roster

import (
	"math"

	"github.com/failslow/falcon/backend/api/columns"
)

// fill enters what all ranks show by a metric. The loops are over every rank of
// the job: short, and without a call for what most ranks have.
func (t *Roster) fill(m Metric, out []Code) {
	steps := t.steps(m)
	switch {
	case t.told[m]:
		fillSaid(out, t.standings, steps)
	case steps != nil: // it says so of some: no engine does
		fast := t.fast(m)
		for i, s := range t.standings {
			out[i] = codeOf(m, s, t.Ranks[i], fast)
		}
	case m == Slowdown:
		fillSlowdown(out, t.standings, t.from.Units(columns.Level), t.from.Units(columns.Ms))
	case m == Wait:
		fillWait(out, t.standings, t.from.Units(columns.WaitMs), t.from.Units(columns.Ms), t.from.Units(columns.SelfRatio))
	default:
		t.units(m).fill(out, t.standings, t.from.Units(sources[m].raw[0]))
	}
}

// ofStanding keeps a standing within byStanding, so that no index is checked.
const ofStanding = Standings - 1

func fillSaid(out []Code, standings []Standing, steps []int32) {
	for i, s := range standings {
		c := byStanding[s&ofStanding]
		if c == None {
			c = saidCode(steps[i])
		}
		out[i] = c
	}
}

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
	surely := 0.99 * scale.From[0] / 100 // of the iteration: below the first bound without a division
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

func (s *units) fill(out []Code, standings []Standing, column []int32) {
	first, span := s.least, uint32(s.from[0]-s.least) // level 0
	if s.falls {
		first, span = s.from[0], uint32(math.MaxInt32-s.from[0])
	}
	for i, st := range standings {
		c := byStanding[st&ofStanding]
		if c == None {
			if u := at(column, i); uint32(u-first) < span {
				c = Level0
			} else {
				c = s.code(u)
			}
		}
		out[i] = c
	}
}
