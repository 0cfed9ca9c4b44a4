package tui

import (
	"maps"
	"slices"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/link"
	"github.com/failslow/falcon/tui/widget"
)

// marks are places that the operator comes back to: one a letter, as long as
// the session lasts. Going to one changes what is looked at and nothing else.
type marks struct {
	asks key.Action // SetMark or GoMark while a letter is awaited, else ""
	at   map[rune]place
}

// place is one of them.
type place struct {
	where     link.Target
	incident  string // looked at in the present one's place, "" = the present one
	pane      int    // that fills the page, counted from 1; 0 = none
	following bool   // the worst rank, whichever it is
}

// askMark waits for the letter; with no marks there is nowhere to go.
func (m *Model) askMark(a key.Action) {
	if a == key.GoMark && len(m.marks.at) == 0 {
		m.say(themes.Dim, "there are no marks yet; "+m.table.Name(key.SetMark, key.Global)+" and a letter marks a place")
		return
	}
	m.marks.asks, m.toast = a, toast{} // its row shows what to press
}

// markKey takes the letter; any other key cancels.
func (m *Model) markKey(k tea.KeyPressMsg) tea.Cmd {
	a := m.marks.asks
	m.marks.asks = ""
	letter := []rune(k.Text)
	if len(letter) != 1 || letter[0] < 'a' || letter[0] > 'z' {
		if m.table.Lookup(k, key.Prompt) != key.Cancel {
			m.say(themes.Dim, "a mark is a letter from a to z")
		}
		return nil
	}
	if a == key.SetMark {
		m.setMark(letter[0])
		return nil
	}
	return m.goMark(letter[0])
}

func (m *Model) setMark(letter rune) {
	if m.marks.at == nil {
		m.marks.at = map[rune]place{}
	}
	x := place{where: m.here(), pane: m.zoomed[m.current], following: m.state.Following()}
	if m.look != nil {
		x.incident = m.look.id
	}
	m.marks.at[letter] = x
	m.say(themes.Good, "marked as "+string(letter)+": "+x.where.String()+"; "+m.table.Name(key.GoMark, key.Global)+" "+string(letter)+" comes back")
}

// goMark shows a marked place as it was left.
func (m *Model) goMark(letter rune) tea.Cmd {
	x, ok := m.marks.at[letter]
	if !ok {
		m.say(themes.Warn, "there is no mark "+string(letter))
		return nil
	}
	if len(x.where.Sel) == 0 {
		m.state.Unpick()
	}
	cmd := m.goTo(x.where)
	if x.where.Filter == "" && m.filter() != "" {
		m.setFilter("")
	}
	if x.where.Kind != link.Incident || x.incident == "" {
		cmd = m.browse(x.incident)
	}
	m.zoomed[m.current] = x.pane
	if x.following {
		m.follow()
	}
	return cmd
}

// drawMarks lists the marks over the page.
func (m *Model) drawMarks(over widget.Rect) *lipgloss.Layer {
	title := "GO TO WHICH MARK?"
	if m.marks.asks == key.SetMark {
		title = "MARK THIS PLACE AS?"
	}
	w := min(dialogW, over.W-2)
	rows := []string{}
	for _, letter := range slices.Sorted(maps.Keys(m.marks.at)) {
		x := m.marks.at[letter]
		text := m.skin.put(themes.Key, string(letter)) + m.skin.put(themes.Text, "  "+x.where.String())
		if x.incident != "" && x.where.Kind != link.Incident {
			text += m.skin.put(themes.Dim, "  "+x.incident)
		}
		rows = append(rows, text)
	}
	if len(rows) == 0 {
		rows = append(rows, m.skin.put(themes.Dim, "a letter from a to z; no mark is set yet"))
	}
	box := widget.Centre(over, w, len(rows)+2)
	rows = rows[:min(len(rows), box.H-2)]
	for i, r := range rows {
		rows[i] = lipgloss.PlaceHorizontal(w-4, lipgloss.Left, ansi.Truncate(r, w-4, "…"))
	}
	return m.skin.frame(box, title, "", themes.Accent, rows)
}
