package tui

import (
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/keyguard"
	"github.com/failslow/falcon/tui/widget"
)

func typeIn(m *Model, text string) {
	for _, r := range text {
		if r == ' ' {
			send(m, "space")
			continue
		}
		send(m, string(r))
	}
}

// proposed is a quiet model at the moment of the proposal.
func proposed(t *testing.T, opts Options) (*Model, *still, *clock) {
	t.Helper()
	clk := newClock()
	src := &still{state: stateAt(t, moments[1].options, moments[1].iter, 0, wide)}
	opts.Theme = "dark"
	opts.Now = clk.now
	return quiet(t, src, opts, 80, 24), src, clk
}

// Everything that the table offers on a page is in the palette there, under a
// name that finds it first.
func TestPaletteFindsEveryAction(t *testing.T) {
	m, _, _ := proposed(t, Options{})
	for _, p := range key.Pages {
		m.work.showPage(p)
		for _, s := range []key.Scope{p, key.Global} {
			for _, b := range m.keys.In(s) {
				if b.Action == key.Command {
					continue
				}
				m.openPalette(actionName(b.Action))
				e, ok := m.prompt.list.Chosen()
				if !ok || e.Name != actionName(b.Action) && e.Fill == "" {
					t.Errorf("%s: %q finds %q", p, actionName(b.Action), e.Name)
				}
				m.prompt = nil
			}
		}
	}
}

func TestPaletteRunsAsTheKeyWould(t *testing.T) {
	m, src, clk := proposed(t, Options{})
	typeIn(m, ":lad")
	send(m, "enter")
	if m.work.current != key.Ladder || m.prompt != nil {
		t.Fatalf("on %s, prompt %v", m.work.current, m.prompt)
	}
	typeIn(m, ":appr")
	send(m, "enter")
	if kindOf(m.decisions.dialog) != kindApprove || m.decisions.dialog.focus != buttonCancel {
		t.Fatalf("approve opens %+v", m.decisions.dialog)
	}
	send(m, "tab") // within the guard
	send(m, "enter")
	clk.pass(decision.Guard)
	send(m, "enter")
	if len(src.decides) != 0 || m.decisions.dialog != nil {
		t.Errorf("decided %v", src.decides)
	}
	typeIn(m, ":rank 5")
	send(m, "enter")
	if m.work.state.Rank() != 5 || m.work.current != key.Ranks {
		t.Errorf("rank %d on %s", m.work.state.Rank(), m.work.current)
	}
	typeIn(m, ":theme")
	send(m, "enter")
	if m.prompt == nil || m.prompt.input.Value() != "theme " {
		t.Fatalf("a command that wants words is filled in: %+v", m.prompt)
	}
	send(m, "esc")
	typeIn(m, ":filter slow")
	send(m, "enter")
	if m.work.state.RankFilter() != "slow" {
		t.Errorf("the filter is %q", m.work.state.RankFilter())
	}
	typeIn(m, ":nonsense here")
	send(m, "enter")
	if !strings.Contains(m.notes.text, `no command "nonsense"`) {
		t.Errorf("says %q", m.notes.text)
	}
}

// From the palette freezing asks as it does by its key.
func TestPaletteAsksBeforeItFreezes(t *testing.T) {
	m, src, _ := proposed(t, Options{})
	typeIn(m, ":free")
	send(m, "enter")
	if s := text(m); src.freezes != 0 || !containsAll(s, "FREEZE?", "▸ Freeze") {
		t.Fatalf("%d freezes:\n%s", src.freezes, s)
	}
	pass(m, keyguard.Look)
	send(m, "enter")
	if src.freezes != 1 {
		t.Errorf("%d freezes", src.freezes)
	}
}

func TestHelpIsSearched(t *testing.T) {
	m, _, _ := proposed(t, Options{})
	send(m, "?")
	typeIn(m, "/freeze")
	if s := text(m); !containsAll(s, "KEYS with freeze", "Freeze: nothing new is dispatched", " /freeze") ||
		strings.Contains(s, "Next theme.") {
		t.Errorf("the search shows:\n%s", s)
	}
	send(m, "enter")
	send(m, "esc")
	if s := text(m); m.help == nil || !strings.Contains(s, "Overview: what matters now.") {
		t.Errorf("esc must end the search first:\n%s", s)
	}
	send(m, "esc")
	if m.help != nil {
		t.Error("esc must close the help")
	}
}

