package tui

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
)

// The libraries leave parts of what they draw unstyled; none of it may show
// through as the terminal's own background.
func TestNoHolesInTheBackground(t *testing.T) {
	open := [][]string{nil, {"tab"}, {"p"}, {"?"}, {":", "r"}, {"a"}, {"v", "x"}, {"c"}}
	for _, keys := range open {
		for _, theme := range themes.Names() {
			m := screen(
				t,
				moments[1],
				key.Overview,
				100,
				30,
				theme,
				colorprofile.TrueColor,
				false,
			)
			for _, k := range keys {
				m.Update(keyMsg(k))
			}
			cells := lipgloss.NewCanvas(100, 30).Compose(lipgloss.NewLayer(m.View().Content))
			for y := range 30 {
				for x := range 100 {
					if c := cells.CellAt(x, y); c == nil || c.Style.Bg == nil && c.Width > 0 {
						t.Fatalf("%s after %v: no background at %d, %d in row\n%s",
							theme, keys, x, y, strings.Split(text(m), "\n")[y])
					}
				}
			}
		}
	}
}

// veto opens the veto dialog past its guard.
func veto(t *testing.T) (*Model, *clock) {
	t.Helper()
	clk := newClock()
	src := &still{state: stateAt(t, moments[1].options, moments[1].iter, 0, wide)}
	m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
	send(m, "v")
	clk.pass(decision.Guard)
	return m, clk
}

func TestReasonIsEditedAndTheCursorFollows(t *testing.T) {
	m, _ := veto(t)
	for _, r := range "later now" {
		send(m, string(r))
	}
	send(m, "ctrl+w")
	m.Update(tea.PasteMsg{Content: "at\x1b[2J\nten\u202e"})
	v := m.View()
	if got := m.decisions.dialog.reason.Value(); got != "later at ten" {
		t.Errorf("the reason is %q", got)
	}
	row := []rune(strings.Split(text(m), "\n")[v.Cursor.Y])
	if got := string(row[:v.Cursor.X]); !strings.HasSuffix(got, "later at ten") {
		t.Errorf("the cursor stands after %q", got)
	}
	send(m, "ctrl+u")
	if got := m.decisions.dialog.reason.Value(); got != "" {
		t.Errorf("left after erasing all: %q", got)
	}
}

// Only typing confirms: neither a paste by the terminal nor the text entry's own clipboard key may
// reach the confirmation.
func TestNoPasteIntoTheConfirmation(t *testing.T) {
	in := newTextEntry(key.Default(), key.Dialog, "", decision.ReasonMax)
	if _, cmd := in.Update(keyMsg("ctrl+v")); cmd != nil {
		if msg := cmd(); msg != nil {
			t.Errorf("ctrl+v reads the clipboard: %T", msg)
		}
	}
	clk := newClock()
	state := stateAt(t, enginetest.Options{Rung: "S4"}, 54, 0, wide)
	m := quiet(
		t,
		&still{state: state},
		Options{Theme: "dark", Now: clk.now},
		80,
		24,
	)
	send(m, "a")
	clk.pass(decision.Guard)
	if m.decisions.dialog == nil || m.decisions.dialog.entry.Word == "" {
		t.Fatalf("nothing is to be typed:\n%s", text(m))
	}
	m.Update(tea.PasteMsg{Content: m.decisions.dialog.entry.Word})
	if got := m.decisions.dialog.word.Value(); got != "" {
		t.Errorf("pasted into the confirmation: %q", got)
	}
}

func TestPromptIsEditedWithinItsRow(t *testing.T) {
	m := screen(
		t,
		moments[1],
		key.Events,
		80,
		24,
		"dark",
		colorprofile.TrueColor,
		false,
	)
	for _, k := range []string{"/", "b", "left", "日", "end", "c"} {
		send(m, k)
	}
	if got := m.prompt.input.Value(); got != "日bc" {
		t.Errorf("the prompt holds %q", got)
	}
	send(m, "left")
	if x := m.View().Cursor.X; x != len(" /")+3 {
		t.Errorf("the cursor is in column %d, not after two columns and one", x)
	}
	for range 2 * decision.ReasonMax {
		send(m, "x")
	}
	checkGeometry(t, m.View().Content, 80, 24)
	last := strings.Split(text(m), "\n")[23]
	if !strings.Contains(last, " /"+m.prompt.input.Value()) ||
		!strings.Contains(last, "esc cancel") {
		t.Errorf("not all that is typed is seen, or not the way out: %q", last)
	}
	send(m, "enter")
	if !strings.HasPrefix(m.work.state.Filter, "日bx") {
		t.Errorf("the filter is %q", m.work.state.Filter)
	}
}

// However small the screen, a dialog shows its buttons and that there is more
// to read above them.
func TestDialogScrollsOnASmallScreen(t *testing.T) {
	m := screen(
		t,
		moments[1],
		key.Overview,
		minWidth,
		minHeight,
		"dark",
		colorprofile.TrueColor,
		false,
	)
	pacePerson(m)
	send(m, "a")
	if s := text(m); !containsAll(s, "▸ Cancel", "Approve", "more, ↓") ||
		strings.Contains(s, "without a gain") {
		t.Fatalf("the dialog at %d × %d:\n%s", minWidth, minHeight, s)
	}
	pass(m, decision.Guard)
	for range 30 {
		send(m, "down")
	}
	if s := text(m); !containsAll(s, "▸ Cancel", "without a gain") || strings.Contains(s, "more, ↓") {
		t.Errorf("scrolled to its end:\n%s", s)
	}
}
