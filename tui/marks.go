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

// askForMark waits for the letter; with no marks there is nowhere to go.
func (v *workspace) askForMark(a key.Action) {
	if a == key.GoMark && len(v.marks.at) == 0 {
		v.showNote(
			themes.Dim,
			"there are no marks yet; "+v.keys.Name(key.SetMark, key.Global)+" and a letter marks a place",
		)
		return
	}
	v.marks.asks = a
	v.notes.clearNote() // its row shows what to press
}

// handleMarkKey takes the letter; any other key cancels.
func (v *workspace) handleMarkKey(k tea.KeyPressMsg) tea.Cmd {
	a := v.marks.asks
	v.marks.asks = ""
	letter := []rune(k.Text)
	switch {
	case len(letter) == 1 && letter[0] >= 'a' && letter[0] <= 'z':
	case v.keys.Lookup(k, key.Prompt) == key.Cancel:
		return nil
	default:
		v.showNote(themes.Dim, "a mark is a letter from a to z")
		return nil
	}
	if a == key.SetMark {
		v.setMarkAt(letter[0])
		return nil
	}
	return v.goToMark(letter[0])
}

func (v *workspace) setMarkAt(letter rune) {
	if v.marks.at == nil {
		v.marks.at = map[rune]place{}
	}
	x := place{
		where:     v.linkToHere(),
		pane:      v.zoomed[v.current],
		following: v.state.Following(),
		incident:  v.lookedID(),
	}
	v.marks.at[letter] = x
	v.showNote(
		themes.Good,
		"marked as "+string(letter)+": "+x.where.String()+"; "+v.keys.Name(key.GoMark, key.Global)+
			" "+string(letter)+" comes back",
	)
}

// goToMark shows a marked place as it was left.
func (v *workspace) goToMark(letter rune) tea.Cmd {
	x, ok := v.marks.at[letter]
	if !ok {
		v.showNote(themes.Warn, "there is no mark "+string(letter))
		return nil
	}
	if len(x.where.Sel) == 0 {
		v.state.Unpick()
	}
	cmd := v.goToTarget(x.where)
	if x.where.Filter == "" && v.filterText() != "" {
		v.setFilter("")
	}
	if x.where.Kind != link.Incident || x.incident == "" {
		cmd = v.openIncident(x.incident)
	}
	v.zoomed[v.current] = x.pane
	if x.following {
		v.followWorst()
	}
	return cmd
}

// drawList lists the marks over the page.
func (k *marks) drawList(s *skin, over widget.Rect) *lipgloss.Layer {
	title := "GO TO WHICH MARK?"
	if k.asks == key.SetMark {
		title = "MARK THIS PLACE AS?"
	}
	w := min(dialogW, over.W-2)
	rows := []string{}
	for _, letter := range slices.Sorted(maps.Keys(k.at)) {
		x := k.at[letter]
		text := s.styled(themes.Key, string(letter)) + s.styled(themes.Text, "  "+x.where.String())
		if x.incident != "" && x.where.Kind != link.Incident {
			text += s.styled(themes.Dim, "  "+x.incident)
		}
		rows = append(rows, text)
	}
	if len(rows) == 0 {
		rows = append(rows, s.styled(themes.Dim, "a letter from a to z; no mark is set yet"))
	}
	box := widget.Centre(over, w, len(rows)+2)
	rows = rows[:min(len(rows), box.H-2)]
	for i, r := range rows {
		rows[i] = lipgloss.PlaceHorizontal(
			w-4,
			lipgloss.Left,
			ansi.Truncate(r, w-4, "…"),
		)
	}
	return s.framedLayer(box, title, "", themes.Accent, rows)
}
