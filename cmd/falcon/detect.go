package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/detect/peer"
)

const detectHelp = `Say what happened to a job, from whatever there is of it.

PATH is a file, a folder with all below it, or an archive (tar, zip, gz, zst,
bz2); - is standard input. Any mixture is read as one job: training logs, the
output of ranks, kernel logs, nvidia-smi, NCCL's and PyTorch's messages, stacks,
flight-recorder dumps, traces, reports and tables of ranks, nodes or devices.

The answer is one of
  hang     ranks wait for others that do not come
  slow     iterations take longer, or a member is slower than its peers
  failed   something ended the job or a part of it
  healthy  there was something to judge, and no fault is found
  unknown  it can't be determined: the answer says what would decide
with who, since when, what it cost, and each piece of evidence with file and line.
What was not understood is listed with its first line.

--screen shows it page by page, with the times of iterations drawn and the line behind
each piece of evidence. --html FILE writes it as one page for the ticket.

--json prints the same:
  {"kind":"slow","summary":"…","ranks":[30],"hosts":[],"devices":[],
   "onset":{"index":20,"iteration":210},"slowdown":1.08,"cost_s":12.5,
   "confidence":0.85,"findings":[{"kind":"series","file":"…","line":40,"text":"…"}],
   "next":["…"],"inputs":[{"path":"…","kind":"a training log","used":true}]}

The exit code is 0 for healthy, 3 for hang, slow and failed, 4 for unknown. The
commands below read one file as what their name says, and have more flags.`

// detectCommand answers what happened from whatever there is.
func detectCommand() *cobra.Command {
	var asJSON, screen bool
	var page string
	c := &cobra.Command{
		Use:     "detect PATH…",
		Short:   "Say what happened to a job, from logs, dumps, tables and reports",
		Long:    detectHelp,
		Example: "  falcon detect run/\n  falcon detect job.log dmesg.txt dumps.tar.gz --json\n  falcon detect iterations run.csv --column iter_time --unit s",
		Args:    anyPaths,
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		answer, facts, err := runAutopsy(c, args)
		if err != nil {
			return err
		}
		if page != "" {
			if err := writeAutopsyPage(page, answer, facts); err != nil {
				return err
			}
		}
		switch {
		case asJSON:
			err = writeJSON(c.OutOrStdout(), answer)
		case screen:
			err = showAutopsy(c, answer, facts)
		default:
			err = errors.Join(printAutopsy(c.OutOrStdout(), answer), offerScreen(c.OutOrStdout()))
		}
		return errors.Join(err, exitOfAnswer(answer))
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write one JSON document")
	c.Flags().BoolVar(&screen, "screen", false, "show the answer on the terminal, page by page")
	c.Flags().StringVar(&page, "html", "",
		"write the answer to this file too, as one page that needs nothing else")
	c.AddCommand(
		detectIterationsCommand(),
		detectCallsCommand(),
		detectWorkersCommand(),
		detectProfileCommand(),
		detectTraceCommand(),
	)
	return c
}

// anyPaths accepts paths. A word that is neither a command nor a file is a usage error.
func anyPaths(c *cobra.Command, args []string) error {
	for _, a := range args {
		if strings.ContainsAny(a, "./-") {
			continue
		}
		if _, err := os.Stat(a); os.IsNotExist(err) {
			return fmt.Errorf("%w: %s has no command %q, and there is no such file; see %s --help",
				errUsage, c.CommandPath(), a, c.CommandPath())
		}
	}
	return nil
}

// exitOfAnswer tells a fault and what can't be distinguished from a healthy job.
func exitOfAnswer(a autopsy.Answer) error {
	switch a.Kind {
	case autopsy.KindHealthy:
		return nil
	case autopsy.KindUnknown:
		return exitError(exitNotJudged)
	}
	return exitError(exitSlow)
}

func defaultRules() peer.Rules { return peer.Rules{}.WithDefaults() }
