package filter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Incidents are chosen with terms of the same form, all of which must hold:
//
//	state:open class:gpu* node:n1* device:n1.g0 since:24h until:2026-11-25 !fan

// Case is one incident as filters see it.
type Case struct {
	Text    string   // id, cause in words and times, where a bare word is sought
	Class   string   // "gpu_degradation", …
	State   string   // "open", "ended"
	Places  []string // devices, links and ports
	Nodes   []string
	BeganNs int64
	EndedNs int64 // 0 = it lasts
}

// Cases chooses incidents; the zero value chooses all.
type Cases struct {
	terms []caseTerm
}

type caseTerm struct {
	not   bool
	holds func(*Case) bool
}

// Match reports whether an incident is chosen.
func (f Cases) Match(c *Case) bool {
	return !slices.ContainsFunc(f.terms, func(t caseTerm) bool {
		return t.holds(c) == t.not
	})
}

// ParseCases reads a filter of incidents; blank text chooses all. Times are of a zone, nil = UTC.
func ParseCases(text string, now time.Time, zone *time.Location) (Cases, error) {
	if len(text) > MaxText {
		return Cases{}, fmt.Errorf("%w: it is longer than %d characters; shorten it", ErrFilter, MaxText)
	}
	var out Cases
	not := false
	for _, word := range splitTokens(text) {
		switch word {
		case "!":
			not = !not
			continue
		case "(", ")", "|":
			return Cases{}, fmt.Errorf(
				"%w: %s has no meaning among incidents; write terms beside each other, all of them hold",
				ErrFilter, word,
			)
		}
		holds, err := caseTermOf(word, now, cmp.Or(zone, time.UTC))
		if err != nil {
			return Cases{}, fmt.Errorf("%w: %w", ErrFilter, err)
		}
		out.terms = append(out.terms, caseTerm{not, holds})
		not = false
	}
	return out, nil
}

var caseExamples = map[string]string{
	"state": "state:open", "class": "class:gpu*", "node": "node:n1*", "device": "device:n1.g0",
	"since": "since:24h", "until": "until:2026-11-25",
}

func caseTermOf(word string, now time.Time, zone *time.Location) (func(*Case) bool, error) {
	name, value, named := strings.Cut(strings.ToLower(word), ":")
	if !named {
		return func(c *Case) bool {
			return strings.Contains(strings.ToLower(c.Text+" "+strings.Join(c.Places, " ")), name)
		}, nil
	}
	example, known := caseExamples[name]
	switch {
	case !known:
		return nil, fmt.Errorf("there is no field %q; there are %s", name, sortedNames(caseExamples))
	case value == "":
		return nil, fmt.Errorf("%s: lacks its value; write it without a space, as %s", name, example)
	}
	globs := &patterns{strings.Split(value, ",")}
	switch name {
	case "state":
		if value != "open" && value != "ended" {
			return nil, fmt.Errorf("state: takes open or ended, not %q", value)
		}
		return func(c *Case) bool { return c.State == value }, nil
	case "class":
		return func(c *Case) bool {
			return globs.matchAny(strings.ToLower(c.Class))
		}, nil
	case "node":
		return func(c *Case) bool {
			return slices.ContainsFunc(c.Nodes, func(n string) bool {
				return globs.matchAny(strings.ToLower(n))
			})
		}, nil
	case "device":
		return func(c *Case) bool {
			return slices.ContainsFunc(slices.Concat(c.Places, c.Nodes), func(p string) bool {
				return globs.matchAny(strings.ToLower(p))
			})
		}, nil
	}
	at, err := momentOf(value, now, zone)
	if err != nil {
		return nil, fmt.Errorf("%s: takes a time ago such as 24h or 7d, or a date such as 2026-11-25, not %q",
			name, value)
	}
	if name == "until" {
		return func(c *Case) bool { return c.BeganNs < at.UnixNano() }, nil
	}
	return func(c *Case) bool {
		return c.EndedNs == 0 || c.EndedNs >= at.UnixNano()
	}, nil
}

// daysMost bounds a number of days.
const daysMost = 36500

// momentOf is a time ago, a date, or a date with a time.
func momentOf(value string, now time.Time, zone *time.Location) (time.Time, error) {
	var days int
	if n, err := fmt.Sscanf(value, "%dd", &days); n == 1 &&
		err == nil &&
		value == fmt.Sprintf("%dd", days) &&
		days >= 0 &&
		days <= daysMost {
		return now.AddDate(0, 0, -days), nil
	}
	if d, err := time.ParseDuration(value); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if at, err := time.ParseInLocation("2006-01-02", value, zone); err == nil {
		return at, nil
	}
	return time.ParseInLocation("2006-01-02t15:04", value, zone)
}
