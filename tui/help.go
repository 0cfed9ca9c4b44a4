package tui

import (
	"fmt"
	"slices"
	"strings"

	"charm.land/bubbles/v2/textinput"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

// helpBox lists the keys of the present page, then those that work everywhere.
type helpBox struct {
	table  *key.Map
	scopes []key.Scope // the page's, and what adds to it
	rest   []key.Scope // shown after them
	pane   viewport.Model
	title  string
	text   []string         // shown in the place of the keys
	wanted string           // show only what holds this
	search *textinput.Model // while it is being typed, else nil
}

func newHelpBox(table *key.Map, s ...key.Scope) *helpBox {
	rest := []key.Scope{key.Global, key.Dialog, key.Prompt, key.Help}
	return &helpBox{table: table, scopes: s, rest: rest, pane: viewport.New(), title: "KEYS"}
}

// handleKey handles a key on a screen of w columns and reports whether to close the help.
func (h *helpBox) handleKey(k tea.KeyPressMsg, w int) (closed bool) {
	if h.search != nil {
		h.searchKey(k)
		return false
	}
	switch h.table.Lookup(k, key.Help) {
	case key.Up:
		h.pane.ScrollUp(1)
	case key.Down:
		h.pane.ScrollDown(1)
	case key.PageUp:
		h.pane.PageUp()
	case key.PageDown:
		h.pane.PageDown()
	case key.First:
		h.pane.GotoTop()
	case key.Last:
		h.pane.GotoBottom()
	case key.Filter:
		in := newTextEntry(h.table, key.Prompt, h.wanted, max(1, w-promptKeysW-4))
		h.search = &in
	case key.Cancel:
		if h.wanted == "" {
			return true
		}
		h.searchFor("")
	}
	return false
}

// searchKey handles a key while a search is typed: the list follows it.
func (h *helpBox) searchKey(k tea.KeyPressMsg) {
	switch h.table.Lookup(k, key.Prompt) {
	case key.Confirm:
		h.search = nil
	case key.Cancel:
		h.search = nil
		h.searchFor("")
	case key.Up:
		h.pane.ScrollUp(1)
	case key.Down:
		h.pane.ScrollDown(1)
	default:
		h.takeText(k)
	}
}

// takeText gives the search a key or pasted text.
func (h *helpBox) takeText(msg tea.Msg) {
	in := enterText(*h.search, msg)
	h.search = &in
	h.searchFor(in.Value())
}

func (h *helpBox) searchFor(text string) {
	h.wanted = text
	h.pane.GotoTop()
}

// rollWheel turns the wheel.
func (h *helpBox) rollWheel(notches int) {
	if notches < 0 {
		h.pane.ScrollUp(-notches)
		return
	}
	h.pane.ScrollDown(notches)
}

// helpKeyW is the room for a key's name.
const helpKeyW = 11

func (h *helpBox) helpLines(w int) []page.Line {
	if h.text != nil {
		return h.textLines(w)
	}
	var out []page.Line
	for _, s := range slices.Concat(h.scopes, h.rest) {
		list := h.foundBindings(s)
		if len(list) == 0 {
			continue
		}
		out = append(out, page.Line{Text: string(s), Role: themes.Title})
		for _, b := range list {
			for i, l := range widget.Wrap(b.Sentence, max(10, w-helpKeyW-2)) {
				name := ""
				if i == 0 {
					name = b.Help().Key
				}
				out = append(out, page.Line{Text: "  " + name + blankText(helpKeyW-widget.Width(name)-1) + l, Role: themes.Text})
			}
		}
	}
	if len(out) == 0 {
		out = wrapLines(themes.Dim, "No key here has "+fmt.Sprintf("%q", h.wanted)+" in its name or sentence.", w)
	}
	return out
}

// foundBindings are the bindings of a scope that have a key and hold what is wanted.
func (h *helpBox) foundBindings(s key.Scope) []key.Binding {
	var out []key.Binding
	want := strings.ToLower(strings.TrimSpace(h.wanted))
	for _, b := range h.table.In(s) {
		text := strings.ToLower(b.Help().Desc + " " + b.Sentence + " " + actionName(b.Action))
		if len(b.Keys()) > 0 && (strings.Contains(text, want) || b.Help().Key == strings.TrimSpace(h.wanted)) {
			out = append(out, b)
		}
	}
	return out
}

func blankText(n int) string { return fmt.Sprintf("%*s", max(1, n), "") }

// drawOver draws the help over the page; its bottom edge counts the hidden lines.
func (h *helpBox) drawOver(s *skin, over widget.Rect) *lipgloss.Layer {
	box := widget.Centre(over, min(dialogW, over.W-2), over.H)
	rows := s.scrolledRows(&h.pane, h.helpLines(box.W-4), box.W-4, box.H-2)
	title := h.title
	if h.wanted != "" {
		title = widget.Cut(title+" with "+h.wanted, box.W-8)
	}
	return s.framedLayer(box, title, moreBelow(&h.pane, h.table.Name(key.Down, key.Help)+" ↓"), themes.Accent, rows)
}
