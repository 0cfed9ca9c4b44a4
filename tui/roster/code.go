package roster

import (
	"sync"

	"github.com/failslow/falcon/backend/api/columns"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// byStanding is the code of a standing by any metric; None leaves it to the metric.
var byStanding = [Standings]Code{
	Culprit: CulpritCode,
	LinkEnd: CulpritCode,
	Lost:    LostCode,
	Stale:   StaleCode,
	Parked:  StaleCode,
	Unknown: StaleCode,
	Fenced:  Excluded,
	Ended:   Level0,
	Exited:  Level0,
}

// ofLevel is the code of each level.
var ofLevel = [...]Code{Level0, Level1, Level2, Level3, Level4, Level5, Level6}

// lazyCodes is what all ranks show by one metric, computed on demand.
type lazyCodes struct {
	once sync.Once
	of   []Code
}

// Code is what one rank shows.
func (t *Roster) Code(m Metric, v *falconv1.RankView) Code {
	if c := byStanding[t.StandingOf(v)]; c != None {
		return c
	}
	return measuredCode(t.Resolve(m), v)
}

// Codes lists what all ranks show, by rank.
func (t *Roster) Codes(m Metric) []Code {
	m = t.Resolve(m)
	lazy := &t.codes[m]
	lazy.once.Do(func() { lazy.of = t.makeCodes(m) })
	return lazy.of
}

func (t *Roster) makeCodes(m Metric) []Code {
	out := make([]Code, len(t.standings))
	shown := t.columnCodes(m)
	for i, s := range t.standings {
		if out[i] = byStanding[s]; out[i] == None {
			out[i] = shown(i)
		}
	}
	return out
}

// columnCodes is what a rank that takes part shows by a metric.
func (t *Roster) columnCodes(m Metric) func(rank int) Code {
	switch m {
	case Self:
		ratios := t.table.Units(columns.SelfRatio)
		return func(rank int) Code {
			return selfCode(float64(valueAt(ratios, rank)) / columns.SelfRatio.Per())
		}
	case Slowdown:
		levels, ms := t.table.Units(columns.Level), t.table.Units(columns.Ms)
		return func(rank int) Code {
			return slowdownCode(valueAt(levels, rank), valueAt(ms, rank) > 0)
		}
	default:
		steps := t.table.Units(stepColumns[m])
		return func(rank int) Code { return stepCode(valueAt(steps, rank)) }
	}
}

// stepColumns hold the levels that the engine shows by a metric.
var stepColumns = [metrics]columns.Column{
	Wait:        columns.WaitStep,
	Temperature: columns.TemperatureStep,
	Clock:       columns.ClockStep,
	CNP:         columns.CnpStep,
}

// measuredCode is what a rank that takes part shows.
func measuredCode(m Metric, v *falconv1.RankView) Code {
	switch m {
	case Self:
		return selfCode(v.GetSelfRatio())
	case Wait:
		return stepCode(v.GetWaitStep())
	case Temperature:
		return stepCode(v.GetTemperatureStep())
	case Clock:
		return stepCode(v.GetClockStep())
	case CNP:
		return stepCode(v.GetCnpStep())
	default:
		return slowdownCode(v.GetLevel(), v.GetMs() > 0)
	}
}

// selfCode goes by the last profile, and so needs no hysteresis.
func selfCode(ratio float64) Code {
	if ratio > 0 {
		return ofLevel[SelfLevel(ratio)]
	}
	return Unmeasured
}

// slowdownCode goes by the engine's own level.
func slowdownCode(level int32, measured bool) Code {
	if measured {
		return ofLevel[min(6, max(0, level))]
	}
	return Unmeasured
}

// codeOfStep is the code of each step that the engine can send.
var codeOfStep = [...]Code{Unmeasured, Unmeasured, Level0, Level1, Level2, Level3, Level4, Level5, Level6}

func stepCode(step int32) Code {
	if uint32(step) < uint32(len(codeOfStep)) {
		return codeOfStep[step]
	}
	return Unmeasured
}
