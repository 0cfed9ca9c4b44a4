package tui

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/widget"
)

// put is text in a role. It takes the background of what ground lays it on,
// unless the role has one of its own.
func (m *Model) put(r themes.Role, s string) string {
	return m.pal.Style(r).Lipgloss().Render(widget.Arrows(s, m.opts.ASCII))
}

// blank is the style of the screen where nothing is drawn.
func (m *Model) blank() themes.Style {
	return themes.Style{FG: m.pal.Style(themes.Text).FG, BG: m.pal.Background}
}

// ground lays styled text on a base: where the text returns to the terminal's
// own colours, as the libraries do between their parts, it returns to base.
func ground(base themes.Style, s string) string {
	open := base.SGR()
	return open + strings.ReplaceAll(s, ansi.ResetStyle, ansi.ResetStyle+open) + ansi.ResetStyle
}

// row is one line of w columns on a base. The left part is cut where the right
// one leaves no room, gap columns before it.
func row(base themes.Style, w int, left, right string, gap int) string {
	right = ansi.Truncate(right, w, "")
	room := w - lipgloss.Width(right)
	left = ansi.Truncate(left, room-gap, "…")
	return ground(base, lipgloss.PlaceHorizontal(room, lipgloss.Left, left)+right)
}

// frame makes a layer of rows, each already w-4 columns wide, in a border with
// a title in its top edge and, where there is one, a hint in its bottom edge.
func (m *Model) frame(at widget.Rect, title, hint string, role themes.Role, rows []string) *lipgloss.Layer {
	surface, edge := m.pal.Style(themes.Dialog), m.pal.Style(role)
	if edge.BG != 0 {
		edge.FG = edge.BG
	}
	border := lipgloss.NormalBorder()
	if m.opts.ASCII {
		border = lipgloss.ASCIIBorder()
	}
	box := lipgloss.NewStyle().Border(border).Padding(0, 1).
		BorderForeground(edge.FG.Terminal()).BorderBackground(surface.BG.Terminal()).
		Background(surface.BG.Terminal())
	for i, r := range rows {
		rows[i] = ground(surface, r)
	}
	layer := lipgloss.NewLayer(box.Render(strings.Join(rows, "\n"))).X(at.X).Y(at.Y).Z(1).AddLayers(
		lipgloss.NewLayer(ground(surface, m.put(themes.Title, " "+title+" "))).X(2).Z(2))
	if hint != "" {
		hint = ground(surface, m.put(themes.Key, " "+hint+" "))
		layer.AddLayers(lipgloss.NewLayer(hint).X(at.W - 2 - lipgloss.Width(hint)).Y(at.H - 1).Z(3))
	}
	return layer
}

// overlay lays a layer over the screen.
func overlay(screen string, over *lipgloss.Layer) string {
	return lipgloss.NewCompositor(lipgloss.NewLayer(screen), over).Render()
}
