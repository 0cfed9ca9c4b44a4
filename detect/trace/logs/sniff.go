package logs

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/column"
)

// Kind is the kind of a file.
type Kind string

// Kinds; all except the last three are commands of falcon detect.
const (
	Iterations  Kind = "iterations"
	Calls       Kind = "calls"
	Workers     Kind = "workers"
	Profile     Kind = "profile"
	Trace       Kind = "trace"
	Collectives Kind = "collectives" // of NCCL Inspector; they alone give no verdict
	Counters    Kind = "counters"    // of DCGM; they alone give no verdict
	Nothing     Kind = ""
)

// Guess is the kind of a file by its beginning.
type Guess struct {
	Kind   Kind
	Format string // "CSV", "MLPerf log"
	Why    string // evidence
	Sure   bool   // the evidence is unique to the format

	reader string // of a file that can have iteration times
}

// readers of files that can have iteration times.
var readers = map[string]func(io.Reader) (*frame, error){
	"csv":    readTable,
	"text":   readText,
	"json":   readObjects,
	"dlll":   readDLLogger,
	"mllog":  readMLLog,
	"events": readEvents,
}

// refuse returns why a file has no iteration times.
func (g Guess) refuse() error {
	switch g.Kind {
	case Nothing:
		return trace.Malformed(0, "%s", g.Why)
	case Collectives, Counters:
		return trace.Malformed(0,
			"this is %s, which has no iteration times; show its contents with: falcon detect FILE",
			g.Format)
	}
	return trace.Malformed(0, "this is %s, which has no iteration times; use: falcon detect %s FILE",
		g.Format, g.Kind)
}

// Err returns an error for a file of an unknown kind.
func (g Guess) Err() error {
	if g.Kind != Nothing {
		return nil
	}
	return g.refuse()
}

// SniffReader detects the kind of a file without consuming it. The returned reader
// is decompressed.
func SniffReader(r io.Reader) (Guess, *bufio.Reader, error) {
	in, err := Open(r)
	if err != nil {
		return Guess{}, nil, err
	}
	head, err := peekHead(in)
	if err != nil {
		return Guess{}, nil, err
	}
	return Sniff(head), in, nil
}

// Sniff detects the kind of a file by its beginning, decompressed.
func Sniff(head []byte) Guess {
	if g, ok := sniffBinary(head); ok {
		return g
	}
	lines := headLines(head)
	if len(lines) == 0 {
		return Guess{Why: "the file is empty; " + example}
	}
	for _, sniff := range []func([]string) (Guess, bool){sniffMarks, sniffJSON, sniffText, sniffTable} {
		if g, ok := sniff(lines); ok {
			return g
		}
	}
	return Guess{
		Kind:   Iterations,
		Format: "text",
		Why:    "its lines are searched for iteration times",
		reader: "text",
	}
}

// sniffBinary detects files by their first bytes.
func sniffBinary(head []byte) (Guess, bool) {
	has := func(magic string) bool { return bytes.HasPrefix(head, []byte(magic)) }
	switch {
	case isEvents(head):
		return Guess{
			Kind:   Iterations,
			Format: "TensorBoard event file",
			Why:    "its first record has TensorFlow's checksum",
			Sure:   true,
			reader: "events",
		}, true
	case len(head) >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5:
		return Guess{
			Kind:   Trace,
			Format: "a Python pickle, as PyTorch's flight recorder writes its dumps",
			Why:    "it has the header of a pickle",
			Sure:   true,
		}, true
	case has("PAR1"):
		return Guess{
			Why: `this is a Parquet table; convert it to CSV: python3 -c "import pandas,sys; pandas.read_parquet(sys.argv[1]).to_csv(sys.argv[1]+'.csv')" FILE`,
		}, true
	case has("SQLite format 3\x00"):
		return Guess{
			Why: "this is a SQLite database, as Nsight Systems exports; give a trace in Chrome's format, or iteration times as CSV",
		}, true
	case has(":W&B"):
		return Guess{Why: "this is a W&B run file; export the run's history as CSV or JSON lines"}, true
	case bytes.IndexByte(head[:min(len(head), 1024)], 0) >= 0:
		return Guess{Why: "this is a binary file of an unknown format; " + example}, true
	}
	return Guess{}, false
}

