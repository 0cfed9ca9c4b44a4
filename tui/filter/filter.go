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
	"cmp"
	"errors"
	"fmt"
	"slices"
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

	node lastNode // ranks of a node come one after another
}

// Filter chooses ranks; the zero value chooses all.
type Filter struct {
	text  string
	match func(*Subject) bool
}

// Text is what the filter was parsed from, without blanks around it.
func (f Filter) Text() string { return f.text }

// Empty says that the filter chooses all.
func (f Filter) Empty() bool { return f.match == nil }

// ByPicks says that what is chosen may depend on the operator's picks, not on
// the snapshot alone.
func (f Filter) ByPicks() bool { return strings.Contains(strings.ToLower(f.text), "picked") }

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
	return Filter{strings.TrimSpace(text), m.holds}, nil
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

// test is a match and what it costs, so that cheap ones are asked first.
type test struct {
	holds match
	cost  int
}

// The costs.
const (
	byPlace = iota // layout and state, at hand
	byView         // fetches the rank's view
	byName         // and its device's name
	byText         // and searches it
)

type parser struct{ tokens []string }

func (p *parser) next() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *parser) take() { p.tokens = p.tokens[1:] }

func (p *parser) or() (test, error) {
	list, err := p.list(p.and, func() bool {
		more := p.next() == "|"
		if more {
			p.take()
		}
		return more
	})
	return join(list, either), err
}

func (p *parser) and() (test, error) {
	list, err := p.list(p.unary, func() bool { return p.next() != "" && p.next() != "|" && p.next() != ")" })
	return join(list, both), err
}

// list reads one test, and others while there are more.
func (p *parser) list(read func() (test, error), more func() bool) (list []test, err error) {
	for {
		t, err := read()
		if err != nil {
			return nil, err
		}
		if list = append(list, t); !more() {
			return list, nil
		}
	}
}

// join makes one test of several, the cheapest first; tests have no effects, so
// that their order changes nothing else.
func join(list []test, two func(a, b match) match) test {
	if len(list) == 0 {
		return test{}
	}
	slices.SortStableFunc(list, func(a, b test) int { return cmp.Compare(a.cost, b.cost) })
	out := list[len(list)-1]
	for i := len(list) - 2; i >= 0; i-- {
		out = test{two(list[i].holds, out.holds), out.cost}
	}
	return out
}

func (p *parser) unary() (test, error) {
	t := p.next()
	switch t {
	case "", "|", ")":
		return test{}, errors.New("a term is missing at the end or beside \"|\", \"!\" or \"(\"; write one there, as slow>10% or host:n2")
	case "!":
		p.take()
		m, err := p.unary()
		return test{not(m.holds), m.cost}, err
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
