package logs

import (
	"encoding/csv"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/column"
)

// table reads a CSV line by line into a frame.
type table struct {
	*frame
	comma   rune
	cols    []*series
	rankCol int // column with the rank, -1 if there is none
	begun   bool
	last    bool
}

func readTable(r io.Reader) (*frame, error) {
	t := table{frame: newFrame("CSV"), rankCol: -1, last: true}
	if err := scanLines(r, t.addLine); err != nil {
		return nil, err
	}
	if !t.begun {
		return nil, trace.Malformed(0, "the file is empty")
	}
	if !t.last && len(t.lines) > 1 {
		t.dropLast()
	}
	return t.frame, nil
}

func (t *table) addLine(l line) error {
	t.last = l.whole
	if !t.begun {
		if isComment(l.text) {
			return nil
		}
		t.begun = true
		return t.readHeader(l)
	}
	fields, err := splitFields(l, t.comma)
	if err != nil {
		return err
	}
	if t.repeatsHeader(fields) {
		return nil // concatenated files
	}
	if len(fields) < len(t.cols) && l.whole && !blankTail(t.cols, len(fields)) {
		return trace.Malformed(l.number, "%d columns, but the header has %d; fix or remove the line",
			len(fields), len(t.cols))
	}
	row := t.addRow(l.number, noRank)
	if t.rankCol >= 0 && t.rankCol < len(fields) {
		t.ranks[row] = int32(t.rankOf(fields[t.rankCol]))
	}
	for i, s := range t.cols {
		if i < len(fields) {
			if err := t.setText(s, row, fields[i], t.comma == ';'); err != nil {
				return err
			}
		}
	}
	return nil
}

// isComment reports whether a line above a header is a comment.
func isComment(text string) bool {
	return strings.HasPrefix(text, "#") && delimiterOf(strings.TrimLeft(text, "# ")) == 0 ||
		strings.HasPrefix(text, "sep=") && len(text) == len("sep=,")
}

// blankTail reports whether the columns from at on have no name, such as after a
// trailing comma in the header.
func blankTail(cols []*series, at int) bool {
	for _, s := range cols[at:] {
		if strings.TrimSpace(s.name) != "" && !strings.HasPrefix(s.name, "column ") {
			return false
		}
	}
	return true
}

// repeatsHeader reports whether a row is the header again.
func (t *table) repeatsHeader(fields []string) bool {
	if len(fields) != len(t.cols) {
		return false
	}
	named := false
	for i, f := range fields {
		if f != t.cols[i].name {
			return false
		}
		_, err := strconv.ParseFloat(f, 64)
		named = named || f != "" && err != nil
	}
	return named
}

// readHeader reads the first line as column names, unless all fields are numbers.
func (t *table) readHeader(l line) error {
	text := strings.TrimLeft(l.text, "# ")
	if t.comma = delimiterOf(text); t.comma == 0 {
		t.comma = ','
	}
	l.text = text
	fields, err := splitFields(l, t.comma)
	if err != nil {
		return err
	}
	numbers := true
	for _, f := range fields {
		c := readCell(f, t.comma == ';')
		numbers = numbers && !c.bad && !math.IsNaN(c.value)
	}
	for i, f := range fields {
		if numbers || f == "" {
			f = "column " + strconv.Itoa(i+1)
		}
		means := column.Read(f)
		if _, twice := t.byName[f]; twice {
			f += " (column " + strconv.Itoa(i+1) + ")"
		}
		s, err := t.addColumn(f)
		if err != nil {
			return err
		}
		s.means = means
		if s.means.Role == column.Rank && t.rankCol < 0 {
			t.rankCol = i
		}
		t.cols = append(t.cols, s)
	}
	if numbers {
		t.format = "CSV without a header"
		t.begun = true
		return t.addLine(l)
	}
	return nil
}

// delimiterOf returns the delimiter of a header, 0 if there is none.
func delimiterOf(text string) rune {
	for _, c := range ",\t;" {
		if strings.ContainsRune(text, c) {
			if c == ',' && strings.Count(text, ";") >= strings.Count(text, ",") {
				return ';' // the fields have decimal commas
			}
			return c
		}
	}
	return 0
}

// splitFields splits a line at the delimiters outside of quotes.
func splitFields(l line, comma rune) ([]string, error) {
	if !strings.Contains(l.text, `"`) {
		fields := strings.Split(l.text, string(comma))
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		return fields, nil
	}
	r := csv.NewReader(strings.NewReader(l.text))
	r.Comma = comma
	r.TrimLeadingSpace = true
	fields, err := r.Read()
	if err != nil {
		return nil, trace.Malformed(l.number, "a quote is not closed")
	}
	return fields, nil
}
