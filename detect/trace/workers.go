package trace

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon/detect/trace/column"
)

// coordinates are the columns that place a worker, in the order of its name.
var coordinates = []string{"dp", "pp", "stage", "tp", "cp", "ep", "dp_rank", "pp_rank", "tp_rank"}

// computes marks a column as a worker's own computing time: in lockstep the step times are
// alike and only this shows who is slow.
const computes = "compute"

// Workers reads a CSV with one row per worker and step, in time order, and
// calls each with the worker's name and its value. It stops at the first error
// that each returns.
//
// Column names may be empty. The worker is then in the column "worker" or
// "rank"; where there is neither, in the columns of its coordinates (dp, pp, …),
// and its name is those that differ between workers, as "dp0/pp0". The value is
// then the column whose name says that it is a time, else the last one that is
// numeric in the first row, unless it is known to be no time; of a table with
// coordinates, the sum of the columns whose names say "compute", where any do.
// Several columns may be named with commas: the fields of workers are joined by
// slashes, values are added up.
//
// It returns the value's column, or columns with plus signs between them.
func Workers(
	r io.Reader,
	workerColumn, valueColumn string,
	each func(worker string, value float64) error,
) (took string, err error) {
	d := workers{
		worker: workerColumn,
		value:  valueColumn,
		each:   each,
	}
	if err := eachLine(r, d.addLine); err != nil {
		return "", err
	}
	if d.rows == 0 {
		return "", malformed(0, "no rows of data; give a CSV whose header names the columns")
	}
	return d.took(), d.placed.finishRows(each)
}

// took names the columns of the values.
func (d *workers) took() string {
	var names []string
	for _, at := range d.values {
		if at < len(d.csv.header) {
			names = append(names, clipField(d.csv.header[at]))
		}
	}
	return strings.Join(names, " + ")
}

type workers struct {
	worker, value string
	each          func(string, float64) error
	begun         bool
	csv           table
	names         []int
	values        []int
	rows          int
	placed        placed // workers named by coordinates; used when columns is set
}

func (d *workers) addLine(n int, line string) error {
	if !d.begun {
		d.begun = true
		return d.readHeader(n, line)
	}
	fields, err := d.csv.splitFields(n, line)
	if err != nil {
		return err
	}
	if d.rows == 0 && len(d.values) == 0 {
		at := lastNumeric(row{n, fields})
		if at < 0 {
			return malformed(n, "the first row holds no number; name one with --value-column")
		}
		if at < len(d.csv.header) && column.Read(d.csv.header[at]).Role == column.Known {
			return malformed(n,
				"no column says that it is a time, and %s is none; name one with --value-column",
				clipField(d.csv.header[at]))
		}
		d.values = []int{at}
	}
	d.rows++
	return d.takeRow(n, fields)
}

type row struct {
	line   int
	fields []string
}

// lastNumeric judges by the first row: a column that starts with numbers and
// goes on with words is a fault of the file, to be named with its line.
func lastNumeric(first row) int {
	for at := len(first.fields) - 1; at >= 0; at-- {
		if _, err := strconv.ParseFloat(first.fields[at], 64); err == nil {
			return at
		}
	}
	return -1
}

func (d *workers) readHeader(n int, line string) error {
	if err := d.csv.readHeader(line); err != nil {
		return err
	}
	var err error
	if d.names, err = d.columns(n, d.workerColumns()); err != nil {
		return err
	}
	wanted := strings.Split(d.value, ",")
	if d.value == "" {
		if wanted = d.computing(); len(wanted) == 0 {
			if wanted, err = d.timed(n); err != nil {
				return err
			}
		}
	}
	d.values, err = d.columns(n, wanted)
	return err
}

// workerColumns are the columns that name the worker.
func (d *workers) workerColumns() []string {
	if d.worker != "" {
		return strings.Split(d.worker, ",")
	}
	for _, name := range []string{"worker", "rank"} {
		if d.csv.findColumn(name) >= 0 {
			return []string{name}
		}
	}
	for _, name := range coordinates {
		if d.csv.findColumn(name) >= 0 {
			d.placed.columns = append(d.placed.columns, name)
		}
	}
	if len(d.placed.columns) > 0 {
		return d.placed.columns
	}
	return []string{"rank"} // which is not there: the error says what is
}

