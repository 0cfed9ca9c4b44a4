// Package filter is the console's language for choosing ranks, and its grammar that of others:
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
	"slices"
	"strings"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// ErrFilter is wrapped by every error about a filter.
var ErrFilter = errors.New("filter")

// MaxText bounds a filter's length in bytes, and so the depth of its parentheses.
const MaxText = 512

// Subject is one rank as filters see it.
type Subject struct {
	Rank int32
	TP   int                // tensor-parallel coordinate
	DP   int                // replica
	PP   int                // stage
	View *falconv1.RankView // nil where nothing is known
	// "ok", "slow", "culprit", "stale", "lost", "fenced", "unknown", "finished", "ended", "parked"
	State  string
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

// Empty reports whether the filter chooses all.
func (f Filter) Empty() bool { return f.match == nil }

// ByPicks reports whether the choice may depend on the operator's picks.
func (f Filter) ByPicks() bool {
	return strings.Contains(strings.ToLower(f.text), "picked")
}

// Match reports whether a rank is chosen.
func (f Filter) Match(s *Subject) bool {
	return f.match == nil || f.match(s)
}

// Parse reads a filter; blank text chooses all.
func Parse(text string) (Filter, error) {
	m, err := ranks.Parse(text)
	if err != nil || m == nil {
		return Filter{}, err
	}
	return Filter{strings.TrimSpace(text), m}, nil
}

// splitTokens cuts text into "(", ")", "|", "!" and terms.
func splitTokens(text string) []string {
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
			out = append(out, word[:n])
			word = word[n:]
		}
	}
	return out
}

type match = func(*Subject) bool

// test is a match and what it costs, so that cheap ones are asked first.
type test[S any] struct {
	holds func(*S) bool
	cost  int
}

// The costs.
const (
	byPlace = iota // layout and state, at hand
	byView         // fetches the rank's view
	byName         // and its device's name
	byText         // and searches it
)

type parser[S any] struct {
	tokens   []string
	language *Language[S]
}

func (p *parser[S]) nextToken() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *parser[S]) takeToken() {
	p.tokens = p.tokens[1:]
}

func (p *parser[S]) parseOr() (test[S], error) {
	list, err := p.parseList(p.parseAnd, func() bool {
		more := p.nextToken() == "|"
		if more {
			p.takeToken()
		}
		return more
	})
	return joinTerms(list, eitherOf[S]), err
}

func (p *parser[S]) parseAnd() (test[S], error) {
	list, err := p.parseList(p.parseUnary, func() bool {
		return p.nextToken() != "" && p.nextToken() != "|" && p.nextToken() != ")"
	})
	return joinTerms(list, bothOf[S]), err
}

// parseList reads one test, and others while there are more.
func (p *parser[S]) parseList(read func() (test[S], error), more func() bool) (list []test[S], err error) {
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

// joinTerms makes one test of several, the cheapest first; tests have no effects, so
// that their order changes nothing else.
func joinTerms[S any](list []test[S], two func(a, b func(*S) bool) func(*S) bool) test[S] {
	if len(list) == 0 {
		return test[S]{}
	}
	slices.SortStableFunc(list, func(a, b test[S]) int {
		return cmp.Compare(a.cost, b.cost)
	})
	out := list[len(list)-1]
	for i := len(list) - 2; i >= 0; i-- {
		out = test[S]{two(list[i].holds, out.holds), out.cost}
	}
	return out
}

func (p *parser[S]) parseUnary() (test[S], error) {
	t := p.nextToken()
	switch t {
	case "", "|", ")":
		return test[S]{}, errors.New(
			"a term is missing at the end or beside \"|\", \"!\" or \"(\"; write one there, as slow>10% or host:n2",
		)
	case "!":
		p.takeToken()
		m, err := p.parseUnary()
		return test[S]{negated(m.holds), m.cost}, err
	case "(":
		p.takeToken()
		m, err := p.parseOr()
		if err == nil && p.nextToken() != ")" {
			err = errors.New("a \"(\" is never closed; add \")\"")
		}
		if err == nil {
			p.takeToken()
		}
		return m, err
	}
	p.takeToken()
	return p.language.parseTerm(t)
}

func eitherOf[S any](a, b func(*S) bool) func(*S) bool {
	return func(s *S) bool { return a(s) || b(s) }
}

func bothOf[S any](a, b func(*S) bool) func(*S) bool {
	return func(s *S) bool { return a(s) && b(s) }
}

func negated[S any](a func(*S) bool) func(*S) bool {
	return func(s *S) bool { return !a(s) }
}
