package roster

import (
	"sync"

	"github.com/failslow/falcon/backend/api/columns"
)

// Spread is what a job's ranks have measured at one moment.
type Spread struct {
	Least, Mean, Greatest float64
	N                     int // ranks that have measured anything
}

// Spreads are those of the measures that charts follow.
type Spreads struct{ SelfRatio, WaitMs, ClockMHz, TemperatureC Spread }

// lazySpreads are computed on demand, once.
type lazySpreads struct {
	once sync.Once
	all  Spreads
}

// Spreads are those of the snapshot's ranks.
func (t *Roster) Spreads() Spreads {
	t.spreads.once.Do(func() {
		t.spreads.all = Spreads{
			SelfRatio:    t.spreadOf(columns.SelfRatio),
			WaitMs:       t.spreadOf(columns.WaitMs),
			ClockMHz:     t.spreadOf(columns.SmClockMhz),
			TemperatureC: t.spreadOf(columns.TemperatureC),
		}
	})
	return t.spreads.all
}

// spreadOf goes through a column; 0 stands for what was not measured.
func (t *Roster) spreadOf(c columns.Column) Spread {
	least := int32(0)
	greatest := int32(0)
	sum := int64(0)
	n := 0
	for _, v := range t.table.Units(c) {
		if v <= 0 {
			continue
		}
		if n == 0 || v < least {
			least = v
		}
		greatest = max(greatest, v)
		sum += int64(v)
		n++
	}
	if n == 0 {
		return Spread{}
	}
	per := c.Per()
	return Spread{float64(least) / per, float64(sum) / float64(n) / per, float64(greatest) / per, n}
}
