package read

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/detect/trace/logs"
)

// Bounds of one input.
const (
	headBytes = 64 << 10
	lineBytes = 1 << 20 // longer lines are cut
	textBytes = 240     // of a line that is kept as evidence
)

// line is one line of a text, or a part of it between carriage returns.
type line struct {
	number int
	text   string // cleaned
	body   string // without what a launcher or logger put before it
	who    autopsy.Who
	named  bool // its prefix names the rank
	time   time.Time
}

var rankAtStart = regexp.MustCompile(`^\(?[Rr]ank[ :=#]*(\d{1,7})\b`)

// rank is whose line it is by its own words, -1 = it does not say.
func (l *line) rank() int {
	if l.named {
		return l.who.Rank
	}
	if l.body == "" || l.body[0] != '(' && l.body[0]|' ' != 'r' {
		return -1
	}
	if x := rankAtStart.FindStringSubmatch(l.body); x != nil {
		return int(whole(x[1], -1))
	}
	return -1
}

// source is where a fact of the line comes from.
func (l *line) source(file string) autopsy.Source {
	return autopsy.Source{
		File: file,
		Line: l.number,
		Text: clipped(strings.TrimSpace(l.text)),
	}
}

func clipped(s string) string {
	if len(s) <= textBytes {
		return s
	}
	return strings.ToValidUTF8(s[:textBytes], "") + "…"
}

// eachLine calls each with every line of a text that is not blank; the line is valid until it returns.
func eachLine(r io.Reader, each func(*line)) (lines int, err error) {
	in, err := decoded(bufio.NewReaderSize(r, headBytes))
	if err != nil {
		return 0, err
	}
	l := line{}
	for {
		raw, end, err := readLine(in)
		if len(raw) > 0 || end != 0 {
			l.number++
			for part := range bytes.SplitSeq(raw, []byte{'\r'}) {
				if text := logs.Printable(part); text != "" {
					l.take(text)
					each(&l)
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return l.number, nil
		}
		if err != nil {
			return l.number, fmt.Errorf("reading: %w", err)
		}
	}
}

// readLine reads up to a newline; what is longer than lineBytes is dropped.
func readLine(in *bufio.Reader) (raw []byte, end byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		switch {
		case raw == nil && err == nil:
			return part[:len(part)-1], '\n', nil
		case len(raw) < lineBytes:
			raw = append(raw, part...)
		}
		if err == nil {
			return bytes.TrimSuffix(raw, []byte{'\n'}), '\n', nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return raw, 0, err
		}
	}
}

// decoded gives UTF-8 for UTF-16, which has a byte order mark.
func decoded(in *bufio.Reader) (*bufio.Reader, error) {
	head, err := in.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading: %w", err)
	}
	switch {
	case bytes.Equal(head, []byte{0xff, 0xfe}):
		return bufio.NewReader(&wide{in: in}), nil
	case bytes.Equal(head, []byte{0xfe, 0xff}):
		return bufio.NewReader(&wide{in: in, high: true}), nil
	}
	return in, nil
}

// wide reads UTF-16.
type wide struct {
	in   *bufio.Reader
	high bool // the high byte comes first
	rest []byte
}

func (w *wide) Read(out []byte) (int, error) {
	for len(w.rest) == 0 {
		var pair [2]byte
		if _, err := io.ReadFull(w.in, pair[:]); err != nil {
			return 0, io.EOF // half a character ends the file too
		}
		r := w.char(pair)
		if r == '\ufeff' {
			continue
		}
		w.rest = utf8.AppendRune(w.rest[:0], r)
	}
	n := copy(out, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

func (w *wide) char(pair [2]byte) rune {
	if w.high {
		pair[0], pair[1] = pair[1], pair[0]
	}
	r := rune(pair[0]) | rune(pair[1])<<8
	if !utf16.IsSurrogate(r) {
		return r
	}
	var second [2]byte
	if _, err := io.ReadFull(w.in, second[:]); err != nil {
		return utf8.RuneError
	}
	if w.high {
		second[0], second[1] = second[1], second[0]
	}
	return utf16.DecodeRune(r, rune(second[0])|rune(second[1])<<8)
}
