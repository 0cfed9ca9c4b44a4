package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/agent/lab"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/phrase"
)

// completeWithin bounds what a shell waits for: an engine that is away completes nothing.
const completeWithin = time.Second

// idLister lists ids with a description each, as completion makes them.
type idLister func(ctx context.Context, cl falconv1.ConsoleClient) ([]string, error)

// completeIDsBelow completes ids for those commands of a group that take one.
func completeIDsBelow(group *cobra.Command, t *engineTarget, list idLister) {
	for _, sub := range group.Commands() {
		if strings.Contains(sub.Use, " ID") {
			sub.ValidArgsFunction = completeIDs(t, list)
		}
	}
}

// completeIDs completes the first argument with the incidents of the engine, open ones first, or
// with its recoveries; each with a short description.
func completeIDs(t *engineTarget, list idLister) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		conn, err := t.dialTarget()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(c.Context(), completeWithin)
		defer cancel()
		ids, err := list(ctx, falconv1.NewConsoleClient(conn))
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

func incidentIDs(ctx context.Context, cl falconv1.ConsoleClient) ([]string, error) {
	r, err := cl.Incidents(ctx, &falconv1.IncidentsRequest{})
	var out []string
	for _, i := range r.GetIncidents() {
		out = append(out, completion(i.GetId(), i.GetState()+", "+phrase.Verdict(i.GetVerdict())))
	}
	return out, err
}

func recoveryIDs(ctx context.Context, cl falconv1.ConsoleClient) ([]string, error) {
	r, err := cl.Recoveries(ctx, &falconv1.RecoveriesRequest{})
	var out []string
	for _, v := range r.GetRecoveries() {
		out = append(out, completion(v.GetId(), v.GetState()+", "+phrase.Faults(v.GetFaults())))
	}
	return out, err
}

// completion is a word with its description; neither holds what a shell or a terminal would obey.
func completion(word, text string) string {
	one := func(s string) string {
		return strings.Join(strings.Fields(clean.String(s)), " ")
	}
	return one(word) + "\t" + one(text)
}

// completeFlags completes flags that take one of a few words.
func completeFlags(c *cobra.Command) {
	words := map[string][]string{"scenario": lab.Names(), "theme": themes.Names()}
	for name, list := range words {
		if c.Flags().Lookup(name) != nil {
			// fails for a flag that is not there
			_ = c.RegisterFlagCompletionFunc(
				name,
				cobra.FixedCompletions(list, cobra.ShellCompDirectiveDefault),
			)
		}
	}
	for _, sub := range c.Commands() {
		completeFlags(sub)
	}
}
