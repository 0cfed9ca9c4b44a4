package rivals

import (
	"fmt"
	"slices"
	"strings"

	"github.com/failslow/falcon/docs/proof/evaltest"
)

// SeriesRow is a method at one setting.
type SeriesRow struct {
	Name, Setting string
	Value         float64 // of the setting
	Score         evaltest.Score
	Ns            float64 // of CPU per observation
}

// SeriesTable shows what methods made of jobs' series.
func SeriesTable(rows []SeriesRow) string {
	var b strings.Builder
	b.WriteString(
		"| method | setting | jobs judged rightly | spells right | missed | false alarms per 20,000 iterations | delay, median / 95 % | CPU ns per observation |\n|---|---|---|---|---|---|---|---|\n",
	)
	for _, r := range rows {
		s := &r.Score
		fmt.Fprintf(&b, "| %s | %s | %.1f %% of %d | %d of %d | %d | %.2f | %s | %s |\n",
			r.Name, r.Setting, 100*s.Accuracy(), s.Jobs(),
			s.Found, s.Spells, s.Spells-s.Found, per20k(s.Stray, s.Points),
			evaltest.DelayText(s.Delays), nsText(r.Ns))
	}
	return b.String()
}

// per20k is a rate per 20,000 iterations.
func per20k(n, iterations int) float64 {
	return 20_000 * float64(n) / float64(max(1, iterations))
}

func nsText(ns float64) string {
	if ns <= 0 {
		return ""
	}
	return fmt.Sprintf("%.3g", ns)
}

// QuietRow is what a method reports of undisturbed series, by class of noise.
type QuietRow struct {
	Name, Setting string
	By            []Quiet
}

// QuietTable shows false alarms per 20,000 iterations by class.
func QuietTable(classes []string, rows []QuietRow) string {
	var b strings.Builder
	b.WriteString(
		"| method | setting | " +
			strings.Join(classes, " | ") +
			" |\n|---|---|" +
			strings.Repeat("---|", len(classes)) +
			"\n",
	)
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s |", r.Name, r.Setting)
		for _, q := range r.By {
			fmt.Fprintf(&b, " %.2f |", per20k(q.Reports, q.Iterations))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// RecordRow is what a method makes of series whose changes are labelled.
type RecordRow struct {
	Name, Setting        string
	Found, Labels        int // within 5 points
	Other, Points        int // reports elsewhere in these series, and their points
	False, Undisturbed   int // reports in undisturbed series, and their points
	QuietSeries, SeriesN int // undisturbed series without a report, and all of them
}

// Within is how far a report may lie from a label.
const Within = 5

// Near reports whether a report means a label.
func Near(label int, r evaltest.Report) bool {
	return max(label-r.At, r.At-label) <= Within
}

// Take judges one series; reports near the changes that are allowed count as nothing.
func (r *RecordRow) Take(points int, changes, allowed []int, reports []evaltest.Report) {
	if len(changes)+len(allowed) == 0 {
		r.SeriesN++
		r.Undisturbed += points
		r.False += len(reports)
		if len(reports) == 0 {
			r.QuietSeries++
		}
		return
	}
	r.Points += points
	r.Labels += len(changes)
	for _, c := range changes {
		if slices.ContainsFunc(reports, func(p evaltest.Report) bool {
			return Near(c, p)
		}) {
			r.Found++
		}
	}
	for _, p := range reports {
		if !slices.ContainsFunc(slices.Concat(changes, allowed), func(c int) bool {
			return Near(c, p)
		}) {
			r.Other++
		}
	}
}

// RecordTable shows what methods made of labelled and of undisturbed series.
func RecordTable(rows []RecordRow) string {
	var b strings.Builder
	b.WriteString(
		"| method | setting | changes right | missed | other reports there per 20,000 | false alarms in undisturbed ones per 20,000 | undisturbed ones without |\n|---|---|---|---|---|---|---|\n",
	)
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %d of %d | %d | %.2f | %.2f | %d of %d |\n",
			r.Name, r.Setting, r.Found, r.Labels, r.Labels-r.Found,
			per20k(r.Other, r.Points), per20k(r.False, r.Undisturbed), r.QuietSeries, r.SeriesN)
	}
	return b.String()
}

// StoryRow is what a method made of stories, of all and by kind.
type StoryRow struct {
	Name, Setting, Input string
	ByKind               map[string]Outcome
	Ns                   float64 // of CPU per rank and iteration
}

// All joins the kinds.
func (r *StoryRow) All() Outcome {
	var o Outcome
	for _, k := range Kinds() {
		o.Add(r.ByKind[k])
	}
	return o
}

// StoryTable shows outcomes of all kinds together.
func StoryTable(rows []StoryRow) string {
	var b strings.Builder
	b.WriteString(
		"| method | setting | reads | right | of those, every fault named | wrong name | missed | nothing named where nothing is at fault | false alarms per 20,000 iterations | delay, median / 95 % | CPU ns per rank and iteration |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
	)
	for _, r := range rows {
		o := r.All()
		fmt.Fprintf(&b, "| %s | %s | %s | %d of %d | %d | %d | %d | %d of %d | %.2f | %s | %s |\n",
			r.Name, r.Setting, r.Input, o.Right, o.Stories, o.Complete, o.Wrong, o.Missed,
			o.CleanRight, o.Clean, per20k(o.False, o.Iterations),
			evaltest.DelayText(o.Delays), nsText(r.Ns))
	}
	return b.String()
}

// KindTable shows the stories judged rightly by kind, and wrong names behind a minus.
func KindTable(rows []StoryRow) string {
	var b strings.Builder
	b.WriteString(
		"| method | setting | " +
			strings.Join(Kinds(), " | ") +
			" |\n|---|---|" +
			strings.Repeat("---|", len(Kinds())) +
			"\n",
	)
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s |", r.Name, r.Setting)
		for _, k := range Kinds() {
			o := r.ByKind[k]
			fmt.Fprintf(&b, " %d of %d", o.Good(), o.Stories+o.Clean)
			if o.Wrong > 0 {
				fmt.Fprintf(&b, ", %d wrong", o.Wrong)
			}
			b.WriteString(" |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// CaseRow is in how many of a case's tables a method names exactly who it should.
type CaseRow struct {
	Name, Setting string
	Right         []int // by case; −1 = the method does not read such data
	Of            int
	Wrong         []int // names of others
}

// CaseTable shows rows by case.
func CaseTable(cases []string, rows []CaseRow) string {
	var b strings.Builder
	b.WriteString(
		"| method | setting | " +
			strings.Join(cases, " | ") +
			" |\n|---|---|" +
			strings.Repeat("---|", len(cases)) +
			"\n",
	)
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s |", r.Name, r.Setting)
		for i, n := range r.Right {
			switch {
			case n < 0:
				b.WriteString(" – |")
			case r.Wrong[i] > 0:
				fmt.Fprintf(&b, " %d of %d, %d wrong |", n, r.Of, r.Wrong[i])
			default:
				fmt.Fprintf(&b, " %d of %d |", n, r.Of)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
