package tui

import (
	"fmt"
	"slices"
	"strings"

	"charm.land/bubbles/v2/textinput"
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

// compose draws the whole screen: the page on a canvas of cells, all around
// and over it with lipgloss.
func (m *Model) compose() (string, *tea.Cursor) {
	if m.small() {
		return m.ascii(m.summary()), nil
	}
	m.live.Now = m.clock()
	if m.pausedAt.IsZero() {
		m.state.Now = m.live.Now
	}
	body := m.body()
	if !m.keep {
		c := widget.NewCanvas(body.W, body.H, m.skin.pal, m.opts.ASCII)
		m.drawPage(c)
		m.page, m.paged, m.targets = c.String(), m.now(), c.Targets()
	}
	m.lists = nil
	frame := m.banner()
	bar := frame.bar()
	m.zones = m.barZones(bar, m.h-footerRows-barRows)
	tabs := m.tabs()
	last, cursor := m.lastRow(m.h - 1)
	if x, y, ok := m.targets.Focused(); ok && cursor == nil {
		cursor = underlineCursor(x, y+headerRows)
	}
	screen := strings.Join([]string{frame.header(), m.page, bar, tabs, last}, "\n")
	if m.modal() {
		m.zones = nil
		screen, cursor = m.over(screen, body, cursor)
	}
	return m.ascii(screen), cursor
}

// over draws what lies over the page.
func (m *Model) over(screen string, body widget.Rect, cursor *tea.Cursor) (string, *tea.Cursor) {
	switch {
	case m.help != nil:
		if m.help.search == nil {
			cursor = nil
		}
		return overlay(screen, m.drawHelp(body)), cursor
	case m.dialog != nil:
		box, at, zones := m.dialog.draw(m.skin, m.live, m.now(), body)
		m.zones = zones
		return overlay(screen, box), at
	case m.marks.asks != "":
		return overlay(screen, m.drawMarks(body)), nil
	case m.prompt.list != nil:
		return overlay(screen, m.drawPalette(body)), cursor
	}
	return screen, cursor
}

func (m *Model) small() bool { return m.w < minWidth || m.h < minHeight }

func (m *Model) ascii(screen string) string {
	if !m.opts.ASCII {
		return screen
	}
	return strings.Map(widget.ASCII, screen)
}

// tabs draws the pages.
func (m *Model) tabs() string {
	right := m.lookBanner()
	if !m.pausedAt.IsZero() {
		right += m.skin.put(themes.Urgent, fmt.Sprintf(" PAUSED, live is %ds ahead ", int(m.now().Sub(m.pausedAt).Seconds()))) + " "
	}
	if note := m.zoomNote(); note != "" {
		right = m.skin.put(themes.Accent, note) + right
	}
	room := m.w - lipgloss.Width(right)
	left, zones := m.tabsWith("  ", true)
	if lipgloss.Width(left) > room+len("  ") { // what follows the last may be cut
		left, zones = m.tabsWith(" ", true)
	}
	if lipgloss.Width(left) > room+len(" ") {
		left, zones = m.tabsWith(" ", false)
	}
	m.zones = append(m.zones, zones...)
	return row(m.skin.blank(), m.w, ansi.Truncate(left, room, ""), right, 0)
}

// tabsWith draws the pages a gap apart, all with their words or the present one
// only, and where each can be clicked.
func (m *Model) tabsWith(gap string, words bool) (left string, zones []zone) {
	left = " "
	for _, s := range key.Pages {
		at := lipgloss.Width(left)
		b := m.pageKey(s).Help()
		switch {
		case s == m.current:
			left += m.skin.put(themes.Selected, " "+b.Key+" "+b.Desc+" ") + " "
		case words:
			left += m.skin.put(themes.Key, b.Key) + m.skin.put(themes.Dim, " "+b.Desc) + gap
		default:
			left += m.skin.put(themes.Key, b.Key) + gap
		}
		zones = append(zones, zone{widget.Rect{X: at, Y: m.h - footerRows, W: lipgloss.Width(left) - at, H: 1}, func(m *Model) tea.Cmd {
			m.show(s)
			return nil
		}})
	}
	return left, zones
}

func (m *Model) pageKey(s key.Scope) key.Binding {
	for _, b := range m.table.In(key.Global) {
		if shows[b.Action] == s && b.Action != key.Why {
			return b
		}
	}
	return key.Binding{}
}

// lastRow draws the keys that work here; a prompt or a message takes their
// place.
func (m *Model) lastRow(y int) (string, *tea.Cursor) {
	if m.prompt != nil {
		return m.promptRow(y)
	}
	if m.help != nil && m.help.search != nil {
		return m.searchRow(y)
	}
	left := " "
	switch {
	case m.hinting && !m.modal():
		left += m.skin.put(themes.Accent, m.hintText())
	case m.toast.text != "" && m.now().Before(m.toast.till):
		left += m.skin.put(m.toast.role, m.toast.text)
	case m.help != nil:
		left += m.keys(m.w-1, key.Help)
	case m.dialog != nil:
		left += m.keys(m.w-1, key.Dialog)
	case m.marks.asks != "":
		left += m.skin.put(themes.Key, "a-z") + m.skin.put(themes.Dim, " mark  ") + m.skin.put(themes.Key, m.table.Name(key.Cancel, key.Prompt)) + m.skin.put(themes.Dim, " cancel")
	default:
		list := m.offered(m.table.Footer(m.scopes()...))
		left += m.skin.shortHelp(m.w-1, list)
		m.zones = append(m.zones, tapZones(list, 1, y, m.w-2)...)
	}
	return row(m.skin.blank(), m.w, left, "", 0), nil
}

// promptKeysW is the room that a prompt leaves for its keys.
const promptKeysW = 24

func (m *Model) promptRow(y int) (string, *tea.Cursor) {
	return m.inputRow(m.prompt.sign, &m.prompt.input, y)
}

// inputRow is a text entry behind its sign, with its keys.
func (m *Model) inputRow(which string, in *textinput.Model, y int) (string, *tea.Cursor) {
	sign := " " + m.skin.put(themes.Key, which)
	text, cursor := showInput(in, m.w-promptKeysW-lipgloss.Width(sign), lipgloss.Width(sign), y)
	right := m.skin.shortHelp(promptKeysW-1, m.promptKeys(which))
	switch {
	case m.prompt == nil || m.prompt.note == "":
	case m.prompt.mistake:
		right = m.skin.put(themes.Warn, widget.Cut(m.prompt.note, max(promptKeysW-1, m.w-cursor.X-3)))
	default:
		right = m.skin.put(themes.Accent, m.prompt.note)
	}
	return row(m.skin.blank(), m.w, sign+text, right+" ", 1), cursor
}

// promptKeys are the keys of a text entry; enter runs a command and keeps what
// is searched for.
func (m *Model) promptKeys(which string) []key.Binding {
	list := slices.Clone(m.table.Footer(key.Prompt))
	for i, b := range list {
		if b.Action == key.Confirm && which == "/" {
			list[i].SetHelp(b.Help().Key, "keep")
		}
	}
	return list
}

// offered leaves out what a recording can't do: nothing is decided in it.
func (m *Model) offered(list []key.Binding) []key.Binding {
	if m.opts.Replay == nil {
		return list
	}
	return slices.DeleteFunc(list, func(b key.Binding) bool { return key.Decides(b.Action) })
}

// keys lists the keys that work in the scopes, as many as fit in w columns.
func (m *Model) keys(w int, scopes ...key.Scope) string {
	return m.skin.shortHelp(w, m.table.Footer(scopes...))
}
