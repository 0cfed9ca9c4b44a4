package posterior

import (
	"slices"
	"strings"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// ruleRoom is what a rule needs around its title and what stands at its right.
const ruleRoom = 9

// legend is how a mark is explained, and in short where there is little room: each sign on screen is.
type legend struct{ what, words, short string }

var markLegends = []legend{
	{"onset", "▼ onset", "▼ onset"},
	{"applied", "A applied", "A on"},
	{"reverted", "R reverted", "R off"},
	{"relief", "✓ relief", "✓ well"},
	{"epoch", "E new epoch", "E epoch"},
	{"engine", "e engine restart", "e engine"},
}

var decisionLegends = []legend{
	{"shift", "s small shift", "s shift"},
	{"early", "w early window", "w early"},
	{"reference", "r held against the level", "r level"},
	{"throughput", "t throughput", "t rate"},
	{"windows", "p profiles", "p profile"},
}

// markWords explain the marks that are on screen, and those of decisions that there are.
func markWords(v view, short bool) string {
	var words []string
	add := func(x legend) {
		if short {
			words = append(words, x.short)
		} else {
			words = append(words, x.words)
		}
	}
	for _, x := range markLegends {
		if slices.ContainsFunc(v.s.GetMarks(), func(m *falconv1.Mark) bool {
			return m.Kind == x.what && v.holdsIteration(m.Iteration)
		}) {
			add(x)
		}
	}
	for _, x := range decisionLegends {
		if slices.ContainsFunc(v.s.GetDecisions(), func(d *falconv1.ChangeDecision) bool {
			return d.By == x.what
		}) {
			add(x)
		}
	}
	if slices.ContainsFunc(v.s.GetDecisions(), func(d *falconv1.ChangeDecision) bool {
		return len(d.GetFilter().GetRemoved()) > 0
	}) {
		add(legend{"", "× removed", "× removed"})
	}
	if short {
		return strings.Join(words, " ")
	}
	return strings.Join(words, "  ")
}
