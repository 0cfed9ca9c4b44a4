package tui

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/palette"
	"github.com/failslow/falcon/tui/widget"
)

// commandTest is the command that asks for a test.
const commandTest = "test"

// commands take words after their name; the rest of the palette is the table of keys.
var commands = []palette.Entry{
	{Name: "rank N", Text: "Choose a rank.", Fill: "rank "},
	{Name: "filter TEXT", Text: "Filter the page that you see; without a text show all.", Fill: "filter "},
	{
		Name: "test N1-N2 …",
		Text: "Test links, or what is picked: the job is held for a moment; a dialog asks first.",
		Fill: "test ",
	},
	{
		Name: "fence NODE WHY",
		Text: "Fence a node and replace it, with the reason: a dialog opens on Cancel.",
		Fill: "fence ",
	},
	{
		Name: "renew RANK WHY",
		Text: "Replace a rank's process, with the reason: a dialog opens on Cancel.",
		Fill: "renew ",
	},
	{
		Name: "lift NODE WHY",
		Text: "Lift a node's fence, with the reason: a dialog opens on Cancel.",
		Fill: "lift ",
	},
	{
		Name: "bar NODE TIME WHY",
		Text: "Keep a node or device from being used as a spare for some time, with the reason: a dialog opens on Cancel.",
		Fill: "bar ",
	},
	{
		Name: "unbar NODE WHY",
		Text: "Let a barred node or device be used again, with the reason: a dialog opens on Cancel.",
		Fill: "unbar ",
	},
	{
		Name: "snooze TIME WHY",
		Text: "Leave the incident's alerts out for some time, such as 2h; it ends at once where the incident gets worse.",
		Fill: "snooze ",
	},
	{Name: "wake", Text: "End the snooze of the incident on screen.", Fill: "wake"},
	{Name: "assign NAME NOTE", Text: "Say whose the incident on screen is.", Fill: "assign "},
	{Name: "note TEXT", Text: "Write a note on the incident, for whoever comes next.", Fill: "note "},
	{Name: "handover NAME NOTE", Text: "Assign all open incidents to one person.", Fill: "handover "},
	{
		Name: "device NAME",
		Text: "Show a device's history: incidents that named it, tests, bars.",
		Fill: "device ",
	},
	{
		Name: "open INC-0001",
		Text: "Open an incident, a recovery, a rank or a link by its id or deep link.",
		Fill: "open ",
	},
	{Name: "at PLACE", Text: "Go to an iteration or an event of a recording.", Fill: "at "},
	{Name: "theme NAME", Text: "Choose a theme: " + strings.Join(themes.Names(), ", ") + ".", Fill: "theme "},
}

// steps are of little use from a list, and come last.
var steps = []key.Action{
	key.Up, key.Down, key.Left, key.Right, key.PageUp, key.PageDown, key.NextPage, key.PrevPage,
	key.Back,
}

// paletteEntries are the actions of some scopes: the page's own first, then global
// ones, then commands, then single steps.
func paletteEntries(keys *key.Map, scopes []key.Scope) []palette.Entry {
	var out, last []palette.Entry
	for _, s := range scopes {
		for _, b := range footerKeysFirst(keys.In(s)) {
			e := withSynonyms(palette.Entry{
				Name:   actionName(b.Action),
				Key:    b.Help().Key,
				Text:   b.Sentence,
				Action: b.Action,
			})
			switch {
			case b.Action == key.Command:
			case slices.Contains(steps, b.Action):
				last = append(last, e)
			default:
				out = append(out, e)
			}
		}
	}
	for _, e := range commands {
		out = append(out, withSynonyms(e))
	}
	return append(out, last...)
}

// footerKeysFirst puts a page's keys that the footer shows before its others; what
// works everywhere keeps the table's order, pages and decisions first.
func footerKeysFirst(list []key.Binding) []key.Binding {
	rank := func(b key.Binding) int {
		if b.Footer == 0 {
			return math.MaxInt
		}
		return b.Footer
	}
	if len(list) == 0 || list[0].Scope == key.Global {
		return list
	}
	return slices.SortedStableFunc(slices.Values(list), func(a, b key.Binding) int {
		return cmp.Compare(rank(a), rank(b))
	})
}

// actionName is an action as one types it: "zoom in", and a page by its name.
func actionName(a key.Action) string {
	if to, ok := shows[a]; ok && a != key.Why {
		return string(to)
	}
	return strings.ReplaceAll(string(a), "-", " ")
}

