// Package columns carries the ranks of a snapshot as columns of whole numbers,
// whole or as changes since an earlier snapshot.
//
// It guarantees that decoding what was encoded gives the same table, that
// values are rounded down to their column's unit and never up, so that "at
// least 1.1" holds after as before, and that a broken message is an error and
// never a panic or an allocation beyond MaxWorld ranks. Tables are immutable.
// It starts no goroutines, does no I/O and judges nothing.
package columns

import (
	"math"
	"slices"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// MaxWorld bounds what a broken message can make a reader allocate.
const MaxWorld = 1 << 20

// The columns' places on the wire. They are a promise: add, never renumber.
const (
	health = iota
	level
	ms
	slowdown
	selfMs
	waitMs
	probability
	smClockMhz
	temperatureC
	iteration
	selfRatio
	slowSteps
	failing
	cnpPerS
	waitStep
	temperatureStep
	clockStep
	cnpStep
	busy
	smBusy
	gauges // the first of them; the others follow
)

// GaugesMost is how many gauges a rank has at most: the places behind the last.
const GaugesMost = 16

const places = gauges + GaugesMost

// per is how many units of a column make 1.
var per = [gauges]float64{
	health:          1,
	level:           1,
	ms:              100,
	slowdown:        1e4,
	selfMs:          1e3,
	waitMs:          100,
	probability:     1e4,
	smClockMhz:      1,
	temperatureC:    1,
	iteration:       1,
	selfRatio:       1e4,
	slowSteps:       1,
	failing:         1,
	cnpPerS:         10,
	waitStep:        1,
	temperatureStep: 1,
	clockStep:       1,
	cnpStep:         1,
	busy:            1,
	smBusy:          1,
}

// Table is all ranks of one snapshot.
type Table struct {
	Version uint64
	world   int
	values  [places][]int32 // by rank; nil = all 0; shared with other tables where equal
	devices []string        // by rank; shared likewise
}

// World is the number of ranks.
func (t *Table) World() int { return t.world }

// NewTable is a table of which nothing is known yet: all values are 0.
func NewTable(version uint64, world int) *Table {
	t := &Table{
		Version: version,
		world:   world,
		devices: make([]string, world),
	}
	block := make([]int32, gauges*world) // the gauges' columns are made where one shows something
	for p := range gauges {
		t.values[p] = block[p*world : (p+1)*world : (p+1)*world]
	}
	return t
}

// Of is a table of at most MaxWorld ranks that came as messages. Of those that
// are not among them nothing is known.
func Of(world int, ranks []*falconv1.RankView) *Table {
	t := NewTable(0, world)
	for _, r := range ranks {
		if r != nil && r.Rank >= 0 && int(r.Rank) < world {
			t.Put(r)
		}
	}
	return t
}

// Put enters a rank, which the table must have. It is for whoever makes the
// table: one that others have is never changed.
func (t *Table) Put(r *falconv1.RankView) {
	v := &t.values
	i := r.Rank
	t.devices[i] = r.Device
	v[health][i], v[level][i], v[slowSteps][i] = int32(r.Health), r.Level, r.SlowSteps
	v[ms][i], v[slowdown][i] = unitsOf(ms, r.Ms), unitsOf(slowdown, r.Slowdown)
	v[selfMs][i], v[selfRatio][i] = unitsOf(selfMs, r.SelfMs), unitsOf(selfRatio, r.SelfRatio)
	v[waitMs][i], v[probability][i] = unitsOf(waitMs, r.WaitMs), unitsOf(probability, r.Probability)
	v[cnpPerS][i] = unitsOf(cnpPerS, r.CnpPerS)
	v[smClockMhz][i] = int32(min(r.SmClockMhz, math.MaxInt32))
	v[temperatureC][i] = int32(min(r.TemperatureC, math.MaxInt32))
	v[iteration][i] = int32(max(math.MinInt32, min(r.Iteration, math.MaxInt32)))
	v[waitStep][i] = r.WaitStep
	v[temperatureStep][i] = r.TemperatureStep
	v[clockStep][i] = r.ClockStep
	v[cnpStep][i] = r.CnpStep
	v[busy][i], v[smBusy][i] = int32(min(r.Busy, math.MaxInt32)), int32(min(r.SmBusy, math.MaxInt32))
	if r.Failing {
		v[failing][i] = 1
	}
	for g, x := range r.Gauges[:min(len(r.Gauges), GaugesMost)] {
		t.putGauge(gauges+g, i, x)
	}
}

func (t *Table) putGauge(place int, rank int32, x uint32) {
	if x == 0 {
		return
	}
	if t.values[place] == nil {
		t.values[place] = make([]int32, t.world)
	}
	t.values[place][rank] = int32(min(x, math.MaxInt32))
}

// After is t with the columns of prev, which may be nil, in place of equal ones.
func (t *Table) After(prev *Table) *Table {
	out := *t
	out.shareColumns(prev)
	return &out
}

// slack keeps what is a whole number of units from being rounded down by the
// last bit of a product.
const slack = 1e-6

func unitsOf(place int, x float64) int32 {
	u := math.Floor(x*per[place] + slack)
	switch {
	case u != u: // not a number
		return 0
	case u >= math.MaxInt32:
		return math.MaxInt32
	case u <= math.MinInt32:
		return math.MinInt32
	}
	return int32(u)
}

// shareColumns takes columns of prev in place of equal ones, so that tables that
// follow each other take little room and compare at once. Columns without any
// value are dropped, and what remains of the block that NewTable made is copied
// out of it when it is the smaller part.
func (t *Table) shareColumns(prev *Table) {
	kept := 0
	for p := range places {
		t.values[p] = sharedColumn(t.values[p], prev, p)
		if t.ownColumn(prev, p) {
			kept++
		}
	}
	if kept < places/2 {
		for p := range places {
			if t.ownColumn(prev, p) {
				t.values[p] = append(make([]int32, 0, t.world), t.values[p]...)
			}
		}
	}
	if prev != nil && slices.Equal(t.devices, prev.devices) {
		t.devices = prev.devices
	}
}

func (t *Table) ownColumn(prev *Table, p int) bool {
	return t.values[p] != nil && (prev == nil || !sameColumn(t.values[p], prev.values[p]))
}

func sharedColumn(v []int32, prev *Table, p int) []int32 {
	switch {
	case prev != nil && prev.values[p] != nil && slices.Equal(v, prev.values[p]):
		return prev.values[p]
	case slices.ContainsFunc(v, func(x int32) bool { return x != 0 }):
		return v
	}
	return nil
}

// sameColumn reports whether two columns are one: equal columns of tables that follow each
// other always are.
func sameColumn[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// valueAt is a column's value; of a column without values 0.
func valueAt(v []int32, i int) int32 {
	if v == nil {
		return 0
	}
	return v[i]
}
