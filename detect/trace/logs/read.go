package logs

import (
	"fmt"
	"io"
	"math"

	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/column"
)

// Series is a series of iteration times with its source.
type Series struct {
	Ms     []float64 // one per iteration, in the order of execution
	Steps  []int64   // iteration numbers; nil if the file has none
	Format string    // "Megatron log", "CSV"
	Column string    // name of the column in the file
	Unit   string    // the column's unit: "ms", "s", …; "it/s" for a rate; "" with Want.Raw
	Why    string    // why this column and this unit
	Notes  []string  // remarks on the times
}

// Read finds the iteration times in a file of any of the formats.
func Read(r io.Reader, want Want) (Series, error) {
	in, err := Open(r)
	if err != nil {
		return Series{}, err
	}
	head, err := peekHead(in)
	if err != nil {
		return Series{}, err
	}
	guess := Sniff(head)
	read, ok := readers[guess.reader]
	if !ok {
		return Series{}, guess.refuse()
	}
	f, err := read(in)
	if err != nil {
		return Series{}, err
	}
	return f.series(want)
}

// series computes the times of the chosen column.
func (f *frame) series(want Want) (Series, error) {
	c, err := f.choose(want)
	if err != nil {
		return Series{}, err
	}
	out := Series{
		Format: f.format,
		Column: trace.Clip(c.name),
		Unit:   c.unitText(),
		Why:    c.why,
		Notes:  append(append([]string{}, f.notes...), c.notes...),
	}
	step := f.stepColumn(c.series)
	if step == nil {
		return f.withoutSteps(out, c, want)
	}
	run, err := f.walk(&out, c, step, want)
	if err != nil {
		return Series{}, err
	}
	points, notes := joinPasses(run)
	out.Notes = append(out.Notes, notes...)
	for _, p := range points {
		out.Ms = append(out.Ms, p.ms)
		out.Steps = append(out.Steps, p.step)
	}
	out.noteGaps(points, c)
	return out, nil
}

func (c choice) unitText() string {
	switch c.role {
	case column.Rate:
		return "it/s"
	case column.Items:
		return "/s"
	}
	return string(c.unit)
}

const fewWithout = 20 // rows for each row without a value

// stepColumn is the first column that numbers the iterations in nearly all rows with
// a time.
func (f *frame) stepColumn(of *series) *series {
	for _, s := range f.cols {
		if s == of || s.role() != column.Step {
			continue
		}
		without := 0
		for row := range f.lines {
			if _, ok := stepOf(s.at(row)); !ok && !math.IsNaN(of.at(row)) {
				without++
			}
		}
		if without*fewWithout <= of.count {
			return s
		}
	}
	return nil
}

// walk reads the rows of the column into the passes of one run.
func (f *frame) walk(out *Series, c choice, step *series, want Want) ([]pass, error) {
	w := walker{writer: map[int32]*place{}, late: c.isClock()}
	t, epochs := tally{}, f.epochs()
	for row := range f.lines {
		ms, ok, err := t.take(f, c, row, want)
		if err != nil {
			return nil, err
		}
		n, numbered := stepOf(step.at(row))
		if ok && !numbered {
			t.unnumbered++
		}
		if ok && numbered {
			w.take(point{step: epochs.count(row, n), ms: ms, line: f.lines[row]}, f.ranks[row])
		}
	}
	if err := t.note(out, c, len(f.lines)); err != nil {
		return nil, err
	}
	run, err := pickRun(w.runs(), want.Run)
	if err != nil {
		return nil, err
	}
	out.noteWriters(w)
	if epochs.began > 0 {
		out.Notes = append(out.Notes, "the numbers restart with each epoch and are counted on")
	}
	if c.isClock() {
		out.Notes = append(out.Notes, "the times include checkpoints and evaluations between two rows")
		times, back, err := differences(run)
		if back > 0 {
			out.Notes = append(out.Notes, fmt.Sprintf(
				"the clock goes back %d times; those iterations are ignored",
				back,
			))
		}
		return times, err
	}
	return run, nil
}

