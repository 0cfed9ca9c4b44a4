package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/column"
)

// objects calls each with every JSON object of a text: one per line, over several
// lines, or in a list. NaN and Infinity, which Python writes, become null. Other
// lines are skipped and counted.
type objects struct {
	held  []byte
	depth int
	begun int  // line of the current object
	quote bool // within a string that continues on the next line
	each  func(number, rank int, object []byte) error
	mark  string // text before the object on its line, such as ":::MLLOG "
	whole bool   // the last object is complete
	other int    // lines without an object
}

func (o *objects) addLine(l line) error {
	text := l.text
	rank := noRank
	if o.depth == 0 {
		if o.mark != "" {
			at := strings.Index(text, o.mark)
			if at < 0 {
				return nil
			}
			rank, text = rankOfLine(text), text[at+len(o.mark):]
		}
		if text = strings.TrimLeft(text, " \t[,"); text == "" || text == "]" || text == "]," {
			return nil
		}
		if text[0] != '{' {
			o.other++
			return nil
		}
		o.begun = l.number
		o.whole = false
	}
	return o.addText(l.number, rank, text)
}

// addText tracks the braces of a line.
func (o *objects) addText(number, rank int, text string) error {
	for from := 0; from < len(text); {
		end := o.endOf(text[from:])
		if len(o.held)+len(text) > trace.MaxLine {
			return trace.TooLarge("the JSON object at line %d is longer than %d bytes",
				o.begun, trace.MaxLine)
		}
		if end < 0 {
			o.held = append(append(o.held, text[from:]...), '\n')
			return nil
		}
		o.held = append(o.held, text[from:from+end]...)
		o.whole = true
		if err := o.each(o.begun, rank, unNaN(o.held)); err != nil {
			return err
		}
		o.held = o.held[:0]
		rest := strings.TrimLeft(text[from+end:], " \t,")
		if rest == "" || rest[0] != '{' {
			return nil // text after the object on the line
		}
		from = len(text) - len(rest)
		o.begun, o.whole = number, false
	}
	return nil
}

// endOf returns the position after the brace that closes the object, -1 if it is
// not in this text.
func (o *objects) endOf(text string) int {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case o.quote && c == '\\':
			i++
		case c == '"':
			o.quote = !o.quote
		case o.quote:
		case c == '{':
			o.depth++
		case c == '}':
			if o.depth--; o.depth == 0 {
				return i + 1
			}
		}
	}
	o.quote = false // strings end with the line
	return -1
}

// unNaN replaces NaN and Infinity outside of strings by null.
func unNaN(object []byte) []byte {
	if !bytes.Contains(object, []byte("NaN")) && !bytes.Contains(object, []byte("Infinity")) {
		return object
	}
	out := make([]byte, 0, len(object))
	quote := false
	for i := 0; i < len(object); i++ {
		c := object[i]
		if !quote {
			if word := numberWord(object[i:]); word > 0 {
				out = append(out, "null"...)
				i += word - 1
				continue
			}
		}
		switch {
		case quote && c == '\\' && i+1 < len(object):
			out = append(out, c)
			i++
			c = object[i]
		case c == '"':
			quote = !quote
		}
		out = append(out, c)
	}
	return out
}

func numberWord(b []byte) int {
	for _, w := range []string{"NaN", "-Infinity", "Infinity", "-NaN"} {
		if bytes.HasPrefix(b, []byte(w)) {
			return len(w)
		}
	}
	return 0
}

// rowsOf converts each object to a row.
type rowsOf struct {
	*frame
}

func readObjects(r io.Reader) (*frame, error) {
	return readMarked(r, "JSON lines", "")
}

func readDLLogger(r io.Reader) (*frame, error) {
	return readMarked(r, "DLLogger log", "DLLL ")
}

func readMarked(r io.Reader, format, mark string) (*frame, error) {
	t := rowsOf{newFrame(format)}
	o := objects{each: t.addObject, mark: mark, whole: true}
	if err := scanLines(r, o.addLine); err != nil {
		return nil, err
	}
	if !o.whole {
		t.note("the last object is incomplete and is ignored")
	}
	if o.other > 0 && mark == "" {
		t.note(fmt.Sprintf("%d lines are not JSON and are ignored", o.other))
	}
	if len(t.lines) == 0 {
		return nil, trace.Malformed(0, "the file has no JSON object with a number; %s",
			`give lines such as {"step": 10, "step_time_ms": 235.4}`)
	}
	return t.frame, nil
}

