package tui

import (
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

// The mouse does nothing that a key doesn't do, and less: it never presses a
// dialog's button, and nothing that acts at once.

// zone is a part of the screen around the page that can be clicked.
type zone struct {
	r     widget.Rect
	click func(*Model) tea.Cmd
}

// listZone is where the palette shows its entries, and the number of its first.
type listZone struct {
	r     widget.Rect
	first int
}

// wheelPause gathers what a wheel or a dragged mouse sends: a notch is often
// several events, and each would be a new picture.
const wheelPause = 16 * time.Millisecond

// maxNotches bounds what one pause moves.
const maxNotches = 10

// pointing is what the mouse did since the last pause.
type pointing struct {
	notches int // down is positive
	x, y    int // where it was dragged to
	dragged bool
	waiting bool
}

// pointedMsg ends a pause.
type pointedMsg struct{}

// wheels are what a notch does on a page, up and down.
var wheels = map[key.Scope][2]key.Action{
	key.Ranks: {key.Up, key.Down}, key.Grid: {key.Up, key.Down}, key.Posterior: {key.Left, key.Right},
	key.Ladder: {key.PageUp, key.PageDown}, key.Validate: {key.PageUp, key.PageDown},
	key.Recovery: {key.PageUp, key.PageDown}, key.Events: {key.Up, key.Down},
}

// mouse handles the mouse's messages.
func (m *Model) mouse(msg tea.MouseMsg) tea.Cmd {
	if !m.mouseOn || m.small() {
		return nil
	}
	at := msg.Mouse()
	switch msg.(type) {
	case tea.MouseClickMsg:
		if at.Button == tea.MouseLeft {
			m.touch()
			return tea.Batch(m.seeHint(), m.click(at.X, at.Y))
		}
	case tea.MouseWheelMsg:
		switch at.Button {
		case tea.MouseWheelUp:
			m.pointing.notches--
		case tea.MouseWheelDown:
			m.pointing.notches++
		}
		return m.gather()
	case tea.MouseMotionMsg:
		if at.Button == tea.MouseLeft {
			m.pointing.x, m.pointing.y, m.pointing.dragged = at.X, at.Y, true
			return m.gather()
		}
	}
	return nil
}

// gather waits for more of the same, once.
func (m *Model) gather() tea.Cmd {
	if m.pointing.waiting {
		return nil
	}
	m.pointing.waiting = true
	return tea.Tick(wheelPause, func(time.Time) tea.Msg { return pointedMsg{} })
}

// pointed does what was gathered.
func (m *Model) pointed() {
	p := m.pointing
	m.pointing = pointing{}
	if p.notches != 0 {
		m.touch()
		m.roll(max(-maxNotches, min(maxNotches, p.notches)))
	}
	if p.dragged && !m.modal() {
		if t := m.targets.At(p.x, p.y-headerRows); t.Kind == widget.TargetIteration {
			m.touch()
			m.point(t)
		}
	}
}

// modal says that something lies over the page and owns keys and mouse.
func (m *Model) modal() bool {
	return m.help != nil || m.dialog != nil || m.prompt != nil || m.marks.asks != ""
}

// roll turns the wheel over whatever is on top. In a dialog it scrolls what is
// asked and never changes a choice.
func (m *Model) roll(notches int) {
	switch {
	case m.help != nil:
		m.help.roll(notches)
	case m.dialog != nil:
		m.dialog.roll(notches)
	case m.marks.asks != "":
	case m.prompt != nil:
		if m.prompt.list != nil {
			m.prompt.list.Move(notches)
		}
	default:
		m.rollPage(notches)
	}
}

func (m *Model) rollPage(notches int) {
	w, ok := wheels[m.current]
	if !ok {
		return
	}
	a := w[1]
	if notches < 0 {
		a = w[0]
	}
	for range max(notches, -notches) {
		m.toPage(a)
	}
}

// click does what stands at a place of the screen.
func (m *Model) click(x, y int) tea.Cmd {
	for _, z := range m.zones {
		if z.r.Holds(x, y) {
			return z.click(m)
		}
	}
	if m.prompt != nil && m.prompt.list != nil && m.lists != nil && m.lists.r.Holds(x, y) {
		return m.clickPalette(m.lists.first + y - m.lists.r.Y)
	}
	if !m.modal() {
		m.point(m.targets.At(x, y-headerRows))
	}
	return nil
}

// clickPalette chooses a line; a click on the chosen one is enter.
func (m *Model) clickPalette(line int) tea.Cmd {
	if line == m.prompt.list.Cursor() {
		return m.choose()
	}
	m.prompt.list.Choose(line)
	return nil
}

// Pointed is a page that knows targets of its own besides ranks.
type Pointed interface {
	// Point chooses what was pointed at.
	Point(t widget.Target, s *page.State)
}

// point chooses what was pointed at; a rank that is chosen already is opened.
func (m *Model) point(t widget.Target) {
	switch t.Kind {
	case widget.NoTarget:
		return
	case widget.TargetRank:
		m.pointRank(int32(t.N))
		return
	case widget.TargetRow, widget.TargetIteration:
	}
	if p, ok := m.pages[m.current].(Pointed); ok {
		p.Point(t, m.pointedState())
	}
}

// pointedState is what a page takes keys and the pointer by: the ladder's cursor
// is among the rungs that it has drawn.
func (m *Model) pointedState() *page.State {
	if m.current == key.Ladder {
		return m.drawnState(m.current)
	}
	return m.state
}

func (m *Model) pointRank(rank int32) {
	again := rank == m.state.Rank() && !m.state.Following()
	m.state.Select(rank)
	m.shareChoice()
	switch {
	case !again:
	case m.current == key.Overview:
		m.show(key.Ranks)
	case m.current == key.Validate:
		m.toPage(key.Pick)
	default:
		m.toPage(key.Open)
	}
}

// tap is a click on a key that the screen shows: it does what the key does,
// unless that acts at once.
func (m *Model) tap(b key.Binding) tea.Cmd {
	if key.AtOnce(b.Action) {
		m.say(themes.Warn, b.Help().Key+" acts at once: press the key")
		return nil
	}
	return m.act(b.Action)
}

// tapZones are the bindings as the footer shows them in w columns from x on.
func tapZones(list []key.Binding, x, y, w int) []zone {
	var out []zone
	end := x + w
	for _, b := range list {
		width := widget.Width(b.Help().Key) + 1 + widget.Width(b.Help().Desc)
		if x+width > end {
			break
		}
		out = append(out, zone{widget.Rect{X: x, Y: y, W: width, H: 1}, func(m *Model) tea.Cmd { return m.tap(b) }})
		x += width + len("  ")
	}
	return out
}

// barZones are the decisions that the proposal bar shows.
func (m *Model) barZones(bar string, y int) []zone {
	var out []zone
	text := ansi.Strip(bar)
	for _, a := range []key.Action{key.Approve, key.Veto, key.Why} {
		b := m.table.ForAction(key.Global, a)
		label := b.Help().Key + " " + b.Help().Desc
		if i := strings.LastIndex(text, label); i >= 0 {
			out = append(out, zone{widget.Rect{X: widget.Width(text[:i]), Y: y, W: widget.Width(label), H: 1}, func(m *Model) tea.Cmd { return m.tap(b) }})
		}
	}
	return out
}

// toggleMouse takes or leaves the mouse.
func (m *Model) toggleMouse() {
	m.mouseOn = !m.mouseOn
	k := m.table.Name(key.Mouse, key.Global)
	if m.mouseOn {
		m.say(themes.Accent, "mouse on: hold Shift to select text, "+k+" turns it off")
		return
	}
	m.say(themes.Accent, "mouse off: the terminal selects text, "+k+" turns it on")
}