// commandLine is the line at the bottom: ":" commands with their list, "/"
// filters. It owns what is typed; what it means is run by its owner.
type commandLine struct {
	sign    string
	keys    *key.Map
	input   textinput.Model
	note    string        // what the text so far would do, beside it
	mistake bool          // the note says what is wrong with it
	list    *palette.List // of ":", else nil
	lines   widget.Rect   // where the list's entries are drawn
	first   int           // the number of the first entry there
}

// newCommandLine takes as much text as its row of w columns shows: it never scrolls.
func newCommandLine(keys *key.Map, sign, text string, w int) *commandLine {
	return &commandLine{
		sign: sign,
		keys: keys,
		input: newTextEntry(
			keys,
			key.Prompt,
			text,
			max(1, w-promptKeysW-len(sign)-3),
		),
	}
}

// newPalette is the line for commands.
func newPalette(keys *key.Map, scopes []key.Scope, text string, w int) *commandLine {
	c := newCommandLine(keys, ":", text, w)
	c.list = palette.New(paletteEntries(keys, scopes))
	c.list.Search(text)
	return c
}

// typesFilter reports whether a filter is typed.
func (c *commandLine) typesFilter() bool { return c.sign == "/" }

// entered is what a line was closed with.
type entered struct {
	closed bool
	warn   string     // not closed: what is wrong
	action key.Action // else
	words  []string   // of a command
	text   string     // of a filter
}

// handleKey handles a key.
func (c *commandLine) handleKey(k tea.KeyPressMsg) entered {
	a := c.keys.Lookup(k, key.Prompt)
	switch {
	case a == key.Cancel:
		return entered{closed: true}
	case a == key.Confirm && c.list != nil:
		return c.chooseEntry()
	case a == key.Confirm && c.mistake:
		return entered{warn: c.note} // to mend it
	case a == key.Confirm:
		return entered{closed: true, text: strings.TrimSpace(c.input.Value())}
	case a == key.Up && c.list != nil:
		c.list.Move(-1)
	case a == key.Down && c.list != nil:
		c.list.Move(+1)
	case a == key.Complete && c.list != nil:
		c.completeEntry()
	default:
		c.writeText(k)
	}
	return entered{}
}

// writeText gives the line a key or pasted text.
func (c *commandLine) writeText(msg tea.Msg) {
	before := c.input.Value()
	c.input = enterText(c.input, msg)
	if c.list != nil && c.input.Value() != before {
		c.list.Search(c.input.Value())
	}
}

// completeEntry writes the chosen entry into the line.
func (c *commandLine) completeEntry() {
	e, ok := c.list.Chosen()
	switch {
	case !ok:
	case e.Fill == "":
		c.fillText(e.Name)
	case !strings.HasPrefix(c.input.Value(), e.Fill): // else its words would go
		c.fillText(e.Fill)
	}
}

func (c *commandLine) fillText(text string) {
	c.input.SetValue(text)
	c.input.CursorEnd()
	c.list.Search(text)
}

// chooseEntry runs the chosen entry as its key would: what opens a dialog opens it
// here too. What acts at once must be named in full: enter on a part of its
// name only completes it.
func (c *commandLine) chooseEntry() entered {
	text := strings.TrimSpace(c.input.Value())
	e, ok := c.list.Chosen()
	if ok && e.Fill != "" && !isTypedFor(e, c.input.Value()) ||
		ok && key.AtOnce(e.Action) && !strings.EqualFold(text, e.Name) && text != "q" {
		c.completeEntry()
		return entered{}
	}
	if ok && e.Fill == "" {
		return entered{closed: true, action: e.Action}
	}
	return entered{closed: true, words: strings.Fields(text)}
}

// clickEntry chooses a line of the list; a click on the chosen one is enter.
func (c *commandLine) clickEntry(x, y int) (e entered, hit bool) {
	if c.list == nil || !c.lines.Holds(x, y) {
		return entered{}, false
	}
	line := c.first + y - c.lines.Y
	if line == c.list.Cursor() {
		return c.chooseEntry(), true
	}
	c.list.Choose(line)
	return entered{}, true
}

// rollWheel turns the wheel over the list.
func (c *commandLine) rollWheel(notches int) {
	if c.list != nil {
		c.list.Move(notches)
	}
}

