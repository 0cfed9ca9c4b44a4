package tui

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/events"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/report"
)

// clipboardMax bounds what is sent to the clipboard, in bytes: terminals drop
// longer sequences, or the connection with them.
const clipboardMax = 4096

// Saver writes a file for the operator and returns where; it may block. Names
// hold letters, digits, dashes and dots only.
type Saver func(name string, data []byte) (path string, err error)

// savedMsg is how writing a file ended.
type savedMsg struct {
	what string
	path string
	err  error
}

// noteText returns where a file is, or why there is none.
func (msg savedMsg) noteText() (themes.Role, string) {
	if msg.err != nil {
		return themes.Warn, msg.what + "; no file: " + clean.String(msg.err.Error())
	}
	return themes.Good, msg.what + "; also in " + msg.path
}

// exporter copies text to the clipboard, which the terminal may ignore, and to files
// where there is a place for them.
type exporter struct {
	save      Saver  // nil = nowhere
	why       string // there is no save
	recording string // file that this session is recorded in
}

// copyText sends a text to the clipboard and to a file; note is what to say.
func (x exporter) copyText(what, name, text string) (note string, cmd tea.Cmd) {
	clip, whole := fitClipboard(strings.TrimSuffix(text, "\n"))
	note = what + " sent to clipboard (terminal may ignore it)"
	if !whole {
		note = what + " sent to clipboard, cut at 4 KB (terminal may ignore it)"
	}
	cmds := []tea.Cmd{tea.SetClipboard(clip)}
	if save := x.save; save != nil {
		cmds = append(cmds, func() tea.Msg {
			path, err := save(name, []byte(text))
			return savedMsg{note, path, err}
		})
	}
	return note, tea.Batch(cmds...)
}

// exportedMsg is a report that was made, or why there is none.
type exportedMsg struct {
	id   string
	text string
	path string // of the Markdown; "" = written nowhere
	err  error
}

// makeReport writes an incident's report as Markdown and JSON, like falcon incident export.
func (x exporter) makeReport(src feed.Source, id string) tea.Cmd {
	return func() tea.Msg {
		r, err := src.Incidents(context.Background(), id)
		if err != nil || len(r.GetIncidents()) == 0 {
			return exportedMsg{id: id, err: err}
		}
		s := report.Of(r)[0]
		s.Recording = x.recording
		return x.writeReport(s)
	}
}

func (x exporter) writeReport(s report.Incident) exportedMsg {
	js, err := s.JSON()
	if err != nil {
		return exportedMsg{id: s.ID, err: err}
	}
	return x.writeBoth(s.ID, exportedMsg{id: s.ID, text: s.Markdown()}, js)
}

// makeHistory writes the history as Markdown and JSON.
func (x exporter) makeHistory(r *falconv1.HistoryReply) tea.Cmd {
	return func() tea.Msg {
		h := report.HistoryOf(r)
		js, err := h.JSON()
		if err != nil {
			return exportedMsg{id: "the history", err: err}
		}
		return x.writeBoth("history", exportedMsg{id: "the history", text: h.Markdown()}, js)
	}
}

// writeBoth writes a report as JSON and, if that succeeds, as Markdown.
func (x exporter) writeBoth(name string, out exportedMsg, js []byte) exportedMsg {
	if x.save == nil {
		return out
	}
	if _, out.err = x.save(name+".json", js); out.err == nil {
		out.path, out.err = x.save(name+".md", []byte(out.text))
	}
	return out
}

// exportedNote returns where the report is; without files its beginning goes to the clipboard.
func (x exporter) exportedNote(msg exportedMsg) (themes.Role, string, tea.Cmd) {
	switch {
	case msg.err != nil:
		return themes.Bad, "no report of " + msg.id + ": " + clean.String(msg.err.Error()), nil
	case msg.text == "":
		return themes.Warn, "there is no incident " + msg.id, nil
	case msg.path != "":
		return themes.Good, "the report is in " + msg.path + ", and beside it as JSON", nil
	}
	clip, _ := fitClipboard(msg.text)
	note := cmp.Or(x.why, "this session writes no files") +
		": the report's beginning was sent to clipboard (terminal may ignore it)"
	return themes.Good, note, tea.SetClipboard(clip)
}

