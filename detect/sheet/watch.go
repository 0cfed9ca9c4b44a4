package sheet

import (
	"cmp"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// Bounds of a finding. GPUs at their power limit run well below their maximum clock in a healthy job,
// so that a clock which is limited by power or heat has to be lower to count.
const (
	ClockLeast   = 80 // per cent of the maximum that a GPU runs at which nothing limits
	LimitedLeast = 60 // of one at its power or temperature limit
	MatrixLeast  = 50 // per cent of the data sheet that a matrix test reaches
	HoldFor      = time.Minute
	freshFor     = 30 * time.Second // a reading that is older is not counted
)

// NVML's clocks-event reasons of a GPU that nothing runs on, and of one that power or heat limits.
const (
	reasonIdle    uint64 = 0x1
	reasonLimited        = falcon.ReasonSwPowerCap | falcon.ReasonThermalOrBrake
)

// Slow is what holds for a job's GPUs all together.
type Slow uint8

// What can be found. The values are those of the wire.
const (
	Nothing  Slow = 0
	Clocks   Slow = 1 // most run far below their maximum clock, and no limit is reported
	Limited  Slow = 2 // the same by a power or temperature limit
	Products Slow = 3 // the best matrix test is far below the data sheet
)

// Report is what a job's GPUs are and reach. Shares are medians of the GPUs whose readings count.
type Report struct {
	Model   string // of all of them; empty = none, unknown, or of more than one kind
	Sheet   Sheet  // zero where none is known
	GPUs    int    // whose readings count
	Clock   falcon.Percent
	Busy    falcon.Percent
	SMBusy  falcon.Percent
	Matrix  falcon.Percent // the best of the newest matrix tests, of the data sheet
	Bits    int            // of its numbers
	Reasons uint64         // of all of them
	Slow    []Slow
}

// Watch follows the GPUs of one job.
type Watch struct {
	gpus map[falcon.Device]seen
	held map[Slow]time.Time // since when it is so
	best float64            // TFLOP/s of the newest matrix tests
	bits int
}

type seen struct {
	falcon.GPUReading
	at time.Time
}

// NewWatch has seen nothing.
func NewWatch() *Watch {
	return &Watch{gpus: map[falcon.Device]seen{}, held: map[Slow]time.Time{}}
}

// Read takes in a look at a GPU.
func (w *Watch) Read(at time.Time, r falcon.GPUReading) {
	w.gpus[r.Device] = seen{r, at}
}

// Tested takes in the matrix tests of a pause: the best of them counts, as a slow one is
// its own GPU's matter.
func (w *Watch) Tested(side int, results []falcon.GEMMResult) {
	best, bits := 0.0, 0
	for _, g := range results {
		ms := cmp.Or(g.BestMs, g.Ms)
		if g.Err != "" || ms <= 0 {
			continue
		}
		n := float64(side)
		if x := 2 * n * n * n / ms / 1e9; x > best {
			best = x
			bits = cmp.Or(g.Bits, 32)
		}
	}
	if best > 0 {
		w.best, w.bits = best, bits
	}
}

// Look is the report on these devices, the job's, at a time.
func (w *Watch) Look(now time.Time, devices []falcon.Device) Report {
	var out Report
	var clocks, busy, sm []falcon.Percent
	var limited, slow int
	models := map[string]bool{}
	for _, d := range devices {
		r, ok := w.gpus[d]
		if !ok || now.Sub(r.at) > freshFor {
			continue
		}
		models[r.Model] = true
		out.GPUs++
		busy = known(busy, r.Busy)
		sm = known(sm, r.SMBusy)
		if r.SMClockMHz == 0 || r.MaxSMClockMHz == 0 || r.Reasons&reasonIdle != 0 {
			continue
		}
		share := falcon.PercentOf(min(100, 100*float64(r.SMClockMHz)/float64(r.MaxSMClockMHz)))
		clocks = append(clocks, share)
		if percent, _ := share.Value(); percent < ClockLeast {
			slow++
			if r.Reasons&reasonLimited != 0 {
				limited++
			}
		}
		out.Reasons |= r.Reasons
	}
	if len(models) == 1 {
		for out.Model = range models {
			out.Sheet, _ = Of(out.Model)
		}
	}
	out.Clock = middle(clocks)
	out.Busy = middle(busy)
	out.SMBusy = middle(sm)
	if peak := out.Sheet.Peak(w.bits); w.best > 0 && peak > 0 {
		out.Matrix, out.Bits = falcon.PercentOf(min(100, 100*w.best/peak)), w.bits
	}
	out.Slow = w.judge(now, out, 2*limited > slow, 2*len(clocks) > len(devices))
	return out
}

// judge names what has held for HoldFor. Clocks count where more than half of the job's GPUs are read.
func (w *Watch) judge(now time.Time, r Report, limited, most bool) []Slow {
	clock, known := r.Clock.Value()
	matrix, tested := r.Matrix.Value()
	is := map[Slow]bool{
		Clocks:   known && most && !limited && clock < ClockLeast,
		Limited:  known && most && limited && clock < LimitedLeast,
		Products: tested && matrix < MatrixLeast,
	}
	var out []Slow
	for _, s := range []Slow{Clocks, Limited, Products} {
		if !is[s] {
			delete(w.held, s)
			continue
		}
		if _, ok := w.held[s]; !ok {
			w.held[s] = now
		}
		if s == Products || now.Sub(w.held[s]) >= HoldFor { // a test is no moment's reading
			out = append(out, s)
		}
	}
	return out
}

func known(list []falcon.Percent, p falcon.Percent) []falcon.Percent {
	if _, ok := p.Value(); ok {
		return append(list, p)
	}
	return list
}

// middle is the lower median, 0 of none.
func middle(list []falcon.Percent) falcon.Percent {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[(len(list)-1)/2]
}
