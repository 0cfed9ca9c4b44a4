package tui

import (
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/key"
)

// newTextEntry is a text entry with the keys that a table gives a scope and no
// others. Above all it has no key to paste the clipboard: what is pasted comes
// through Model.pasteText, where the safety rules are.
func newTextEntry(table *key.Map, s key.Scope, text string, most int) textinput.Model {
	in := textinput.New()
	in.Prompt, in.CharLimit = "", most
	in.SetVirtualCursor(false)
	in.SetStyles(textinput.Styles{}) // its row has the style
	in.KeyMap = textinput.KeyMap{
		CharacterBackward:       table.ForAction(s, key.Left).Binding,
		CharacterForward:        table.ForAction(s, key.Right).Binding,
		LineStart:               table.ForAction(s, key.First).Binding,
		LineEnd:                 table.ForAction(s, key.Last).Binding,
		DeleteCharacterBackward: table.ForAction(s, key.Erase).Binding,
		DeleteWordBackward:      table.ForAction(s, key.EraseWord).Binding,
		DeleteBeforeCursor:      table.ForAction(s, key.EraseAll).Binding,
	}
	in.SetValue(text)
	in.Focus() // its command would blink a drawn cursor; the terminal's own is used
	return in
}

// enterText gives a text entry a key or pasted text, without terminal sequences.
func enterText(in textinput.Model, msg tea.Msg) textinput.Model {
	switch x := msg.(type) {
	case tea.KeyPressMsg:
		x.Text = clean.String(x.Text)
		msg = x
	case tea.PasteMsg:
		x.Content = clean.String(x.Content)
		msg = x
	}
	in, _ = in.Update(msg)
	return in
}

// showInput draws a text entry in w columns, with the terminal's cursor at
// x, y plus its place in the text. The library counts characters there;
// columns are meant, as some characters take two. Text that is longer than the
// row scrolls, and is right as long as the cursor is at its end, where a
// dialog's always is.
func showInput(in *textinput.Model, w, x, y int) (string, *tea.Cursor) {
	w = max(2, w)
	in.SetWidth(w - 1)
	in.SetCursor(in.Position()) // lays the text out for the width
	before := lipgloss.Width(string([]rune(in.Value())[:in.Position()]))
	at := in.Cursor()
	at.X = x + min(before, w-1)
	at.Y = y
	return in.View(), at
}
