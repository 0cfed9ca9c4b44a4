package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/report"
)

const recoverHelp = `Have a node replaced, or a rank replaced, although no fault was seen; or take a
fenced node back.

With --node the job is suspended, the node is fenced, its ranks move to a spare,
and training goes on with the state of their replicas. With --rank only that
rank's process ends and is replaced on its own device. At most one step is done
again. With --lift a node that an earlier recovery has fenced may be a spare
again: look at it first. --bar keeps a node, or the node of a device, from being
used as a spare by S4 and by recoveries, for the time --for says; ranks that are
on it stay. --unbar ends that before. All need the role approver and a reason, which is kept
with the decision.

--json writes the recovery as falcon recovery show does.`

// recoverFlags are the flags of falcon recover.
type recoverFlags struct {
	node, lift, reason string
	bar, unbar         string
	long               time.Duration
	anyway             bool
	rank               int32
	json               bool
}

func recoverCommand() *cobra.Command {
	var target engineTarget
	f := recoverFlags{rank: -1}
	c := &cobra.Command{
		Use:   "recover",
		Short: "Replace a node or a rank by hand, or take a fenced node back",
		Long:  recoverHelp,
		Example: `  falcon recover --node n3 --reason "fan is failing"
  falcon recover --rank 5 --reason "leaks memory"
  falcon recover --lift n3 --reason "fan replaced"
  falcon recover --bar n3 --for 8h --reason "fan is loud"
  falcon recover --unbar n3 --reason "fan replaced"`,
		Args: takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			q, err := f.request()
			if err != nil {
				return err
			}
			return recoverOn(c, &target, q, f.json)
		},
	}
	target.declareFlags(c)
	c.Flags().StringVar(&f.node, "node", "", "the node to be fenced and replaced")
	c.Flags().Int32Var(&f.rank, "rank", f.rank, "the rank to be replaced")
	c.Flags().StringVar(&f.lift, "lift", "", "the fenced node that is sound again")
	c.Flags().StringVar(&f.bar, "bar", "", "the node or device that is not to be used as a spare")
	c.Flags().DurationVar(&f.long, "for", 8*time.Hour, "with --bar: how long, at most 30 days (720h)")
	c.Flags().BoolVar(&f.anyway, "anyway", false, "with --bar: also where no spare is left then")
	c.Flags().StringVar(&f.unbar, "unbar", "", "the node or device that may be used again")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the record")
	c.Flags().BoolVar(&f.json, "json", false, "write one JSON document")
	return c
}

func (f recoverFlags) request() (*falconv1.RecoverRequest, error) {
	q := &falconv1.RecoverRequest{Rank: f.rank, Reason: f.reason}
	given := 0
	for verb, is := range map[string]bool{
		"fence": f.node != "",
		"renew": f.rank >= 0,
		"lift":  f.lift != "",
		"bar":   f.bar != "",
		"unbar": f.unbar != "",
	} {
		if is {
			q.Verb = verb
			given++
		}
	}
	if given != 1 {
		return nil, fmt.Errorf("%w: give one of --node, --rank, --lift, --bar and --unbar", errUsage)
	}
	if f.reason == "" {
		return nil, fmt.Errorf("%w: say why with --reason: it is kept with the decision", errUsage)
	}
	q.Node = f.node + f.lift + f.bar + f.unbar
	if f.bar != "" {
		q.ForNs = f.long.Nanoseconds()
		q.Anyway = f.anyway
	}
	return q, nil
}

func recoverOn(c *cobra.Command, t *engineTarget, q *falconv1.RecoverRequest, asJSON bool) error {
	r, err := ask(c, t, func(ctx context.Context, cl falconv1.ConsoleClient) (*falconv1.RecoverReply, error) {
		return cl.Recover(ctx, q)
	})
	if err != nil {
		return err
	}
	v := r.GetRecovery()
	switch {
	case asJSON && v != nil:
		return writeJSON(c.OutOrStdout(), recoveryReportOf(v))
	case asJSON:
		return writeJSON(c.OutOrStdout(), map[string]any{doneWords[q.GetVerb()].json: q.GetNode()})
	case v == nil:
		_, err = fmt.Fprintf(
			c.OutOrStdout(),
			doneWords[q.GetVerb()].text+"\n",
			clean.String(q.GetNode()),
		)
	default:
		err = writeRecoveryLine(c.OutOrStdout(), recoveryReportOf(v).Recovery)
	}
	return err
}

// doneWords are what demands have led to that lead to no recovery.
var doneWords = map[string]struct{ json, text string }{
	"lift":  {"lifted", "the fence of node %s is lifted"},
	"bar":   {"barred", "%s is barred: it is not used as a spare; falcon device lists bars"},
	"unbar": {"unbarred", "%s may be used as a spare again"},
}

// writeRecoveryLine says on one line where a recovery stands.
func writeRecoveryLine(w io.Writer, v falcon.Recovery) error {
	text := fmt.Sprintf("%s is %s (decided by %s): plan %s, generation %d",
		v.ID, v.State, report.OrNobody(v.DecidedBy), v.PlanHash, v.Generation)
	if v.Reason != "" {
		text += ": " + v.Reason
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// isRecovery reports whether an id is a recovery's instead of an incident's.
func isRecovery(id string) bool {
	return len(id) > 4 && id[:4] == "REC-"
}

// decideRecovery approves or denies a recovery that waits for a person.
func decideRecovery(
	c *cobra.Command,
	t *engineTarget,
	id string,
	q *falconv1.DecideRequest,
	asJSON bool,
) error {
	if q.Action != "" || q.Rung != "" || q.Variant != "" {
		return fmt.Errorf(
			"%w: --action, --rung and --variant are for incidents; %s takes --plan and --reason",
			errUsage, clean.String(id),
		)
	}
	verb := "deny"
	if q.Approve {
		verb = "approve"
	}
	return recoverOn(
		c,
		t,
		&falconv1.RecoverRequest{
			Recovery: id,
			Verb:     verb,
			PlanHash: q.PlanHash,
			Reason:   q.Reason,
		},
		asJSON,
	)
}