// computing are the columns of computing time in a table with coordinates.
func (d *workers) computing() []string {
	var out []string
	for _, h := range d.csv.header {
		if len(d.placed.columns) > 0 && strings.Contains(strings.ToLower(h), computes) {
			out = append(out, h)
		}
	}
	return out
}

// timed is the column whose name says that it is a time; empty where none does.
func (d *workers) timed(n int) ([]string, error) {
	for _, role := range []column.Role{column.IterTime, column.Time} {
		var found []string
		for _, h := range d.csv.header {
			if column.Read(h).Role == role {
				found = append(found, h)
			}
		}
		if len(found) > 1 {
			return nil, malformed(n, "%s can each be the time; name one with --value-column",
				clipField(strings.Join(found, ", ")))
		}
		if len(found) == 1 {
			return found, nil
		}
	}
	return nil, nil
}

func (d *workers) columns(n int, names []string) ([]int, error) {
	var out []int
	for _, name := range names {
		at := d.csv.findColumn(strings.TrimSpace(name))
		if at < 0 {
			return nil, malformed(n, "no column %q; the header has %s",
				clipField(name), clipField(strings.Join(d.csv.header, ", ")))
		}
		out = append(out, at)
	}
	return out, nil
}

func (d *workers) takeRow(n int, fields []string) error {
	parts := make([]string, 0, len(d.names))
	for _, at := range d.names {
		if at >= len(fields) {
			return malformed(n, "%d columns, but column number %d is needed", len(fields), at+1)
		}
		parts = append(parts, fields[at])
	}
	value, err := d.sumTimes(n, fields)
	if err != nil {
		return err
	}
	if len(d.placed.columns) > 0 {
		return d.placed.takeRow(n, parts, value)
	}
	return d.each(clipField(strings.Join(parts, "/")), value)
}

func (d *workers) sumTimes(n int, fields []string) (float64, error) {
	total := 0.0
	for _, at := range d.values {
		if at >= len(fields) {
			return 0, malformed(n, "%d columns, but column number %d is needed", len(fields), at+1)
		}
		column := "number " + fmt.Sprint(at+1)
		if at < len(d.csv.header) {
			column = d.csv.header[at]
		}
		v, err := parseNumber(n, clipField(column), fields[at])
		if err != nil {
			return 0, err
		}
		if total += v; math.IsInf(total, 0) {
			return 0, malformed(n, "the sum of the value columns is not a finite number")
		}
	}
	return total, nil
}

// MaxWorkers bounds the workers of one table of coordinates.
const MaxWorkers = 1 << 20

// placed holds the rows of workers that are named by coordinates: which of
// them differ is known at the end only.
type placed struct {
	columns []string
	byKey   map[string]int
	places  [][]string // by worker, its fields
	who     []int32    // by row
	values  []float64  // by row
}

func (p *placed) takeRow(n int, parts []string, value float64) error {
	for i := range parts {
		parts[i] = clipField(parts[i])
	}
	key := strings.Join(parts, "\x00")
	id, known := p.byKey[key]
	if !known {
		if id = len(p.places); id >= MaxWorkers {
			return fmt.Errorf("%w: line %d: more than %d workers; split the file", ErrTooLarge, n, MaxWorkers)
		}
		if p.byKey == nil {
			p.byKey = map[string]int{}
		}
		p.byKey[key] = id
		p.places = append(p.places, slices.Clone(parts))
	}
	p.who = append(p.who, int32(id))
	p.values = append(p.values, value)
	return nil
}

// finishRows names the workers and hands their rows out.
func (p *placed) finishRows(each func(string, float64) error) error {
	names := make([]string, len(p.places))
	for i, place := range p.places {
		var parts []string
		for c, name := range p.columns {
			if p.differs(c) || len(p.places) == 1 {
				parts = append(parts, strings.TrimSuffix(name, "_rank")+place[c])
			}
		}
		names[i] = strings.Join(parts, "/")
	}
	for row, id := range p.who {
		if err := each(names[id], p.values[row]); err != nil {
			return err
		}
	}
	return nil
}

func (p *placed) differs(column int) bool {
	return slices.ContainsFunc(p.places, func(place []string) bool {
		return place[column] != p.places[0][column]
	})
}
