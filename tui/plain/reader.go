package plain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

// Bounds of what is said at once: the rest waits for a command.
const (
	linesAtOnce = 8
	linesHeld   = 400 // of the rest, the oldest go first
)

// detail is how much of what happens is said unasked. Questions, incidents, recoveries and the
// connection always are.
type detail int

const (
	detailQuiet  detail = iota
	detailNormal        // warnings too
	detailAll           // every event
)

var detailNames = [...]string{"quiet", "normal", "all"}

// warnings is the least severity of an event that detailNormal says.
const warnings = 2

// says reports whether an event is said.
func (d detail) says(e *falconv1.EventLine) bool {
	return d == detailAll || d == detailNormal && e.GetSeverity() >= warnings
}

// reader is the stream as a screen reader needs it: it keeps what was said, to say it again, and
// what was too much at once. Without I/O or a clock.
type reader struct {
	detail detail
	last   []string // what was said in answer or unasked, to be said again
	rest   []string
}

func newReader() *reader { return &reader{detail: detailNormal} }

// bound is announce where lines are for a screen reader, else all of them.
func (r *reader) bound(lines []string) []string {
	if r == nil {
		return lines
	}
	return r.announce(lines)
}

// announce bounds what is said at once; what is left can be asked for.
func (r *reader) announce(lines []string) []string {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return l == "" })
	if len(lines) == 0 {
		return nil
	}
	if len(lines) > linesAtOnce+1 {
		r.rest = append(r.rest, lines[linesAtOnce:]...)
		r.rest = r.rest[max(0, len(r.rest)-linesHeld):]
		lines = append(lines[:linesAtOnce:linesAtOnce], moreText(len(r.rest)))
	}
	r.last = lines
	return lines
}

func moreText(n int) string {
	if n == 1 {
		return "1 more line: type more"
	}
	return fmt.Sprintf("%d more lines: type more", n)
}

// word answers a typed word of the reader's own; ok is false for any other line. An open
// question that waits for a reason or for its typed word comes first.
func (r *reader) word(text string, a *asker, s *feed.State, now time.Time) (lines []string, ok bool) {
	if a.open != nil &&
		(a.open.step == reason || a.open.step == confirm && text == a.open.chosen.Entry().Word) {
		return nil, false
	}
	name, arg, _ := strings.Cut(strings.TrimSpace(text), " ")
	switch name {
	case "more":
		return r.more(), true
	case "again":
		return r.again(a), true
	case "quiet", "normal", "all":
		r.detail = detail(slices.Index(detailNames[:], name))
		return []string{detailText(r.detail)}, true
	case "help":
		return r.help(a), true
	case "":
		return []string{a.idle()}, a.open == nil
	}
	for _, w := range readerWords {
		if w.name == name {
			r.rest = nil // of an older answer
			return r.announce(w.say(s, strings.TrimSpace(arg), now)), true
		}
	}
	return nil, false
}

func detailText(d detail) string {
	switch d {
	case detailQuiet:
		return "quiet: questions, incidents and recoveries only are said unasked"
	case detailAll:
		return "all: every event is said"
	case detailNormal:
	}
	return "normal: warnings are said too"
}

func (r *reader) more() []string {
	if len(r.rest) == 0 {
		return []string{"there is no more"}
	}
	lines := r.rest
	r.rest = nil
	return r.announce(lines)
}

// again says the last announcement, and the open question after it.
func (r *reader) again(a *asker) []string {
	out := slices.Clone(r.last)
	if a.open != nil && a.open.step == choose {
		out = append(out, a.open.choices())
	}
	if len(out) == 0 {
		return []string{"nothing was said so far"}
	}
	return out
}

func (r *reader) help(a *asker) []string {
	out := []string{"a question is answered by its number, then enter; cancel goes back to its numbers"}
	for _, w := range readerWords {
		out = append(out, w.usage+": "+w.help)
	}
	r.rest = nil
	return r.announce(append(out,
		"status: how things are, in one line",
		"more: the lines that were too many at once",
		"again: what was said last",
		"quiet, normal, all: how much is said unasked; now it is "+detailNames[r.detail],
		"quit: leaves"+a.freezeHelp(),
	))
}

func (a *asker) freezeHelp() string {
	if a.may("operator") {
		return "; freeze: stops new actions at once"
	}
	return ""
}
