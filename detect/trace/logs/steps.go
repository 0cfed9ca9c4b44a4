package logs

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/column"
)

// point is one iteration.
type point struct {
	step int64
	ms   float64
	line int32
	more int32 // further lines of this iteration
}

// pass is the iterations between two restarts, by their numbers.
type pass struct {
	points []point
	line   int32 // first line
}

// walker sorts rows into passes. Lines of several ranks for one iteration are
// merged, and a decreasing number begins a new pass.
type walker struct {
	passes []pass
	writer map[int32]*place // by rank
	late   bool             // for clocks: use the smallest value of merged lines
	copies int32            // largest number of lines of one iteration
}

// place is the current position of a rank.
type place struct {
	pass int
	step int64
}

func (w *walker) take(p point, rank int32) {
	at := w.writer[rank]
	if at == nil {
		at = &place{pass: -1}
		w.writer[rank] = at
	}
	switch {
	case at.pass < 0:
		at.pass = 0
		if len(w.writer) > 1 { // a new rank starts at the position of the others
			at.pass = len(w.passes) - 1
		}
	case p.step < at.step && !w.lags(at, p.step):
		at.pass++
	}
	at.step = p.step
	if at.pass >= len(w.passes) {
		w.passes = append(w.passes, pass{line: p.line})
		at.pass = len(w.passes) - 1
	}
	w.merge(at.pass, p)
}

// lags reports whether a line is from another writer that is slightly behind: many
// log without a rank, or with their local rank.
func (w *walker) lags(at *place, step int64) bool {
	const behind = 3
	points := w.passes[at.pass].points
	i, found := find(points, step)
	return found &&
		w.copies > 0 &&
		points[i].more < w.copies &&
		len(points)-i <= behind
}

func find(points []point, step int64) (int, bool) {
	return slices.BinarySearchFunc(points, step, func(p point, s int64) int {
		switch {
		case p.step < s:
			return -1
		case p.step > s:
			return 1
		}
		return 0
	})
}

// merge adds a line to its iteration. The slowest rank's time counts, because all
// ranks wait for it.
func (w *walker) merge(at int, p point) {
	points := w.passes[at].points
	if n := len(points); n == 0 || points[n-1].step < p.step {
		w.passes[at].points = append(points, p)
		return
	}
	i, found := find(points, p.step)
	if !found {
		w.passes[at].points = slices.Insert(points, i, p)
		return
	}
	if w.late == (p.ms < points[i].ms) {
		points[i].ms = p.ms
	}
	points[i].more++
	w.copies = max(w.copies, points[i].more)
}

// runs groups passes. A pass that begins at or before the first number of its run
// is a new run; others resume it.
func (w *walker) runs() [][]pass {
	var out [][]pass
	for _, p := range w.passes {
		if len(p.points) == 0 {
			continue
		}
		if n := len(out); n > 0 && p.points[0].step > out[n-1][0].points[0].step {
			out[n-1] = append(out[n-1], p)
			continue
		}
		out = append(out, []pass{p})
	}
	return out
}

// pickRun returns the selected run, and an error if none of several is selected.
func pickRun(runs [][]pass, want int) ([]pass, error) {
	switch {
	case len(runs) == 0:
		return nil, trace.Malformed(0, "the column has no iteration times")
	case want > len(runs):
		return nil, ask("--run %d: the file has %d runs", want, len(runs))
	case want > 0:
		return runs[want-1], nil
	case len(runs) == 1:
		return runs[0], nil
	}
	if falling(runs) {
		return nil, ask("the iteration numbers decrease; sort the file with the oldest row first")
	}
	const most = 4
	var parts []string
	for i, r := range runs {
		if i == most {
			parts = append(parts, "…")
			break
		}
		last := r[len(r)-1].points
		parts = append(parts, fmt.Sprintf("%d: iterations %d to %d from line %d",
			i+1, r[0].points[0].step, last[len(last)-1].step, r[0].line))
	}
	return nil, ask("the iteration numbers restart: the file has %d runs (%s); choose one with --run 1 to %d",
		len(runs), strings.Join(parts, "; "), len(runs))
}

// falling reports whether most runs have one iteration, so the newest row is first.
func falling(runs [][]pass) bool {
	single := 0
	for _, r := range runs {
		if len(r) == 1 && len(r[0].points) == 1 {
			single++
		}
	}
	return len(runs) > 2 && single*2 > len(runs)
}

// joinPasses concatenates the passes of a run in order, with notes on resumes and
// missing iterations.
func joinPasses(run []pass) (points []point, notes []string) {
	for i, p := range run {
		if i > 0 {
			before := run[i-1].points
			notes = append(notes, fmt.Sprintf(
				"resumed at line %d: iteration %d follows %d; both passes are kept in order",
				p.line, p.points[0].step, before[len(before)-1].step,
			))
		}
		points = append(points, p.points...)
	}
	return points, notes
}

// differences converts clock readings to iteration times, within passes. Iterations
// in which the clock goes back are ignored and counted.
func differences(run []pass) (times []pass, back int, err error) {
	out := make([]pass, 0, len(run))
	for _, p := range run {
		d := pass{line: p.line}
		for i := 1; i < len(p.points); i++ {
			a := p.points[i-1]
			b := p.points[i]
			if b.ms < a.ms {
				back++
			}
			if b.ms > a.ms {
				b.ms = (b.ms - a.ms) / float64(b.step-a.step)
				d.points = append(d.points, b)
			}
		}
		if len(d.points) > 0 {
			out = append(out, d)
		}
	}
	if len(out) == 0 {
		return nil, back, trace.Malformed(0,
			"one clock reading gives no iteration time; give more iterations")
	}
	return out, back, nil
}

// gaps returns the usual interval of iteration numbers, and how many are missing.
func gaps(points []point) (interval int64, missing int64, first int64) {
	seen := map[int64]int{}
	for i := 1; i < len(points); i++ {
		if d := points[i].step - points[i-1].step; d > 0 {
			seen[d]++
		}
	}
	interval = 1
	best := 0
	for d, n := range seen {
		if n > best || n == best && d < interval {
			interval, best = d, n
		}
	}
	for i := 1; i < len(points); i++ {
		if d := points[i].step - points[i-1].step; d > interval {
			if missing == 0 {
				first = points[i-1].step + interval
			}
			missing += d/interval - 1
		}
	}
	return interval, missing, first
}

// stepOf reads the number of an iteration.
func stepOf(v float64) (int64, bool) {
	if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
		return 0, false
	}
	return int64(v), true
}

// epochs continues the count if iteration numbers restart with each epoch.
type epochs struct {
	column       *series
	epoch        float64
	last, offset int64
	began        int
}

func (f *frame) epochs() *epochs {
	for _, s := range f.cols {
		if strings.EqualFold(column.Short(lastKey(s.name)), "epoch") &&
			s.count > 0 &&
			s.whole() {
			return &epochs{column: s, epoch: math.Inf(1)}
		}
	}
	return &epochs{}
}

// count is the iteration number of a row since the first epoch.
func (e *epochs) count(row int, n int64) int64 {
	if e.column == nil {
		return n
	}
	epoch := e.column.at(row)
	if epoch > e.epoch && n+e.offset < e.last {
		e.offset = e.last + 1 - n
		e.began++
	} else if epoch < e.epoch {
		e.offset = 0 // another run
	}
	if !math.IsNaN(epoch) {
		e.epoch = epoch
	}
	e.last = n + e.offset
	return e.last
}
