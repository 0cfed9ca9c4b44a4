package tui

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

// helpBox lists the keys of the present page, then those that work everywhere.
type helpBox struct {
	searchPane

	scopes []key.Scope // the page's, and what adds to it
	rest   []key.Scope // shown after them
	title  string
	text   []string // shown in the place of the keys

	now   []key.Binding // those that are needed first now
	first string        // what is said first
}

func newHelpBox(table *key.Map, s ...key.Scope) *helpBox {
	rest := []key.Scope{key.Global, key.Dialog, key.Prompt, key.Help}
	return &helpBox{
		searchPane: newSearchPane(table),
		scopes:     s,
		rest:       rest,
		title:      "KEYS",
	}
}

// handleKey handles a key on a screen of w columns and reports whether to close the help.
func (h *helpBox) handleKey(k tea.KeyPressMsg, w int) (closed bool) {
	if h.search != nil {
		h.searchKey(k)
		return false
	}
	return h.act(h.table.Lookup(k, key.Help), w)
}

// helpKeyW is the room for a key's name.
const helpKeyW = 11

func (h *helpBox) helpLines(w int) []page.Line {
	if h.text != nil {
		return h.textLines(w)
	}
	var out []page.Line
	if len(h.now) > 0 && h.wanted == "" {
		out = append(out, wrapLines(themes.Title, "now: "+h.first, w)...)
		for _, b := range h.now { // a row each: the page's own keys are to be seen too
			name := b.Help().Key
			text := "  " + name + blankText(helpKeyW-widget.Width(name)-1) + page.InShort(b)
			out = append(out, page.Line{
				Text: widget.Cut(text, w),
				Role: themes.Text,
			})
		}
	}
	for _, s := range slices.Concat(h.scopes, h.rest) {
		list := h.foundBindings(s)
		if len(list) == 0 {
			continue
		}
		out = append(out, page.Line{Text: string(s), Role: themes.Title})
		out = append(out, keyLines(list, w)...)
	}
	if len(out) == 0 {
		out = wrapLines(
			themes.Dim,
			"No key here has "+fmt.Sprintf("%q", h.wanted)+" in its name or sentence.",
			w,
		)
	}
	return out
}

// keyLines are keys with their sentences.
func keyLines(list []key.Binding, w int) []page.Line {
	var out []page.Line
	for _, b := range list {
		for i, l := range widget.Wrap(b.Sentence, max(10, w-helpKeyW-2)) {
			name := ""
			if i == 0 {
				name = b.Help().Key
			}
			out = append(out, page.Line{
				Text: "  " + name + blankText(helpKeyW-widget.Width(name)-1) + l,
				Role: themes.Text,
			})
		}
	}
	return out
}

// openHelp lists the keys, those that are needed now first.
func openHelp(m *Model) {
	m.help = newHelpBox(m.keys, m.keyScopes(false)...)
	x := page.First(m.work.live)
	m.help.now = m.offeredKeys(page.Situation(m.work.live, m.work.current))
	m.help.first = page.Say(m.work.live, &x)
}

// foundBindings are the bindings of a scope that have a key and hold what is wanted.
func (h *helpBox) foundBindings(s key.Scope) []key.Binding {
	var out []key.Binding
	want := strings.ToLower(strings.TrimSpace(h.wanted))
	for _, b := range h.table.In(s) {
		text := strings.ToLower(b.Help().Desc + " " + b.Sentence + " " + actionName(b.Action))
		if len(b.Keys()) > 0 &&
			(strings.Contains(text, want) || b.Help().Key == strings.TrimSpace(h.wanted)) {
			out = append(out, b)
		}
	}
	return out
}

func blankText(n int) string {
	return fmt.Sprintf("%*s", max(1, n), "")
}

// drawOver draws the help over the page; its bottom edge counts the hidden lines.
func (h *helpBox) drawOver(s *skin, over widget.Rect) *lipgloss.Layer {
	box := widget.Centre(over, min(dialogW, over.W-2), over.H)
	rows := s.scrolledRows(&h.pane, h.helpLines(box.W-4), box.W-4, box.H-2)
	title := h.title
	if h.wanted != "" {
		title = widget.Cut(title+" with "+h.wanted, box.W-8)
	}
	return s.framedLayer(
		box,
		title,
		moreBelow(&h.pane, h.table.Name(key.Down, key.Help)+" ↓"),
		themes.Accent,
		rows,
	)
}
