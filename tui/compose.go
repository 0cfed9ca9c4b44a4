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
	"github.com/failslow/falcon/tui/page"
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

func (m *Model) isTooSmall() bool {
	return m.w < minWidth || m.h < minHeight
}

// composeScreen draws the screen: the page on a canvas, the rest with lipgloss.
func (m *Model) composeScreen() (string, *tea.Cursor) {
	if m.isTooSmall() {
		s := summary{
			banner: m.newBanner(),
			dialog: m.decisions.dialog,
			h:      m.h,
		}
		return m.skin.onlyASCII(s.drawText()), nil
	}
	m.work.setDrawTime(m.shownTime())
	if !m.screen.keepPage {
		c := widget.NewCanvas(
			m.work.body.W,
			m.work.body.H,
			m.skin.pal,
			m.opts.ASCII,
		)
		m.work.drawPage(c)
		m.screen.page, m.screen.paged, m.pointer.targets = c.String(), m.now(), c.Targets()
	}
	frame := m.newBanner()
	bar := frame.drawBar()
	tabs, zones := m.drawTabs()
	last, taps, cursor := m.drawLastRow(m.h - 1)
	m.pointer.zones = slices.Concat(
		proposalZones(m.keys, bar, m.h-footerRows-barRows),
		zones,
		taps,
	)
	if x, y, ok := m.pointer.targets.Focused(); ok && cursor == nil {
		cursor = underlineCursor(x, y+headerRows)
	}
	screen := strings.Join([]string{frame.drawHeader(), m.screen.page, bar, tabs, last}, "\n")
	if m.hasOverlay() {
		m.pointer.zones = nil
		screen, cursor = m.drawOverlay(screen, m.work.body, cursor)
	} else if layer := drawLongNote(m, m.work.body); layer != nil {
		screen = overlayLayer(screen, layer)
	}
	return m.skin.onlyASCII(screen), cursor
}

// drawOverlay draws what lies over the page.
func (m *Model) drawOverlay(screen string, body widget.Rect, cursor *tea.Cursor) (string, *tea.Cursor) {
	switch {
	case m.help != nil:
		if m.help.search == nil {
			cursor = nil
		}
		return overlayLayer(screen, m.help.drawOver(m.skin, body)), cursor
	case m.decisions.dialog != nil:
		box, at, zones := m.decisions.dialog.drawOver(
			m.skin,
			m.work.live,
			m.decisions.viewGuard(),
			body,
		)
		m.pointer.zones = zones
		return overlayLayer(screen, box), at
	case m.output != nil:
		if m.output.search == nil {
			cursor = nil
		}
		return overlayLayer(screen, m.output.drawOver(m.skin, body)), cursor
	case m.work.marks.asks != "":
		return overlayLayer(screen, m.work.marks.drawList(m.skin, body)), nil
	case m.prompt.list != nil:
		return overlayLayer(screen, m.prompt.drawEntries(m.skin, body)), cursor
	}
	return screen, cursor
}

// drawLongNote draws a message that the last row would cut at the foot of the page; nil where there
// is none.
func drawLongNote(m *Model, over widget.Rect) *lipgloss.Layer {
	role, note, ok := m.notes.presentNote()
	if !ok || m.hint.on || widget.Width(note) <= m.w-2 {
		return nil
	}
	var rows []string
	for _, l := range widget.Wrap(note, max(1, over.W-4)) {
		rows = append(rows, m.skin.styled(role, l)+blankText(over.W-4-widget.Width(l)))
	}
	rows = rows[:min(len(rows), max(0, over.H-2))]
	h := len(rows) + 2
	return m.skin.framedLayer(
		widget.Rect{
			X: over.X,
			Y: over.Y + over.H - h,
			W: over.W,
			H: h,
		},
		"",
		"",
		role,
		rows,
	)
}

// drawTabs draws the pages, and what is special about the one on screen.
func (m *Model) drawTabs() (string, []zone) {
	right := ""
	if role, text := m.work.browsingNote(m.work.current); text != "" {
		right = m.skin.styled(role, text)
	}
	if !m.work.isRunning() {
		right += m.skin.styled(themes.Urgent, fmt.Sprintf(" PAUSED, live is %ds ahead ",
			int(m.now().Sub(m.work.pausedAt).Seconds()))) + " "
	}
	if m.opts.Context != "" {
		b := m.keys.ForAction(key.Global, key.ShowFleet).Help()
		right += m.skin.styled(themes.Key, b.Key) + m.skin.styled(themes.Dim, " "+b.Desc+" ")
	}
	if note := m.work.zoomedPaneNote(); note != "" {
		right = m.skin.styled(themes.Accent, note) + right
	}
	room := m.w - lipgloss.Width(right)
	y := m.h - footerRows
	left, zones := drawTabsWith(m.skin, m.keys, m.work.current, "  ", true, y)
	if lipgloss.Width(left) > room+len("  ") { // what follows the last may be cut
		left, zones = drawTabsWith(m.skin, m.keys, m.work.current, " ", true, y)
	}
	if lipgloss.Width(left) > room+len(" ") {
		left, zones = drawTabsWith(m.skin, m.keys, m.work.current, " ", false, y)
	}
	return layoutRow(m.skin.blankStyle(), m.w, ansi.Truncate(left, room, ""), right, 0), zones
}

