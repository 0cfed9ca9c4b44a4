package tui

import (
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/record"
)

// Replay is what plays a recording. The console then shows the recording's
// time as the present, and offers no decision.
type Replay interface {
	Now() time.Time
	Status() record.Status
	Do(record.Command)
	Find(place string) (record.Place, error)
}

// shownTime is the present that pages, header and data age mean. The operator's
// own time, such as a dialog's guard, is now.
func (m *Model) shownTime() time.Time {
	if m.opts.Replay != nil {
		return m.opts.Replay.Now()
	}
	return m.now()
}

var replayCommands = map[key.Action]record.Command{
	key.Play:          record.Toggle(),
	key.Faster:        record.Faster(+1),
	key.Slower:        record.Faster(-1),
	key.IterationOn:   record.StepIteration(+1),
	key.IterationBack: record.StepIteration(-1),
	key.FrameOn:       record.StepFrame(+1),
	key.FrameBack:     record.StepFrame(-1),
	key.EventOn:       record.StepEvent(+1),
	key.EventBack:     record.StepEvent(-1),
	key.IncidentOn:    record.StepIncident(+1),
	key.IncidentBack:  record.StepIncident(-1),
	key.ToEnd:         record.End(+1),
	key.ToStart:       record.End(-1),
}

// keyScopes are where keys are looked up while nothing lies over the page: what
// belongs to the page, and, where global, what works everywhere.
func (m *Model) keyScopes(global bool) []key.Scope {
	var out []key.Scope
	if m.opts.Replay != nil {
		out = append(out, key.Replay)
	}
	out = append(out, m.work.current)
	if global {
		out = append(out, key.Global)
	}
	return out
}

// seekInReplay goes to a place of the recording.
func (m *Model) seekInReplay(place string) {
	if m.opts.Replay == nil {
		m.notes.showNote(themes.Warn, "at works in a recording; see falcon replay --help")
		return
	}
	to, err := m.opts.Replay.Find(place)
	if err != nil {
		m.notes.showNote(themes.Warn, strings.TrimPrefix(err.Error(), "record: "))
		return
	}
	m.opts.Replay.Do(record.Seek(to))
}

// Still is one screen of a console as a string, without a terminal: the page,
// after the keys, as a terminal of w × h cells would show it in full colour
// unless Options.Profile says otherwise.
func Still(src feed.Source, opts Options, w, h int, p key.Scope, keys ...tea.KeyPressMsg) (string, error) {
	m, err := New(src, opts)
	if err != nil {
		return "", err
	}
	m.Update(tea.WindowSizeMsg{Width: w, Height: h})
	m.work.showPage(p)
	m.askForData()
	m.Update(updateMsg{src.Latest()}) // what the page wants of the source is known by now
	for _, k := range keys {
		m.Update(k)
	}
	return m.View().Content, nil
}
