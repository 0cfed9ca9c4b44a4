package plain

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"unicode"
)

// spelled are the signs that a screen reader leaves out or reads as something else, and the words
// for them.
var spelled = strings.NewReplacer(
	" → ",
	" to ",
	"→",
	" to ",
	" -> ",
	" to ",
	"≤",
	" at most ",
	"≥",
	" at least ",
	"×",
	" times",
	" °C",
	" degrees Celsius",
	"°C",
	" degrees Celsius",
	"P(change)",
	"probability of a change",
	"GPU-hours",
	"GPU-hours",
	"GPU-h",
	"GPU-hours",
	" vs ",
	" against ",
	"—",
	"not known",
	"…",
	" and so on",
	"DECISION NEEDED",
	"Decision needed",
	"SLOW",
	"slow",
	"–",
	" to ",
)

// a rule turns what the eye reads by its place or sign into words.
type rule struct {
	of *regexp.Regexp
	to string
}

// placed go by the place in the line: stamps, the signs of evidence, columns.
var placed = []rule{
	{regexp.MustCompile(`^\[iteration ([\d,]+)\] `), "Iteration $1. "},
	{regexp.MustCompile(`^\[start\] `), "Before the first iteration. "},
	{regexp.MustCompile(`^(\s*evidence\s+|\s+)\+ `), "Evidence for: "},
	{regexp.MustCompile(`^(\s*evidence\s+|\s+)- `), "Evidence against: "},
	{regexp.MustCompile(`(\S)\s{2,}`), "$1, "},
	{regexp.MustCompile(`([.,:;]), `), "$1 "},
}

// signed are signs and units beside a number.
var signed = []rule{
	{regexp.MustCompile(`\+(\d[\d.,]*) ?%`), "plus $1 percent"},
	{regexp.MustCompile(`(^|[\s(])-(\d[\d.,]*) ?%`), "${1}minus $2 percent"},
	{regexp.MustCompile(`(\d) ?%`), "$1 percent"},
	{regexp.MustCompile(`\+(\d+)x\b`), "plus $1 times"},
	{regexp.MustCompile(`(\d) x\b`), "$1 times"},
	{regexp.MustCompile(`(\d) ms\b`), "$1 milliseconds"},
	{regexp.MustCompile(`(\d) s\b`), "$1 seconds"},
	{regexp.MustCompile(`(\d) min\b`), "$1 minutes"},
	{regexp.MustCompile(`(\d) h\b`), "$1 hours"},
	{regexp.MustCompile(`(\d)\) `), "$1, "},
	{regexp.MustCompile(`(\d)-(\d+)\b`), "$1 to $2"},
}

func replaceAll(line string, rules []rule) string {
	for _, r := range rules {
		line = r.of.ReplaceAllString(line, r.to)
	}
	return line
}

// idPart keeps INC-0001 and the like whole, in which a hyphen is no range.
var idPart = regexp.MustCompile(`\b(INC|REC|VAL)-(\d)`)

// hyphen stands for one that is no range while rules run; a private-use character, which no line holds.
const hyphen = "\ue000"

// Spoken is a line as a screen reader should read it: words in place of signs, units and columns,
// nothing but letters, digits and ASCII punctuation, and one blank between words.
func Spoken(line string) string {
	line = idPart.ReplaceAllString(line, "${1}"+hyphen+"${2}")
	line = replaceAll(strings.TrimRight(line, " "), placed)
	line = replaceAll(spelled.Replace(line), signed)
	line = strings.ReplaceAll(line, hyphen, "-")
	line = strings.Map(speakable, line)
	return strings.Join(strings.Fields(line), " ")
}

// speakable leaves letters, digits and ASCII: a synthesizer says nothing of the rest, or its
// Unicode name.
func speakable(r rune) rune {
	if r >= ' ' && r < 0x7f ||
		unicode.IsLetter(r) ||
		unicode.IsDigit(r) ||
		unicode.Is(unicode.Mn, r) {
		return r
	}
	return ' '
}

// Speak returns a writer that hands whole lines on as Spoken; Close hands on what has no newline.
func Speak(out io.Writer) io.WriteCloser { return &speaker{out: out} }

type speaker struct {
	out  io.Writer
	part []byte // of a line that has not ended
}

// Write implements io.Writer.
func (s *speaker) Write(b []byte) (int, error) {
	s.part = append(s.part, b...)
	for {
		line, rest, ended := bytes.Cut(s.part, []byte("\n"))
		if !ended {
			return len(b), nil
		}
		s.part = rest
		if _, err := io.WriteString(s.out, Spoken(string(line))+"\n"); err != nil {
			return 0, err
		}
	}
}

// Close writes a last line that had no newline.
func (s *speaker) Close() error {
	if len(s.part) == 0 {
		return nil
	}
	_, err := s.Write([]byte("\n"))
	return err
}
