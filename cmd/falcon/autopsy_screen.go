package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/charmbracelet/colorprofile"
	"github.com/spf13/cobra"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/tui/postmortem"
)

// showAutopsy shows an answer on the terminal until its reader leaves.
func showAutopsy(c *cobra.Command, a autopsy.Answer, facts *autopsy.Facts) error {
	if !hasScreen() {
		return fmt.Errorf("%w: --screen needs a terminal", errUsage)
	}
	theme, _, err := ownThemes().Load(defaultTheme)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(
		c.Context(),
		os.Interrupt,
		syscall.SIGTERM,
		syscall.SIGHUP,
	)
	defer stop()
	profile := colorprofile.Detect(os.Stdout, os.Environ())
	screen := postmortem.New(documentOf(a, facts), theme, theme.Palette(profile), false)
	return screen.Run(ctx, os.Stdin, os.Stdout)
}

const defaultTheme = "dark"

// documentOf is an answer as a screen shows it.
func documentOf(a autopsy.Answer, facts *autopsy.Facts) *postmortem.Document {
	d := &postmortem.Document{
		Kind:    a.Kind,
		Summary: a.Summary,
		Next:    a.Next,
		Notes:   notesOf(a),
	}
	for _, s := range facts.Series[:min(chartMost, len(facts.Series))] {
		c := postmortem.Chart{Name: s.Name, Unit: s.Unit, Onset: -1}
		for _, p := range s.Points {
			c.Values = append(c.Values, p.Value)
		}
		if a.Onset != nil && a.Kind == autopsy.KindSlow {
			c.Onset = a.Onset.Index
		}
		d.Charts = append(d.Charts, c)
	}
	for _, x := range a.Findings {
		d.Evidence = append(d.Evidence, postmortem.Evidence{
			Against: x.Against,
			Text:    x.Text,
			At:      placeOf(x),
			Quote:   x.Quote,
		})
	}
	for _, in := range a.Inputs {
		says := in.Kind
		if !in.Used {
			says = in.Why
		}
		d.Inputs = append(d.Inputs, postmortem.Input{
			Path: in.Path,
			Says: says,
			Used: in.Used,
		})
	}
	return d
}

func notesOf(a autopsy.Answer) []string {
	if a.Kind == autopsy.KindUnknown {
		return nil
	}
	text := fmt.Sprintf("confidence %.0f %%", 100*a.Confidence)
	if a.CostS >= 1 {
		text += ", it cost " + falcon.DurationText(1e3*a.CostS)
	}
	if a.Onset != nil && a.Onset.Time != nil {
		text += ", since " + a.Onset.Time.Format(time.DateTime)
	}
	return []string{text}
}

// placeOf is where a finding was read, "" where it was in none.
func placeOf(x autopsy.Finding) string {
	if x.Line > 0 {
		return fmt.Sprintf("%s:%d", x.File, x.Line)
	}
	return x.File
}