// drawTabsWith draws the pages a gap apart, all with their words or the present one
// only, and where each can be clicked in row y.
func drawTabsWith(
	skin *skin,
	keys *key.Map,
	current key.Scope,
	gap string,
	words bool,
	y int,
) (left string, zones []zone) {
	// what stands before the next: the present page's frame takes a column on both
	// sides, so that none moves
	after := " "
	for _, s := range key.Pages {
		b := pageBinding(keys, s).Help()
		if s == current {
			after = after[1:]
		}
		left += after
		at := lipgloss.Width(left)
		after = gap
		switch {
		case s == current:
			left += skin.styled(themes.Selected, " "+b.Key+" "+b.Desc+" ")
			after = gap[1:]
		case words:
			left += skin.styled(themes.Key, b.Key) + skin.styled(themes.Dim, " "+b.Desc)
		default:
			left += skin.styled(themes.Key, b.Key)
		}
		zones = append(zones, zone{
			widget.Rect{
				X: at,
				Y: y,
				W: lipgloss.Width(left) - at,
				H: 1,
			},
			func(m *Model) tea.Cmd {
				m.work.showPage(s)
				return nil
			},
		})
	}
	return left, zones
}

// pageBinding is the binding that shows a page.
func pageBinding(keys *key.Map, s key.Scope) key.Binding {
	for _, b := range keys.In(key.Global) {
		if shows[b.Action] == s && b.Action != key.Why {
			return b
		}
	}
	return key.Binding{}
}

// drawLastRow draws a prompt, a message, or else the keys that work here.
func (m *Model) drawLastRow(y int) (string, []zone, *tea.Cursor) {
	if m.prompt != nil {
		text, cursor := m.prompt.drawInput(m.skin, m.w, y)
		return text, nil, cursor
	}
	if p := m.searching(); p != nil {
		text, cursor := p.drawSearch(m.skin, m.w, y)
		return text, nil, cursor
	}
	left := " "
	zones := []zone(nil)
	role, note, ok := m.notes.presentNote()
	switch {
	case m.hint.on && !m.hasOverlay():
		left += m.skin.styled(themes.Accent, m.hint.hintText(m.keys, m.pointer.on))
	case ok && (widget.Width(note) <= m.w-2 || m.hasOverlay()):
		left += m.skin.styled(role, note)
	case m.help != nil:
		left += m.skin.shortHelp(m.w-1, m.keys.Footer(key.Help))
	case m.decisions.dialog != nil:
		left += m.skin.shortHelp(m.w-1, m.keys.Footer(key.Dialog))
	case m.output != nil:
		left += m.skin.shortHelp(m.w-1, m.output.outputFooter())
	case m.work.marks.asks != "":
		left += m.skin.styled(themes.Key, "a-z") +
			m.skin.styled(themes.Dim, " mark  ") +
			m.skin.styled(themes.Key, m.keys.Name(key.Cancel, key.Prompt)) +
			m.skin.styled(themes.Dim, " cancel")
	default:
		list := m.offeredKeys(footerKeys(m))
		shown := fitFooter(list, m.w-2)
		text, taps := shown.draw(m.skin, 1, y, m.w-2)
		left += text
		zones = taps
	}
	return layoutRow(m.skin.blankStyle(), m.w, left, "", 0), zones, nil
}

// footerKeys are those of the page; on the first one those that are needed now come first, but for
// what the bar shows.
func footerKeys(m *Model) []key.Binding {
	list := m.keys.Footer(m.keyScopes(true)...)
	if m.work.current != key.Overview {
		return list
	}
	inBar := []key.Action{key.Approve, key.Veto, key.Why}
	now := slices.DeleteFunc(page.Situation(m.work.live, key.Overview), func(b key.Binding) bool {
		return slices.Contains(inBar, b.Action)
	})
	rest := slices.DeleteFunc(slices.Clone(list), func(b key.Binding) bool {
		return slices.ContainsFunc(now, func(x key.Binding) bool {
			return x.Action == b.Action
		})
	})
	return append(now, rest...)
}

// offeredKeys leaves out what can't be done in a recording: nothing is decided there.
func (m *Model) offeredKeys(list []key.Binding) []key.Binding {
	if m.opts.Replay == nil {
		return list
	}
	return slices.DeleteFunc(list, func(b key.Binding) bool {
		return key.Decides(b.Action)
	})
}
