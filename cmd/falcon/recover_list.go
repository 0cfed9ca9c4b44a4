package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/report"
)

const recoveryHelp = `List and show recoveries from fail-stop faults, and what would be lost if a part of
the cluster went now.

Ranks are counted from 0; times are in milliseconds; a resume iteration of -1 is
not chosen yet. --json writes the recoveries with their faults (kind, node, ranks,
evidence), what was replaced where, where every shard came from, and each phase's
time beside the predicted one:
  {"recoveries":[{"id":"REC-0001","state":"resumed","generation":1,"faults":[…],"replaced":{"5":"n2.g1"},
   "survivors":[0,1,…],"fenced":["n1"],"resume_iteration":120,"moves":[{"rank":5,"from":1}],
   "phases_ms":{"detect":12.5,…},"predicted_ms":{…},"decided_by":"policy",…}]}`

func recoveryCommand() *cobra.Command {
	var target engineTarget
	c := &cobra.Command{
		Use:     "recovery",
		Short:   "List, show and abort recoveries, and see what would be lost",
		Long:    recoveryHelp,
		Example: "  falcon recovery show REC-0001\n  falcon recovery map",
	}
	target.declareFlags(c)
	c.AddCommand(
		recoveryListCommand(&target),
		recoveryShowCommand(&target),
		recoveryMapCommand(&target),
		recoveryAbortCommand(&target),
		recoveryEndedCommand(&target),
	)
	completeIDsBelow(c, &target, recoveryIDs)
	return c
}

func fetchRecoveries(
	c *cobra.Command,
	t *engineTarget,
	q *falconv1.RecoveriesRequest,
) (*falconv1.RecoveriesReply, error) {
	return ask(c, t, func(ctx context.Context, cl falconv1.ConsoleClient) (*falconv1.RecoveriesReply, error) {
		return cl.Recoveries(ctx, q)
	})
}

func recoveryListCommand(t *engineTarget) *cobra.Command {
	return documentCommand(&cobra.Command{
		Use:     "list",
		Short:   "List recoveries, newest first",
		Example: "  falcon recovery list --json",
		Args:    takesNothing,
	}, func(c *cobra.Command, _ []string) (recoveryList, error) {
		r, err := fetchRecoveries(c, t, &falconv1.RecoveriesRequest{})
		list := make([]recoveryReport, 0, len(r.GetRecoveries()))
		for _, v := range r.GetRecoveries() {
			list = append(list, recoveryReportOf(v))
		}
		return recoveryList{list}, err
	}, listRecoveries)
}

type recoveryList struct {
	Recoveries []recoveryReport `json:"recoveries"`
}

func listRecoveries(w io.Writer, list recoveryList) error {
	if len(list.Recoveries) == 0 {
		return writeString(w, "no recoveries\n")
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "ID\tSTATE\tFAULT\tREPLACED\tRESUMED AT\tTOOK\tDECIDED BY")
	for _, v := range list.Recoveries {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d of %d ranks\t%s\t%s\t%s\n",
			v.ID, v.State, faultText(v.Faults), len(v.Replaced),
			len(v.Replaced)+len(v.Survivors), resumeText(v.Resume),
			v.elapsedText(), report.OrNobody(v.DecidedBy))
	}
	return tw.Flush()
}

// faultText is the gravest fault in a few words, as the console names it.
func faultText(faults []falcon.Fault) string {
	return phrase.Faults(convert.RecoveryToProto(falcon.Recovery{Faults: faults}).GetFaults())
}

func resumeText(i int64) string {
	if i < 0 {
		return "not chosen"
	}
	return fmt.Sprint(i)
}

func recoveryShowCommand(t *engineTarget) *cobra.Command {
	return documentCommand(&cobra.Command{
		Use:     "show ID",
		Short:   "Show one recovery: evidence, phases, where every shard came from",
		Example: "  falcon recovery show REC-0001",
		Args:    exactlyOneID("recovery", "REC-0001"),
	}, func(c *cobra.Command, args []string) (recoveryReport, error) {
		r, err := fetchRecoveries(c, t, &falconv1.RecoveriesRequest{Id: args[0]})
		if err != nil {
			return recoveryReport{}, err
		}
		if len(r.GetRecoveries()) != 1 {
			return recoveryReport{}, fmt.Errorf("the engine answers with %d recoveries for %s",
				len(r.GetRecoveries()), clean.String(args[0]))
		}
		return recoveryReportOf(r.GetRecoveries()[0]), nil
	}, writeRecovery)
}

