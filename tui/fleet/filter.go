package fleet

import (
	"strings"

	"github.com/failslow/falcon/tui/filter"
)

// Filter chooses rows; the zero value chooses all.
type Filter struct {
	text  string
	match func(*Row) bool
}

// Text is what the filter was parsed from, without blanks around it.
func (f Filter) Text() string { return f.text }

// Match reports whether a row is chosen.
func (f Filter) Match(r *Row) bool {
	return f.match == nil || f.match(r)
}

// ParseFilter reads a filter, such as "state:slow lost>1 !is:seen"; blank text chooses all. The
// grammar is that of filters of ranks, and so are its errors.
func ParseFilter(text string) (Filter, error) {
	m, err := language.Parse(text)
	if err != nil || m == nil {
		return Filter{}, err
	}
	return Filter{strings.TrimSpace(text), m}, nil
}

var language = filter.Language[Row]{
	Fields: map[string]filter.Field[Row]{
		"state": filter.OneOf(classMatches()),
		"is":    filter.OneOf(traits),
		"job":   jobGlobs,
		"owner": filter.Globs(ownerOf),
	},
	Numbers: map[string]filter.Number[Row]{
		"slow": {
			Units: []string{"%"},
			Of: func(r *Row) (float64, bool) {
				return 100 * r.Slowdown, r.News >= 0
			},
		},
		"ranks": {Of: func(r *Row) (float64, bool) {
			return float64(r.World()), r.News >= 0
		}},
		"lost": {
			Units: []string{"h"},
			Of: func(r *Row) (float64, bool) {
				return r.Lost, r.News >= 0
			},
		},
		"open": {Of: func(r *Row) (float64, bool) {
			return float64(r.State.Snap.GetBrief().GetOpen()), r.News >= 0
		}},
		"news": {
			Units: []string{"s"},
			Of: func(r *Row) (float64, bool) {
				return r.News.Seconds(), r.News >= 0
			},
		},
	},
	Word: bareWord,
	Examples: map[string]string{
		"state": "state:slow",
		"is":    "is:waiting",
		"job":   "job:llm*",
		"owner": "owner:lee",
	},
}

func classMatches() map[string]func(*Row) bool {
	out := map[string]func(*Row) bool{}
	for c := range classes {
		out[c.String()] = func(r *Row) bool { return r.Class == c }
	}
	return out
}

// traits are what a job can be beyond its state.
var traits = map[string]func(*Row) bool{
	"waiting": (*Row).NeedsPerson,
	"mine": func(r *Row) bool {
		return r.NeedsPerson() && r.Waits[0].Whom == "you"
	},
	"trouble": func(r *Row) bool { return r.Class < Connecting },
	"seen":    isSeen,
	"older": func(r *Row) bool {
		return strings.HasPrefix(r.Version(), "older")
	},
	"here": func(r *Row) bool { return r.Found },
}

// isSeen reports whether a person has seen every incident that is listed.
func isSeen(r *Row) bool {
	snap := r.State.Snap
	return len(snap.GetIncidents()) > 0 &&
		len(snap.GetTriage()) == len(snap.GetIncidents()) &&
		allSeen(r)
}

func allSeen(r *Row) bool {
	for _, t := range r.State.Snap.GetTriage() {
		if t.GetAckedBy() == "" {
			return false
		}
	}
	return true
}

func ownerOf(r *Row) string {
	for _, t := range r.State.Snap.GetTriage() {
		if t.GetOwner() != "" {
			return t.GetOwner()
		}
	}
	return ""
}

// jobGlobs is globs on what this console calls a job, and on what its engine does.
func jobGlobs(name, value string) (func(*Row) bool, error) {
	here, err := filter.Globs(func(r *Row) string { return r.Name })(name, value)
	if err != nil {
		return nil, err
	}
	there, err := filter.Globs((*Row).JobName)(name, value)
	return func(r *Row) bool { return here(r) || there(r) }, err
}

// bareWord seeks a text in names, state and what is the matter.
func bareWord(text string) func(*Row) bool {
	return func(r *Row) bool {
		return filter.Holds(r.Name, text) ||
			filter.Holds(r.JobName(), text) ||
			filter.Holds(r.Class.String(), text) ||
			filter.Holds(r.What(), text)
	}
}