// withoutSteps uses the rows in their order.
func (f *frame) withoutSteps(out Series, c choice, want Want) (Series, error) {
	if c.isClock() {
		out.Notes = append(out.Notes, "no column counts iterations: each row counts as one")
	}
	rank := f.commonRank(c.series)
	ranks := map[int32]bool{}
	t := tally{}
	before := math.NaN()
	for row := range f.lines {
		ms, ok, err := t.take(f, c, row, want)
		if err != nil {
			return Series{}, err
		}
		if !ok {
			continue
		}
		ranks[f.ranks[row]] = true
		if f.ranks[row] != rank {
			continue
		}
		if c.isClock() {
			ms, before = ms-before, ms
			if math.IsNaN(ms) || ms <= 0 {
				continue
			}
		}
		out.Ms = append(out.Ms, ms)
	}
	if len(out.Ms) == 0 {
		return Series{}, trace.Malformed(0, "column %s has no iteration times", trace.Clip(c.name))
	}
	if err := t.note(&out, c, len(f.lines)); err != nil {
		return Series{}, err
	}
	for _, s := range f.cols {
		if s.means.Role == column.Step && s != c.series && s.count > 0 {
			out.Notes = append(out.Notes, fmt.Sprintf(
				"%s does not number every row with a time: rows are counted from 0",
				trace.Clip(s.name),
			))
			break
		}
	}
	if len(ranks) > 1 {
		out.Notes = append(out.Notes, fmt.Sprintf(
			"%d ranks write to the file without iteration numbers: only the lines of one rank are read",
			len(ranks),
		))
	}
	return out, nil
}

// commonRank is the rank with most rows.
func (f *frame) commonRank(of *series) int32 {
	rows := map[int32]int{}
	best := int32(noRank)
	for row, rank := range f.ranks {
		if math.IsNaN(of.at(row)) {
			continue
		}
		if rows[rank]++; rows[rank] > rows[best] {
			best = rank
		}
	}
	return best
}

// tally counts the ignored rows.
type tally struct{ empty, zero, unnumbered int }

// take reads the time in a row; ok is false if there is none.
func (t *tally) take(f *frame, c choice, row int, want Want) (ms float64, ok bool, err error) {
	v := c.at(row)
	if math.IsNaN(v) {
		t.empty++
		return 0, false, nil
	}
	if v == 0 && !want.Raw && !c.isClock() { // not measured yet
		t.zero++
		return 0, false, nil
	}
	if ms, err = c.toMs(v, want); err != nil {
		return 0, false, trace.Malformed(int(f.lines[row]), "column %s holds %g, which %s",
			trace.Clip(c.name), v, err)
	}
	return ms, true, nil
}

// note adds notes on ignored rows, and refuses a column with many zeros.
func (t *tally) note(out *Series, c choice, rows int) error {
	if t.zero > 2 && t.zero*fewWithout > rows || t.zero > 0 && t.zero == rows-t.empty {
		return trace.Malformed(0, "column %s is 0 in %d of %d rows, which is not an iteration time",
			trace.Clip(c.name), t.zero, rows)
	}
	for _, left := range []struct {
		n    int
		what string
	}{
		{t.empty, "have no number in this column"},
		{t.zero, "are 0"},
		{t.unnumbered, "have no iteration number"},
	} {
		if left.n > 0 {
			out.Notes = append(out.Notes, fmt.Sprintf("%d of %d rows %s and are ignored",
				left.n, rows, left.what))
		}
	}
	return nil
}

func (s *Series) noteWriters(w walker) {
	switch ranks := len(w.writer); {
	case ranks > 1:
		s.Notes = append(s.Notes, fmt.Sprintf(
			"%d ranks write to the file: the slowest line of each iteration counts; falcon detect workers compares ranks",
			ranks,
		))
	case w.copies > 0:
		s.Notes = append(s.Notes, fmt.Sprintf("an iteration has up to %d lines: the slowest counts",
			w.copies+1))
	}
}

// noteGaps adds notes on the interval of iteration numbers and on missing ones.
func (s *Series) noteGaps(points []point, c choice) {
	interval, missing, first := gaps(points)
	switch {
	case interval > 1 && (c.mean || c.isClock()):
		s.Notes = append(s.Notes, fmt.Sprintf(
			"one in %d iterations is logged, each time is the mean since the last one: changes are located to %d iterations",
			interval, interval,
		))
	case interval > 1:
		s.Notes = append(s.Notes, fmt.Sprintf("iteration numbers increase by %d", interval))
	}
	if missing > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d iterations are missing, the first is %d", missing, first))
	}
}
