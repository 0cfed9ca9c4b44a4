package filter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/tui/roster"
)

// ranks is the language of ranks.
var ranks = Language[Subject]{
	Fields:   fields,
	Numbers:  numbers,
	Word:     bareWordTerm,
	Examples: examples,
	costs:    map[string]int{"host": byName, "device": byName},
}

var fields = map[string]Field[Subject]{
	"stage":   parseRanges(func(s *Subject) int { return s.PP }),
	"replica": parseRanges(func(s *Subject) int { return s.DP }),
	"tp":      parseRanges(func(s *Subject) int { return s.TP }),
	"rank":    parseRanges(func(s *Subject) int { return int(s.Rank) }),
	"host":    hostGlobs,
	"device":  Globs(deviceOf),
	"state":   OneOf(states),
	"is":      OneOf(traits),
}

var examples = map[string]string{
	"stage": "stage:3", "replica": "replica:0-7", "tp": "tp:0", "rank": "rank:100-199",
	"host": "host:n02*", "device": "device:n1.g0", "state": "state:slow", "is": "is:culprit",
}

func deviceOf(s *Subject) string { return s.View.GetDevice() }

// span is a range of numbers, both ends included.
type span struct{ from, to int }

// parseRanges reads "3", "0-7" and lists of them with commas.
func parseRanges(of func(*Subject) int) func(name, value string) (match, error) {
	return func(name, value string) (match, error) {
		var spans []span
		for _, part := range strings.Split(value, ",") {
			a, b, two := strings.Cut(part, "-")
			from, err := strconv.ParseUint(a, 10, 31)
			to := from
			if err == nil && two {
				to, err = strconv.ParseUint(b, 10, 31)
			}
			if err != nil || to < from {
				return nil, fmt.Errorf(
					"%s:%s names no numbers; write one, a range or a list, as %s:3, %s:0-7 or %s:1,4-6",
					name, value, name, name, name,
				)
			}
			spans = append(spans, span{int(from), int(to)})
		}
		return func(s *Subject) bool {
			n := of(s)
			return slices.ContainsFunc(spans, func(p span) bool {
				return p.from <= n && n <= p.to
			})
		}, nil
	}
}

// lastNode is what a term has said of the node that it saw last.
type lastNode struct {
	term  *patterns
	name  string
	found bool
}

type patterns struct{ list []string }

func (p *patterns) matchAny(name string) bool {
	return name != "" &&
		slices.ContainsFunc(p.list, func(g string) bool { return matchGlob(g, name) })
}

// hostGlobs is globs on node names; it matches once for neighbouring ranks of a node.
func hostGlobs(_, value string) (match, error) {
	p := &patterns{strings.Split(value, ",")}
	return func(s *Subject) bool {
		name := roster.NodeOf(deviceOf(s))
		if s.node.term != p || s.node.name != name {
			s.node = lastNode{p, name, p.matchAny(name)}
		}
		return s.node.found
	}, nil
}

