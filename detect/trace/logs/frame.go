package logs

import (
	"math"
	"strings"

	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/column"
)

// Bounds on a table.
const (
	MaxColumns = 4096    // of one table
	MaxCells   = 1 << 25 // numbers in memory
)

// frame is a table of numbers with metadata of its rows and columns.
type frame struct {
	format string // "CSV", "Megatron log"
	cols   []*series
	byName map[string]*series
	lines  []int32 // of each row
	ranks  []int32 // of each row; noRank if not known
	cells  int
	notes  []string
	names  map[string]int32 // ranks by their names, if they are not numbers

	garbles bool // lines of several writers may be mixed up
}

const noRank = -1

// series is one column.
type series struct {
	name   string
	means  column.Meaning
	preset bool      // the role is given by the format, not by the name
	mean   bool      // over the iterations since the row before
	values []float64 // by row; NaN if there is none
	count  int       // rows with a number
	texts  int       // cells that were dates, now seconds since 1970
	bad    *badCell  // the first cell that is not a number
	bads   int       // such cells
	commas int       // ambiguous cells such as 1,234
	clear  int       // cells that determine the meaning of a comma in this column
	units  map[column.Unit]int
	tick   float64 // resolution of a clock in its unit, if the format has one
}

type badCell struct {
	line int
	text string
}

func newFrame(format string) *frame {
	return &frame{
		format: format,
		byName: map[string]*series{},
		names:  map[string]int32{},
	}
}

// addColumn returns the column of that name and adds it if necessary.
func (f *frame) addColumn(name string) (*series, error) {
	if s, known := f.byName[name]; known {
		return s, nil
	}
	if len(f.cols) >= MaxColumns {
		return nil, trace.TooLarge("more than %d columns; remove some, and choose one with --column",
			MaxColumns)
	}
	s := &series{
		name:  name,
		means: column.Read(lastKey(name)),
		units: map[column.Unit]int{},
	}
	f.byName[name] = s
	f.cols = append(f.cols, s)
	return s, nil
}

// presetColumn adds a column whose role is given by the format.
func (f *frame) presetColumn(name string, role column.Role, unit column.Unit) *series {
	s, err := f.addColumn(name)
	if err != nil {
		return &series{name: name, units: map[column.Unit]int{}}
	}
	s.means = column.Meaning{Role: role, Unit: unit}
	s.preset = true
	return s
}

// lastKey is the last part of a path through JSON objects.
func lastKey(path string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[i+1:]
	}
	return path
}

// addRow adds a row; cells are then set with setCell.
func (f *frame) addRow(number, rank int) int {
	f.lines = append(f.lines, int32(min(number, math.MaxInt32)))
	f.ranks = append(f.ranks, int32(rank))
	return len(f.lines) - 1
}

// setCell sets a number of a row.
func (f *frame) setCell(s *series, row int, v float64) error {
	for len(s.values) < row {
		s.values = append(s.values, math.NaN())
		f.cells++
	}
	if len(s.values) == row {
		s.values = append(s.values, v)
		f.cells++
	} else {
		s.values[row] = v
	}
	if !math.IsNaN(v) {
		s.count++
	}
	if f.cells > MaxCells {
		return trace.TooLarge("more than %d numbers; remove columns or split the file", MaxCells)
	}
	return nil
}

// at returns the number of a row, NaN if there is none.
func (s *series) at(row int) float64 {
	if row < len(s.values) {
		return s.values[row]
	}
	return math.NaN()
}

// setText reads a cell: a number, a date, a number with its unit, or nothing.
func (f *frame) setText(s *series, row int, text string, decimalComma bool) error {
	c := readCell(text, decimalComma)
	if c.bad {
		if s.bads++; s.bad == nil {
			s.bad = &badCell{int(f.lines[row]), text}
		}
	}
	if c.date {
		s.texts++
	}
	if c.twofold {
		s.commas++
	} else if strings.ContainsRune(text, '.') {
		s.clear++
	}
	if c.unit != "" {
		s.units[c.unit]++
	}
	return f.setCell(s, row, c.value)
}

// rankOf returns a number for the name of a row's rank.
func (f *frame) rankOf(name string) int {
	id, known := f.names[name]
	if !known {
		if len(f.names) >= trace.MaxWorld {
			return noRank
		}
		id = int32(len(f.names))
		f.names[name] = id
	}
	return int(id)
}

// dropLast removes the last row, whose line is incomplete.
func (f *frame) dropLast() {
	row := len(f.lines) - 1
	for _, s := range f.cols {
		if len(s.values) > row {
			if !math.IsNaN(s.values[row]) {
				s.count--
			}
			s.values = s.values[:row]
		}
	}
	f.lines, f.ranks = f.lines[:row], f.ranks[:row]
	f.note("the last line is incomplete and is ignored")
}

func (f *frame) note(text string) {
	f.notes = append(f.notes, text)
}