const sniffedLines = 400

// headLines returns the first lines, cleaned. The last may be truncated and is
// omitted unless it is the only one.
func headLines(head []byte) []string {
	var out []string
	for len(head) > 0 && len(out) < sniffedLines {
		n, token, _ := splitLine(head, true)
		whole := bytes.ContainsAny(token, "\r\n")
		text := strings.TrimSpace(cleanLine(bytes.TrimRight(token, "\r\n")))
		if text != "" && (whole || len(out) == 0 || len(head) < headBytes/2) {
			out = append(out, text)
		}
		head = head[n:]
	}
	return out
}

// sniffMarks detects formats by the beginning of their lines.
func sniffMarks(lines []string) (Guess, bool) {
	for _, l := range lines {
		switch {
		case strings.Contains(l, ":::MLLOG {") || strings.Contains(l, ":::MLLOG{"):
			return Guess{Iterations, "MLPerf log", "lines begin with :::MLLOG", true, "mllog"}, true
		case strings.HasPrefix(l, "DLLL {"):
			return Guess{Iterations, "DLLogger log", "lines begin with DLLL", true, "dlll"}, true
		case strings.HasPrefix(l, "DCGM_F") ||
			strings.HasPrefix(l, "# HELP DCGM_") ||
			strings.HasPrefix(l, "# TYPE DCGM_"):
			return Guess{
				Kind:   Counters,
				Format: "DCGM counters as dcgm-exporter writes them",
				Why:    "lines begin with DCGM_FI",
				Sure:   true,
			}, true
		case isMonitorHeader(l):
			return Guess{
				Kind:   Counters,
				Format: "DCGM counters as dcgmi dmon writes them",
				Why:    "its header begins with #Entity",
				Sure:   true,
			}, true
		case strings.HasPrefix(l, "nccl_") &&
			strings.Contains(l, "{") &&
			strings.Contains(l, "collective="):
			return Guess{
				Kind:   Collectives,
				Format: "NCCL Inspector's metrics",
				Why:    "lines begin with nccl_",
				Sure:   true,
			}, true
		}
	}
	return Guess{}, false
}

// sniffJSON detects documents by their first members.
func sniffJSON(lines []string) (Guess, bool) {
	first := lines[0]
	if first[0] != '{' && first[0] != '[' ||
		strings.HasPrefix(first, "{'") ||
		isBracketed(first) {
		return sniffMixed(lines)
	}
	text := strings.Join(lines, "\n")
	has := func(member string) bool { return strings.Contains(text, `"`+member+`"`) }
	switch {
	case has("coll_perf"):
		return Guess{
			Kind:   Collectives,
			Format: "NCCL Inspector's JSON",
			Why:    "its objects have coll_perf",
			Sure:   true,
		}, true
	case has("traceEvents") || has("ph") && (has("ts") || has("dur")):
		return Guess{
			Kind:   Trace,
			Format: "a Chrome trace",
			Why:    "it has events with ph and ts",
			Sure:   true,
		}, true
	case has("entries") || has("pg_config"):
		return Guess{
			Kind:   Trace,
			Format: "a flight-recorder dump",
			Why:    "it has entries and pg_config",
			Sure:   true,
		}, true
	case has("layout") && (has("groups") || has("self_ms")):
		return Guess{
			Kind:   Profile,
			Format: "a profile window",
			Why:    "it has layout and groups",
			Sure:   true,
		}, true
	case has("log") && has("stream") && has("time"):
		return Guess{
			Why: "this is a container log in JSON; extract the program's output first: jq -j .log FILE",
		}, true
	case has("log_history"):
		return Guess{
			Why: "this is a trainer_state.json, which has losses and no times; give the trainer's log with its progress bar, or the files of W&B or TensorBoard",
		}, true
	}
	return Guess{Iterations, "JSON lines", "lines are JSON objects", false, "json"}, true
}

// sniffMixed detects JSON lines between other lines.
func sniffMixed(lines []string) (Guess, bool) {
	n := 0
	for _, l := range lines {
		if strings.HasPrefix(l, `{"`) && strings.HasSuffix(l, "}") {
			n++
		}
	}
	return Guess{Iterations, "JSON lines", "many of its lines are JSON objects", false, "json"},
		3*n >= len(lines) && n > 0
}

