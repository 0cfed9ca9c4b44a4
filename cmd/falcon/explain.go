package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/docs"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/widget"
)

const explainHelp = `Print what a verdict asks of whoever is on call: its section of the runbook, which
is part of this program. TOPIC is a cause, such as gpu_degradation, an incident,
whose cause is asked of the engine, or one of the runbook's other parts; without one
all are listed.`

func explainCommand() *cobra.Command {
	var target engineTarget
	c := &cobra.Command{
		Use:   "explain [TOPIC]",
		Short: "Print the runbook's section about a verdict",
		Long:  explainHelp,
		Example: `  falcon explain gpu_degradation
  falcon explain INC-0001`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: docs.Topics(),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				_, err := fmt.Fprintln(c.OutOrStdout(), strings.Join(docs.Topics(), "\n"))
				return err
			}
			topic, err := topicOf(c, &target, args[0])
			if err != nil {
				return err
			}
			lines := docs.Section(topic)
			if lines == nil {
				return fmt.Errorf("%w: there is no section about %q; falcon explain lists all",
					errUsage, clean.String(args[0]))
			}
			return writeWrapped(c, lines)
		},
	}
	target.declareFlags(c)
	return c
}

// topicOf is the cause of an incident, or the topic itself.
func topicOf(c *cobra.Command, t *engineTarget, name string) (string, error) {
	if !strings.HasPrefix(name, "INC-") {
		return strings.ToLower(name), nil
	}
	r, err := ask(
		c,
		t,
		func(ctx context.Context, cl falconv1.ConsoleClient) (*falconv1.IncidentsReply, error) {
			return cl.Incidents(ctx, &falconv1.IncidentsRequest{Id: name})
		},
	)
	if err != nil {
		return "", err
	}
	return r.GetIncidents()[0].GetVerdict().GetCause(), nil
}

// explainW is the width of the text.
const explainW = 88

func writeWrapped(c *cobra.Command, lines []string) error {
	var b strings.Builder
	for _, l := range lines {
		for _, row := range widget.Wrap(l, explainW) {
			b.WriteString(row + "\n")
		}
		if l == "" {
			b.WriteString("\n")
		}
	}
	_, err := fmt.Fprint(c.OutOrStdout(), b.String())
	return err
}
