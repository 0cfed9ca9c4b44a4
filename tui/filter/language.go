package filter

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Language is what can be asked of one kind of subject. The grammar is the same for all.
type Language[S any] struct {
	Fields   map[string]Field[S]  // name:value
	Numbers  map[string]Number[S] // name>10
	Word     func(text string) func(*S) bool
	Examples map[string]string // of fields, for errors

	costs map[string]int // of fields that need more than what is at hand
}

// Field reads the value of a field.
type Field[S any] func(name, value string) (func(*S) bool, error)

// Number is a measured value with the units that may follow it.
type Number[S any] struct {
	Units []string
	Of    func(*S) (x float64, ok bool)
}

// Parse reads a filter; nil for blank text, which chooses all.
func (l *Language[S]) Parse(text string) (func(*S) bool, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("%w: it is longer than %d characters; shorten it", ErrFilter, MaxText)
	}
	p := parser[S]{splitTokens(text), l}
	if len(p.tokens) == 0 {
		return nil, nil
	}
	m, err := p.parseOr()
	if err == nil && len(p.tokens) > 0 {
		err = errors.New("a \")\" closes nothing; remove it, or open one with \"(\" before it")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFilter, err)
	}
	return m.holds, nil
}

// parseTerm reads field:value, a comparison, or a bare word.
func (l *Language[S]) parseTerm(t string) (test[S], error) {
	at := strings.IndexAny(t, ":<>=")
	if at < 0 {
		return test[S]{l.Word(t), byText}, nil
	}
	name := strings.ToLower(t[:at])
	rest := t[at:]
	if n, ok := l.Numbers[name]; ok {
		m, err := comparison(name, n, rest)
		return test[S]{m, byView}, err
	}
	if rest[0] != ':' && !(rest[0] == '=' && len(rest) > 1) {
		return test[S]{}, fmt.Errorf("%q can't be compared; the fields that can are %s",
			t[:at], sortedNames(l.Numbers))
	}
	value := strings.ToLower(rest[1:])
	field, ok := l.Fields[name]
	if !ok {
		return test[S]{}, fmt.Errorf("there is no field %q; there are %s, and to compare %s",
			t[:at], sortedNames(l.Fields), sortedNames(l.Numbers))
	}
	if value == "" {
		return test[S]{}, fmt.Errorf("%s: lacks its value; write it without a space, as %s",
			name, l.Examples[name])
	}
	m, err := field(name, value)
	return test[S]{m, l.costs[name]}, err
}

func sortedNames[V any](m map[string]V) string {
	list := make([]string, 0, len(m))
	for n := range m {
		list = append(list, n)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// OneOf reads a word of a table, and lists of them with commas.
func OneOf[S any](table map[string]func(*S) bool) Field[S] {
	return func(name, value string) (func(*S) bool, error) {
		var out func(*S) bool
		for _, part := range strings.Split(value, ",") {
			m, ok := table[part]
			if !ok {
				return nil, fmt.Errorf("%s: can't be %q; it is one of %s", name, part, sortedNames(table))
			}
			if out == nil {
				out = m
			} else {
				out = eitherOf(out, m)
			}
		}
		return out, nil
	}
}

// Globs reads names with * and ?, and lists of them with commas.
func Globs[S any](of func(*S) string) Field[S] {
	return func(_, value string) (func(*S) bool, error) {
		p := &patterns{strings.Split(value, ",")}
		return func(s *S) bool { return p.matchAny(of(s)) }, nil
	}
}

// Holds reports whether s has a text in it, letters in either case.
func Holds(s, text string) bool {
	return containsFold(s, strings.ToLower(text))
}

var compare = map[string]func(a, b float64) bool{
	">":  func(a, b float64) bool { return a > b },
	">=": func(a, b float64) bool { return a >= b },
	"<":  func(a, b float64) bool { return a < b },
	"<=": func(a, b float64) bool { return a <= b },
	"=":  func(a, b float64) bool { return a == b },
	":":  func(a, b float64) bool { return a == b },
}

// comparison reads an operator and a number with or without its unit.
func comparison[S any](name string, n Number[S], rest string) (func(*S) bool, error) {
	value := strings.TrimLeft(rest, ":<>=")
	holds, ok := compare[rest[:len(rest)-len(value)]]
	value = strings.ToLower(value) // after the cut: invalid UTF-8 grows by it
	for _, u := range n.Units {
		value = strings.TrimSuffix(value, u)
	}
	x, err := strconv.ParseFloat(value, 64)
	if !ok || err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return nil, fmt.Errorf("%s%s compares with no number; write it without spaces, as %s>10 or %s<=10",
			name, rest, name, name)
	}
	return func(s *S) bool {
		v, ok := n.Of(s)
		return ok && holds(v, x)
	}, nil
}