// isTypedFor reports whether a command's words have been begun, or its name
// is alone where that means something.
func isTypedFor(e palette.Entry, text string) bool {
	if name := strings.TrimSpace(e.Fill); name == commandTest && strings.TrimSpace(text) == name {
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

// drawEntries draws the list above the line, at the foot of the page.
func (c *commandLine) drawEntries(s *skin, over widget.Rect) *lipgloss.Layer {
	h := max(1, min(paletteRows, over.H*3/5-2, c.list.Len()))
	w := min(dialogW+20, over.W)
	box := widget.Rect{
		X: over.X,
		Y: over.Y + over.H - h - 2,
		W: w,
		H: h + 2,
	}
	list, first := c.list.Window(h)
	c.lines = widget.Rect{
		X: box.X + 2,
		Y: box.Y + 1,
		W: w - 4,
		H: len(list),
	}
	c.first = first
	var rows []string
	for i, e := range list {
		rows = append(rows, paletteRow(s, e, first+i == c.list.Cursor(), w-4))
	}
	if len(rows) == 0 {
		rows = append(rows, lipgloss.PlaceHorizontal(
			w-4,
			lipgloss.Left,
			s.styled(themes.Dim, widget.Cut("nothing here is called so", w-4)),
		))
	}
	return s.framedLayer(
		box,
		"COMMANDS",
		countText(c.list.Len(), c.list.Cursor()),
		themes.Accent,
		rows,
	)
}

// countText returns how many there are and which is chosen.
func countText(n, cursor int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d ↑↓", cursor+1, n)
}

func paletteRow(s *skin, e palette.Match, chosen bool, w int) string {
	mark := "  "
	role := themes.Text
	keys := themes.Key
	if chosen {
		mark = "▸ "
		role = themes.Selected
		keys = themes.Selected
	}
	name := s.styled(role, mark) + matchedName(s, e, role)
	name += s.styled(role, blankText(paletteNameW-widget.Width(e.Name)))
	row := name + s.styled(keys, e.Key) + s.styled(role, blankText(paletteKeyW-widget.Width(e.Key)))
	text := s.styled(role, widget.Cut(e.Text, max(0, w-lipgloss.Width(row))))
	rest := w - lipgloss.Width(row+text)
	if rest < 1 {
		return row + text
	}
	return row + text + s.styled(role, blankText(rest))
}

// matchedName is an entry's name with the letters that were typed.
func matchedName(s *skin, e palette.Match, role themes.Role) string {
	if role == themes.Selected {
		return s.styled(role, e.Name)
	}
	out, from := "", 0
	for _, at := range e.At {
		if at < from || at >= len(e.Name) {
			continue
		}
		out += s.styled(role, e.Name[from:at]) + s.styled(themes.Key, e.Name[at:at+1])
		from = at + 1
	}
	return out + s.styled(role, e.Name[from:])
}

// promptKeysW is the room that a text entry leaves for its keys.
const promptKeysW = 24

// drawInputRow is a text entry behind its sign in w columns, with a note or its keys.
func drawInputRow(
	s *skin,
	keys *key.Map,
	sign string,
	in *textinput.Model,
	w, y int,
	note func(room int) string,
) (string, *tea.Cursor) {
	left := " " + s.styled(themes.Key, sign)
	text, cursor := showInput(
		in,
		w-promptKeysW-lipgloss.Width(left),
		lipgloss.Width(left),
		y,
	)
	right := note(max(promptKeysW-1, w-cursor.X-3))
	if right == "" {
		right = s.shortHelp(promptKeysW-1, promptKeys(keys, sign))
	}
	return layoutRow(s.blankStyle(), w, left+text, right+" ", 1), cursor
}

func withoutNote(int) string { return "" }

// drawInput draws the line in the screen's last row.
func (c *commandLine) drawInput(s *skin, w, y int) (string, *tea.Cursor) {
	return drawInputRow(s, c.keys, c.sign, &c.input, w, y, func(room int) string {
		switch {
		case c.note == "":
			return ""
		case c.mistake:
			return s.styled(themes.Warn, widget.Cut(c.note, room))
		}
		return s.styled(themes.Accent, c.note)
	})
}

// promptKeys are the keys of a text entry; enter runs a command or keeps a filter.
func promptKeys(keys *key.Map, sign string) []key.Binding {
	list := slices.Clone(keys.Footer(key.Prompt))
	for i, b := range list {
		if b.Action == key.Confirm && sign == "/" {
			list[i].SetHelp(b.Help().Key, "keep")
		}
	}
	return list
}
