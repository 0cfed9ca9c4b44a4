package tui

import (
	"fmt"
	"strings"

	"charm.land/bubbles/v2/help"
	bubbles "charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textinput"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

// skin draws in the theme's colours; every part of the screen draws with it.
type skin struct {
	pal   *themes.Palette
	ascii bool // ASCII only
}

// styled is text in a role. It takes the background of what ground lays it on,
// unless the role has one of its own.
func (s *skin) styled(r themes.Role, text string) string {
	return s.pal.Style(r).Lipgloss().Render(widget.Arrows(text, s.ascii))
}

// blankStyle is the style of the screen where nothing is drawn.
func (s *skin) blankStyle() themes.Style {
	return themes.Style{FG: s.pal.Style(themes.Text).FG, BG: s.pal.Background}
}

// onBackground lays styled text on a base: where the text returns to the terminal's
// own colours, as the libraries do between their parts, it returns to base.
func onBackground(base themes.Style, s string) string {
	open := base.SGR()
	return open + strings.ReplaceAll(s, ansi.ResetStyle, ansi.ResetStyle+open) + ansi.ResetStyle
}

// layoutRow is one line of w columns on a base. The left part is cut where the right
// one leaves no room, gap columns before it.
func layoutRow(base themes.Style, w int, left, right string, gap int) string {
	right = ansi.Truncate(right, w, "")
	room := w - lipgloss.Width(right)
	left = ansi.Truncate(left, room-gap, "…")
	return onBackground(base, lipgloss.PlaceHorizontal(room, lipgloss.Left, left)+right)
}

// framedLayer makes a layer of rows, each already w-4 columns wide, in a border with
// a title in its top edge and, where there is one, a hint in its bottom edge.
func (s *skin) framedLayer(
	at widget.Rect,
	title, hint string,
	role themes.Role,
	rows []string,
) *lipgloss.Layer {
	surface := s.pal.Style(themes.Dialog)
	edge := s.pal.Style(role)
	if edge.BG != 0 {
		edge.FG = edge.BG
	}
	border := lipgloss.NormalBorder()
	if s.ascii {
		border = lipgloss.ASCIIBorder()
	}
	box := lipgloss.NewStyle().Border(border).Padding(0, 1).
		BorderForeground(edge.FG.Terminal()).BorderBackground(surface.BG.Terminal()).
		Background(surface.BG.Terminal())
	for i, r := range rows {
		rows[i] = onBackground(surface, r)
	}
	layer := lipgloss.NewLayer(box.Render(strings.Join(rows, "\n"))).X(at.X).Y(at.Y).Z(1).AddLayers(
		lipgloss.NewLayer(onBackground(surface, s.styled(themes.Title, " "+title+" "))).X(2).Z(2))
	if hint != "" {
		hint = onBackground(surface, s.styled(themes.Key, " "+hint+" "))
		layer.AddLayers(lipgloss.NewLayer(hint).X(at.W - 2 - lipgloss.Width(hint)).Y(at.H - 1).Z(3))
	}
	return layer
}

// onlyASCII leaves only ASCII in a screen, where that is all that can be shown.
func (s *skin) onlyASCII(screen string) string {
	if !s.ascii {
		return screen
	}
	return strings.Map(widget.ASCII, screen)
}

// drawField draws a question and its text entry at x, y in w columns.
func (s *skin) drawField(question string, in *textinput.Model, w, x, y int) (string, *tea.Cursor) {
	ask := s.styled(themes.Key, question)
	n := lipgloss.Width(ask)
	text, cursor := showInput(in, w-n, x+n, y)
	return ask + text, cursor
}

// scrolledRows is what a pane of w × h shows of the lines.
func (s *skin) scrolledRows(pane *viewport.Model, lines []page.Line, w, h int) []string {
	text := make([]string, len(lines))
	for i, l := range lines {
		text[i] = widget.Cut(widget.Arrows(l.Text, s.ascii), w)
	}
	pane.SetWidth(w)
	pane.SetHeight(max(1, h))
	pane.StyleLineFunc = func(i int) lipgloss.Style {
		return s.pal.Style(lines[i].Role).Lipgloss()
	}
	pane.SetContentLines(text)
	return strings.Split(pane.View(), "\n")
}

// moreBelow returns how many lines a pane has below, and the key that goes there.
func moreBelow(pane *viewport.Model, key string) string {
	if rest := pane.TotalLineCount() - pane.YOffset() - pane.VisibleLineCount(); rest > 0 {
		return fmt.Sprintf("%d more, %s", rest, key)
	}
	return ""
}

// shortHelp lists keys and what they do, as many as fit in w columns.
func (s *skin) shortHelp(w int, show []key.Binding) string {
	dim := s.pal.Style(themes.Dim).Lipgloss()
	h := help.Model{
		ShortSeparator: "  ",
		Ellipsis:       "…",
		Styles: help.Styles{
			ShortKey:       s.pal.Style(themes.Key).Lipgloss(),
			ShortDesc:      dim,
			ShortSeparator: dim,
			Ellipsis:       dim,
		},
	}
	h.SetWidth(w)
	var list []bubbles.Binding
	for _, b := range show {
		list = append(list, b.Binding)
	}
	return h.ShortHelpView(list)
}

// underlineCursor is the terminal's cursor on a focused element, as screen
// readers follow it; it doesn't blink.
func underlineCursor(x, y int) *tea.Cursor {
	c := tea.NewCursor(x, y)
	c.Shape = tea.CursorUnderline
	c.Blink = false
	return c
}
