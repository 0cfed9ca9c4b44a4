package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/detect/autopsy/read"
)

// runAutopsy answers from files, folders, archives and standard input.
func runAutopsy(c *cobra.Command, paths []string) (autopsy.Answer, *autopsy.Facts, error) {
	var set read.Set
	in := inputs{set: &set, stdin: c.InOrStdin()}
	for _, p := range paths {
		if err := in.add(p); err != nil {
			return autopsy.Answer{}, nil, fmt.Errorf("can't read %s: %w", p, err)
		}
	}
	facts := set.Facts()
	return autopsy.Judge(facts), facts, nil
}

// printAutopsy prints an answer for people.
func printAutopsy(w io.Writer, a autopsy.Answer) error {
	fmt.Fprintf(w, "%s: %s\n", strings.ToUpper(a.Kind), a.Summary)
	if a.Kind != autopsy.KindUnknown {
		fmt.Fprintf(w, "confidence %.0f %%", 100*a.Confidence)
		if a.CostS >= 1 {
			fmt.Fprintf(w, ", it cost %s", falcon.DurationText(1e3*a.CostS))
		}
		fmt.Fprintln(w)
	}
	for _, x := range a.Findings {
		printFinding(w, x)
	}
	for _, n := range a.Next {
		fmt.Fprintf(w, "next:     %s\n", n)
	}
	return printInputs(w, a.Inputs)
}

func printFinding(w io.Writer, x autopsy.Finding) {
	word := "for"
	if x.Against {
		word = "against"
	}
	at := placeOf(x)
	fmt.Fprintf(w, "%-9s %s", word, x.Text)
	if at != "" {
		fmt.Fprintf(w, "  [%s]", at)
	}
	fmt.Fprintln(w)
	if x.Quote != "" {
		fmt.Fprintf(w, "          | %s\n", x.Quote)
	}
}

func printInputs(w io.Writer, list []autopsy.Read) error {
	var err error
	for _, in := range list {
		switch {
		case in.Used:
			_, err = fmt.Fprintf(w, "read      %s: %s\n", in.Path, in.Kind)
			for _, n := range in.Notes {
				fmt.Fprintf(w, "          %s\n", n)
			}
		default:
			_, err = fmt.Fprintf(w, "not used  %s: %s\n", in.Path, in.Why)
			if in.First != "" {
				fmt.Fprintf(w, "          | %s\n", in.First)
			}
		}
	}
	return err
}

// offerScreen says on a terminal how the answer is read page by page.
func offerScreen(w io.Writer) error {
	if w != os.Stdout || !hasScreen() {
		return nil
	}
	_, err := fmt.Fprintln(w, "--screen shows this page by page, --html FILE writes it for the ticket")
	return err
}
