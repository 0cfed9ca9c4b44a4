package trace

import (
	"io"
	"math"
	"strings"

	"github.com/failslow/falcon/detect/period"
)

// CallLog is a sequence of communication calls with the names behind the
// numbers.
type CallLog struct {
	Calls  []period.Call
	Ops    []string // by Call.Op
	Groups []string // by Call.Comm
}

// Calls reads a call log: CSV with a header that names t_us (microseconds) and
// op, and where known group and bytes; other columns are left alone. Rows come
// in the order of the calls.
func Calls(r io.Reader) (CallLog, error) {
	d := calls{ops: names{}, groups: names{}}
	if err := lines(r, d.line); err != nil {
		return CallLog{}, err
	}
	if !d.begun {
		return CallLog{}, malformed(0, "no header; the first line must name t_us and op")
	}
	return d.log, nil
}

type calls struct {
	begun                  bool
	csv                    table
	time, op, group, bytes int
	ops, groups            names
	ordinal                []uint64
	log                    CallLog
}

// names numbers strings in the order in which they first come.
type names map[string]int

func (n names) of(s string, list *[]string) int {
	if i, known := n[s]; known {
		return i
	}
	n[s] = len(*list)
	*list = append(*list, s)
	return n[s]
}

func (d *calls) line(n int, line string) error {
	if !d.begun {
		d.begun = true
		return d.head(n, line)
	}
	fields, err := d.csv.split(n, line)
	if err != nil {
		return err
	}
	return d.take(n, fields)
}

func (d *calls) head(n int, line string) error {
	if err := d.csv.begin(line); err != nil {
		return err
	}
	d.time, d.op = d.csv.column("t_us"), d.csv.column("op")
	d.group, d.bytes = d.csv.column("group"), d.csv.column("bytes")
	if d.time < 0 || d.op < 0 {
		return malformed(n, "the header must name t_us and op, and it has %s", clip(strings.Join(d.csv.header, ", ")))
	}
	return nil
}

func (d *calls) take(n int, fields []string) error {
	if d.time >= len(fields) || d.op >= len(fields) {
		return malformed(n, "%d columns, but t_us and op are numbers %d and %d", len(fields), d.time+1, d.op+1)
	}
	us, err := number(n, "t_us", fields[d.time])
	if err != nil {
		return err
	}
	if math.Abs(us) > math.MaxInt64/2000 {
		return malformed(n, "t_us %g is out of range", us)
	}
	size, err := d.size(n, fields)
	if err != nil {
		return err
	}
	comm := d.groups.of(optional(fields, d.group), &d.log.Groups)
	if comm == len(d.ordinal) {
		d.ordinal = append(d.ordinal, 0)
	}
	d.log.Calls = append(d.log.Calls, period.Call{
		Op:   uint32(d.ops.of(fields[d.op], &d.log.Ops)),
		Comm: uint64(comm), Bytes: size, TimeNs: int64(math.Round(us * 1e3)), Ordinal: d.ordinal[comm],
	})
	d.ordinal[comm]++
	return nil
}

func (d *calls) size(n int, fields []string) (int64, error) {
	field := optional(fields, d.bytes)
	if field == "" {
		return 0, nil
	}
	v, err := number(n, "bytes", field)
	if err != nil {
		return 0, err
	}
	if v < 0 || v > 1<<53 {
		return 0, malformed(n, "bytes %g is out of range", v)
	}
	return int64(v), nil
}

func optional(fields []string, at int) string {
	if at < 0 || at >= len(fields) {
		return ""
	}
	return fields[at]
}
