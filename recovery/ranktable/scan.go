package ranktable

import (
	"encoding/json"
	"fmt"
	"strings"
)

// scan reads JSON of a known shape: encoding/json takes several times as long
// as the whole budget of a large table. The first error stays.
type scan struct {
	text string
	at   int
	err  error
}

func (s *scan) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("%w: byte %d: %s", ErrTable, s.at, fmt.Sprintf(format, args...))
	}
}

// next skips space and returns the byte there, 0 at the end.
func (s *scan) next() byte {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case ' ', '\n', '\t', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// take expects one byte.
func (s *scan) take(c byte) bool {
	if s.err == nil && s.next() == c && s.at < len(s.text) {
		s.at++
		return true
	}
	s.fail("%q is missing", c)
	return false
}

// list calls each for the items between open and shut.
func (s *scan) list(open, shut byte, each func()) {
	if !s.take(open) {
		return
	}
	if s.next() == shut {
		s.at++
		return
	}
	for s.err == nil {
		each()
		if s.err == nil && s.next() == ',' {
			s.at++
			continue
		}
		s.take(shut)
		return
	}
}

// array calls each for every item; each reads one value.
func (s *scan) array(each func()) { s.list('[', ']', each) }

// object calls field for every key; field reads its value and returns a bit of
// its own, or 0 for a key that is not known.
func (s *scan) object(field func(key string) uint32) {
	var seen uint32
	s.list('{', '}', func() {
		key := s.str()
		s.take(':')
		if s.err != nil {
			return
		}
		bit := field(key)
		switch {
		case bit == 0:
			s.fail("there is no field %q here", cut(key))
		case seen&bit != 0:
			s.fail("field %q is there twice", cut(key))
		}
		seen |= bit
	})
}

// str reads a string; it shares the text's memory where nothing is escaped.
func (s *scan) str() string {
	if !s.take('"') {
		return ""
	}
	from := s.at
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[from : s.at-1]
		case c == '\\':
			return s.escaped(from)
		case c < ' ':
			s.fail("a string has a control character")
			return ""
		}
		s.at++
	}
	s.fail("a string has no end")
	return ""
}

// escaped reads a string with a backslash in it.
func (s *scan) escaped(from int) string {
	for s.at < len(s.text) && s.text[s.at] != '"' {
		if s.text[s.at] == '\\' {
			s.at++
		}
		s.at++
	}
	s.at = min(s.at+1, len(s.text))
	var out string
	if err := json.Unmarshal([]byte(s.text[from-1:s.at]), &out); err != nil {
		s.fail("a string is none: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return out
}

// digitsMost bounds numbers, so that none overflows.
const digitsMost = 9

// number reads a string of digits: HCCL writes numbers as strings.
func (s *scan) number() int {
	t := s.str()
	n := 0
	for i := range len(t) {
		if t[i] < '0' || t[i] > '9' {
			n = -1
			break
		}
		n = n*10 + int(t[i]-'0')
	}
	if s.err == nil && (n < 0 || t == "" || len(t) > digitsMost || len(t) > 1 && t[0] == '0') {
		s.fail("%q is no number written as a string", cut(t))
	}
	return n
}