// isBracketed reports whether a line begins with a log prefix in brackets.
func isBracketed(l string) bool {
	return l[0] == '[' && len(l) > 1 && l[1] != '{' && l[1] != '"' && l[1] != '['
}

// sniffText detects logs by a line with an iteration.
func sniffText(lines []string) (Guess, bool) {
	for i := range lineFormats { // in the order of readText
		form := &lineFormats[i]
		for _, l := range lines {
			if strings.Contains(l, form.mark) &&
				form.value.MatchString(l) &&
				(form.role == column.IterTime && len(form.mark) > 8 || form.step.MatchString(l)) {
				return Guess{
					Iterations,
					form.name,
					fmt.Sprintf("a line has %q", strings.TrimSpace(form.mark)),
					true,
					"text",
				}, true
			}
		}
	}
	for _, l := range lines {
		if barLine.MatchString(l) {
			return Guess{
				Iterations, "log with progress bars", "a line has a progress bar", false, "text",
			}, true
		}
	}
	return Guess{}, false
}

// sniffTable detects a CSV by its header and a row with as many fields.
func sniffTable(lines []string) (Guess, bool) {
	for len(lines) > 1 && isComment(lines[0]) {
		lines = lines[1:]
	}
	header := strings.TrimLeft(lines[0], "# ")
	if header == "" || strings.HasPrefix(header, "{") {
		return Guess{}, false
	}
	comma := delimiterOf(header)
	table := Guess{
		Kind:   Iterations,
		Format: "CSV",
		Why:    "its first line has column names",
		reader: "csv",
	}
	if comma == 0 {
		return table, len(lines) > 1 && isNumber(lines[1]) ||
			isNumber(lines[0]) ||
			len(lines) == 1 && !strings.Contains(header, " ")
	}
	names, err := splitFields(line{text: header}, comma)
	if err != nil {
		return Guess{}, false
	}
	if len(lines) > 1 {
		if !regular(lines[1:], len(names), comma) ||
			!slices.ContainsFunc(lines[1:], func(l string) bool {
				return hasNumber(l, comma)
			}) {
			return Guess{}, false
		}
	}
	return tableKind(table, names, lines[1:], comma), true
}

func isNumber(text string) bool {
	c := readCell(text, false)
	return !c.bad && !c.date
}

// regular reports whether most rows have as many fields as the header, so that a
// log with a comma in its first line is not a table.
func regular(rows []string, want int, comma rune) bool {
	const most = 50
	rows = rows[:min(len(rows), most)]
	fits := 0
	for _, r := range rows {
		fields, err := splitFields(line{text: r}, comma)
		if err != nil || len(fields) == want || len(fields) == want-1 {
			fits++
		}
	}
	return fits*10 >= len(rows)*6
}

func hasNumber(text string, comma rune) bool {
	row, err := splitFields(line{text: text}, comma)
	return err == nil && slices.ContainsFunc(row, func(f string) bool {
		c := readCell(f, comma == ';')
		return !c.bad && !math.IsNaN(c.value)
	})
}

// tableKind distinguishes call logs, tables of workers and series of iterations.
func tableKind(g Guess, names, rows []string, comma rune) Guess {
	at := func(name string) int {
		for i, n := range names {
			if strings.EqualFold(strings.TrimSpace(n), name) {
				return i
			}
		}
		return -1
	}
	if at("t_us") >= 0 && at("op") >= 0 {
		return Guess{
			Kind:   Calls,
			Format: "CSV of communication calls",
			Why:    "its header names t_us and op",
			Sure:   true,
		}
	}
	for _, name := range []string{"rank", "worker", "dp", "dp_rank", "pp", "pp_rank"} {
		if i := at(name); i >= 0 && differs(rows, i, comma) {
			return Guess{
				Kind:   Workers,
				Format: "CSV of workers",
				Why:    "its column " + name + " varies",
				Sure:   true,
				reader: "csv",
			}
		}
	}
	return g
}

func differs(rows []string, at int, comma rune) bool {
	first := ""
	for _, text := range rows {
		fields, err := splitFields(line{text: text}, comma)
		if err != nil || at >= len(fields) {
			continue
		}
		if first == "" {
			first = fields[at]
		}
		if fields[at] != first {
			return true
		}
	}
	return false
}
