package tui

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/widget"
)

// The screen's fixed rows.
const (
	headerRows = 2
	barRows    = 1
	footerRows = 2
)

// Below this size a summary in words takes the screen's place.
const (
	minWidth  = 60
	minHeight = 16
)

func (m *Model) small() bool { return m.w < minWidth || m.h < minHeight }

// compose draws the whole screen: the page on a canvas of cells, all around
// and over it with lipgloss.
func (m *Model) compose() (string, *tea.Cursor) {
	if m.small() {
		s := summary{banner: m.banner(), dialog: m.decisions.dialog, h: m.h}
		return m.skin.plain(s.draw()), nil
	}
	m.work.setNow(m.clock())
	if !m.screen.keepPage {
		c := widget.NewCanvas(m.work.body.W, m.work.body.H, m.skin.pal, m.opts.ASCII)
		m.work.draw(c)
		m.screen.page, m.screen.paged, m.pointer.targets = c.String(), m.now(), c.Targets()
	}
	frame := m.banner()
	bar := frame.bar()
	tabs, zones := m.tabs()
	last, taps, cursor := m.lastRow(m.h - 1)
	m.pointer.zones = slices.Concat(barZones(m.keys, bar, m.h-footerRows-barRows), zones, taps)
	if x, y, ok := m.pointer.targets.Focused(); ok && cursor == nil {
		cursor = underlineCursor(x, y+headerRows)
	}
	screen := strings.Join([]string{frame.header(), m.screen.page, bar, tabs, last}, "\n")
	if m.modal() {
		m.pointer.zones = nil
		screen, cursor = m.over(screen, m.work.body, cursor)
	}
	return m.skin.plain(screen), cursor
}

// over draws what lies over the page.
func (m *Model) over(screen string, body widget.Rect, cursor *tea.Cursor) (string, *tea.Cursor) {
	switch {
	case m.help != nil:
		if m.help.search == nil {
			cursor = nil
		}
		return overlay(screen, m.help.draw(m.skin, body)), cursor
	case m.decisions.dialog != nil:
		box, at, zones := m.decisions.dialog.draw(m.skin, m.work.live, m.now(), body)
		m.pointer.zones = zones
		return overlay(screen, box), at
	case m.work.marks.asks != "":
		return overlay(screen, m.work.marks.draw(m.skin, body)), nil
	case m.prompt.list != nil:
		return overlay(screen, m.prompt.drawList(m.skin, body)), cursor
	}
	return screen, cursor
}

// tabs draws the pages, and what is special about the one on screen.
func (m *Model) tabs() (string, []zone) {
	right := ""
	if role, text := m.work.note(m.work.current); text != "" {
		right = m.skin.put(role, text)
	}
	if !m.work.running() {
		right += m.skin.put(themes.Urgent, fmt.Sprintf(" PAUSED, live is %ds ahead ", int(m.now().Sub(m.work.pausedAt).Seconds()))) + " "
	}
	if note := m.work.zoomNote(); note != "" {
		right = m.skin.put(themes.Accent, note) + right
	}
	room := m.w - lipgloss.Width(right)
	y := m.h - footerRows
	left, zones := tabsWith(m.skin, m.keys, m.work.current, "  ", true, y)
	if lipgloss.Width(left) > room+len("  ") { // what follows the last may be cut
		left, zones = tabsWith(m.skin, m.keys, m.work.current, " ", true, y)
	}
	if lipgloss.Width(left) > room+len(" ") {
		left, zones = tabsWith(m.skin, m.keys, m.work.current, " ", false, y)
	}
	return row(m.skin.blank(), m.w, ansi.Truncate(left, room, ""), right, 0), zones
}

// tabsWith draws the pages a gap apart, all with their words or the present one
// only, and where each can be clicked in row y.
func tabsWith(skin *skin, keys *key.Map, current key.Scope, gap string, words bool, y int) (left string, zones []zone) {
	left = " "
	for _, s := range key.Pages {
		at := lipgloss.Width(left)
		b := pageKey(keys, s).Help()
		switch {
		case s == current:
			left += skin.put(themes.Selected, " "+b.Key+" "+b.Desc+" ") + " "
		case words:
			left += skin.put(themes.Key, b.Key) + skin.put(themes.Dim, " "+b.Desc) + gap
		default:
			left += skin.put(themes.Key, b.Key) + gap
		}
		zones = append(zones, zone{widget.Rect{X: at, Y: y, W: lipgloss.Width(left) - at, H: 1}, func(m *Model) tea.Cmd {
			m.work.show(s)
			return nil
		}})
	}
	return left, zones
}

// pageKey is the binding that shows a page.
func pageKey(keys *key.Map, s key.Scope) key.Binding {
	for _, b := range keys.In(key.Global) {
		if shows[b.Action] == s && b.Action != key.Why {
			return b
		}
	}
	return key.Binding{}
}

// lastRow draws the keys that work here; a prompt or a message takes their
// place.
func (m *Model) lastRow(y int) (string, []zone, *tea.Cursor) {
	if m.prompt != nil {
		text, cursor := m.prompt.drawRow(m.skin, m.w, y)
		return text, nil, cursor
	}
	if m.help != nil && m.help.search != nil {
		text, cursor := inputRow(m.skin, m.keys, "/", m.help.search, m.w, y, noNote)
		return text, nil, cursor
	}
	left, zones := " ", []zone(nil)
	role, note, ok := m.notes.present()
	switch {
	case m.hint.on && !m.modal():
		left += m.skin.put(themes.Accent, m.hint.text(m.keys, m.pointer.on))
	case ok:
		left += m.skin.put(role, note)
	case m.help != nil:
		left += m.skin.shortHelp(m.w-1, m.keys.Footer(key.Help))
	case m.decisions.dialog != nil:
		left += m.skin.shortHelp(m.w-1, m.keys.Footer(key.Dialog))
	case m.work.marks.asks != "":
		left += m.skin.put(themes.Key, "a-z") + m.skin.put(themes.Dim, " mark  ") + m.skin.put(themes.Key, m.keys.Name(key.Cancel, key.Prompt)) + m.skin.put(themes.Dim, " cancel")
	default:
		list := m.offered(m.keys.Footer(m.scopes(true)...))
		left += m.skin.shortHelp(m.w-1, list)
		zones = tapZones(list, 1, y, m.w-2)
	}
	return row(m.skin.blank(), m.w, left, "", 0), zones, nil
}

// offered leaves out what can't be done in a recording: nothing is decided there.
func (m *Model) offered(list []key.Binding) []key.Binding {
	if m.opts.Replay == nil {
		return list
	}
	return slices.DeleteFunc(list, func(b key.Binding) bool { return key.Decides(b.Action) })
}
