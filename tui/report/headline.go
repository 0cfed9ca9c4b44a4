package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/tui/phrase"
)

// namedMost is how many devices and links a headline names.
const namedMost = 3

// Headline is what came of a validation, in one sentence: what is slow and by how
// much, else what could not be judged, else that nothing is slow.
func Headline(v falcon.Validation) string {
	switch v.Outcome() {
	case falcon.TestsFailed:
		return fmt.Sprintf("%s was %s: %s",
			v.ID, v.State, cmp.Or(v.Reason, "the engine gave no reason"))
	case falcon.TestsSlow:
		return joinSome(slowParts(v)) + leftOver(v)
	case falcon.TestsNotJudged:
		return notJudgedText(v)
	}
	links := askedLinks(v)
	if len(v.GEMM) == 0 && len(links) == 1 {
		return fmt.Sprintf("%s is fine: %s", links[0].Name, TimeText(links[0].Worst))
	}
	gpus := slices.DeleteFunc(slices.Clone(v.GEMM), func(g falcon.GEMMResult) bool { return g.Reference })
	return fmt.Sprintf("Nothing is slow: %s judged", counts(len(gpus), "GPU", len(links), "link"))
}

func askedLinks(v falcon.Validation) []Link {
	return slices.DeleteFunc(Links(v), func(l Link) bool { return l.Reference })
}

func counts(n int, one string, m int, other string) string {
	var parts []string
	for _, x := range []struct {
		n    int
		noun string
	}{{n, one}, {m, other}} {
		switch {
		case x.n == 1:
			parts = append(parts, "1 "+x.noun)
		case x.n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", x.n, x.noun))
		}
	}
	return strings.Join(parts, " and ")
}

func joinSome(parts []string) string {
	if n := len(parts); n > namedMost {
		parts = append(slices.Clone(parts[:namedMost]), fmt.Sprintf("%d more are slow",
			n-namedMost))
	}
	return strings.Join(parts, "; ")
}

func slowParts(v falcon.Validation) []string {
	var out []string
	for _, l := range Links(v) {
		if l.Worst.Slow {
			out = append(out, fmt.Sprintf("%s is SLOW: %s", l.Name, TimeText(l.Worst)))
		}
	}
	for _, g := range v.GEMM {
		if g.Slow {
			out = append(out, fmt.Sprintf("%s is SLOW: %s, %.1f x the %s of the others",
				g.Device, phrase.Ms(g.Ms), g.Ratio, phrase.Ms(g.MedianMs)))
		}
	}
	return out
}

// leftOver counts what could not be judged beside what is slow.
func leftOver(v falcon.Validation) string {
	if n := len(v.NotJudged()); n > 0 {
		return fmt.Sprintf("; %d not judged", n)
	}
	return ""
}

func notJudgedText(v falcon.Validation) string {
	left := v.NotJudged()
	if len(left) == 0 {
		return "NOT JUDGED: nothing was measured"
	}
	if links := askedLinks(v); len(v.GEMM) == 0 && len(links) == 1 {
		return fmt.Sprintf("%s is NOT JUDGED: %s; it takes %s",
			links[0].Name, left[0].Why, TimeText(links[0].Worst))
	}
	text := fmt.Sprintf("%d of %d results are NOT JUDGED (%s: %s)",
		len(left), asked(v), left[0].Name, left[0].Why)
	if len(left) < asked(v) {
		return text + "; nothing else is slow"
	}
	return text
}

// asked counts the results that were asked for.
func asked(v falcon.Validation) int {
	n := 0
	for _, g := range v.GEMM {
		if !g.Reference {
			n++
		}
	}
	for _, l := range v.Links {
		if !l.Reference {
			n++
		}
	}
	return n
}

// Link is one tested path with its worst direction.
type Link struct {
	Name      string // a pair of nodes, or of devices within a node
	Worst     falcon.LinkResult
	Reference bool
}

// Links sums up the directions by path, what was asked for and the worst first.
func Links(v falcon.Validation) []Link {
	var out []Link
	for _, l := range v.Links {
		name := l.Path()
		i := slices.IndexFunc(out, func(x Link) bool { return x.Name == name })
		switch {
		case i < 0:
			out = append(out, Link{name, l, l.Reference})
		default:
			out[i].Reference = out[i].Reference && l.Reference
			if compareLinks(l, out[i].Worst) < 0 {
				out[i].Worst = l
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Link) int {
		return cmp.Or(compareLinks(a.Worst, b.Worst), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// compareLinks puts the graver result first; of a path that was asked for before one
// that was tested to compare with.
func compareLinks(a, b falcon.LinkResult) int {
	return cmp.Or(
		gravity(b)-gravity(a),
		cmp.Compare(b.Ratio, a.Ratio),
		cmp.Compare(b.Ms, a.Ms),
	)
}

func gravity(l falcon.LinkResult) int {
	switch {
	case l.Slow:
		return 4
	case l.Reference:
		return 0
	case l.Err != "":
		return 3
	case l.Unjudged != "":
		return 2
	}
	return 1
}

// TimeText is a direction's time and throughput, and what it was compared with.
func TimeText(l falcon.LinkResult) string {
	if l.Err != "" {
		return l.Err
	}
	text := fmt.Sprintf("%s, %s", phrase.Ms(l.Ms), Rate(l.MBPerS()))
	switch {
	case l.BaseMs <= 0 || l.Unjudged == falcon.NothingToCompare || l.Unjudged == falcon.TooShort:
		return text
	case l.Basis == "own":
		return fmt.Sprintf("%s; %.1f x the %s of %s",
			text, l.Ratio, phrase.Ms(l.BaseMs), cmp.Or(l.BaseFrom, "an earlier test"))
	}
	return fmt.Sprintf("%s; %.1f x the %s of its class", text, l.Ratio, phrase.Ms(l.BaseMs))
}

// Rate is a throughput with its unit.
func Rate(mbPerS float64) string {
	switch {
	case mbPerS <= 0:
		return "-"
	case mbPerS >= 1000:
		return fmt.Sprintf("%.1f GB/s", mbPerS/1000)
	case mbPerS >= 100:
		return fmt.Sprintf("%.0f MB/s", mbPerS)
	}
	return fmt.Sprintf("%.1f MB/s", mbPerS)
}

// Judgement is a result in short, or why there is none.
func Judgement(slow bool, unjudged, fault string) string {
	switch {
	case fault != "":
		return "failed: " + fault
	case slow:
		return "SLOW"
	case unjudged != "":
		return "not judged: " + unjudged
	}
	return "fine"
}

// Remedy is what to do about results that could not be judged; empty where all were.
func Remedy(v falcon.Validation) string {
	left := v.NotJudged()
	if len(left) == 0 {
		return ""
	}
	switch why := left[0].Why; {
	case why == falcon.NothingToCompare:
		return "there are too few paths of this kind to compare: test again while the job is healthy, later tests are compared with that"
	case why == falcon.TooShort:
		return "send larger messages: falcon validate --message-bytes"
	case strings.HasPrefix(why, "within the noise"), strings.HasPrefix(why, "unsteady"):
		return "the machines are busy with other work: test again"
	case strings.Contains(why, "most of it may be slow"):
		return "test all links: falcon validate --links"
	}
	return "see why the test failed, and test again"
}
