package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// KindText names what jobs were run for.
func KindText(kind string) string {
	switch kind {
	case "":
		return "training"
	case "a":
		return "probe, 1 node"
	case "b":
		return "probe, nodes"
	}
	return "kind " + kind
}

// SpanText is a length of time in two significant units at most.
func SpanText(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.1f h", d.Hours())
	default:
		return fmt.Sprintf("%.1f days", d.Hours()/24)
	}
}

// ShareText is a share in percent.
func ShareText(share float64) string {
	return fmt.Sprintf("%.1f %%", 100*share)
}

// WhereText names the culprits of a past incident.
func (v PastIncident) WhereText() string {
	names := slices.Concat(v.Devices, v.Links, v.NICs)
	if v.Unnamed > 0 {
		names = append(names, fmt.Sprintf("%d more", v.Unnamed))
	}
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, ",")
}

// Section is one table of a history.
type Section struct {
	Title string
	Head  []string
	Rows  [][]string
	Note  string
}

// Sections are the history's tables, in the order in which they are read.
func (h History) Sections() []Section {
	return []Section{
		h.causes(),
		h.failStops(),
		h.paths(),
		h.table(),
		h.distributions(),
		h.culprits(),
		h.past(),
		h.jobs(),
	}
}

func (h History) causes() Section {
	s := Section{
		Title: "Root causes",
		Head:  []string{"Cause", "Incidents", "Share", "Mean duration", "Lost"},
	}
	for _, c := range h.Causes {
		s.Rows = append(s.Rows, []string{
			c.Cause,
			fmt.Sprint(c.Incidents),
			ShareText(c.Share),
			SpanText(c.MeanS),
			SpanText(c.LostS),
		})
	}
	return s
}

// FaultText names a kind of fail-stop fault.
func FaultText(kind string) string {
	switch kind {
	case "exit":
		return "a process ended"
	case "node":
		return "a node was lost"
	case "frozen":
		return "a process froze"
	case "hang":
		return "a process hung"
	case "device":
		return "a device failed"
	}
	return kind
}

// DownText is the mean time without training, "-" where the job never trained again.
func (f FailStop) DownText() string {
	if f.Trains == 0 {
		return "-"
	}
	return SpanText(f.DownS)
}

func (h History) failStops() Section {
	s := Section{
		Title: "Fail-stop faults",
		Head: []string{
			"What", "Faults", "Share", "Ranks lost", "Nodes", "Most often on", "Trained again",
			"Mean time without training",
		},
		Note: "of the newest 128 recoveries, without what was asked for; the time is from the first sign until the job trained again",
	}
	for _, f := range h.FailStops {
		most := "-"
		if f.MostTimes > 1 {
			most = fmt.Sprintf("%s (%d)", f.Most, f.MostTimes)
		}
		s.Rows = append(s.Rows, []string{
			FaultText(f.Kind),
			fmt.Sprint(f.Faults),
			ShareText(f.Share),
			fmt.Sprint(f.Ranks),
			fmt.Sprint(f.Nodes),
			most,
			fmt.Sprintf("%d of %d", f.Trains, f.Over),
			f.DownText(),
		})
	}
	return s
}

func (h History) paths() Section {
	s := Section{
		Title: "Paths",
		Head:  []string{"Class", "Message", "Paths", "Tests", "Mean", "CoV", "Least steady path"},
		Note:  "link tests of the newest 128 validations, as table 2 of the FALCON paper: standard deviation of the times over their mean, healthy or not; a path needs four tests to be named",
	}
	for _, p := range h.Paths {
		cov, worst := "-", "-"
		if p.Tests > 1 {
			cov = fmt.Sprintf("%.2f", p.CoV)
		}
		if p.Worst != "" {
			worst = fmt.Sprintf("%s (%.2f)", p.Worst, p.WorstCoV)
		}
		s.Rows = append(s.Rows, []string{
			p.Class,
			fmt.Sprintf("%.1f MB", float64(p.Bytes)/1e6),
			fmt.Sprint(p.Paths),
			fmt.Sprint(p.Tests),
			fmt.Sprintf("%.2f ms", p.MeanMs),
			cov,
			worst,
		})
	}
	return s
}

// table has the paper's rows, with one column for each kind of job.
func (h History) table() Section {
	s := Section{
		Title: "Jobs by root cause",
		Head:  []string{"Category"},
		Note:  "as table 1 of the FALCON paper; the slowdown of the job completion time is the mean of the jobs that lost time",
	}
	total := []string{"Total jobs"}
	slowed := []string{"Mean JCT slowdown"}
	for i, t := range h.Table {
		s.Head = append(s.Head, KindText(t.Kind))
		for n, c := range t.Categories {
			if i == 0 {
				s.Rows = append(s.Rows, []string{c.Category})
			}
			if n < len(s.Rows) {
				s.Rows[n] = append(s.Rows[n], fmt.Sprint(c.Jobs))
			}
		}
		total = append(total, fmt.Sprint(t.Jobs))
		slow := "-"
		if t.Slowed > 0 {
			slow = fmt.Sprintf("%s of %d", ShareText(t.Slowdown), t.Slowed)
		}
		slowed = append(slowed, slow)
	}
	if len(h.Table) > 0 {
		s.Rows = append(s.Rows, total, slowed)
	}
	return s
}

