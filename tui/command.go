package tui

import (
	"cmp"
	"math"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/palette"
	"github.com/failslow/falcon/tui/widget"
)

// commands are what takes words after its name; the rest of the palette is the
// table of keys.
var commands = []palette.Entry{
	{Name: "rank N", Text: "Choose a rank.", Fill: "rank "},
	{Name: "filter TEXT", Text: "Filter the page that you see; without a text show all.", Fill: "filter "},
	{Name: "test N1-N2 …", Text: "Test links, or what is picked: the job is held for a moment; a dialog asks first.", Fill: "test "},
	{Name: "fence NODE WHY", Text: "Fence a node and replace it, with the reason: a dialog opens on Cancel.", Fill: "fence "},
	{Name: "renew RANK WHY", Text: "Make a rank anew, with the reason: a dialog opens on Cancel.", Fill: "renew "},
	{Name: "lift NODE WHY", Text: "Lift a node's fence, with the reason: a dialog opens on Cancel.", Fill: "lift "},
	{Name: "open INC-0001", Text: "Open an incident, a recovery, a rank or a link by its id or deep link.", Fill: "open "},
	{Name: "at PLACE", Text: "Go to an iteration or an event of a recording.", Fill: "at "},
	{Name: "theme NAME", Text: "Choose a theme: " + strings.Join(themes.Names(), ", ") + ".", Fill: "theme "},
}

// steps are of little use from a list, and stand last.
var steps = []key.Action{key.Up, key.Down, key.Left, key.Right, key.PageUp, key.PageDown, key.NextPage, key.PrevPage, key.Back}

// entries are all that can be done on the present page: what belongs to the
// page first, then what works everywhere, then commands, then single steps.
func (m *Model) entries() []palette.Entry {
	var out, last []palette.Entry
	for _, s := range m.scopes() {
		for _, b := range inOrder(m.table.In(s)) {
			e := palette.Entry{Name: actionName(b.Action), Key: b.Help().Key, Text: b.Sentence, Action: b.Action}
			switch {
			case b.Action == key.Command:
			case slices.Contains(steps, b.Action):
				last = append(last, e)
			default:
				out = append(out, e)
			}
		}
	}
	return slices.Concat(out, commands, last)
}

// inOrder puts a page's keys that the footer shows before its others; what
// works everywhere keeps the table's order, pages and decisions first.
func inOrder(list []key.Binding) []key.Binding {
	rank := func(b key.Binding) int {
		if b.Footer == 0 {
			return math.MaxInt
		}
		return b.Footer
	}
	if len(list) == 0 || list[0].Scope == key.Global {
		return list
	}
	return slices.SortedStableFunc(slices.Values(list), func(a, b key.Binding) int { return cmp.Compare(rank(a), rank(b)) })
}

// actionName is an action as one types it: "zoom in", and a page by its name.
func actionName(a key.Action) string {
	if to, ok := shows[a]; ok && a != key.Why {
		return string(to)
	}
	return strings.ReplaceAll(string(a), "-", " ")
}

// openPalette opens the prompt for commands with its list.
func (m *Model) openPalette(text string) {
	m.prompt = m.newPrompt(":", text)
	m.prompt.list = palette.New(m.entries())
	m.prompt.list.Search(text)
}

// paletteKey handles a key that concerns the list; done is false for one that
// is the text entry's.
func (m *Model) paletteKey(a key.Action) (cmd tea.Cmd, done bool) {
	p := m.prompt
	switch a {
	case key.Up:
		p.list.Move(-1)
	case key.Down:
		p.list.Move(+1)
	case key.Complete:
		m.complete()
	case key.Confirm:
		return m.choose(), true
	default:
		return nil, false
	}
	return nil, true
}

// complete writes the chosen entry into the prompt.
func (m *Model) complete() {
	e, ok := m.prompt.list.Chosen()
	switch {
	case !ok:
	case e.Fill == "":
		m.fill(e.Name)
	case !strings.HasPrefix(m.prompt.input.Value(), e.Fill): // else its words would go
		m.fill(e.Fill)
	}
}

