package trace

import (
	"io"
	"strconv"
	"strings"
)

// Marks of an iteration's time in training logs, and what makes it
// milliseconds. NeMo writes its own beside Megatron's.
var marks = []struct {
	text string
	toMs float64
}{
	{"elapsed time per iteration (ms):", 1},
	{"train_step_timing in s:", 1000},
	{"train_step_timing in s=", 1000},
}

// Series is a series of iteration times.
type Series struct {
	Ms     []float64 // one per iteration, in order
	Column string    // the CSV's column, or the log's mark
}

const sniffed = 100 // rows held in case the file turns out to be a log

// Iterations reads iteration times in milliseconds: a training log when any
// line holds Megatron's "elapsed time per iteration (ms):", else a CSV. Of a
// CSV it takes the named column, or the last numeric one for "".
func Iterations(r io.Reader, column string) (Series, error) {
	d := iterations{want: column, at: -1}
	if err := eachLine(r, d.addLine); err != nil {
		return Series{}, err
	}
	if len(d.log.Ms) > 0 {
		return d.log, nil
	}
	return d.finishFile()
}

// iterations decodes both formats at once, because a log shows itself only at
// its first mark. CSV rows are held until enough of them show which column.
type iterations struct {
	want  string
	begun bool
	csv   table
	held  []row
	at    int // column taken, -1 while undecided
	out   Series
	log   Series
	bad   error // first fault of the CSV; of no interest in a log
}

type row struct {
	line   int
	fields []string
}

func (d *iterations) addLine(n int, line string) error {
	for _, m := range marks {
		if i := strings.Index(line, m.text); i >= 0 {
			v, err := parseNumber(n, strings.TrimRight(m.text, ":="), firstWord(line[i+len(m.text):]))
			if err != nil {
				return err
			}
			d.log.Column = m.text
			d.log.Ms = append(d.log.Ms, v*m.toMs)
			return nil
		}
	}
	if d.bad == nil && len(d.log.Ms) == 0 {
		d.bad = d.addRow(n, line)
	}
	return nil
}

func firstWord(s string) string {
	if fields := strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '|' || r == ',' || r == '\t' }); len(fields) > 0 {
		return fields[0]
	}
	return ""
}

func (d *iterations) addRow(n int, line string) error {
	if !d.begun {
		d.begun = true
		if err := d.csv.readHeader(line); err != nil || !d.csv.first {
			return err
		}
	}
	fields, err := d.csv.splitFields(n, line)
	if err != nil {
		return err
	}
	if d.at >= 0 {
		return d.takeRow(n, fields)
	}
	d.held = append(d.held, row{n, fields})
	if len(d.held) >= sniffed {
		return d.chooseColumn()
	}
	return nil
}

func (d *iterations) finishFile() (Series, error) {
	if d.bad == nil && d.at < 0 {
		d.bad = d.chooseColumn()
	}
	if d.bad != nil {
		return Series{}, d.bad
	}
	return d.out, nil
}

// chooseColumn picks the column and takes the rows held.
func (d *iterations) chooseColumn() error {
	if len(d.held) == 0 {
		return malformed(0, "no rows of data and no %q; give a CSV with a header or a Megatron log", marks[0].text)
	}
	if d.want != "" {
		d.at = d.csv.findColumn(d.want)
		if d.at < 0 {
			return malformed(1, "no column %q; the header has %s", clipField(d.want), clipField(strings.Join(d.csv.header, ", ")))
		}
	} else if d.at = lastNumeric(d.held[0]); d.at < 0 {
		return malformed(d.held[0].line, "the first row holds no number; name one with --column")
	}
	d.out.Column = strconv.Itoa(d.at + 1)
	if d.at < len(d.csv.header) {
		d.out.Column = d.csv.header[d.at]
	}
	for _, r := range d.held {
		if err := d.takeRow(r.line, r.fields); err != nil {
			return err
		}
	}
	d.held = nil
	return nil
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

func (d *iterations) takeRow(n int, fields []string) error {
	if d.at >= len(fields) {
		return malformed(n, "%d columns, but column %s is number %d", len(fields), clipField(d.out.Column), d.at+1)
	}
	v, err := parseNumber(n, d.out.Column, fields[d.at])
	if err != nil {
		return err
	}
	d.out.Ms = append(d.out.Ms, v)
	return nil
}
