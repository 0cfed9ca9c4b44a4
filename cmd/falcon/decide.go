package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/report"
)

func decideCommand() *cobra.Command {
	var target engineTarget
	var approve, veto, undo, asJSON bool
	q := &falconv1.DecideRequest{}
	c := &cobra.Command{
		Use:   "decide ID",
		Short: "Approve or veto what is proposed for an incident, or a recovery; undo what is in force",
		Example: `  falcon decide INC-0001 --approve --reason "loss is fine, go on"
  falcon decide INC-0001 --approve --rung S2
  falcon decide INC-0001 --approve --rung S4 --variant replace --reason "n1 is worn out"
  falcon decide INC-0001 --undo --reason "the node is repaired"
  falcon decide REC-0001 --approve`,
		Args: exactlyOneID("incident", "INC-0001"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf(approve, veto, undo); err != nil {
				return err
			}
			if undo && isRecovery(args[0]) {
				return fmt.Errorf(
					"%w: a recovery can't be undone; --undo takes back what is in force for an incident",
					errUsage,
				)
			}
			if !isRecovery(args[0]) &&
				(q.Action == "" && q.Rung == "" && q.PlanHash != "" || q.Action != "" && q.PlanHash == "") {
				return fmt.Errorf("%w: --action and --plan go together", errUsage)
			}
			if q.Action != "" && q.Rung != "" {
				return fmt.Errorf("%w: give --action or --rung, not both", errUsage)
			}
			if q.Variant != "" && q.Rung != string(falcon.RungS4) {
				return fmt.Errorf("%w: --variant says how rung S4 is taken: give --rung S4 with it", errUsage)
			}
			q.Incident = args[0]
			q.Approve = approve
			q.Undo = undo
			if isRecovery(args[0]) {
				return decideRecovery(c, &target, args[0], q, asJSON)
			}
			return decideOn(c, &target, q, asJSON)
		},
	}
	target.declareFlags(c)
	c.ValidArgsFunction = completeIDs(&target, incidentIDs)
	c.Flags().BoolVar(&approve, "approve", false, "let it happen")
	c.Flags().BoolVar(&veto, "veto", false,
		"forbid it for this incident; an approval that has not gone out is withdrawn")
	c.Flags().BoolVar(
		&undo,
		"undo",
		false,
		"take back what is in force for it, S2 or S3: the reverse step is ordered, and the rung is not proposed again",
	)
	c.Flags().StringVar(&q.Reason, "reason", "", "why, for the record; S4 is not approved without one")
	c.Flags().StringVar(&q.Action, "action", "", "the action that was seen (default: the present proposal)")
	c.Flags().StringVar(&q.Rung, "rung", "",
		"take this rung now, also when it is not proposed yet, such as S2")
	c.Flags().StringVar(&q.Variant, "variant", "",
		"how S4 is taken: fence, replace, restart or drop (default: the policy's first that can be)")
	c.Flags().StringVar(&q.PlanHash, "plan", "", "the plan hash that was seen, with --action or a recovery")
	c.Flags().BoolVar(&asJSON, "json", false, "write one JSON document")
	return c
}

func oneOf(approve, veto, undo bool) error {
	given := 0
	for _, is := range []bool{approve, veto, undo} {
		if is {
			given++
		}
	}
	if given != 1 {
		return fmt.Errorf("%w: give one of --approve, --veto and --undo", errUsage)
	}
	return nil
}

func decideOn(c *cobra.Command, t *engineTarget, q *falconv1.DecideRequest, asJSON bool) error {
	r, err := ask(c, t, func(ctx context.Context, cl falconv1.ConsoleClient) (*falconv1.DecideReply, error) {
		return cl.Decide(ctx, q)
	})
	if err != nil {
		return err
	}
	a := report.ActionOf(r.GetAction())
	if asJSON {
		return writeJSON(c.OutOrStdout(), a)
	}
	if text := approvalWaitsFor(a); text != "" {
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s is %s; plan %s, %s\n",
			a.ID, text, a.PlanHash, a.Change())
		return err
	}
	if q.Undo {
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s is %s: %s\n", a.ID, a.State, a.RevertReason)
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(),
		"%s is %s (decided by %s): plan %s, %s, %.1f ms → %.1f ms predicted\n",
		a.ID, a.State, report.OrNobody(a.DecidedBy), a.PlanHash, a.Change(), a.BeforeMs,
		a.PredictedMs)
	return err
}

// approvalWaitsFor is what an approval waits for, or "".
func approvalWaitsFor(a report.Action) string {
	switch {
	case a.Waits():
		return fmt.Sprintf(
			"approved by %s and waits for a second approver: a second person must run this command too",
			report.OrNobody(a.Approvals[0].By),
		)
	case a.State == falcon.ActionApproved && a.DeadlineUnixNs != 0:
		at := time.Unix(0, a.DeadlineUnixNs).UTC().Format(time.TimeOnly)
		return fmt.Sprintf(
			"approved by %s and goes out at %s UTC; falcon decide %s --veto withdraws it until then",
			report.OrNobody(a.DecidedBy), at, a.Incident,
		)
	}
	return ""
}
