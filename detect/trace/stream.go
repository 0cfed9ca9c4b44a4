package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/failslow/falcon/detect/trace/pickle"
)

// Bounds on a trace. Traces are large: they are decoded event by event, and
// what is kept of them is bounded by MaxLanes, MaxCells and MaxCalls.
const (
	MaxTraceBytes = 64 << 30 // of one file, unpacked
	MaxValue      = 4 << 20  // bytes of one event, or of one member beside the events
)

// gauge counts what a JSON decoder has read ahead of what it has handed out,
// so that one endless value can't fill the memory.
type gauge struct {
	r           io.Reader
	read, taken int64
	over        error
}

func (g *gauge) Read(p []byte) (int, error) {
	if g.over != nil {
		return 0, g.over
	}
	switch {
	case g.read > MaxTraceBytes:
		g.over = fmt.Errorf("%w: more than %d bytes; split the file", ErrTooLarge, int64(MaxTraceBytes))
	case g.read-g.taken > 2*MaxValue:
		g.over = fmt.Errorf("%w: one value at byte %d is longer than %d bytes; is this a trace?",
			ErrTooLarge, g.taken, MaxValue)
	}
	if g.over != nil {
		return 0, g.over
	}
	n, err := g.r.Read(p)
	g.read += int64(n)
	return n, err
}

// stream walks one JSON document without holding it.
type stream struct {
	gauge *gauge
	dec   *json.Decoder
}

// newStream unpacks gzip, reads a pickle of plain data as JSON, and refuses what
// is neither, in one sentence.
func newStream(r io.Reader) (*stream, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	head, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("trace: reading: %w", err)
	}
	if bytes.HasPrefix(head, []byte{0x1f, 0x8b}) {
		packed, err := gzip.NewReader(in)
		if err != nil {
			return nil, malformed(0, "the gzip header is broken")
		}
		in = bufio.NewReaderSize(packed, 64<<10)
		head, _ = in.Peek(4) // an error comes again at the first read
	}
	if in, err = unpickle(head, in); err != nil {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte("\ufeff")) {
		_, _ = in.Discard(3)
	}
	g := &gauge{r: in}
	return &stream{gauge: g, dec: json.NewDecoder(g)}, nil
}

// decodeValue decodes the next value into v; v nil skips it.
func (s *stream) decodeValue(v any) error {
	if v == nil {
		v = new(json.RawMessage)
	}
	err := s.dec.Decode(v)
	s.gauge.taken = s.dec.InputOffset()
	return s.errorAt(err)
}

func (s *stream) nextToken() (json.Token, error) {
	t, err := s.dec.Token()
	s.gauge.taken = s.dec.InputOffset()
	return t, s.errorAt(err)
}

// errorAt makes one sentence with the place.
func (s *stream) errorAt(err error) error {
	switch {
	case err == nil:
		return nil
	case s.gauge.over != nil:
		return s.gauge.over
	case errors.Is(err, pickle.ErrTooLarge) || errors.Is(err, pickle.ErrMalformed):
		return unreadable(err)
	case errors.Is(err, io.EOF) && s.gauge.taken > 0:
		err = io.ErrUnexpectedEOF
	case errors.Is(err, gzip.ErrChecksum) ||
		errors.Is(err, gzip.ErrHeader) ||
		strings.HasPrefix(err.Error(), "flate:"):
		return malformed(0, "the gzip data is broken after %d bytes", s.gauge.read)
	}
	return malformed(0, "near byte %d: %s", s.gauge.taken, jsonSentence(err))
}

// readObject calls each with every member's name; each takes its value.
func (s *stream) readObject(each func(name string) error) error {
	for s.dec.More() {
		t, err := s.nextToken()
		if err != nil {
			return err
		}
		name, ok := t.(string)
		if !ok {
			return malformed(0, "near byte %d: a member has no name", s.gauge.taken)
		}
		if err := each(name); err != nil {
			return err
		}
	}
	_, err := s.nextToken()
	return err
}

// readArray calls each before every element, behind the opening bracket; each takes it.
func (s *stream) readArray(each func() error) error {
	for s.dec.More() {
		if err := each(); err != nil {
			return err
		}
	}
	_, err := s.nextToken()
	return err
}

// readList takes an opening bracket and the elements behind it; null is empty.
func (s *stream) readList(name string, each func() error) error {
	t, err := s.nextToken()
	if err != nil || t == nil {
		return err
	}
	if t != json.Delim('[') {
		return malformed(0, "%s is no list", name)
	}
	return s.readArray(each)
}

// expectEnd wants nothing behind the document.
func (s *stream) expectEnd() error {
	_, err := s.dec.Token()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err = s.errorAt(err); err != nil {
		return err
	}
	return malformed(0, "more follows behind the JSON document at byte %d", s.dec.InputOffset())
}

// loose is a whole number that may come as a number or as its text; anything
// else leaves it unset. Tools differ here, and other members suffice.
type loose struct {
	set bool
	n   int64
}

// UnmarshalJSON never fails.
func (l *loose) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseFloat(strings.Trim(string(b), `"`), 64)
	if err == nil && v >= -1<<53 && v <= 1<<53 && v == float64(int64(v)) {
		l.set = true
		l.n = int64(v)
	}
	return nil
}

// word is a text or a number as text.
type word string

// UnmarshalJSON never fails; other kinds leave it empty.
func (w *word) UnmarshalJSON(b []byte) error {
	var s string
	if len(b) > 0 && b[0] == '"' {
		if json.Unmarshal(b, &s) == nil {
			*w = word(s)
		}
		return nil
	}
	if len(b) > 0 && (b[0] == '-' || b[0] >= '0' && b[0] <= '9') {
		*w = word(b)
	}
	return nil
}

// rankList is a list of ranks, as JSON or as text "[0, 1]"; a shortened text is empty.
type rankList []int

// UnmarshalJSON never fails.
func (r *rankList) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		b = []byte(text)
	}
	var list []int
	if json.Unmarshal(b, &list) == nil && len(list) <= MaxWorld {
		*r = list
	}
	return nil
}
