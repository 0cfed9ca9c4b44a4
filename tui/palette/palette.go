// Package palette is the list behind ":": what can be done here, searched by
// what was typed.
//
// It guarantees that the entry under the cursor is the one that enter takes,
// that a name's beginning comes before another word for it, and that before letters scattered over
// a name, and that
// equal matches keep the order in which they were given. It holds data and
// runs nothing; whoever owns it decides what an entry does. No I/O, no
// goroutines.
package palette

import (
	"slices"
	"strings"

	"github.com/sahilm/fuzzy"

	"github.com/failslow/falcon/tui/key"
)

// Entry is one line of the palette.
type Entry struct {
	Name   string     // what is searched and shown: "zoom in", "rank N"
	Key    string     // the key that does the same, or ""
	Text   string     // a sentence
	Action key.Action // what it does; none for a command
	Fill   string     // what a command puts into the prompt, such as "rank "
	Also   []string   // other words for it, in lower case
}

// Match is an entry that fits what was typed.
type Match struct {
	Entry
	At []int // bytes of Name that were matched
}

// List is the palette's state.
type List struct {
	all    []Entry
	shown  []Match
	cursor int
}

// New lists entries, with nothing typed yet.
func New(all []Entry) *List {
	l := &List{all: all}
	l.Search("")
	return l
}

// Search shows what fits the text, best first, with the cursor on the best.
// A command that is typed with what follows it fits alone.
func (l *List) Search(text string) {
	l.cursor = 0
	text = strings.ToLower(strings.TrimLeft(text, " "))
	if c, ok := l.commandMatch(text); ok {
		l.shown = []Match{{Entry: c}}
		return
	}
	text = strings.TrimSpace(text)
	if text == "" {
		l.shown = plainMatch(l.all)
		return
	}
	first := []Match{}
	begins := []Match{}
	also := []Match{}
	named := []Match{}
	rest := []Match{}
	found := map[int]bool{}
	for _, m := range fuzzy.FindFrom(text, names(l.all)) {
		found[m.Index] = true
		e := (Match{l.all[m.Index], m.MatchedIndexes})
		if !strings.HasPrefix(strings.ToLower(e.Name), text) && !e.alsoCalled(text) {
			named = append(named, e)
		}
	}
	for i, e := range l.all {
		switch {
		case text+" " == e.Fill: // a command's whole name
			first = append(first, Match{e, matchUpTo(len(text))})
		case strings.HasPrefix(strings.ToLower(e.Name), text):
			begins = append(begins, Match{e, matchUpTo(len(text))})
		case e.alsoCalled(text):
			also = append(also, Match{Entry: e})
		case !found[i] && strings.Contains(strings.ToLower(e.Text), text):
			rest = append(rest, Match{Entry: e})
		}
	}
	l.shown = slices.Concat(first, begins, also, named, rest)
}

// alsoCalled reports whether another word for an entry begins with a text.
func (e *Entry) alsoCalled(text string) bool {
	return slices.ContainsFunc(e.Also, func(word string) bool {
		return strings.HasPrefix(word, text)
	})
}

// commandMatch is the command that a text begins with, once its name is complete.
func (l *List) commandMatch(text string) (Entry, bool) {
	for _, e := range l.all {
		if e.Fill != "" && strings.HasPrefix(text, e.Fill) {
			return e, true
		}
	}
	return Entry{}, false
}

// names is what the entries are searched by.
type names []Entry

func (n names) String(i int) string { return n[i].Name }
func (n names) Len() int            { return len(n) }

func plainMatch(all []Entry) []Match {
	out := make([]Match, len(all))
	for i, e := range all {
		out[i].Entry = e
	}
	return out
}

func matchUpTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// Move moves the cursor, and stops at the ends.
func (l *List) Move(by int) {
	l.cursor = max(0, min(len(l.shown)-1, l.cursor+by))
}

// Choose puts the cursor on a line, counted from the first that fits.
func (l *List) Choose(i int) {
	if i >= 0 && i < len(l.shown) {
		l.cursor = i
	}
}

// Chosen is the entry under the cursor.
func (l *List) Chosen() (Entry, bool) {
	if l.cursor >= len(l.shown) {
		return Entry{}, false
	}
	return l.shown[l.cursor].Entry, true
}

// Cursor is the line under the cursor, counted from the first that fits.
func (l *List) Cursor() int { return l.cursor }

// Len is how many entries fit.
func (l *List) Len() int { return len(l.shown) }

// Window is what a list of so many rows shows, and the number of its first.
func (l *List) Window(rows int) (list []Match, first int) {
	rows = max(0, min(rows, len(l.shown)))
	first = max(0, min(l.cursor-rows/2, len(l.shown)-rows))
	return l.shown[first : first+rows], first
}
