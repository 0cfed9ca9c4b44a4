package trace

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Bounds on an input.
const (
	MaxLine  = 1 << 20   // bytes in a line
	MaxRows  = 5_000_000 // rows of data
	MaxBytes = 512 << 20 // bytes in all
)

// Why an input was refused.
var (
	ErrMalformed = errors.New("trace: malformed input")
	ErrTooLarge  = errors.New("trace: input too large")
)

// malformed makes the one sentence; line counts from 1, 0 for the whole input.
func malformed(line int, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if line == 0 {
		return fmt.Errorf("%w: %s", ErrMalformed, text)
	}
	return fmt.Errorf("%w: line %d: %s", ErrMalformed, line, text)
}

// eachLine calls each with every line that is not blank and its number, from 1.
func eachLine(r io.Reader, each func(number int, line string) error) error {
	limited := &io.LimitedReader{R: r, N: MaxBytes + 1}
	scan := bufio.NewScanner(limited)
	scan.Buffer(make([]byte, 0, 64<<10), MaxLine)
	number, rows := 0, 0
	for scan.Scan() {
		number++
		line := strings.TrimSpace(strings.TrimPrefix(scan.Text(), "\ufeff"))
		if line == "" {
			continue
		}
		if rows++; rows > MaxRows+1 {
			return fmt.Errorf("%w: more than %d rows; split the file", ErrTooLarge, MaxRows)
		}
		if err := each(number, line); err != nil {
			return err
		}
	}
	switch err := scan.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("%w: line %d is longer than %d bytes; is this a text file?",
			ErrTooLarge, number+1, MaxLine)
	case err != nil:
		return fmt.Errorf("trace: reading: %w", err)
	case limited.N <= 0:
		return fmt.Errorf("%w: more than %d bytes; split the file", ErrTooLarge, MaxBytes)
	}
	return nil
}

// table is a CSV being read line by line.
type table struct {
	comma  rune
	header []string
	first  bool // the first line is data: there is no header
}

// readHeader takes the first line: a header, unless each of its fields is a number.
func (t *table) readHeader(line string) error {
	t.comma = delimiter(line)
	fields, err := t.splitFields(1, line)
	if err != nil {
		return err
	}
	t.first = true
	for i, f := range fields {
		if _, err := strconv.ParseFloat(f, 64); err != nil {
			t.first = false
		}
		t.header = append(t.header, f)
		if t.first && i == len(fields)-1 {
			t.header = numbered(len(fields))
		}
	}
	return nil
}

func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = strconv.Itoa(i + 1)
	}
	return out
}

// delimiter is the comma, or what the first line has instead.
func delimiter(line string) rune {
	for _, c := range ",\t;" {
		if strings.ContainsRune(line, c) {
			return c
		}
	}
	return ','
}

func (t *table) splitFields(number int, line string) ([]string, error) {
	if !strings.Contains(line, `"`) {
		fields := strings.Split(line, string(t.comma))
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		return fields, nil
	}
	r := csv.NewReader(strings.NewReader(line))
	r.Comma = t.comma
	fields, err := r.Read()
	if err != nil {
		return nil, malformed(number, "a quote is not closed")
	}
	return fields, nil
}

// findColumn finds a column by name.
func (t *table) findColumn(name string) int {
	return slices.IndexFunc(t.header, func(h string) bool {
		return strings.EqualFold(h, name)
	})
}

// parseNumber reads a finite number out of a field.
func parseNumber(line int, column, field string) (float64, error) {
	v, err := strconv.ParseFloat(field, 64)
	switch {
	case field == "":
		return 0, malformed(line, "column %s is empty; every row needs a number there", clipField(column))
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return 0, malformed(line, "column %s holds %q, which is not a number",
			clipField(column), clipField(field))
	case math.IsNaN(v) || math.IsInf(v, 0):
		return 0, malformed(line, "column %s holds %s, which is not a finite number",
			clipField(column), clipField(field))
	}
	return v, nil
}

// clipField shortens and cleans a field for a message on a terminal.
func clipField(s string) string { return clipToLength(s, 40) }

func clipToLength(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}
