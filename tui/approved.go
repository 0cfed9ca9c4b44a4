package tui

import (
	"fmt"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/phrase"
)

// What is approved and has not gone out: it waits for a second approver, or for
// the end of the time in which anybody who may decide withdraws it. The engine
// says which; nothing here counts for it.

// approvedBar is the proposal bar once somebody has approved.
func (m *Model) approvedBar(s *page.State, standing string) string {
	a := s.Awaited()
	text := " " + a.Rung + " " + standing
	if m.live.OpenIncidents() > 1 {
		text = " " + a.Incident + text
	}
	keys := m.does(key.Why)
	switch {
	case m.opts.Replay != nil || m.live.Feed.Conn != feed.Live || !m.may("approver"):
		keys = m.decisionKeys()
	case !phrase.Waits(a):
		text += ", " + m.table.Name(key.Veto, key.Global) + " withdraws it"
	case m.approvedMyself(a):
		keys = m.does(key.Veto) + "  " + keys
	default:
		keys = m.decisionKeys()
	}
	return row(m.pal.Style(themes.Urgent), m.w, text, keys+" ", 2)
}

// awaited is the incident that approving and vetoing act on: the subject, else
// the one whose action is approved and has not gone out.
func (m *Model) awaited() *page.State {
	s := m.subject()
	if s.Awaited() != nil || m.dialog.incident() != "" {
		return s
	}
	if other, ok := m.live.About(m.live.PendingFor()); ok {
		return other
	}
	return s
}

// approvedMyself says that the operator at this screen is the first of two.
func (m *Model) approvedMyself(a *falconv1.Action) bool {
	return phrase.Has(a, m.live.Snap().GetActor())
}

// noApproval says why what is at hand can't be approved here, or "".
func (m *Model) noApproval() string {
	s := m.awaited()
	switch p := s.Proposal(); {
	case p == nil && s.Pending() != nil:
		a := s.Pending()
		return a.Rung + " is " + page.Standing(m.live, a) + "; " + m.table.Name(key.Veto, key.Global) + " withdraws it"
	case p == nil:
		return m.nothingProposed()
	case m.wantsTwo(p.Rung) && m.approvedMyself(p):
		return "you have approved " + p.Rung + " already; another person has to approve it, too"
	}
	return ""
}

// wantsTwo says that policy asks for a second approver of a rung.
func (m *Model) wantsTwo(rung string) bool {
	return m.live.Snap().GetPolicy().GetRungs()[rung].GetSecond()
}

// withdraws says that the dialog takes an approval back.
func (d *dialog) withdraws() bool {
	return d.kind == kindVeto && d.action.GetState() == "approved"
}

// subjectNow is what the dialog decides on as it is now: a proposal, and for a
// veto also what was approved meanwhile and is not ordered.
func (m *Model) subjectNow(d *dialog) *falconv1.Action {
	if d.kind == kindVeto {
		return m.live.AwaitedOf(d.inc)
	}
	return m.live.ProposalOf(d.inc)
}

// approvalLines say in a dialog who has approved, and what an approval here
// would begin.
func (m *Model) approvalLines(d *dialog, w int) []ladder.Line {
	now := m.subjectNow(d)
	switch {
	case d.action == nil && d.rung == nil:
		return nil
	case d.action != nil && now.GetId() != d.action.Id:
		return nil
	case d.kind == kindVeto:
		if text := page.Standing(m.live, now); text != "" {
			return wrapped(themes.Auto, " "+now.Rung+" is "+text+m.firstReason(now)+" ", w)
		}
		return nil
	}
	rung := d.rung.GetRung()
	if d.action != nil {
		rung = d.action.Rung
	}
	var out []ladder.Line
	switch {
	case d.action != nil && phrase.Waits(now):
		out = wrapped(themes.Auto, " "+phrase.Approvers(now)+" has approved this"+m.firstReason(now)+"; your approval is the second ", w)
	case m.wantsTwo(rung):
		out = wrapped(themes.Warn, "Two people have to approve "+rung+": nothing happens until somebody else has approved it, too.", w)
	}
	if undo := m.live.Snap().GetPolicy().GetRungs()[rung].GetUndoS(); undo > 0 {
		text := fmt.Sprintf("It goes out %s after the approval; until then %s withdraws it.", phrase.Seconds(time.Duration(undo*float64(time.Second))), m.table.Name(key.Veto, key.Global))
		out = append(out, wrapped(themes.Text, text, w)...)
	}
	return out
}

// firstReason is ": REASON" where the first who approved gave one.
func (m *Model) firstReason(a *falconv1.Action) string {
	if list := a.GetApprovals(); len(list) > 0 {
		return because(list[0].GetReason())
	}
	return ""
}