func (t rowsOf) addObject(number, rank int, object []byte) error {
	row := t.addRow(number, rank)
	dec := json.NewDecoder(bytes.NewReader(object))
	dec.UseNumber()
	if err := t.walkObject(dec, "", row, 0); err != nil {
		if errors.Is(err, trace.ErrTooLarge) {
			return err
		}
		return trace.Malformed(number, "the JSON is invalid; fix or remove the line")
	}
	return nil
}

const maxDepth = 8

// walkObject reads the members of an object in order, with their path.
func (t rowsOf) walkObject(dec *json.Decoder, path string, row, depth int) error {
	if token, err := dec.Token(); err != nil || token != json.Delim('{') || depth > maxDepth {
		return trace.ErrMalformed
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		if path != "" {
			name = path + "." + name
		}
		if err := t.walkValue(dec, name, row, depth); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return err
}

func (t rowsOf) walkValue(dec *json.Decoder, name string, row, depth int) error {
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return err
	}
	if len(raw) == 0 {
		return trace.ErrMalformed
	}
	switch raw[0] {
	case '{':
		inner := json.NewDecoder(bytes.NewReader(raw))
		inner.UseNumber()
		return t.walkObject(inner, name, row, depth+1)
	case '[', 't', 'f', 'n':
		return nil
	}
	text := string(raw)
	if raw[0] == '"' {
		var err error
		if text, err = unquote(raw); err != nil {
			return err
		}
	}
	s, err := t.addColumn(name)
	if err != nil {
		return err
	}
	if s.means.Role == column.Rank && t.ranks[row] == noRank {
		t.ranks[row] = int32(t.rankOf(text))
		return nil
	}
	return t.setText(s, row, text, false)
}

func unquote(raw []byte) (string, error) {
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}

// mllogEntry is one line of MLPerf's log.
type mllogEntry struct {
	TimeMs   float64         `json:"time_ms"`
	Key      string          `json:"key"`
	Value    json.RawMessage `json:"value"`
	Metadata struct {
		Step    json.RawMessage `json:"step"`
		Samples json.RawMessage `json:"samples_count"`
	} `json:"metadata"`
}

// mllog reads the tracked statistics of MLPerf's log.
type mllog struct{ rowsOf }

func readMLLog(r io.Reader) (*frame, error) {
	t := mllog{rowsOf{newFrame("MLPerf log")}}
	t.presetColumn("metadata.step", column.Step, "")
	t.presetColumn("time_ms", column.Clock, "ms")
	o := objects{each: t.addEntry, mark: ":::MLLOG", whole: true}
	if err := scanLines(r, o.addLine); err != nil {
		return nil, err
	}
	for _, s := range t.cols {
		if s.means.Role == column.IterTime && s.means.Unit == "" { // MLPerf's times are in seconds
			s.means.Unit, s.preset = "s", true
		}
	}
	if len(t.lines) == 0 {
		return nil, trace.Malformed(0, "the MLPerf log has no tracked_stats, so it has no iteration times")
	}
	t.settleRanks()
	return t.frame, nil
}

func (t mllog) addEntry(number, rank int, object []byte) error {
	var e mllogEntry
	if json.Unmarshal(object, &e) != nil {
		return trace.Malformed(number, "the JSON of the MLLOG line is invalid; fix or remove the line")
	}
	if e.Key != "tracked_stats" || len(e.Value) == 0 || e.Value[0] != '{' {
		return nil
	}
	if err := t.addObject(number, rank, e.Value); err != nil {
		return err
	}
	row := len(t.lines) - 1
	for _, raw := range []json.RawMessage{e.Metadata.Samples, e.Metadata.Step} {
		if v, err := strconv.ParseFloat(string(raw), 64); err == nil {
			if err := t.setCell(t.cols[0], row, v); err != nil {
				return err
			}
		}
	}
	return t.setCell(t.cols[1], row, e.TimeMs)
}
