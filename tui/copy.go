package tui

import (
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
)

// clipboardMax bounds what is sent to the clipboard, in bytes: terminals drop
// longer sequences, or the connection with them.
const clipboardMax = 4096

// savedMsg is how writing a file ended.
type savedMsg struct {
	what string
	path string
	err  error
}

// Saver writes a file for the operator and says where; it may block. Names
// hold letters, digits, dashes and dots only.
type Saver func(name string, data []byte) (path string, err error)

// copyLink sends the link to what is on screen to the clipboard.
func (m *Model) copyLink() tea.Cmd {
	return m.send("link "+m.here().String(), "link.txt", m.here().String()+"\n")
}

// copyHere sends what is under the cursor.
func (m *Model) copyHere() tea.Cmd {
	what, text := m.underCursor()
	if text == "" {
		m.say(themes.Dim, "there is nothing under the cursor to copy")
		return nil
	}
	return m.send(what, "copied.txt", text)
}

// send writes to the clipboard and, where there is a place for it, to a file:
// terminals may ignore the one, and the other is always whole.
func (m *Model) send(what, name, text string) tea.Cmd {
	clip, whole := fit(strings.TrimSuffix(text, "\n"))
	note := what + " sent to clipboard (terminal may ignore it)"
	if !whole {
		note = what + " sent to clipboard, cut at 4 KB (terminal may ignore it)"
	}
	m.say(themes.Good, note)
	cmds := []tea.Cmd{tea.SetClipboard(clip)}
	if m.opts.Save != nil {
		cmds = append(cmds, m.save(note, name, []byte(text)))
	}
	return tea.Batch(cmds...)
}

func (m *Model) save(what, name string, data []byte) tea.Cmd {
	save := m.opts.Save
	return func() tea.Msg {
		path, err := save(name, data)
		return savedMsg{what, path, err}
	}
}

// saved says where a file is, or why there is none.
func (m *Model) saved(msg savedMsg) {
	if msg.err != nil {
		m.say(themes.Warn, msg.what+"; no file: "+clean.String(msg.err.Error()))
		return
	}
	m.say(themes.Good, msg.what+"; also in "+msg.path)
}

// fit cuts text at the end of a line that the clipboard takes.
func fit(text string) (clip string, whole bool) {
	if len(text) <= clipboardMax {
		return text, true
	}
	cut := strings.LastIndexByte(text[:clipboardMax], '\n')
	if cut <= 0 {
		return strings.ToValidUTF8(text[:clipboardMax], ""), false
	}
	return text[:cut], false
}

// underCursor is what the cursor stands on, in words.
func (m *Model) underCursor() (what, text string) {
	switch m.current {
	case key.Ranks, key.Grid, key.Posterior, key.Validate:
		if n := m.state.Rank(); int(n) < len(m.state.Ranks) {
			return fmt.Sprintf("rank %d", n), rankLine(m.state, n)
		}
	case key.Recovery:
		if p, ok := m.pages[key.Recovery].(page.Chooser); ok {
			for _, r := range m.state.RecoveryList() {
				if r.GetId() == p.Chosen(m.state) {
					return r.GetId(), recoveryText(m.state, r)
				}
			}
		}
	case key.Events:
		if p, ok := m.pages[key.Events].(*events.Page); ok {
			if e := p.Under(m.state); e != nil {
				return "the event", eventText(e)
			}
		}
	default:
		if s := m.drawnState(m.current); s.Incident() != nil {
			return s.Incident().Id, incidentText(s)
		}
	}
	return "", ""
}

func rankLine(s *page.State, n int32) string {
	r := s.Ranks[n]
	_, health, _ := s.Health(r)
	tp, dp, pp := s.Coord(n)
	out := fmt.Sprintf("rank %d on %s (tp %d, dp %d, pp %d): %s, iteration %s %s vs its baseline", n, r.GetDevice(), tp, dp, pp, health, phrase.Ms(r.GetMs()), phrase.Percent(r.GetSlowdown()))
	if r.GetSelfRatio() > 0 {
		out += fmt.Sprintf(", self time %.2f x its peers", r.GetSelfRatio())
	}
	if r.GetSmClockMhz() > 0 {
		out += fmt.Sprintf(", %d MHz, %d °C", r.GetSmClockMhz(), r.GetTemperatureC())
	}
	if cause := s.Blamed(n); cause != "" {
		out += ", named for " + cause
	}
	return out + fmt.Sprintf(" (job %s, iteration %d)\n", s.Snap().GetJob().GetName(), r.GetIteration())
}

func incidentText(s *page.State) string {
	i := s.Incident()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s, job %s: slow since iteration %d, %s instead of %s\n%s\n", i.Id, i.State, s.Snap().GetJob().GetName(), i.OnsetIteration, phrase.Ms(i.SlowMs), phrase.Ms(i.HealthyMs), phrase.Verdict(i.Verdict))
	for _, e := range i.GetVerdict().GetEvidence() {
		sign := "for"
		if e.GetAgainst() {
			sign = "against"
		}
		fmt.Fprintf(&b, "  %s: %s\n", sign, e.GetText())
	}
	for _, a := range s.Snap().GetLadder().GetActions() {
		by := "nobody has decided yet"
		if a.GetDecidedBy() != "" {
			by = "decided by " + a.GetDecidedBy()
		}
		fmt.Fprintf(&b, "%s %s, %s\n", a.GetId(), a.GetState(), by)
	}
	return b.String()
}

func recoveryText(s *page.State, r *falconv1.Recovery) string {
	out := r.GetId() + " " + s.Story(r) + "\n"
	for _, f := range r.GetFaults() {
		out += fmt.Sprintf("  %s %s %s ranks %v: %s\n", f.GetKind(), f.GetNode(), f.GetDevice(), f.GetRanks(), strings.Join(f.GetEvidence(), "; "))
	}
	return out
}

func eventText(e *falconv1.EventLine) string {
	return fmt.Sprintf("%s iter %d %s: %s\n", feed.Stamp(e), e.Iteration, e.Kind, e.Text)
}
