package tui

import (
	"context"

	tea "charm.land/bubbletea/v2"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/phrase"
)

// rungRestart ends the job's processes: taking it asks for a typed word.
const rungRestart = "S4"

// mustType is what has to be typed before the dialog's action can be pressed,
// or "": a restart of the whole job wants the incident's id.
func (d *dialog) mustType() string {
	switch {
	case d.kind == kindTake && d.rung.Rung == rungRestart:
		return d.inc
	case d.kind == kindApprove && d.action.Rung == rungRestart:
		return d.action.Incident
	}
	return ""
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
	g := at.Chosen(m.live)
	switch prop := m.live.Proposal(); {
	case g == nil:
		m.say(themes.Dim, "there is no incident to take a rung for")
	case g.Rung == "S1":
		m.say(themes.Dim, "S1 is what happens when nothing is taken")
	case prop != nil && prop.Rung == g.Rung && prop.Variant == g.Variant:
		return m.openApprove()
	case !g.Applicable:
		m.say(themes.Warn, ladder.Name(g)+" can't be taken: "+g.Reason)
	case g.Current:
		m.say(themes.Dim, ladder.Name(g)+" is in force")
	default:
		d := &dialog{kind: kindTake, focus: buttonCancel, rung: g, inc: m.live.Snap().GetLadder().GetIncident(), epoch: m.live.Snap().GetJob().GetEpoch()}
		if inc := m.live.Incident(); inc != nil {
			d.verdict = inc.Verdict
		}
		return m.open(d)
	}
	return nil
}

// outdated says why what the dialog shows is not what would be done, or "".
func (m *Model) outdated(d *dialog) string {
	l := m.live.Snap().GetLadder()
	if l.GetIncident() != d.inc {
		return "the incident is no longer the present one; close and look again"
	}
	for _, g := range l.GetRungs() {
		if g.Rung != d.rung.Rung || g.Variant != d.rung.Variant {
			continue
		}
		switch {
		case !g.Applicable:
			return "it can't be taken any more: " + g.Reason
		case g.PlanHash != d.rung.PlanHash:
			return "the plan has changed since this dialog opened; close and look again"
		}
		return ""
	}
	return "the rung is gone; close and look again"
}

// take asks the engine to take the rung that the dialog showed.
func (m *Model) take(d *dialog) tea.Cmd {
	d.sending, d.err = true, ""
	r := &falconv1.DecideRequest{
		Incident: d.inc, Rung: d.rung.Rung, Variant: d.rung.Variant, PlanHash: d.rung.PlanHash,
		Approve: true, JobEpoch: d.epoch,
	}
	id := d.id
	return func() tea.Msg {
		a, err := m.src.Decide(context.Background(), r)
		return decidedMsg{id, true, a, err}
	}
}

func takeLines(d *dialog, w int) []ladder.Line {
	g := d.rung
	out := wrapped(themes.Title, ladder.Name(g)+" for "+d.inc+": "+phrase.Rung(g.Rung), w)
	out = append(out, wrapped(themes.Text, ladder.Explain(g, w), w)...)
	if g.PredictedMs > 0 {
		out = append(out, wrapped(themes.Text, "Predicted: "+phrase.Ms(g.PredictedMs)+" an iteration, "+phrase.Ms(g.GainMs)+" less than now; it costs "+phrase.Ms(g.OverheadMs), w)...)
	}
	if g.Rung == rungRestart {
		out = append(out, wrapped(themes.Warn, "All processes of the job end after a checkpoint and are started again.", w)...)
	}
	return append(out, wrapped(themes.Title, "Evidence: "+phrase.Verdict(d.verdict), w)...)
}
