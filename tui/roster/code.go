package roster

import (
	"math"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// byStanding is what ranks of a standing show by any metric; None leaves it to
// the metric.
var byStanding = [Standings]Code{
	Culprit: CulpritCode, Lost: LostCode, Stale: StaleCode, Unknown: StaleCode, Fenced: Excluded, Ended: Level0,
}

// ofLevel is the code of each level.
var ofLevel = [...]Code{Level0, Level1, Level2, Level3, Level4, Level5, Level6}

// Code is what one rank shows.
func (t *Roster) Code(m Metric, v *falconv1.RankView) Code {
	m = t.Resolve(m)
	return codeOf(m, t.StandingOf(v), v, t.fast(m))
}

// codeOf is what a rank shows by a metric that is not Auto.
func codeOf(m Metric, s Standing, v *falconv1.RankView, fast float64) Code {
	if c := byStanding[s]; c != None {
		return c
	}
	return shows(m, v, fast)
}

// shows is what a rank that takes part shows.
func shows(m Metric, v *falconv1.RankView, fast float64) Code {
	if m == Slowdown {
		return slowdownCode(v)
	}
	if c := said(m, v); c != None {
		return c
	}
	return scales[m].code(scales[m].of(v, fast))
}

// slowdownCode goes by the engine's own level.
func slowdownCode(v *falconv1.RankView) Code {
	if v.Ms > 0 {
		return ofLevel[engineLevel(v)]
	}
	return Unmeasured
}

// code is short for the value that most ranks have, below the first bound.
func (s *scale) code(x float64, ok bool) Code {
	if ok && !s.Falls && x < s.From[0] {
		return Level0
	}
	return s.step(x, ok)
}

func (s *scale) step(x float64, ok bool) Code {
	if !ok {
		return Unmeasured
	}
	return ofLevel[s.Level(x)]
}

// Codes lists what all ranks show, by rank.
func (t *Roster) Codes(m Metric) []Code {
	m = t.Resolve(m)
	if m == Clock && t.from == nil {
		t.clock.codes.Do(func() { t.fillClock(t.codes[Clock]) })
	}
	return t.codes[m]
}

// note enters what a rank shows by the metrics that need no look at others.
func (t *Roster) note(r int32, v *falconv1.RankView) {
	s := t.StandingOf(v)
	t.standings[r], t.clock.of[r] = s, uint16(min(v.SmClockMhz, math.MaxUint16))
	if c := byStanding[s]; c != None {
		for m := Self; m < metrics; m++ {
			t.codes[m][r] = c
		}
		return
	}
	for _, m := range [...]Metric{Slowdown, Self, Wait, Temperature, CNP} {
		t.codes[m][r] = shows(m, v, 0)
	}
}

// fillClock enters what ranks show by their clocks, once all are known.
func (t *Roster) fillClock(out []Code) {
	fast := t.fastClock()
	for i, s := range t.standings {
		c := byStanding[s]
		if c == None {
			c = shows(Clock, t.Ranks[i], fast)
		}
		out[i] = c
	}
}
