package column

import (
	"strings"
	"unicode"
)

// Unit is a unit of time.
type Unit string

// units are the words that name a unit.
var units = map[string]Unit{
	"ns": "ns", "nanosecond": "ns", "nanoseconds": "ns",
	"us": "us", "µs": "us", "μs": "us", "usec": "us", "usecs": "us",
	"micros": "us", "microsecond": "us", "microseconds": "us",
	"ms": "ms", "msec": "ms", "msecs": "ms", "millis": "ms", "millisecond": "ms", "milliseconds": "ms",
	"s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
	"min": "min", "mins": "min", "minute": "min", "minutes": "min",
}

var toMs = map[Unit]float64{
	"ns":  1e-6,
	"us":  1e-3,
	"ms":  1,
	"s":   1000,
	"min": 60000,
}

// ToMs is the number of milliseconds in the unit, 0 for none.
func (u Unit) ToMs() float64 { return toMs[u] }

// Word is the unit as it reads in a sentence.
func (u Unit) Word() string {
	return map[Unit]string{
		"ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds",
		"min": "minutes",
	}[u]
}

// ParseUnit reads what a person gives as a unit.
func ParseUnit(s string) (Unit, bool) {
	u, ok := units[strings.ToLower(strings.TrimSpace(s))]
	return u, ok
}

// unitOf is the unit in a name: its last word that is one. "min" alone is the
// least of something more often than minutes, and counts as no unit.
func unitOf(words []string) Unit {
	for i := len(words) - 1; i >= 0; i-- {
		if u, ok := units[words[i]]; ok && words[i] != "min" {
			return u
		}
	}
	return ""
}

// splitWords splits a name at everything that is no letter or digit and at
// capitals within it, in lower case. A slash between a unit and a word becomes
// "per": s/it, ms/step, tokens/s.
func splitWords(name string) []string {
	var words []string
	var word []rune
	flush := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
		}
		word = word[:0]
	}
	before := ' '
	for _, r := range name {
		switch {
		case r == '/':
			flush()
			words = append(words, "/")
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush()
		case unicode.IsUpper(r) && unicode.IsLower(before):
			flush()
			word = append(word, r)
		default:
			word = append(word, r)
		}
		before = r
	}
	flush()
	return joinRatios(words)
}

// joinRatios turns the slashes that mean "per" into that word, and drops the
// others, which are paths.
func joinRatios(words []string) []string {
	out := words[:0]
	for i, w := range words {
		switch {
		case w != "/":
			out = append(out, w)
		case i > 0 && i < len(words)-1 && ratio(words[i-1], words[i+1]):
			out = append(out, "per")
		}
	}
	return out
}

// ratio reports whether over/under is a unit: a time and a thing, or a thing and
// a time. "timing_s/step" is a path, but means the same.
func ratio(over, under string) bool {
	_, timeOver := units[over]
	_, timeUnder := units[under]
	return timeOver && iterations[under] ||
		timeUnder && (iterations[over] || perItem[over] || over == "tflop" || over == "gb" || over == "mb")
}