func (m *Model) fill(text string) {
	m.prompt.input.SetValue(text)
	m.prompt.input.CursorEnd()
	m.prompt.list.Search(text)
}

// choose runs the chosen entry as its key would: what opens a dialog opens it
// here too. What acts at once must be named in full: enter on a part of its
// name only completes it.
func (m *Model) choose() tea.Cmd {
	text := strings.TrimSpace(m.prompt.input.Value())
	e, ok := m.prompt.list.Chosen()
	if ok && e.Fill != "" && !typedFor(e, m.prompt.input.Value()) {
		m.complete()
		return nil
	}
	if ok && key.AtOnce(e.Action) && !strings.EqualFold(text, e.Name) && text != "q" {
		m.complete()
		return nil
	}
	m.prompt = nil
	if ok && e.Fill == "" {
		return m.act(e.Action)
	}
	return m.command(strings.Fields(text))
}

// typedFor says that a command's words have been begun, or that its name
// stands alone where that means something.
func typedFor(e palette.Entry, text string) bool {
	if strings.TrimSpace(e.Fill) == "test" && strings.TrimSpace(text) == "test" {
		return true
	}
	return len(text) >= len(e.Fill) && strings.EqualFold(text[:len(e.Fill)], e.Fill)
}

// paletteRows is the most that the list takes of the page.
const paletteRows = 12

// paletteNameW and paletteKeyW are the room for names and keys.
const (
	paletteNameW = 20
	paletteKeyW  = 10
)

// drawPalette draws the list above the prompt, at the foot of the page.
func (m *Model) drawPalette(over widget.Rect) *lipgloss.Layer {
	l := m.prompt.list
	h := max(1, min(paletteRows, over.H*3/5-2, l.Len()))
	w := min(dialogW+20, over.W)
	box := widget.Rect{X: over.X, Y: over.Y + over.H - h - 2, W: w, H: h + 2}
	list, first := l.Window(h)
	m.lists = &listZone{widget.Rect{X: box.X + 2, Y: box.Y + 1, W: w - 4, H: len(list)}, first}
	var rows []string
	for i, e := range list {
		rows = append(rows, m.paletteRow(e, first+i == l.Cursor(), w-4))
	}
	if len(rows) == 0 {
		rows = append(rows, lipgloss.PlaceHorizontal(w-4, lipgloss.Left, m.skin.put(themes.Dim, widget.Cut("nothing here is called so", w-4))))
	}
	return m.skin.frame(box, "COMMANDS", countOf(l.Len(), l.Cursor()), themes.Accent, rows)
}

func (m *Model) paletteRow(e palette.Match, chosen bool, w int) string {
	mark, role, keys := "  ", themes.Text, themes.Key
	if chosen {
		mark, role, keys = "▸ ", themes.Selected, themes.Selected
	}
	name := m.skin.put(role, mark) + m.matched(e, role)
	name += m.skin.put(role, spaces(paletteNameW-widget.Width(e.Name)))
	row := name + m.skin.put(keys, e.Key) + m.skin.put(role, spaces(paletteKeyW-widget.Width(e.Key)))
	text := m.skin.put(role, widget.Cut(e.Text, max(0, w-lipgloss.Width(row))))
	rest := w - lipgloss.Width(row+text)
	if rest < 1 {
		return row + text
	}
	return row + text + m.skin.put(role, spaces(rest))
}

// matched is an entry's name with the letters that were typed.
func (m *Model) matched(e palette.Match, role themes.Role) string {
	if role == themes.Selected {
		return m.skin.put(role, e.Name)
	}
	out, from := "", 0
	for _, at := range e.At {
		if at < from || at >= len(e.Name) {
			continue
		}
		out += m.skin.put(role, e.Name[from:at]) + m.skin.put(themes.Key, e.Name[at:at+1])
		from = at + 1
	}
	return out + m.skin.put(role, e.Name[from:])
}