func recoveryAbortCommand(t *engineTarget) *cobra.Command {
	var reason string
	var asJSON bool
	c := &cobra.Command{
		Use:     "abort ID",
		Short:   "End a recovery before its ranks are ordered to go on; the job then stays stopped",
		Example: `  falcon recovery abort REC-0001 --reason "the rack is being moved"`,
		Args:    exactlyOneID("recovery", "REC-0001"),
		RunE: func(c *cobra.Command, args []string) error {
			return recoverOn(
				c,
				t,
				&falconv1.RecoverRequest{
					Recovery: args[0],
					Verb:     "abort",
					Reason:   reason,
				},
				asJSON,
			)
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	c.Flags().BoolVar(&asJSON, "json", false, "write one JSON document")
	return c
}

func recoveryEndedCommand(t *engineTarget) *cobra.Command {
	var reason string
	var asJSON bool
	c := &cobra.Command{
		Use:   "ended ID",
		Short: "State that nothing of the job runs on nodes that are given up and not heard; see for yourself first: two jobs would write the same checkpoints",
		Long: "A recovery that keeps no rank waits where nothing proves that the job's processes have ended: they may train on where no agent is heard. " +
			"Look at these nodes, or have their power cut, before you state that they have.",
		Example: `  falcon recovery ended REC-0001 --reason "the rack has no power, I was there"`,
		Args:    exactlyOneID("recovery", "REC-0001"),
		RunE: func(c *cobra.Command, args []string) error {
			if reason == "" {
				return errors.New("--reason is missing: say how you know that nothing of the job runs there")
			}
			return recoverOn(
				c,
				t,
				&falconv1.RecoverRequest{
					Recovery: args[0],
					Verb:     "ended",
					Reason:   reason,
				},
				asJSON,
			)
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "how you know it, for the record")
	c.Flags().BoolVar(&asJSON, "json", false, "write one JSON document")
	return c
}

// exposureMap is what would be lost with each part of the cluster.
type exposureMap struct {
	Exposures []exposureReport `json:"exposures"`
	Note      string           `json:"note"`
}

// exposureReport is what would be lost with a part of the cluster.
type exposureReport struct {
	Domain     string        `json:"domain"`
	Nodes      []falcon.Node `json:"nodes"`
	Ranks      []int32       `json:"ranks"`
	Why        string        `json:"why,omitempty"`
	Checkpoint int64         `json:"checkpoint_iteration"` // falcon.NoIteration = none
	Spare      bool          `json:"spare"`
}

func recoveryMapCommand(t *engineTarget) *cobra.Command {
	return documentCommand(&cobra.Command{
		Use:     "map",
		Short:   "What would have no replica if a node or rack went now, worst first",
		Example: "  falcon recovery map --json",
		Args:    takesNothing,
	}, func(c *cobra.Command, _ []string) (exposureMap, error) {
		r, err := fetchRecoveries(c, t, &falconv1.RecoveriesRequest{Map: true})
		out := exposureMap{
			Exposures: make([]exposureReport, 0, len(r.GetExposures())),
			Note:      clean.String(r.GetNote()),
		}
		for _, x := range r.GetExposures() {
			out.Exposures = append(out.Exposures, exposureReport{
				Domain:     clean.String(x.GetDomain()),
				Nodes:      report.Cleaned[falcon.Node](x.GetNodes()),
				Ranks:      x.GetRanks(),
				Why:        clean.String(x.GetWhy()),
				Checkpoint: x.GetCheckpointIteration(),
				Spare:      x.GetSpare(),
			})
		}
		return out, err
	}, writeMap)
}

func writeMap(w io.Writer, m exposureMap) error {
	if len(m.Exposures) == 0 {
		return writeString(w, "no map: "+cmp.Or(m.Note, "nothing is known of the job's nodes")+"\n")
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "IF THIS WENT\tLOST\tTHEN\tSPARE")
	for _, x := range m.Exposures {
		lost := "nothing"
		then := "restored from replicas"
		spare := "none"
		if n := len(x.Ranks); n > 0 {
			lost = fmt.Sprintf("the state of %d ranks, the first rank %d", n, x.Ranks[0])
			then = "no checkpoint is known of: " + x.Why
			if x.Checkpoint >= 0 {
				then = fmt.Sprintf("all go back to the checkpoint of iteration %d: %s", x.Checkpoint, x.Why)
			}
		}
		if x.Spare {
			spare = "there"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", x.Domain, lost, then, spare)
	}
	return tw.Flush()
}
