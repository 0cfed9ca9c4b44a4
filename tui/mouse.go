package tui

import (
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/widget"
)

// The mouse does nothing that a key doesn't do, and less: it never presses a
// dialog's button, and nothing that acts at once.

// zone is a part of the screen around the page that can be clicked.
type zone struct {
	r     widget.Rect
	click func(*Model) tea.Cmd
}

// wheelPause gathers what a wheel or a dragged mouse sends: a notch is often
// several events, and each would be a new picture.
const wheelPause = 16 * time.Millisecond

// maxNotches bounds what one pause moves.
const maxNotches = 10

// pointer owns what the mouse does: what it did since the last pause, and what
// can be pointed at in the picture on screen.
type pointer struct {
	on      bool // else the mouse is the terminal's
	notches int  // down is positive
	x, y    int  // where it was dragged to
	dragged bool
	waiting bool

	targets widget.Targets // what the page stands for
	zones   []zone         // what can be clicked around it
}

// pointedMsg ends a pause.
type pointedMsg struct{}

// wheel notes a turn of the wheel.
func (p *pointer) wheel(button tea.MouseButton) tea.Cmd {
	switch button {
	case tea.MouseWheelUp:
		p.notches--
	case tea.MouseWheelDown:
		p.notches++
	}
	return p.gather()
}

// drag notes where the mouse was dragged to.
func (p *pointer) drag(x, y int) tea.Cmd {
	p.x, p.y, p.dragged = x, y, true
	return p.gather()
}

// gather waits for more of the same, once.
func (p *pointer) gather() tea.Cmd {
	if p.waiting {
		return nil
	}
	p.waiting = true
	return tea.Tick(wheelPause, func(time.Time) tea.Msg { return pointedMsg{} })
}

// gathered is what was done since the last pause: the notches, and what the
// mouse was dragged to.
func (p *pointer) gathered() (notches int, to widget.Target) {
	if p.dragged {
		to = p.at(p.x, p.y)
	}
	notches = max(-maxNotches, min(maxNotches, p.notches))
	p.notches, p.dragged, p.waiting = 0, false, false
	return notches, to
}

// at is what of the page is at a place of the screen.
func (p *pointer) at(x, y int) widget.Target { return p.targets.At(x, y-headerRows) }

// zone is what around the page is at a place of the screen.
func (p *pointer) zone(x, y int) (zone, bool) {
	for _, z := range p.zones {
		if z.r.Holds(x, y) {
			return z, true
		}
	}
	return zone{}, false
}

// wheels are what a notch does on a page, up and down.
var wheels = map[key.Scope][2]key.Action{
	key.Ranks: {key.Up, key.Down}, key.Grid: {key.Up, key.Down}, key.Posterior: {key.Left, key.Right},
	key.Ladder: {key.PageUp, key.PageDown}, key.Validate: {key.PageUp, key.PageDown},
	key.Recovery: {key.PageUp, key.PageDown}, key.Events: {key.Up, key.Down},
}

// mouse handles the mouse's messages.
func (m *Model) mouse(msg tea.MouseMsg) tea.Cmd {
	if !m.pointer.on || m.small() {
		return nil
	}
	at := msg.Mouse()
	switch msg.(type) {
	case tea.MouseClickMsg:
		if at.Button == tea.MouseLeft {
			m.touch()
			return tea.Batch(m.hint.see(), m.click(at.X, at.Y))
		}
	case tea.MouseWheelMsg:
		return m.pointer.wheel(at.Button)
	case tea.MouseMotionMsg:
		if at.Button == tea.MouseLeft {
			return m.pointer.drag(at.X, at.Y)
		}
	}
	return nil
}

// pointed does what was gathered.
func (m *Model) pointed() {
	notches, to := m.pointer.gathered()
	if notches != 0 {
		m.touch()
		m.roll(notches)
	}
	if to.Kind == widget.TargetIteration && !m.modal() {
		m.touch()
		m.work.point(to)
	}
}

// roll turns the wheel over whatever is on top.
func (m *Model) roll(notches int) {
	switch {
	case m.help != nil:
		m.help.roll(notches)
	case m.decisions.dialog != nil:
		m.decisions.dialog.roll(notches)
	case m.work.marks.asks != "":
	case m.prompt != nil:
		m.prompt.roll(notches)
	default:
		m.work.roll(notches)
	}
}

// roll turns the wheel over the page.
func (v *workspace) roll(notches int) {
	w, ok := wheels[v.current]
	if !ok {
		return
	}
	a := w[1]
	if notches < 0 {
		a = w[0]
	}
	for range max(notches, -notches) {
		v.act(a)
	}
}

// click does what is at a place of the screen.
func (m *Model) click(x, y int) tea.Cmd {
	if z, ok := m.pointer.zone(x, y); ok {
		return z.click(m)
	}
	if p := m.prompt; p != nil {
		if e, hit := p.click(x, y); hit {
			return m.entered(p, e)
		}
	}
	if !m.modal() {
		m.work.point(m.pointer.at(x, y))
	}
	return nil
}

// tap is a click on a key that the screen shows: it does what the key does,
// unless that acts at once.
func (m *Model) tap(b key.Binding) tea.Cmd {
	if key.AtOnce(b.Action) {
		m.notes.say(themes.Warn, b.Help().Key+" acts at once: press the key")
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
func barZones(keys *key.Map, bar string, y int) []zone {
	var out []zone
	text := ansi.Strip(bar)
	for _, a := range []key.Action{key.Approve, key.Veto, key.Why} {
		b := keys.ForAction(key.Global, a)
		label := b.Help().Key + " " + b.Help().Desc
		if i := strings.LastIndex(text, label); i >= 0 {
			out = append(out, zone{widget.Rect{X: widget.Width(text[:i]), Y: y, W: widget.Width(label), H: 1}, func(m *Model) tea.Cmd { return m.tap(b) }})
		}
	}
	return out
}

// toggleMouse takes or leaves the mouse.
func (m *Model) toggleMouse() {
	m.pointer.on = !m.pointer.on
	k := m.keys.Name(key.Mouse, key.Global)
	if m.pointer.on {
		m.notes.say(themes.Accent, "mouse on: hold Shift to select text, "+k+" turns it off")
		return
	}
	m.notes.say(themes.Accent, "mouse off: the terminal selects text, "+k+" turns it on")
}
