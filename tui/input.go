package tui

import (
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/key"
)

// maxInput bounds what can be typed, in characters.
const maxInput = 120

// newInput is a text entry with the keys that the table gives a scope and no
// others. Above all it has no key to paste the clipboard: what is pasted comes
// through Model.paste, where the safety rules are.
func newInput(s key.Scope, text string) textinput.Model {
	in := textinput.New()
	in.Prompt, in.CharLimit = "", maxInput
	in.SetVirtualCursor(false)
	in.SetStyles(textinput.Styles{}) // the row that it stands in has the style
	in.KeyMap = textinput.KeyMap{
		CharacterBackward:       key.ForAction(s, key.Left).Binding,
		CharacterForward:        key.ForAction(s, key.Right).Binding,
		LineStart:               key.ForAction(s, key.First).Binding,
		LineEnd:                 key.ForAction(s, key.Last).Binding,
		DeleteCharacterBackward: key.ForAction(s, key.Erase).Binding,
		DeleteWordBackward:      key.ForAction(s, key.EraseWord).Binding,
		DeleteBeforeCursor:      key.ForAction(s, key.EraseAll).Binding,
	}
	in.SetValue(text)
	in.Focus() // its command would blink a drawn cursor; the terminal's own is used
	return in
}

// enter gives a text entry a key or pasted text, without what could steer a
// terminal.
func enter(in textinput.Model, msg tea.Msg) textinput.Model {
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
// x, y plus where it stands in the text.
func showInput(in *textinput.Model, w, x, y int) (string, *tea.Cursor) {
	in.SetWidth(max(1, w-1))
	in.SetCursor(in.Position()) // lays the text out for the width
	at := in.Cursor()
	at.X += x
	at.Y += y
	return in.View(), at
}
