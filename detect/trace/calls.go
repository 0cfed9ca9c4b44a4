package trace

import (
	"io"
	"math"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/period"
)

// CallLog is a sequence of communication calls with their names.
type CallLog struct {
	Calls  []period.Call
	Ops    []string // by Call.Op
	Groups []string // by Call.Comm
}

// Op is what the name of a call's Op means, as far as it is known.
func (l CallLog) Op(op uint32) falcon.Op {
	if int(op) >= len(l.Ops) {
		return falcon.OpNone
	}
	return findOperation(strings.ToLower(l.Ops[op]))
}

// Calls reads a call log: CSV with t_us (microseconds) and op, and optional group and
// bytes, in the order of the calls; other columns are ignored.
func Calls(r io.Reader) (CallLog, error) {
	d := calls{ops: names{}, groups: names{}}
	if err := eachLine(r, d.addLine); err != nil {
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

func (n names) nameOf(s string, list *[]string) int {
	if i, known := n[s]; known {
		return i
	}
	n[s] = len(*list)
	*list = append(*list, s)
	return n[s]
}

func (d *calls) addLine(n int, line string) error {
	if !d.begun {
		d.begun = true
		return d.readHeader(n, line)
	}
	fields, err := d.csv.splitFields(n, line)
	if err != nil {
		return err
	}
	return d.takeCall(n, fields)
}

func (d *calls) readHeader(n int, line string) error {
	if err := d.csv.readHeader(line); err != nil {
		return err
	}
	d.time, d.op = d.csv.findColumn("t_us"), d.csv.findColumn("op")
	d.group, d.bytes = d.csv.findColumn("group"), d.csv.findColumn("bytes")
	if d.time < 0 || d.op < 0 {
		return malformed(n, "the header must name t_us and op, and it has %s",
			clipField(strings.Join(d.csv.header, ", ")))
	}
	return nil
}

func (d *calls) takeCall(n int, fields []string) error {
	if d.time >= len(fields) || d.op >= len(fields) {
		return malformed(n, "%d columns, but t_us and op are numbers %d and %d",
			len(fields), d.time+1, d.op+1)
	}
	us, err := parseNumber(n, "t_us", fields[d.time])
	if err != nil {
		return err
	}
	if math.Abs(us) > math.MaxInt64/2000 {
		return malformed(n, "t_us %g is out of range", us)
	}
	size, err := d.readSize(n, fields)
	if err != nil {
		return err
	}
	comm := d.groups.nameOf(optional(fields, d.group), &d.log.Groups)
	if comm == len(d.ordinal) {
		d.ordinal = append(d.ordinal, 0)
	}
	d.log.Calls = append(d.log.Calls, period.Call{
		Op:      uint32(d.ops.nameOf(fields[d.op], &d.log.Ops)),
		Comm:    uint64(comm),
		Bytes:   size,
		TimeNs:  int64(math.Round(us * 1e3)),
		Ordinal: d.ordinal[comm],
	})
	d.ordinal[comm]++
	return nil
}

func (d *calls) readSize(n int, fields []string) (int64, error) {
	field := optional(fields, d.bytes)
	if field == "" {
		return 0, nil
	}
	v, err := parseNumber(n, "bytes", field)
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
