package tui

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
)

// opensOutput presses keys and brings what they asked for.
func opensOutput(m *Model, keys ...string) {
	for _, k := range keys {
		_, cmd := m.Update(keyMsg(k))
		if cmd == nil {
			continue
		}
		if msg := cmd(); msg != nil {
			m.Update(msg)
		}
	}
}

// What a rank says, in all sizes: its log, the kernel's lines, a stack that is refused.
func TestGoldenOutput(t *testing.T) {
	styles := inks{}
	for _, o := range []struct {
		name string
		keys []string
	}{
		{"log", []string{"O"}},
		{"kernel", []string{"O", "tab"}},
		{"stack", []string{"O", "tab", "tab"}},
		{"search", []string{"O", "/", "n", "c", "c", "l"}},
	} {
		for _, s := range append(slices.Clone(sizes), [2]int{60, 16}) {
			pic := picture(t, "output-"+o.name, s[0], s[1], func(l look) string {
				m := screen(t, moments[1], key.Ranks, s[0], s[1], l.theme, l.profile, false)
				opensOutput(m, o.keys...)
				view := m.View().Content
				if l == looks[0] { // without colours a layer cuts blanks at the end
					checkGeometry(t, view, s[0], s[1])
				}
				return view
			})
			styles.add(pic)
			golden(t, fmt.Sprintf("text/%s.txt", pic.name), pic.text(0))
		}
	}
	golden(t, "styled/output.txt", styles.table())
	m := screen(t, moments[1], key.Ranks, 80, 24, "dark", colorprofile.ASCII, true)
	opensOutput(m, "O")
	golden(t, "text/output-log-80x24-ascii.txt", trimRows(text(m)))
}

// From the incident to what its culprit's node says, by keys.
func TestOutputByKeys(t *testing.T) {
	x, e := slowTerm(t, enginetest.Options{})
	x.press('O')
	x.shows("OUTPUT  rank")
	x.shows("ncclSystemError") // the newest lines first
	x.press('g')
	x.shows("last written")
	x.press('/')
	x.types("traceback")
	x.press(tea.KeyEnter)
	x.shows("OUTPUT with traceback")
	x.gone("ncclSystemError")
	x.press(tea.KeyEscape) // ends the search
	x.shows("iteration 380")
	x.press(tea.KeyTab)
	x.shows("fallen off the bus")
	x.press(tea.KeyTab)
	x.shows("does not stand still")
	x.press('!')
	x.shows("futex_do_wait")
	x.press(tea.KeyEscape)
	x.gone("STACK")
	x.shows("INC-0001 located")
	want := []falconv1.PeekRequest{
		{What: "log"},
		{What: "kernel"},
		{What: "stack"},
		{What: "stack", Sure: true},
	}
	got := e.Peeked()
	if len(got) != len(want) {
		t.Fatalf("asked %v", got)
	}
	const slow = 2 // whom the story names
	culprit := int32(-1)
	for i, g := range got {
		if g.GetWhat() != want[i].GetWhat() || g.GetSure() != want[i].GetSure() {
			t.Errorf("asked %v, want %v", g, &want[i])
		}
		if g.GetWhat() == "log" {
			culprit = g.GetRank()
		}
	}
	if culprit != slow {
		t.Errorf("asked for rank %d, the incident names %d", culprit, slow)
	}
}

// A refusal is shown in the pane; lines from a node steer no terminal.
func TestOutputRefusedAndHostile(t *testing.T) {
	x, e := slowTerm(t, enginetest.Options{})
	e.Refuse("engine: refused: the agent of n1 is away, last heard 40s ago\x1b[2J")
	x.press('O')
	s := x.shows("the agent of n1 is away, last heard 40s ago")
	if strings.Contains(s, "refused: the agent") {
		t.Errorf("the refusal has its prefix:\n%s", s)
	}
	x.press('q')
	x.gone("OUTPUT")
}

// Copying writes no file: the lines may hold secrets. Writing is asked for by another key.
func TestOutputCopyAndWrite(t *testing.T) {
	var names []string
	m := screen(
		t,
		moments[1],
		key.Ranks,
		120,
		40,
		"dark",
		colorprofile.TrueColor,
		false,
	)
	m.exporter.save = func(name string, data []byte) (string, error) {
		names = append(names, name)
		if !strings.Contains(string(data), "Traceback") {
			t.Errorf("wrote %q", data)
		}
		return "/x/" + name, nil
	}
	opensOutput(m, "O", "y")
	if len(names) != 0 {
		t.Errorf("copying wrote %v", names)
	}
	opensOutput(m, "e")
	if len(names) != 1 ||
		!strings.HasPrefix(names[0], "rank-") ||
		!strings.Contains(text(m), "/x/rank-") {
		t.Errorf("wrote %v:\n%s", names, text(m))
	}
}
