package tui

import (
	"strings"
	"testing"

	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
)

func TestExportWritesTheReport(t *testing.T) {
	files := map[string]string{}
	src := &still{state: stateAt(
		t,
		enginetest.Options{},
		enginetest.Proposed+2,
		0,
		wide,
	)}
	withPast(src)
	opts := Options{
		Theme:     "dark",
		Now:       newClock().now,
		Recording: "/state/tonight.rec",
		Save: func(name string, data []byte) (string, error) {
			files[name] = string(data)
			return "/state/" + name, nil
		},
	}
	m := quiet(t, src, opts, 120, 40)
	drive(m, "5")
	drive(m, "[")
	drive(m, "e")
	if !strings.Contains(files["INC-0007.md"], "# INC-0007: network_congestion at n5-n6") ||
		!strings.Contains(files["INC-0007.md"], "tonight.rec") ||
		!strings.Contains(files["INC-0007.json"], `"id": "INC-0007"`) ||
		!containsAll(m.notes.text, "/state/INC-0007.md") {
		t.Errorf("toast %q, files %v", m.notes.text, files)
	}
	opts.Save = nil
	opts.SaveNote = "over SSH no file is written here"
	m = quiet(t, src, opts, 120, 40)
	answer(m, m.work.openIncident("INC-0007"))
	_, cmd := m.Update(m.exportReport()())
	if cmd == nil ||
		!containsAll(m.notes.text, "over SSH no file is written here", "terminal may ignore it") {
		t.Errorf("toast %q", m.notes.text)
	}
	src.past = nil
	drive(m, "e")
	if !containsAll(m.notes.text, "no report of INC-0007") {
		t.Errorf("toast %q", m.notes.text)
	}
}

// On the events page y takes the line under the cursor.
func TestTheEventUnderTheCursorIsCopied(t *testing.T) {
	m, _, _ := proposed(t, Options{})
	m.work.showPage(key.Events)
	_, newest := m.work.underCursor()
	send(m, "k")
	_, older := m.work.underCursor()
	list := m.work.state.Feed.Events
	for i, got := range []string{newest, older} {
		e := list[len(list)-1-i]
		if got != eventText(e) || !strings.Contains(got, e.Text) {
			t.Errorf("%q instead of %q", got, e.Text)
		}
	}
	m.work.state.Filter = "nothing holds this"
	if what, text := m.work.underCursor(); text != "" {
		t.Errorf("%s %q", what, text)
	}
}
