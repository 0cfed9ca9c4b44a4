package tui

import (
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/phrase"
)

// rungRestart ends the job's processes: taking it asks for a typed word.
const rungRestart = "S4"

// restarts says whether the dialog's action ends the job's processes.
func (d *dialog) restarts() bool {
	return d.kind == kindTake && d.rung.Rung == rungRestart || d.kind == kindApprove && d.action.Rung == rungRestart
}

// restartWord is what has to be typed before a restart can be pressed: the
// job's name and its number of ranks, so that nobody restarts another job than
// the one meant.
func (m *Model) restartWord() string {
	return strings.TrimSpace(fmt.Sprintf("%s %d", m.live.Snap().GetJob().GetName(), len(m.live.Ranks)))
}

// openTake asks about the rung under the ladder's cursor.
func (m *Model) openTake() tea.Cmd {
	if why := m.lacks("approver", "taking a rung"); why != "" {
		m.say(themes.Warn, why)
		return nil
	}
	if why := m.readOnly(); why != "" {
		m.say(themes.Warn, why)
		return nil
	}
	at, ok := m.pages[key.Ladder].(*ladder.Page)
	if !ok {
		return nil
	}
	s := m.subject()
	g := at.Chosen(s)
	switch prop := s.Proposal(); {
	case g == nil:
		m.say(themes.Dim, "there is no incident to take a rung for")
	case prop == nil && m.awaited().Pending() != nil:
		m.say(themes.Warn, m.noApproval())
	case g.Rung == "S1":
		m.say(themes.Dim, "S1 is what happens when nothing is taken")
	case prop != nil && prop.Rung == g.Rung && prop.Variant == g.Variant:
		return m.openApprove()
	case !g.Applicable:
		m.say(themes.Warn, ladder.Name(g)+" can't be taken: "+g.Reason)
	case g.Current:
		m.say(themes.Dim, ladder.Name(g)+" is in force")
	default:
		d := &dialog{kind: kindTake, focus: buttonCancel, rung: g, inc: s.Snap().GetLadder().GetIncident(), epoch: m.live.Snap().GetJob().GetEpoch()}
		if inc := s.Incident(); inc != nil {
			d.verdict = inc.Verdict
		}
		return m.open(d)
	}
	return nil
}

// outdated says why what the dialog shows is not what would be done, or "".
func (m *Model) outdated(d *dialog) string {
	if _, open := m.live.About(d.inc); !open {
		return d.inc + " is no longer open; close and look again"
	}
	if why := m.otherEpoch(d); why != "" {
		return why
	}
	g := m.sameRung(d)
	switch {
	case g == nil:
		return "the rung is gone; close and look again"
	case g.Current:
		return m.takenBy(d) + "it is in force now"
	case !g.Applicable:
		return "it can't be taken any more: " + g.Reason
	case g.PlanHash != d.rung.PlanHash:
		return planChanged
	}
	return ""
}

// takenBy names who took the rung while the dialog was open.
func (m *Model) takenBy(d *dialog) string {
	for _, a := range m.live.LadderOf(d.inc).GetActions() {
		if a.Rung == d.rung.Rung && a.Variant == d.rung.Variant && a.DecidedUnixNs > d.opened.UnixNano() {
			return decidedText(a) + "; "
		}
	}
	return ""
}

// take asks the engine to take the rung that the dialog showed.
func (m *Model) take(d *dialog) tea.Cmd {
	d.sending, d.err = true, ""
	r := &falconv1.DecideRequest{
		Incident: d.inc, Rung: d.rung.Rung, Variant: d.rung.Variant, PlanHash: d.rung.PlanHash,
		Approve: true, JobEpoch: d.epoch, Reason: d.why(),
	}
	id := d.id
	return func() tea.Msg {
		a, err := m.src.Decide(context.Background(), r)
		return decidedMsg{id, true, a, err}
	}
}

func takeLines(d *dialog, w int) []ladder.Line {
	g := d.rung
	out := wrapped(themes.Title, ladder.Name(g)+" for "+d.inc+", plan "+g.PlanHash+": "+phrase.Rung(g.Rung), w)
	out = append(out, wrapped(themes.Text, ladder.Explain(g, w), w)...)
	if g.PredictedMs > 0 {
		out = append(out, wrapped(themes.Text, "Predicted: "+phrase.Ms(g.PredictedMs)+" an iteration, "+phrase.Ms(g.GainMs)+" less than now; it costs "+phrase.Ms(g.OverheadMs), w)...)
	}
	if g.Rung == rungRestart {
		out = append(out, wrapped(themes.Warn, "All processes of the job end after a checkpoint and are started again.", w)...)
	}
	return append(out, wrapped(themes.Title, "Evidence: "+phrase.Verdict(d.verdict), w)...)
}