// fitClipboard cuts text at the end of a line that the clipboard takes.
func fitClipboard(text string) (clip string, whole bool) {
	if len(text) <= clipboardMax {
		return text, true
	}
	cut := strings.LastIndexByte(text[:clipboardMax], '\n')
	if cut <= 0 {
		return strings.ToValidUTF8(text[:clipboardMax], ""), false
	}
	return text[:cut], false
}

// underCursor is what the cursor is on, in words.
func (v *workspace) underCursor() (what, text string) {
	switch v.current {
	case key.Ranks, key.Grid, key.Posterior, key.Validate:
		if n := v.state.Rank(); int(n) < v.state.Roster.World() {
			return fmt.Sprintf("rank %d", n), rankSummary(v.state, n)
		}
	case key.Recovery:
		if p, ok := v.pages[key.Recovery].(page.Chooser); ok {
			for _, r := range v.state.RecoveryList() {
				if r.GetId() == p.Chosen(v.state) {
					return r.GetId(), recoveryText(v.state, r)
				}
			}
		}
	case key.Events:
		if p, ok := v.pages[key.Events].(*events.Page); ok {
			if e := p.Under(v.state); e != nil {
				return "the event", eventText(e)
			}
		}
	default:
		if s := v.drawnState(v.current); s.Incident() != nil {
			return s.Incident().Id, incidentText(s)
		}
	}
	return "", ""
}

func rankSummary(s *page.State, n int32) string {
	r := s.Roster.View(n)
	_, health, _ := s.Health(r)
	tp, dp, pp := s.Coord(n)
	out := fmt.Sprintf("rank %d on %s (tp %d, dp %d, pp %d): %s, iteration %s %s vs its baseline",
		n, r.GetDevice(), tp, dp, pp, health, phrase.Ms(r.GetMs()),
		phrase.Percent(r.GetSlowdown()))
	if r.GetSelfRatio() > 0 {
		out += fmt.Sprintf(", self time %.2f x its peers", r.GetSelfRatio())
	}
	if r.GetSmClockMhz() > 0 {
		out += fmt.Sprintf(", %d MHz, %d °C", r.GetSmClockMhz(), r.GetTemperatureC())
	}
	if text := phrase.Busy(r); text != "" {
		out += ", " + text
	}
	if cause := s.Blamed(n); cause != "" {
		out += ", named for " + cause
	}
	return out + fmt.Sprintf(" (job %s, iteration %d)\n",
		s.Snap().GetJob().GetName(), r.GetIteration())
}

func incidentText(s *page.State) string {
	i := s.Incident()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s, job %s: slow since iteration %d%s, %s instead of %s\n%s\n",
		i.Id, i.State, s.Snap().GetJob().GetName(), i.OnsetIteration,
		phrase.Prefixed(", ", phrase.Since(i, s.EngineNow(), s.Zone)), phrase.Ms(i.SlowMs),
		phrase.Ms(phrase.Before(i)), phrase.Verdict(i.Verdict))
	for _, e := range i.GetVerdict().GetEvidence() {
		fmt.Fprintf(&b, "  %s: %s\n", report.ForOrAgainst(e.GetAgainst()), e.GetText())
	}
	for _, a := range s.Snap().GetLadder().GetActions() {
		by := cmp.Or(phrase.Prefixed("decided by ", a.GetDecidedBy()), "undecided")
		fmt.Fprintf(&b, "%s %s, %s\n", a.GetId(), a.GetState(), by)
	}
	return b.String()
}

func recoveryText(s *page.State, r *falconv1.Recovery) string {
	out := r.GetId() + " " + s.RecoverySummary(r) + "\n"
	for _, f := range r.GetFaults() {
		out += fmt.Sprintf("  %s %s %s ranks %v: %s\n",
			f.GetKind(), f.GetNode(), f.GetDevice(), f.GetRanks(),
			strings.Join(f.GetEvidence(), "; "))
	}
	return out
}

func eventText(e *falconv1.EventLine) string {
	return fmt.Sprintf("%s iter %d %s: %s\n", feed.Stamp(e), e.Iteration, e.Kind, e.Text)
}
