package evaltest

import (
	"fmt"
	"slices"
	"strings"
)

// published is what FALCON's tables 4 and 5 print, as they print it: their
// denominators add the misses a second time (2/8 of six slow jobs).
var published = map[string][]string{
	SingleNode().Name: {
		"| slide window (paper) | 392 | 99.5 % | 0.0 % | 25.0 % | | | |",
		"| BOCD (paper) | 392 | 77.8 % | 18.39 % | 0.0 % | | | |",
		"| BOCD+V (paper) | 392 | 100.0 % | 0.0 % | 0.0 % | | | |",
	},
	FourNode().Name: {
		"| slide window (paper) | 107 | 93.5 % | 1.5 % | 12.2 % | | | |",
		"| BOCD (paper) | 107 | 69.2 % | 34.0 % | 0.0 % | | | |",
		"| BOCD+V (paper) | 107 | 99.1 % | 0.0 % | 2.3 % | | | |",
	},
}

// Markdown is a mix's table: the paper's rows, then one per method.
func (t *Tally) Markdown() string {
	var b strings.Builder
	s := &t.By[Ours]
	healthy := s.FalsePositive + s.TrueNegative
	fmt.Fprintf(&b, "### %s: %d generated jobs, %d of them slow, %d iterations\n\n",
		t.Mix.Name, s.Jobs(), s.Jobs()-healthy, t.Points)
	b.WriteString(
		"| method | jobs | accuracy | FPR | FNR | spells found | delay, median / 95 % | reports outside spells per 10,000 iterations |\n|---|---|---|---|---|---|---|---|\n",
	)
	for _, row := range published[t.Mix.Name] {
		b.WriteString(row + "\n")
	}
	for i, name := range Names() {
		b.WriteString(row(name, &t.By[i]))
	}
	ladders := fmt.Sprintf("%d of %d", s.LadderFound, s.LadderSpells)
	start := fmt.Sprintf("%d of %d", s.FromStartRelieved, s.FromStart)
	fmt.Fprintf(&b,
		"\nFalcon with 95 %% confidence: FPR at most %.3f %% (%d of %d), FNR at most %.3f %% (%d of %d). Ladders of steps below 10 %% found: %s; spells from the first iteration on, told by their relief: %s.\n",
		100*Upper(s.FalsePositive, healthy), s.FalsePositive, healthy,
		100*Upper(s.FalseNegative, s.Jobs()-healthy), s.FalseNegative, s.Jobs()-healthy,
		ladders, start)
	return b.String()
}

func row(name string, s *Score) string {
	return fmt.Sprintf("| %s | %d | %.2f %% | %.2f %% | %.2f %% | %d of %d | %s | %.2f |\n", name, s.Jobs(),
		100*s.Accuracy(), 100*s.FPR(), 100*s.FNR(), s.Found, s.Spells,
		DelayText(s.Delays), 1e4*float64(s.Stray)/float64(max(1, s.Points)))
}

// DelayText is the median and the 95 % quantile of delays, a dash of none.
func DelayText(values []int) string {
	if len(values) == 0 {
		return "–"
	}
	values = slices.Clone(values)
	return fmt.Sprintf("%d / %d", quantile(values, 0.5), quantile(values, 0.95))
}

// Trials is the table of shapes: share found and delay by method.
func Trials(title string, trials []Trial) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n| change | CoV |", title)
	for _, name := range Names() {
		fmt.Fprintf(&b, " %s |", name)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", methods) + "\n")
	for _, t := range trials {
		fmt.Fprintf(&b, "| %s | %s |", t.Shape.Name, percent(t.CoV))
		for i := range t.Found {
			fmt.Fprintf(&b, " %.1f %%, %s |",
				100*part(t.Found[i], t.Jobs), DelayText(t.Delays[i]))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// SweepTable is the exercise's table: a row per P, a column per C.
func SweepTable(cells [][]Blips) string {
	var b strings.Builder
	first := cells[0][0]
	fmt.Fprintf(&b,
		"### Transient blips against a failing rank: %d runs of %d steps, rank %d of %d 2.3 times as slow with probability p per step\n\n| p |",
		first.Runs, first.Steps, blipRank, blipRanks)
	for _, c := range cells[0] {
		fmt.Fprintf(&b, " C = %d |", c.C)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(cells[0])) + "\n")
	for _, row := range cells {
		fmt.Fprintf(&b, "| %g |", row[0].P)
		for _, c := range row {
			b.WriteString(" " + c.cell() + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (b *Blips) cell() string {
	if b.P >= 1 {
		return fmt.Sprintf("survives %.0f steps", part(b.Survived, b.Condemned))
	}
	return fmt.Sprintf("condemned in %.1f %%", 100*part(b.Condemned, b.Runs))
}

func percent(share float64) string {
	return fmt.Sprintf("%g %%", float64(int(share*1000+0.5))/10)
}