// matchGlob matches a lower-case pattern of *, ? and characters, whatever the case of s.
func matchGlob(pattern, s string) bool {
	i, star, mark := 0, -1, 0
	for j := 0; j < len(s); {
		switch {
		case i < len(pattern) && pattern[i] == '*':
			if star, mark = i, j; i+1 == len(pattern) {
				return true
			}
			i++
		case i < len(pattern) && (pattern[i] == '?' || pattern[i] == lowerASCII(s[j])):
			i++
			j++
		case star >= 0:
			mark++
			i = star + 1
			j = mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[i:], "*") == ""
}

func lowerASCII(b byte) byte {
	if b >= 'A' && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// containsFold seeks a lower-case text in s, letters in either case.
func containsFold(s, text string) bool {
	for i := 0; i+len(text) <= len(s); i++ {
		j := 0
		for j < len(text) && lowerASCII(s[i+j]) == text[j] {
			j++
		}
		if j == len(text) {
			return true
		}
	}
	return false
}

// bareWordTerm seeks a text in a rank's device, state and number.
func bareWordTerm(t string) match {
	text := strings.ToLower(t)
	any, number := strings.Contains("rank", text), strings.Trim(text, "0123456789") == ""
	return func(s *Subject) bool {
		if any || strings.Contains(s.State, text) || containsFold(deviceOf(s), text) {
			return true
		}
		if !number {
			return false
		}
		var digits [12]byte
		return containsFold(string(strconv.AppendInt(digits[:0], int64(s.Rank), 10)), text)
	}
}

func hasState(state string) match {
	return func(s *Subject) bool { return s.State == state }
}

var states = map[string]match{
	"ok":       hasState("ok"),
	"slow":     hasState("slow"),
	"culprit":  hasState("culprit"),
	"stale":    hasState("stale"),
	"lost":     hasState("lost"),
	"fenced":   hasState("fenced"),
	"unknown":  hasState("unknown"),
	"finished": hasState("finished"),
	"ended":    hasState("ended"),
	"parked":   hasState("parked"),
	"link-end": hasState(linkEnd),
}

// traits are what a rank can be beyond its state.
var traits = map[string]match{
	"culprit": hasState("culprit"),
	"slow":    hasState("slow"),
	"stale":   hasState("stale"),
	"lost":    hasState("lost"),
	"fenced":  hasState("fenced"),
	"anomaly": func(s *Subject) bool {
		return s.State != "ok" &&
			s.State != "finished" &&
			s.State != "ended" &&
			s.State != "parked"
	},
	"suspect": func(s *Subject) bool {
		return s.State == "culprit" || s.State == linkEnd || s.State == "slow"
	},
	"failing": func(s *Subject) bool { return s.View.GetFailing() },
	"picked":  func(s *Subject) bool { return s.Picked },
}

var numbers = withGauges(map[string]Number[Subject]{
	"slow": {[]string{"%"}, func(s *Subject) (float64, bool) {
		return 100 * s.View.GetSlowdown(), s.View.GetMs() > 0
	}},
	"self": {[]string{"x", "×"}, func(s *Subject) (float64, bool) {
		return s.View.GetSelfRatio(), s.View.GetSelfRatio() > 0
	}},
	"wait": {[]string{"ms"}, func(s *Subject) (float64, bool) {
		return s.View.GetWaitMs(), s.View.GetSelfRatio() > 0 || s.View.GetWaitMs() > 0
	}},
	"ms": {[]string{"ms"}, func(s *Subject) (float64, bool) {
		return s.View.GetMs(), s.View.GetMs() > 0
	}},
	"temp": {[]string{"°c", "c"}, func(s *Subject) (float64, bool) {
		return float64(s.View.GetTemperatureC()), s.View.GetTemperatureC() > 0
	}},
	"clock": {[]string{"mhz"}, func(s *Subject) (float64, bool) {
		return float64(s.View.GetSmClockMhz()), s.View.GetSmClockMhz() > 0
	}},
	"busy": {[]string{"%"}, func(s *Subject) (float64, bool) {
		return share(s.View.GetBusy())
	}},
	"sm": {[]string{"%"}, func(s *Subject) (float64, bool) {
		return share(s.View.GetSmBusy())
	}},
	"cnp": {[]string{"/s"}, func(s *Subject) (float64, bool) {
		return s.View.GetCnpPerS(), s.View != nil && s.View.CnpPerS >= 0
	}},
	"level": {nil, func(s *Subject) (float64, bool) {
		return float64(s.View.GetLevel()), s.View != nil
	}},
	"p": {nil, func(s *Subject) (float64, bool) {
		return s.View.GetProbability(), s.View.GetMs() > 0
	}},
})

// withGauges adds what a rank's GPU shows of itself.
func withGauges(out map[string]Number[Subject]) map[string]Number[Subject] {
	for _, g := range falcon.AllGauges() {
		out[g.Key()] = Number[Subject]{[]string{strings.ToLower(g.Unit())}, func(s *Subject) (float64, bool) {
			x, ok := falcon.Gauges(s.View.GetGauges()).Value(g)
			return float64(x), ok
		}}
	}
	return out
}

// share is a share of a view in per cent.
func share(p uint32) (float64, bool) {
	percent, ok := falcon.Percent(p).Value()
	return float64(percent), ok
}

// linkEnd is the state of a rank at the end of a slow link; a term has no blanks.
const linkEnd = "link end"
