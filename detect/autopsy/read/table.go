package read

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/detect/trace/column"
)

// keys are columns that name a member among peers.
var keys = []struct{ column, by string }{
	{"rank", "rank"},
	{"global_rank", "rank"},
	{"worker", "rank"},
	{"worker_id", "rank"},
	{"process", "rank"},
	{"uuid", "device"},
	{"gpu_uuid", "device"},
	{"gpu", "device"},
	{"gpu_id", "device"},
	{"index", "device"},
	{"device", "device"},
	{"device_id", "device"},
	{"hca", "device"},
	{"port", "device"},
	{"nic", "device"},
	{"node", "host"},
	{"host", "host"},
	{"hostname", "host"},
	{"node_id", "host"},
	{"node_rank", "host"},
}

// noMetric are words of columns that say nothing of speed.
var noMetric = []string{
	"loss", "grad", "norm", "token", "step", "iter", "epoch", "time_stamp", "timestamp", "date",
	"temp", "power", "pstate", "util", "mem",
	"size", "nelems", "count", "stream", "lr", "learning", "rank", "group", "pid", "seq",
	"bytes", "min", "max", "std", "sum", "total", "skew",
	"round", "index", "id", "start", "end", "ts",
}

var metricWords = []string{
	"time", "_ms", "_s", "_us", "elapsed", "dur", "latency", "compute", "forward", "backward",
	"clock", "score", "bw", "bandwidth",
	"throughput", "tflops", "clk", "per_sec", "speed", "sec", "seconds", "optimizer",
}

// table is a CSV file with one row for each member, or for each member and step.
type table struct {
	file    string
	names   []string
	key     int
	by      string
	values  []int // columns of metrics
	reasons []int // columns that say "Active" of a slowdown
	results []int // columns that say whether a check passed
	kinds   []int // columns that tell metrics apart, such as a collective's name
	steps   int   // column, -1 = none
	host    int
	seen    map[string]int64 // of steps that are no numbers
	times   building         // of iterations, the largest of all members
	timesOf int              // column, -1 = none
	members *members
}

// headers reports whether a head begins with the names of columns, and its separator.
func headers(head string) (rune, []string, bool) {
	first, rest, ok := strings.Cut(head, "\n")
	if !ok {
		return 0, nil, false
	}
	comma := ','
	for _, c := range []rune{';', '\t', ','} {
		if strings.ContainsRune(first, c) {
			comma = c
			break
		}
	}
	names := fields(first, comma)
	second, _, _ := strings.Cut(rest, "\n")
	if len(names) < 2 || len(fields(second, comma)) != len(names) {
		return 0, nil, false
	}
	for _, n := range names {
		if n = strings.TrimSpace(n); n == "" || isDigit(n[0]) || len(n) > 80 {
			return 0, nil, false
		}
	}
	if slices.ContainsFunc(names, isResult) &&
		slices.ContainsFunc(names, func(n string) bool { return keyOf(n) != "" }) {
		return comma, names, true
	}
	for _, v := range fields(second, comma) {
		v, _, _ = strings.Cut(strings.TrimSpace(v), " ")
		if _, err := strconv.ParseFloat(v, 64); err == nil {
			return comma, names, true
		}
	}
	return 0, nil, false
}

func fields(s string, comma rune) []string {
	r := csv.NewReader(strings.NewReader(strings.TrimRight(s, "\r")))
	r.Comma = comma
	r.LazyQuotes = true
	r.TrimLeadingSpace = true
	out, err := r.Read()
	if err != nil {
		return nil
	}
	return out
}

// newTable plans how a table is read; nil where it names no members, or has no metric.
func newTable(file string, names []string, m *members) *table {
	t := &table{
		file:    file,
		names:   names,
		key:     -1,
		steps:   -1,
		host:    -1,
		timesOf: -1,
		members: m,
		seen:    map[string]int64{},
	}
	for _, k := range keys {
		for i, n := range names {
			switch n = plainName(n); {
			case n == k.column && t.key < 0:
				t.key = i
				t.by = k.by
			case n == k.column && k.by == "host":
				t.host = i
			}
		}
	}
	if t.key < 0 {
		return nil
	}
	for i, n := range names {
		low := plainName(n)
		switch {
		case i == t.key || i == t.host:
		case low == "step" ||
			low == "iteration" ||
			low == "iter" ||
			low == "round" ||
			low == "timestamp" ||
			low == "time":
			if t.steps < 0 {
				t.steps = i
			}
		case isResult(n):
			t.results = append(t.results, i)
		case strings.Contains(low, "slowdown") || strings.Contains(low, "throttle"):
			t.reasons = append(t.reasons, i)
		case low == "collective name" ||
			low == "dtype" ||
			low == "in msg nelems" ||
			low == "op" ||
			low == "kernel" ||
			low == "process group name":
			t.kinds = append(t.kinds, i)
		case isMetric(low):
			t.values = append(t.values, i)
			if t.timesOf < 0 && column.Read(n).Role == column.IterTime {
				t.timesOf = i
			}
		}
	}
	if len(t.values)+len(t.reasons)+len(t.results) == 0 {
		return nil
	}
	return t
}