// G and g go to the ends of the help, as they do on the pages.
func TestHelpGoesToItsEnds(t *testing.T) {
	m, _, _ := proposed(t, Options{})
	send(m, "?")
	top := text(m)
	send(m, "G")
	if s := text(m); strings.Contains(s, " more, j") ||
		!strings.Contains(s, "End the search, then close the help.") {
		t.Errorf("the end shows:\n%s", s)
	}
	send(m, "g")
	if s := text(m); s != top {
		t.Errorf("the top shows:\n%s", s)
	}
}

func TestHintIsShownOnce(t *testing.T) {
	seen := 0
	m, _, _ := proposed(t, Options{Hint: true, HintSeen: func() { seen++ }})
	if s := text(m); !containsAll(s, "New here? ? shows the keys", "a approve  v veto") {
		t.Errorf("no hint, or in the way:\n%s", s)
	}
	_, cmd := m.Update(keyMsg("2"))
	if seen != 0 {
		t.Error("remembered inside the event loop")
	}
	if cmd == nil {
		t.Fatal("nothing remembers it")
	}
	cmd()
	send(m, "1")
	if s := text(m); seen != 1 || strings.Contains(s, "New here?") || m.work.current != key.Overview {
		t.Errorf("seen %d times, on %s:\n%s", seen, m.work.current, s)
	}
}

func TestBackRetracesTheWay(t *testing.T) {
	m, _, _ := proposed(t, Options{})
	for _, k := range []string{"2", "4", "5"} {
		send(m, k)
	}
	var seen []key.Scope
	for _, k := range []string{"-", "-", "esc", "esc", "esc", "esc", "esc", "esc"} {
		send(m, k)
		seen = append(seen, m.work.current)
	}
	if got := fmt.Sprint(
		seen,
	); got != "[posterior ladder posterior ladder posterior ranks overview overview]" {
		t.Errorf("went %s", got)
	}
}

