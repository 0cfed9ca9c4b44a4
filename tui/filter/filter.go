// Package filter is the console's language for choosing ranks:
//
//	stage:3 replica:2 tp:0-1 rank:100-199 host:n02* device:n1.g0
//	state:slow is:culprit slow>10% self>1.2 temp>80 clock<1200 cnp>1000 wait>5
//	!is:stale (host:n1 | host:n2) slow
//
// Terms beside each other must all hold, "|" is or, "!" negates, parentheses
// group. A bare word is sought in a rank's device, state and number. What was
// not measured meets no comparison.
//
// Parse guarantees that an error is one sentence with the remedy, and that
// matching never fails and allocates nothing. Pure; no I/O, no goroutines.
package filter

import (
	"errors"
	"fmt"
	"strings"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// ErrFilter is wrapped by every error about a filter.
var ErrFilter = errors.New("filter")

// MaxText bounds a filter's length in bytes, and with it the depth of its
// parentheses.
const MaxText = 512

// Subject is one rank as filters see it.
type Subject struct {
	Rank   int32
	TP     int                // tensor-parallel coordinate
	DP     int                // replica
	PP     int                // stage
	View   *falconv1.RankView // nil where nothing is known
	State  string             // "ok", "slow", "culprit", "stale", "lost", "fenced", "unknown", "finished"
	Picked bool
}

// Filter chooses ranks; the zero value chooses all.
type Filter struct {
	text  string
	match func(*Subject) bool
}

// Text is what the filter was parsed from.
func (f Filter) Text() string { return f.text }

// Empty says that the filter chooses all.
func (f Filter) Empty() bool { return f.match == nil }

// Match says whether a rank is chosen.
func (f Filter) Match(s *Subject) bool { return f.match == nil || f.match(s) }

// Parse reads a filter; blank text chooses all.
func Parse(text string) (Filter, error) {
	if len(text) > MaxText {
		return Filter{}, fmt.Errorf("%w: it is longer than %d characters; shorten it", ErrFilter, MaxText)
	}
	p := parser{tokens: split(text)}
	if len(p.tokens) == 0 {
		return Filter{}, nil
	}
	m, err := p.or()
	if err == nil && len(p.tokens) > 0 {
		err = errors.New("a \")\" closes nothing; remove it, or open one with \"(\" before it")
	}
	if err != nil {
		return Filter{}, fmt.Errorf("%w: %w", ErrFilter, err)
	}
	return Filter{text, m}, nil
}

// split cuts text into "(", ")", "|", "!" and terms.
func split(text string) []string {
	var out []string
	for _, word := range strings.Fields(text) {
		for word != "" {
			n := strings.IndexAny(word, "()|")
			switch {
			case word[0] == '!':
				n = 1
			case n < 0:
				n = len(word)
			case n == 0:
				n = 1
			}
			out, word = append(out, word[:n]), word[n:]
		}
	}
	return out
}

type match = func(*Subject) bool

type parser struct{ tokens []string }

func (p *parser) next() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *parser) take() { p.tokens = p.tokens[1:] }

func (p *parser) or() (match, error) {
	left, err := p.and()
	for err == nil && p.next() == "|" {
		p.take()
		var right match
		if right, err = p.and(); err == nil {
			left = either(left, right)
		}
	}
	return left, err
}

func (p *parser) and() (match, error) {
	left, err := p.unary()
	for err == nil && p.next() != "" && p.next() != "|" && p.next() != ")" {
		var right match
		if right, err = p.unary(); err == nil {
			left = both(left, right)
		}
	}
	return left, err
}

func (p *parser) unary() (match, error) {
	t := p.next()
	switch t {
	case "", "|", ")":
		return nil, errors.New("a term is missing at the end or beside \"|\", \"!\" or \"(\"; write one there, as slow>10% or host:n2")
	case "!":
		p.take()
		m, err := p.unary()
		return not(m), err
	case "(":
		p.take()
		m, err := p.or()
		if err == nil && p.next() != ")" {
			err = errors.New("a \"(\" is never closed; add \")\"")
		}
		if err == nil {
			p.take()
		}
		return m, err
	}
	p.take()
	return term(t)
}

func either(a, b match) match { return func(s *Subject) bool { return a(s) || b(s) } }
func both(a, b match) match   { return func(s *Subject) bool { return a(s) && b(s) } }
func not(a match) match       { return func(s *Subject) bool { return !a(s) } }
