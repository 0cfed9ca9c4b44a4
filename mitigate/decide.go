package mitigate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/failslow/falcon"
)

// Reasons why a decision is refused; Check wraps them with the details.
var (
	ErrNoProposal = errors.New("mitigate: no such proposal")
	ErrStalePlan  = errors.New("mitigate: the plan has changed")
	ErrDecided    = errors.New("mitigate: already decided")
	ErrPolicy     = errors.New("mitigate: policy forbids it")
	ErrNotUseful  = errors.New("mitigate: the rung can't help")
	ErrNoReason   = errors.New("mitigate: a reason is required")
	ErrSecond     = errors.New("mitigate: a second approver is required")
)

// Check reports whether a decision would be taken, and why not.
func (p *Planner) Check(d Decision) error {
	if d.Undo {
		return p.checkUndo(d)
	}
	if d.Action == "" {
		return p.checkStep(d)
	}
	_, a := p.incidents.findAction(func(a *falcon.Action) bool {
		return a.ID == d.Action
	})
	switch {
	case a == nil:
		return fmt.Errorf("%w: %s", ErrNoProposal, d.Action)
	case !decidable(a, d.Approve):
		return fmt.Errorf("%w: %s is %s, decided by %s", ErrDecided, a.ID, a.State, a.DecidedBy)
	case d.PlanHash != a.PlanHash:
		return fmt.Errorf("%w: %s is now plan %s (%s), you decided on plan %s; look again",
			ErrStalePlan, a.ID, a.PlanHash,
			planText(a.Rung, a.MicroBatches, a.Preview, a.Placement), d.PlanHash)
	case d.Approve && p.policy.needsAnother(a, d.By):
		return fmt.Errorf(
			"%w: %s has approved %s already, and %s takes two people; somebody else has to approve it, too",
			ErrSecond, d.By, a.ID, a.Rung,
		)
	}
	return p.checkApproval(d, a.Rung)
}

// decidable reports whether a proposal, or a veto of an unordered approval, is still possible.
func decidable(a *falcon.Action, approve bool) bool {
	return a.State == falcon.ActionProposed || a.State == falcon.ActionApproved && !approve
}

func planText(r falcon.Rung, counts []int32, v *falcon.Preview, to falcon.Placement) string {
	switch {
	case r == falcon.RungS3 && v != nil:
		return "exchanges " + exchangeText(*v)
	case r == falcon.RungS4:
		return "on " + nodeNames(to.Nodes())
	}
	return fmt.Sprintf("micro-batches %v", counts)
}

func (p *Planner) checkApproval(d Decision, r falcon.Rung) error {
	if !d.Approve {
		return nil
	}
	switch o := p.incidents.actionUnderWay(); {
	case r == falcon.RungS4 && strings.TrimSpace(d.Reason) == "":
		return fmt.Errorf(
			"%w: S4 ends every process of the job, so the record must hold why; approve it again with a reason",
			ErrNoReason,
		)
	case p.policy.frozen():
		return fmt.Errorf("%w: actions are frozen, unfreeze first", ErrPolicy)
	case p.policy.observing():
		return fmt.Errorf("%w: the mode is observe, set approve or auto first", ErrPolicy)
	case p.policy.requires(r) == falcon.ApprovalNever:
		return fmt.Errorf("%w: %s is never to be taken, change its approval first", ErrPolicy, r)
	case o != nil:
		return fmt.Errorf("%w: %s is %s, that comes first", ErrPolicy, o.ID, o.State)
	}
	return nil
}