// Footer, bar, help and palette show the keys that work.
func TestRemappedKeysAreShown(t *testing.T) {
	table, err := key.Default().Remap(map[string]map[string][]string{
		"everywhere": {"approve": {"ctrl+x"}, "help": {"f1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	m, _, _ := proposed(t, Options{Keys: table})
	if s := text(m); !containsAll(s, "ctrl-x approve", "f1 help") {
		t.Errorf("bar and footer:\n%s", s)
	}
	send(m, "a")
	if m.decisions.dialog != nil {
		t.Error("the old key still opens the dialog")
	}
	m.Update(tea.KeyPressMsg{Code: tea.KeyF1})
	typeIn(m, "/f1")
	if s := text(m); m.help == nil || !strings.Contains(s, "  f1 ") {
		t.Errorf("help:\n%s", s)
	}
	m.help = nil
	typeIn(m, ":approve")
	if s := text(m); !strings.Contains(s, "ctrl-x") {
		t.Errorf("palette:\n%s", s)
	}
}

func mouseAt(m *Model, x, y int) {
	m.View()
	pass(m, personGap)
	_, cmd := m.Update(tea.MouseClickMsg{X: x, Y: y, Button: tea.MouseLeft})
	run(m, cmd)
	behold(m)
	m.View()
}

// on clicks on a text on the screen.
func on(t *testing.T, m *Model, what string) {
	t.Helper()
	for y, row := range strings.Split(text(m), "\n") {
		if i := strings.Index(row, what); i >= 0 {
			mouseAt(m, widget.Width(row[:i]), y)
			return
		}
	}
	t.Fatalf("%q is not on the screen:\n%s", what, text(m))
}

// The mouse chooses and opens; it never presses a button, nor what acts at once.
func TestMouseNeverDecides(t *testing.T) {
	m, src, clk := proposed(t, Options{})
	on(t, m, "5 ladder")
	if m.work.current != key.Ladder {
		t.Errorf("on %s", m.work.current)
	}
	on(t, m, "F freeze")
	if src.freezes != 0 || !strings.Contains(text(m), "FREEZE?") {
		t.Errorf("%d freezes:\n%s", src.freezes, text(m))
	}
	send(m, "esc")
	on(t, m, "a approve")
	if m.decisions.dialog == nil {
		t.Fatal("the bar's key does not open the dialog")
	}
	clk.pass(decision.Guard)
	for range 4 {
		on(t, m, "Approve  ")
	}
	if m.decisions.dialog == nil ||
		m.decisions.dialog.focus != buttonDo ||
		len(src.decides) != 0 {
		t.Fatalf("focus %+v, decided %v", m.decisions.dialog, src.decides)
	}
	every := 1
	if testing.Short() {
		every = 7 // no divisor of the width: all columns have their turn
	}
	for at := 0; at < 24*80; at += every {
		mouseAt(m, at%80, at/80)
	}
	if len(src.decides)+len(src.words)+len(src.tests)+src.freezes != 0 ||
		m.decisions.dialog == nil {
		t.Errorf("a click decided: %v, %v, %v, %d freezes", src.decides, src.words, src.tests, src.freezes)
	}
}

func TestWheelIsGathered(t *testing.T) {
	m, _, _ := proposed(t, Options{})
	send(m, "?")
	m.View()
	n := m.screen.drawn
	for range 30 {
		m.Update(tea.MouseWheelMsg{Button: tea.MouseWheelDown})
		m.View()
	}
	if m.screen.drawn != n {
		t.Errorf("%d pictures before the pause was over", m.screen.drawn-n)
	}
	m.Update(pointedMsg{})
	if m.View(); m.screen.drawn != n+1 || m.help.pane.YOffset() != maxNotches {
		t.Errorf("%d pictures, scrolled to %d", m.screen.drawn-n, m.help.pane.YOffset())
	}
}

func TestMouseIsLeftToTheTerminal(t *testing.T) {
	m, _, _ := proposed(t, Options{})
	if m.View().MouseMode != tea.MouseModeCellMotion {
		t.Error("the mouse is not taken")
	}
	send(m, "M")
	if m.View().MouseMode != tea.MouseModeNone ||
		!strings.Contains(m.notes.text, "M turns it on") {
		t.Errorf("mode %v, says %q", m.View().MouseMode, m.notes.text)
	}
	on(t, m, "5 ladder")
	if m.work.current != key.Overview {
		t.Error("a click still works")
	}
}

// The real cursor is where the focus is.
func TestCursorFollowsTheFocus(t *testing.T) {
	m, _, clk := proposed(t, Options{})
	send(m, "a")
	clk.pass(decision.Guard)
	for _, want := range []string{"Cancel", "Approve"} {
		v := m.View()
		row := []rune(strings.Split(text(m), "\n")[v.Cursor.Y])
		if got := string(row[v.Cursor.X:]); !strings.HasPrefix(got, want) {
			t.Errorf("the cursor is before %q, not %q", got, want)
		}
		send(m, "tab")
	}
}

// From one column by one row to a wall display, in steps: every row and every
// column as asked, whatever lies over the page.
func TestGeometryAtEverySize(t *testing.T) {
	drawsAlone(t)
	widths := []int{1, 2, 7, 19, 41, 59, 60, 61, 79, 80, 97, 120, 159, 200, 220}
	heights := []int{1, 2, 5, 11, 15, 16, 17, 23, 24, 33, 40, 59, 60, 70}
	src := &still{state: stateAt(t, moments[1].options, moments[1].iter, 0, wide)}
	profile := colorprofile.ANSI256
	m, err := New(src, Options{
		Theme:   "dark",
		Profile: &profile,
		Now:     newClock().now,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range widths {
		for j, h := range heights {
			m.Update(tea.WindowSizeMsg{Width: w, Height: h})
			m.work.current = key.Pages[(i+j)%len(key.Pages)]
			for _, k := range []string{"", "z", ":", "?", "a", "c"} {
				m.help = nil
				m.decisions.dialog = nil
				m.prompt = nil
				if k != "" {
					m.Update(keyMsg(k)) // a dialog's guard is not waited for
				}
				m.screen.dirty = true
				checkGeometry(t, m.View().Content, w, h)
			}
			m.help = nil
			m.decisions.dialog = nil
			m.prompt = nil
			m.Update(keyMsg("esc"))
		}
	}
}

// The summary of a small screen says what matters first.
func TestSummaryTellsWhatMatters(t *testing.T) {
	for _, s := range [][2]int{{59, 15}, {40, 8}, {30, 10}} {
		m := screen(
			t,
			moments[1],
			key.Overview,
			s[0],
			s[1],
			"dark",
			colorprofile.ASCII,
			false,
		)
		if out := text(m); !containsAll(out, "gpt-lab", "S2 for INC-0001 WAITS", "enlarge to") {
			t.Errorf("at %v:\n%s", s, out)
		}
	}
	m := screen(
		t,
		moment{"lost", enginetest.Proposed, 0, enginetest.Options{}},
		key.Overview,
		12,
		1,
		"dark",
		colorprofile.ASCII,
		false,
	)
	if out := text(m); !strings.Contains(out, "S2") {
		t.Errorf("one short row must name what waits: %q", out)
	}
}

// A rank that is shown can be chosen by a click, and opened by another; the
// same on every page that shows ranks, at every zoom.
func TestClicksChooseWhatIsDrawn(t *testing.T) {
	for _, c := range []struct {
		page   key.Scope
		what   string
		rank   int32
		opened key.Scope
	}{
		{key.Ranks, "n1.g1", 3, key.Posterior},
		{key.Overview, "●7 ", 7, key.Ranks},
		{key.Validate, "n3.g0", 6, key.Validate},
	} {
		m, _, _ := proposed(t, Options{})
		m.work.showPage(c.page)
		on(t, m, c.what)
		if m.work.state.Rank() != c.rank || m.work.current != c.page {
			t.Errorf("%s: a click on %q chose rank %d on %s",
				c.page, c.what, m.work.state.Rank(), m.work.current)
		}
		on(t, m, c.what)
		if m.work.current != c.opened {
			t.Errorf("%s: a second click shows %s", c.page, m.work.current)
		}
	}
}

func TestDragMovesTheHairline(t *testing.T) {
	m, _, _ := proposed(t, Options{})
	m.work.showPage(key.Posterior)
	m.screen.dirty = true
	mouseAt(m, 60, 8)
	before := text(m)
	m.Update(tea.MouseMotionMsg{X: 50, Y: 8, Button: tea.MouseLeft})
	m.Update(pointedMsg{})
	after := text(m)
	if !strings.Contains(before, "(hairline") ||
		!strings.Contains(after, "(hairline") ||
		before == after {
		t.Errorf("dragged:\n%s", after)
	}
}

func TestEveryPaneOfEveryPageFillsIt(t *testing.T) {
	m, _, _ := proposed(t, Options{})
	paned := 0
	for _, p := range key.Pages {
		m.work.showPage(p)
		m.screen.dirty = true
		n := len(m.work.panesOfPage())
		for i := range n {
			send(m, "z")
			s := text(m)
			if !strings.Contains(s, fmt.Sprintf("pane %d of %d", i+1, n)) {
				t.Errorf("%s, pane %d:\n%s", p, i+1, s)
			}
			checkGeometry(t, m.View().Content, 80, 24)
		}
		if n > 0 {
			paned++
		}
	}
	if paned != len(key.Pages)-1 { // without a recovery its page has one
		t.Errorf("%d pages have panes", paned)
	}
}

func TestPaneFillsThePage(t *testing.T) {
	m, _, _ := proposed(t, Options{})
	whole := text(m)
	n := len(m.work.panesOfPage())
	for i := range n {
		send(m, "z")
		s := text(m)
		if !strings.Contains(s, fmt.Sprintf("pane %d of %d", i+1, n)) || s == whole {
			t.Errorf("pane %d:\n%s", i+1, s)
		}
	}
	send(m, "2")
	send(m, "1")
	if s := text(m); !strings.Contains(s, "pane 6 of 6") {
		t.Errorf("a page must remember its pane:\n%s", s)
	}
	send(m, "esc")
	if s := text(m); s != whole {
		t.Errorf("esc must show the whole page:\n%s", s)
	}
}

// Pages of one pane say so; the others let it fill the page and come back.
func TestEveryPageOfPanesZooms(t *testing.T) {
	src := &still{state: stateAt(
		t,
		enginetest.Options{},
		enginetest.Proposed+2,
		0,
		wide,
	)}
	m := quiet(t, src, Options{Theme: "dark", Now: newClock().now}, 80, 24)
	for page, want := range map[key.Scope]string{
		key.Ranks:    "map: pane 1 of 1",
		key.Grid:     "grid: pane 1 of 1",
		key.Events:   "events: pane 1 of 2",
		key.Overview: "pane 1 of",
		key.Ladder:   "pane 1 of",
	} {
		m.work.showPage(page)
		whole := text(m)
		send(m, "z")
		if s := text(m); !containsAll(s, want) {
			t.Errorf("%s, zoomed:\n%s", page, s)
		}
		send(m, "j") // the cursor goes by what is drawn
		send(m, "esc")
		send(m, "k")
		if s := text(m); len(s) == 0 || len(whole) == 0 || m.work.zoomed[page] != 0 {
			t.Errorf("%s does not come back", page)
		}
	}
	m.work.showPage(key.Recovery)
	send(m, "z")
	if s := text(m); !containsAll(s, "nothing to zoom") {
		t.Errorf("one pane:\n%s", s)
	}
}
