package tui

import (
	"context"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/report"
)

// exportedMsg is a report that was made, or why there is none.
type exportedMsg struct {
	id   string
	text string
	path string // of the Markdown; "" = written nowhere
	err  error
}

// export makes the report of the incident on screen, as falcon incident export
// does, and writes it as Markdown and JSON.
func (m *Model) export() tea.Cmd {
	id := m.lookedAt()
	if id == "" {
		m.say(themes.Dim, "there is no incident to report")
		return nil
	}
	m.say(themes.Accent, "making the report of "+id+" …")
	src, save, recording := m.src, m.opts.Save, m.opts.Recording
	return func() tea.Msg {
		r, err := src.Incidents(context.Background(), id)
		if err != nil || len(r.GetIncidents()) == 0 {
			return exportedMsg{id: id, err: err}
		}
		s := report.Of(r)[0]
		s.Recording = recording
		return write(s, save)
	}
}

func write(s report.Incident, save Saver) exportedMsg {
	out := exportedMsg{id: s.ID, text: s.Markdown()}
	if save == nil {
		return out
	}
	js, err := s.JSON()
	if err == nil {
		_, err = save(s.ID+".json", js)
	}
	if err == nil {
		out.path, err = save(s.ID+".md", []byte(out.text))
	}
	out.err = err
	return out
}

// exported says where the report is; where no file may be written, as much of
// it as fits goes to the clipboard.
func (m *Model) exported(msg exportedMsg) tea.Cmd {
	switch {
	case msg.err != nil:
		m.say(themes.Bad, "no report of "+msg.id+": "+clean.String(msg.err.Error()))
	case msg.text == "":
		m.say(themes.Warn, "there is no incident "+msg.id)
	case msg.path != "":
		m.say(themes.Good, "the report is in "+msg.path+", and beside it as JSON")
	default:
		note := m.opts.SaveNote
		if note == "" {
			note = "this session writes no files"
		}
		clip, _ := fit(msg.text)
		m.say(themes.Good, note+": the report's beginning was sent to clipboard (terminal may ignore it)")
		return tea.SetClipboard(clip)
	}
	return nil
}
