package trace

import (
	"io"
	"strings"
)

// Workers reads a CSV with one row per worker and step, in time order, and
// calls each with the worker's name and its value. Column names may be empty:
// then the worker is in the column "worker" or "rank", and the value in the
// last column that is numeric in the first row. Several worker columns may be
// named with commas; their fields are joined by slashes. It stops at the first
// error that each returns.
func Workers(r io.Reader, workerColumn, valueColumn string, each func(worker string, value float64) error) error {
	d := workers{worker: workerColumn, value: valueColumn, each: each}
	if err := lines(r, d.line); err != nil {
		return err
	}
	if d.rows == 0 {
		return malformed(0, "no rows of data; give a CSV whose header names the columns")
	}
	return nil
}

type workers struct {
	worker, value string
	each          func(string, float64) error
	begun         bool
	csv           table
	names         []int
	at            int
	rows          int
}

func (d *workers) line(n int, line string) error {
	if !d.begun {
		d.begun = true
		return d.head(n, line)
	}
	fields, err := d.csv.split(n, line)
	if err != nil {
		return err
	}
	if d.rows == 0 && d.value == "" {
		if d.at = lastNumeric(row{n, fields}); d.at < 0 {
			return malformed(n, "the first row holds no number; name one with --value-column")
		}
	}
	d.rows++
	return d.take(n, fields)
}

func (d *workers) head(n int, line string) error {
	if err := d.csv.begin(line); err != nil {
		return err
	}
	wanted := strings.Split(d.worker, ",")
	if d.worker == "" {
		wanted = []string{"worker"}
		if d.csv.column("worker") < 0 {
			wanted = []string{"rank"}
		}
	}
	for _, name := range append(wanted, d.value) {
		if name == "" {
			continue
		}
		at := d.csv.column(strings.TrimSpace(name))
		if at < 0 {
			return malformed(n, "no column %q; the header has %s", clip(name), clip(strings.Join(d.csv.header, ", ")))
		}
		d.names, d.at = append(d.names, at), at
	}
	if d.value != "" {
		d.names = d.names[:len(d.names)-1]
	}
	return nil
}

func (d *workers) take(n int, fields []string) error {
	parts := make([]string, 0, len(d.names))
	for _, at := range append(d.names, d.at) {
		if at >= len(fields) {
			return malformed(n, "%d columns, but column number %d is needed", len(fields), at+1)
		}
		parts = append(parts, fields[at])
	}
	last := len(parts) - 1
	column := "number " + d.value
	if d.at < len(d.csv.header) {
		column = d.csv.header[d.at]
	}
	v, err := number(n, column, parts[last])
	if err != nil {
		return err
	}
	return d.each(clip(strings.Join(parts[:last], "/")), v)
}