// keyOf is what a column's name tells apart, "" where it names no member.
func keyOf(name string) string {
	for _, k := range keys {
		if plainName(name) == k.column {
			return k.by
		}
	}
	return ""
}

func isResult(name string) bool {
	switch plainName(name) {
	case "result", "status", "health", "verdict", "outcome", "passed":
		return true
	}
	return false
}

func failed(value string) bool {
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "fail", "failed", "error", "bad", "unhealthy", "fatal":
		return true
	}
	return false
}

func plainName(s string) string {
	s, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(s)), " [")
	return s
}

func isMetric(low string) bool {
	has := func(words []string) bool {
		for _, w := range words {
			if strings.Contains(low, w) {
				return true
			}
		}
		return false
	}
	if m := column.Read(low); m.Role == column.IterTime {
		return true
	}
	for _, w := range strings.FieldsFunc(low, func(r rune) bool {
		return r == '_' || r == ' ' || r == '.' || r == '-'
	}) {
		for _, n := range noMetric {
			if w == n || len(n) > 3 && strings.HasPrefix(w, n) {
				return false
			}
		}
	}
	return has(metricWords)
}

const rowsMost = 5_000_000

// read takes all rows.
func (t *table) read(in io.Reader, comma rune) (rows int, err error) {
	r := csv.NewReader(in)
	r.Comma = comma
	r.LazyQuotes = true
	r.TrimLeadingSpace = true
	r.FieldsPerRecord = -1
	r.ReuseRecord = true
	if _, err := r.Read(); err != nil {
		return 0, fmt.Errorf("reading: %w", err)
	}
	for ; rows < rowsMost; rows++ {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, fmt.Errorf("line %d: %w", rows+2, err)
		}
		if len(row) == len(t.names) {
			t.take(row, rows+2)
		}
	}
	return rows, nil
}

// memberOf is whom the value of a column of keys names.
func memberOf(by, key string) autopsy.Who {
	who := autopsy.Nobody
	switch by {
	case "rank":
		who.Rank = int(whole(key, -1))
	case "host":
		who.Host = key
	default:
		who.Device = key
	}
	return who
}

func (t *table) take(row []string, number int) {
	l := &line{number: number, text: strings.Join(row, ",")}
	key := strings.TrimSpace(row[t.key])
	if key == "" {
		return
	}
	who := memberOf(t.by, key)
	if t.host >= 0 {
		who.Host = strings.TrimSpace(row[t.host])
	}
	at := t.stepOf(row)
	kind := ""
	for _, k := range t.kinds {
		kind += " " + row[k]
	}
	for _, i := range t.values {
		value, unit, _ := strings.Cut(strings.TrimSpace(row[i]), " ")
		name := t.names[i]
		d := directionOf(name + " " + unit)
		if len(t.kinds) > 0 {
			d = directionOf(name + kind)
			name = name + " of" + kind
		}
		t.members.add(l, name, d, t.by, key, who, at, value)
	}
	if t.timesOf >= 0 && at >= 0 {
		if v, ok := parse(strings.TrimSpace(row[t.timesOf])); ok && v > 0 {
			t.times.add(autopsy.Point{Value: v, Iteration: at, Line: number})
		}
	}
	for _, i := range t.results {
		if failed(row[i]) {
			t.members.failed = append(t.members.failed, autopsy.Fault{
				Kind:   "check",
				Class:  autopsy.Hardware,
				Who:    who,
				Source: l.source(t.file),
				Text:   "a check of it failed (" + clipped(strings.TrimSpace(row[i])) + ")",
				Advice: "Take it out, and run that check on it alone.",
			})
		}
	}
	for _, i := range t.reasons {
		if strings.EqualFold(strings.TrimSpace(row[i]), "active") {
			t.members.name(autopsy.Named{
				Kind:   autopsy.KindSlow,
				Metric: t.names[i],
				Who:    who,
				Step:   at,
				Strong: true,
				Source: l.source(t.file),
			})
		}
	}
}

// series is the time of iterations over all members, where the table has it.
func (t *table) series() (autopsy.Series, bool) {
	t.times.close()
	if t.timesOf < 0 || len(t.times.points) < fewest {
		return autopsy.Series{}, false
	}
	name := t.names[t.timesOf]
	out := autopsy.Series{
		File:   t.file,
		Name:   name,
		Points: t.times.points,
		Why:    "the largest of all members counts",
		Every:  t.times.every(),
		Who:    autopsy.Nobody,
	}
	if toMs := durations[string(column.Read(name).Unit)]; toMs > 0 {
		out.Unit = "ms"
		for i := range out.Points {
			out.Points[i].Value *= toMs
		}
	}
	return out, true
}

func (t *table) stepOf(row []string) int64 {
	if t.steps < 0 {
		return -1
	}
	text := row[t.steps]
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	second, _, _ := strings.Cut(text, ".") // rows of one moment differ by milliseconds
	n, ok := t.seen[second]
	if !ok {
		n = int64(len(t.seen))
		t.seen[second] = n
	}
	return n
}
