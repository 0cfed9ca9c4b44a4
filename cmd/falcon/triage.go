package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/report"
)

// triageVerb is one command about who looks after an incident. None of them changes what
// Falcon does about it.
type triageVerb struct {
	use, short, example string
	args                cobra.PositionalArgs
	fill                func(q *falconv1.TriageRequest, args []string)
	text                string // of the flag --note; "" = none
	timed               bool
}

var triageVerbs = []triageVerb{
	{
		use:     "ack ID",
		short:   "Say that you have seen an incident",
		example: "  falcon incident ack INC-0001",
		args:    exactlyOneID("incident", "INC-0001"),
		text:    "for whoever comes next",
	},
	{
		use:     "snooze ID",
		short:   "Leave an incident's alerts out for some time; it ends at once where the incident gets worse",
		example: "  falcon incident snooze INC-0001 --for 2h --note \"a spare comes at 4\"",
		args:    exactlyOneID("incident", "INC-0001"),
		text:    "why",
		timed:   true,
	},
	{
		use:     "wake ID",
		short:   "End a snooze",
		example: "  falcon incident wake INC-0001",
		args:    exactlyOneID("incident", "INC-0001"),
	},
	{
		use:     "assign ID NAME",
		short:   "Say whose an incident is",
		example: "  falcon incident assign INC-0001 lee",
		args:    exactArguments(2, "give an incident's id and a name"),
		text:    "for them",
		fill: func(q *falconv1.TriageRequest, args []string) {
			q.To = args[1]
		},
	},
	{
		use:     "note ID TEXT",
		short:   "Write a note on an incident, for whoever comes next",
		example: "  falcon incident note INC-0001 \"n1's fan is being replaced\"",
		args:    exactArguments(2, "give an incident's id and a text in quotes"),
		fill: func(q *falconv1.TriageRequest, args []string) {
			q.Text = args[1]
		},
	},
	{
		use:     "handover NAME",
		short:   "Assign all open incidents to one person",
		example: "  falcon incident handover lee --note \"watch n1\"",
		args:    oneArgument("give a name"),
		text:    "for them",
		fill: func(q *falconv1.TriageRequest, args []string) {
			q.Incident, q.To = "", args[0]
		},
	},
}

func triageCommands(t *engineTarget) []*cobra.Command {
	var out []*cobra.Command
	for _, v := range triageVerbs {
		out = append(out, v.command(t))
	}
	return out
}

func (v triageVerb) command(t *engineTarget) *cobra.Command {
	var text string
	span := time.Hour
	c := documentCommand(
		&cobra.Command{
			Use:     v.use,
			Short:   v.short,
			Example: v.example,
			Args:    v.args,
		},
		func(c *cobra.Command, args []string) (triageList, error) {
			q := &falconv1.TriageRequest{
				Incident: args[0],
				Verb:     strings.Fields(v.use)[0],
				Text:     text,
			}
			if v.timed {
				q.ForNs = int64(span)
			}
			if v.fill != nil {
				v.fill(q, args)
			}
			r, err := ask(
				c,
				t,
				func(ctx context.Context, cl falconv1.ConsoleClient) (*falconv1.TriageReply, error) {
					return cl.Triage(ctx, q)
				},
			)
			if err != nil {
				return triageList{}, err
			}
			return triageList{report.TriageOf(r.GetTriage(), r.GetAtUnixNs())}, nil
		},
		writeTriageList,
	)
	if v.text != "" {
		c.Flags().StringVar(&text, "note", "", v.text)
	}
	if v.timed {
		c.Flags().DurationVar(&span, "for", span, "how long, at most 24h")
	}
	return c
}

type triageList struct {
	Triage []*report.Triage `json:"triage"`
}

func writeTriageList(w io.Writer, list triageList) error {
	var errs []error
	for _, v := range list.Triage {
		errs = append(errs, writeString(w, v.Incident+": "+v.Text()+"\n"))
	}
	return errors.Join(errs...)
}

func writeTriage(b *strings.Builder, v *report.Triage) {
	if v == nil {
		return
	}
	fmt.Fprintf(b, "%s\n", v.Text())
	for _, n := range v.Notes {
		fmt.Fprintf(b, "  %s  %s: %s\n",
			time.Unix(0, n.UnixNs).UTC().Format(time.DateTime), n.By, n.Text)
	}
}
