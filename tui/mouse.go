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

// turnWheel notes a turn of the wheel.
func (p *pointer) turnWheel(button tea.MouseButton) tea.Cmd {
	switch button {
	case tea.MouseWheelUp:
		p.notches--
	case tea.MouseWheelDown:
		p.notches++
	}
	return p.gatherMore()
}

// dragTo notes where the mouse was dragged to.
func (p *pointer) dragTo(x, y int) tea.Cmd {
	p.x = x
	p.y = y
	p.dragged = true
	return p.gatherMore()
}

// gatherMore waits for more of the same, once.
func (p *pointer) gatherMore() tea.Cmd {
	if p.waiting {
		return nil
	}
	p.waiting = true
	return tea.Tick(wheelPause, func(time.Time) tea.Msg { return pointedMsg{} })
}

// takeGathered is what was done since the last pause: notches, and the place dragged to.
func (p *pointer) takeGathered() (notches int, to widget.Target) {
	if p.dragged {
		to = p.targetAt(p.x, p.y)
	}
	notches = max(-maxNotches, min(maxNotches, p.notches))
	p.notches = 0
	p.dragged = false
	p.waiting = false
	return notches, to
}

// targetAt is what of the page is at a place of the screen.
func (p *pointer) targetAt(x, y int) widget.Target {
	return p.targets.At(x, y-headerRows)
}

// zoneAt is what around the page is at a place of the screen.
func (p *pointer) zoneAt(x, y int) (zone, bool) {
	for _, z := range p.zones {
		if z.r.Holds(x, y) {
			return z, true
		}
	}
	return zone{}, false
}

// wheels are what a notch does on a page, up and down.
var wheels = map[key.Scope][2]key.Action{
	key.Ranks:     {key.Up, key.Down},
	key.Grid:      {key.Up, key.Down},
	key.Posterior: {key.Left, key.Right},
	key.Ladder:    {key.PageUp, key.PageDown},
	key.Validate:  {key.PageUp, key.PageDown},
	key.Recovery:  {key.PageUp, key.PageDown},
	key.Events:    {key.Up, key.Down},
}

// handleMouse handles the mouse's messages.
func (m *Model) handleMouse(msg tea.MouseMsg) tea.Cmd {
	if !m.pointer.on || m.isTooSmall() {
		return nil
	}
	at := msg.Mouse()
	switch msg.(type) {
	case tea.MouseClickMsg:
		if at.Button == tea.MouseLeft {
			m.noteActivity()
			return tea.Batch(m.hint.markSeen(), m.clickAt(at.X, at.Y))
		}
	case tea.MouseWheelMsg:
		return m.pointer.turnWheel(at.Button)
	case tea.MouseMotionMsg:
		if at.Button == tea.MouseLeft {
			return m.pointer.dragTo(at.X, at.Y)
		}
	}
	return nil
}

// handlePointed does what was gathered.
func (m *Model) handlePointed() {
	notches, to := m.pointer.takeGathered()
	if notches != 0 {
		m.noteActivity()
		m.rollWheel(notches)
	}
	if to.Kind == widget.TargetIteration && !m.hasOverlay() {
		m.noteActivity()
		m.work.pointAt(to)
	}
}

// rollWheel turns the wheel over whatever is on top.
func (m *Model) rollWheel(notches int) {
	switch {
	case m.help != nil:
		m.help.rollWheel(notches)
	case m.decisions.dialog != nil:
		m.decisions.dialog.rollWheel(notches)
	case m.output != nil:
		m.output.rollWheel(notches)
	case m.work.marks.asks != "":
	case m.prompt != nil:
		m.prompt.rollWheel(notches)
	default:
		m.work.rollWheel(notches)
	}
}

// rollWheel turns the wheel over the page.
func (v *workspace) rollWheel(notches int) {
	w, ok := wheels[v.current]
	if !ok {
		return
	}
	a := w[1]
	if notches < 0 {
		a = w[0]
	}
	for range max(notches, -notches) {
		v.performOnPage(a)
	}
}

// clickAt does what is at a place of the screen.
func (m *Model) clickAt(x, y int) tea.Cmd {
	if z, ok := m.pointer.zoneAt(x, y); ok {
		return z.click(m)
	}
	if p := m.prompt; p != nil {
		if e, hit := p.clickEntry(x, y); hit {
			return m.runEntered(p, e)
		}
	}
	if !m.hasOverlay() {
		m.work.pointAt(m.pointer.targetAt(x, y))
	}
	return nil
}

// tapBinding is a click on a key on screen. It does the same, unless that acts at once.
func (m *Model) tapBinding(b key.Binding) tea.Cmd {
	if key.AtOnce(b.Action) {
		m.notes.showNote(themes.Warn, b.Help().Key+" acts at once: press the key")
		return nil
	}
	return m.perform(b.Action)
}

// footerZones are the bindings as the footer shows them in w columns from x on.
func footerZones(list []key.Binding, x, y, w int) []zone {
	var out []zone
	end := x + w
	for _, b := range list {
		width := bindingWidth(b)
		if x+width > end {
			break
		}
		out = append(out, zone{widget.Rect{X: x, Y: y, W: width, H: 1}, func(m *Model) tea.Cmd {
			return m.tapBinding(b)
		}})
		x += width + footerGap
	}
	return out
}

// proposalZones are the decisions that the proposal bar shows.
func proposalZones(keys *key.Map, bar string, y int) []zone {
	var out []zone
	text := ansi.Strip(bar)
	for _, a := range []key.Action{key.Approve, key.Veto, key.Why} {
		b := keys.ForAction(key.Global, a)
		label := b.Help().Key + " " + b.Help().Desc
		if i := strings.LastIndex(text, label); i >= 0 {
			out = append(out, zone{
				widget.Rect{
					X: widget.Width(text[:i]),
					Y: y,
					W: widget.Width(label),
					H: 1,
				},
				func(m *Model) tea.Cmd {
					return m.tapBinding(b)
				},
			})
		}
	}
	return out
}

// toggleMouse takes or leaves the mouse.
func (m *Model) toggleMouse() {
	m.pointer.on = !m.pointer.on
	k := m.keys.Name(key.Mouse, key.Global)
	if m.pointer.on {
		m.notes.showNote(themes.Accent, "mouse on: hold Shift to select text, "+k+" turns it off")
		return
	}
	m.notes.showNote(themes.Accent, "mouse off: the terminal selects text, "+k+" turns it on")
}
