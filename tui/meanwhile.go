package tui

import (
	"fmt"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/phrase"
)

// What may happen while a dialog is open: somebody else decides, the plan
// changes, the job is restarted. The dialog then says so, and what has changed,
// and takes no decision any more.

const planChanged = "the plan has changed since this dialog opened; close and look again"

// overtaken says why the proposal that the dialog shows can't be decided on any
// more, or "".
func (m *Model) overtaken(d *dialog) string {
	if why := m.otherEpoch(d); why != "" {
		return why
	}
	now := m.subjectNow(d)
	switch {
	case d.kind == kindApprove && now.GetId() == d.action.Id && m.noApproval() != "":
		return m.noApproval()
	case now.GetId() == d.action.Id && now.PlanHash == d.action.PlanHash:
		return ""
	case now.GetId() == d.action.Id:
		return planChanged
	}
	return m.fate(d)
}

// otherEpoch says that the job is not the one that the dialog was opened for.
func (m *Model) otherEpoch(d *dialog) string {
	if now := m.live.Snap().GetJob().GetEpoch(); now != d.epoch {
		return fmt.Sprintf("the job was restarted since this dialog opened (epoch %d, now %d); close and look again", d.epoch, now)
	}
	return ""
}

// fate says what has become of a proposal, and by whom.
func (m *Model) fate(d *dialog) string {
	for _, a := range m.live.LadderOf(d.inc).GetActions() {
		if a.Id == d.action.Id && a.State != "proposed" {
			return decidedText(a)
		}
	}
	return "this proposal is no longer open; close and look again"
}

func decidedText(a *falconv1.Action) string {
	if a.State == "expired" {
		return a.Rung + " expired" + because(a.Reason) + "; close and look again"
	}
	verb, after := "approved", "; it is "+a.State+" now"
	if a.State == "vetoed" {
		verb, after = "vetoed", because(a.Reason)
	}
	at := ""
	if a.DecidedUnixNs > 0 {
		at = " at " + time.Unix(0, a.DecidedUnixNs).UTC().Format("15:04:05Z")
	}
	who := a.DecidedBy
	if a.State != "vetoed" && len(a.Approvals) > 1 {
		who = phrase.Approvers(a)
	}
	return fmt.Sprintf("%s has %s this%s%s", somebody(who), verb, at, after)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func somebody(name string) string {
	if name == "" {
		return "somebody"
	}
	return name
}

// changedLines tell how the plan differs from the one that the dialog showed.
func (m *Model) changedLines(d *dialog, w int) []ladder.Line {
	var list []string
	switch {
	case d.action != nil:
		if now := m.subjectNow(d); now.GetId() == d.action.Id && now.PlanHash != d.action.PlanHash {
			list = ladder.Changes(ladder.PlanOf(d.action), ladder.PlanOf(now))
		}
	case d.rung != nil:
		if now := m.sameRung(d); now.GetPlanHash() != "" && now.PlanHash != d.rung.PlanHash {
			list = ladder.Changes(ladder.PlanOfRung(d.rung), ladder.PlanOfRung(now))
		}
	}
	var out []ladder.Line
	for i, text := range list {
		if i == 0 {
			out = wrapped(themes.Urgent, " CHANGED since this dialog opened ", w)
		}
		out = append(out, wrapped(themes.Warn, "  "+text, w)...)
	}
	return out
}

// sameRung is the rung that the dialog is about as it is now, or nil.
func (m *Model) sameRung(d *dialog) *falconv1.RungView {
	for _, g := range m.live.LadderOf(d.inc).GetRungs() {
		if g.Rung == d.rung.Rung && g.Variant == d.rung.Variant {
			return g
		}
	}
	return nil
}

// countdownLines say when policy approves what the dialog is about by itself.
func (m *Model) countdownLines(d *dialog, w int) []ladder.Line {
	if d.action == nil {
		return nil
	}
	now := m.live.ProposalOf(d.inc)
	if now.GetId() != d.action.Id {
		return nil
	}
	left, ok := page.Countdown(m.live, now)
	if !ok {
		return nil
	}
	return wrapped(themes.Auto, " AUTOMATIC: policy approves this in "+phrase.Seconds(left)+"; a veto or "+m.table.Name(key.Freeze, key.Global)+" stops it ", w)
}