// checkStep judges a step up the ladder without a proposal.
func (p *Planner) checkStep(d Decision) error {
	s := p.incidents.byID(d.Incident)
	switch {
	case s == nil || !s.incident.Open():
		return fmt.Errorf("%w: incident %s is not open", ErrNoProposal, d.Incident)
	case d.Rung.Level() < 2:
		return fmt.Errorf("%w: rung %q can't be taken, only S2, S3 and S4", ErrNotUseful, d.Rung)
	case !d.Approve:
		return fmt.Errorf("%w: nothing is proposed for %s that could be vetoed", ErrNoProposal, d.Incident)
	}
	if err := p.checkApproval(d, d.Rung); err != nil {
		return err
	}
	w, err := p.plans.planRung(s, d.Rung, d.Variant)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotUseful, err)
	}
	hash := w.hashFor(s.incident.ID, p.job.desc.Epoch)
	if d.PlanHash != "" && d.PlanHash != hash {
		return fmt.Errorf("%w: %s for %s is now plan %s (%s), you decided on plan %s; look again",
			ErrStalePlan, d.Rung, d.Incident, hash,
			planText(w.rung, w.counts, w.preview, w.placement), d.PlanHash)
	}
	return nil
}

func (p *Planner) onDecision(d Decision) {
	if err := p.Check(d); err != nil {
		p.out.addNote(cmp.Or(d.Action, d.Incident), "decision", "decision of %s refused: %s",
			d.By, err)
		return
	}
	if d.Undo {
		p.undo(d)
		return
	}
	if d.Action != "" {
		s, a := p.incidents.findAction(func(a *falcon.Action) bool {
			return a.ID == d.Action
		})
		p.recordVote(s, a, d)
		return
	}
	s := p.incidents.byID(d.Incident)
	w, err := p.plans.planRung(s, d.Rung, d.Variant)
	if err != nil {
		return // Check has just passed; nothing changed since
	}
	if a := s.proposal(); a != nil {
		p.out.expireAction(a, d.By+" took "+rungName(w.rung, w.variant)+" instead")
	}
	p.proposePlan(s, w, "stepped up by "+d.By)
	p.recordVote(s, s.proposal(), d)
}

// recordVote records one person's decision. The first of two approvals decides nothing yet.
func (p *Planner) recordVote(s *incidentState, a *falcon.Action, d Decision) {
	if d.Approve {
		a.Approvals = append(slices.Clone(a.Approvals), falcon.Approval{
			By:     d.By,
			From:   d.From,
			UnixNs: p.decisionTime(d),
			Reason: d.Reason,
		})
	}
	if d.Approve && p.policy.rungPolicy(a.Rung).Second && len(a.Approvals) < 2 {
		a.DeadlineUnixNs = 0
		p.out.addNote(a.ID, "decision", "%s approved by %s, waits for a second approver", a.ID, d.By)
		p.out.addAction(*a)
		return
	}
	p.recordDecision(s, a, d)
}

// recordDecision records the decision. A veto ends an approval until it is ordered.
func (p *Planner) recordDecision(s *incidentState, a *falcon.Action, d Decision) {
	verb := "vetoed"
	name := a.ID
	if a.State == falcon.ActionApproved {
		verb = "withdrawn"
	}
	a.DecidedBy = d.By
	a.Reason = d.Reason
	a.DecidedFrom = d.From
	a.DeadlineUnixNs = 0
	a.DecidedUnixNs = p.decisionTime(d)
	a.Phase = ""
	if d.Approve {
		a.State = falcon.ActionApproved
		p.out.addNote(a.ID, "decision", "%s approved by %s",
			a.ID, cmp.Or(approverNames(a.Approvals), d.By))
	} else {
		if len(a.Approvals) > 0 {
			name += ", approved by " + approverNames(a.Approvals) + ","
		}
		a.State = falcon.ActionVetoed
		s.vetoed[a.Rung] = true
		p.ledger.restartAbove(s, a.Rung) // who wants no action now is not asked about a dearer one at once
		p.out.addNote(a.ID, "decision", "%s %s by %s%s",
			name, verb, d.By, reasonSuffix(d.Reason))
	}
	p.out.addAction(*a)
}

// decisionTime is when a decision was made.
func (p *Planner) decisionTime(d Decision) int64 {
	if d.AtUnixNs == 0 && !p.clock.now.IsZero() {
		return p.clock.now.UnixNano()
	}
	return d.AtUnixNs
}

// approverNames names who has approved.
func approverNames(list []falcon.Approval) string {
	var out []string
	for _, v := range list {
		if !slices.Contains(out, v.By) {
			out = append(out, v.By)
		}
	}
	return strings.Join(out, " and ")
}

func reasonSuffix(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