func (h History) distributions() Section {
	s := Section{
		Title: "Distributions",
		Head:  []string{"", "Incidents", "10 %", "25 %", "50 %", "75 %", "90 %", "Longest", "Mean"},
		Note:  "empirical quantiles of the incidents that are kept one by one",
	}
	row := func(name string, of Spread, text func(float64) string) {
		if of.N == 0 {
			return
		}
		cells := []string{name, fmt.Sprint(of.N)}
		for _, p := range []float64{0.1, 0.25, 0.5, 0.75, 0.9, 1} {
			cells = append(cells, text(of.At(p)))
		}
		s.Rows = append(s.Rows, append(cells, text(of.Mean)))
	}
	row("duration", h.DurationsS, SpanText)
	row("slowdown", h.Slowdowns, ShareText)
	return s
}

func (h History) culprits() Section {
	s := Section{
		Title: "Culprits",
		Head:  []string{"Name", "Kind", "Score", "Times", "Jobs", "Newest", "Onset", "Causes"},
		Note: fmt.Sprintf(
			"each incident counts 1, halved every %.4g h since its onset; parts are known by their place",
			h.HalfLifeHours,
		),
	}
	for _, c := range h.Culprits {
		newest := c.Incident
		if c.Lasts {
			newest += " (lasts)"
		}
		s.Rows = append(s.Rows, []string{
			c.Name,
			c.Kind,
			fmt.Sprintf("%.2f", c.Score),
			fmt.Sprint(c.Times),
			fmt.Sprint(c.Jobs),
			newest,
			c.LastSeen,
			strings.Join(c.Causes, ","),
		})
	}
	return s
}

func (h History) past() Section {
	s := Section{
		Title: "Incidents",
		Head:  []string{"Id", "Onset", "Duration", "Slowdown", "Lost", "Cause", "Where", "Job"},
	}
	estimated := false
	for _, v := range h.Past {
		lost := SpanText(v.LostS)
		if !v.Counted {
			lost = "~" + lost
			estimated = true
		}
		s.Rows = append(s.Rows, []string{
			v.ID,
			v.Onset,
			SpanText(v.DurationS),
			ShareText(v.Slowdown()),
			lost,
			v.Cause,
			v.WhereText(),
			fmt.Sprint(v.Job),
		})
	}
	if h.LeftOut > 0 {
		s.Note = fmt.Sprintf("%d older ones are left out", h.LeftOut)
	}
	if h.Folded > 0 {
		s.Note = strings.TrimPrefix(s.Note+fmt.Sprintf("; %d are kept as counts alone", h.Folded), "; ")
	}
	if estimated {
		s.Note = strings.TrimPrefix(s.Note+"; ~ is estimated from the iterations", "; ")
	}
	return s
}

func (h History) jobs() Section {
	s := Section{
		Title: "Jobs",
		Head: []string{
			"Number", "Name", "For", "Ranks", "First", "Watched", "Lost", "JCT slowdown",
			"Incidents", "Category",
		},
	}
	for _, j := range h.Jobs {
		s.Rows = append(s.Rows, []string{
			fmt.Sprint(j.Number),
			j.Name,
			KindText(j.Kind),
			fmt.Sprint(j.Ranks),
			j.First,
			SpanText(j.WatchedS),
			SpanText(j.LostS),
			ShareText(j.Slowdown),
			fmt.Sprint(j.Incidents),
			j.Category,
		})
	}
	return s
}

// JSON is the history as one document; field names are a promise.
func (h History) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(h, "", "  ")
	return append(b, '\n'), err
}

// Headline says what the history covers.
func (h History) Headline() string {
	text := fmt.Sprintf("%d incidents are over", h.Incidents)
	if h.Since != "" {
		text += " since " + h.Since
	}
	return text + ", as of " + h.At
}

// Text is the history for a terminal.
func (h History) Text() string {
	var b strings.Builder
	b.WriteString(h.Headline() + "\n")
	for _, s := range h.Sections() {
		fmt.Fprintf(&b, "\n%s\n", strings.ToUpper(s.Title))
		if len(s.Rows) == 0 {
			b.WriteString("  none\n")
			continue
		}
		tab := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
		for _, row := range append([][]string{s.Head}, s.Rows...) {
			fmt.Fprintf(tab, "  %s\n", strings.Join(row, "\t"))
		}
		_ = tab.Flush() // into memory
		if s.Note != "" {
			fmt.Fprintf(&b, "  (%s)\n", s.Note)
		}
	}
	return b.String()
}

// Markdown is the history as a document.
func (h History) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# History\n\n%s.\n", markdown(h.Headline()))
	for _, s := range h.Sections() {
		fmt.Fprintf(&b, "\n## %s\n\n", s.Title)
		if len(s.Rows) == 0 {
			b.WriteString("None.\n")
			continue
		}
		fmt.Fprintf(&b, "| %s |\n|%s\n",
			strings.Join(s.Head, " | "), strings.Repeat("---|", len(s.Head)))
		for _, row := range s.Rows {
			cells := make([]string, len(row))
			for i, c := range row {
				cells[i] = markdown(c)
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		}
		if s.Note != "" {
			fmt.Fprintf(&b, "\n%s.\n", markdown(s.Note))
		}
	}
	return b.String()
}
