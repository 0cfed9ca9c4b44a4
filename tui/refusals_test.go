package tui

import (
	"strings"
	"testing"

	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/keyguard"
)

// longRefusal is a refusal that no row of 80 columns holds; its end is what helps.
const longRefusal = "engine: refused: the agent of node n2 is not connected, so that nothing is known of the processes that it may still run; start the agent, or state that all has ended"

// A refusal is read as a whole, in the dialog and after it.
func TestRefusalsAreNeverCut(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(54)
	src := &still{state: pictureOf(t, e, wide)}
	src.err = refusedWith(longRefusal)
	m := quiet(t, src, Options{Theme: "dark", Now: newClock().now}, 80, 24)
	presses(m, "a")
	pass(m, keyguard.Look)
	presses(m, "tab", "enter")
	whole := strings.TrimPrefix(longRefusal, "engine: refused: ")
	if s := unwrapped(text(m)); m.decisions.dialog == nil || !strings.Contains(s, "not approved: "+whole) {
		t.Errorf("the dialog:\n%s", text(m))
	}
	presses(m, "esc")
	m.decisions.takeAnswer(answerMsg{failed: "not done (lift)", err: src.err}, m.work.live)
	m.screen.dirty = true
	if s := unwrapped(text(m)); !strings.Contains(s, "not done (lift): "+whole) {
		t.Errorf("the note:\n%s", text(m))
	}
}

func refusedWith(text string) error { return refusal(text) }

// refusal is an error as the feed makes it of the engine's words.
type refusal string

func (r refusal) Error() string {
	return feed.ErrRefused.Error() + ": " + string(r)
}
func (r refusal) Unwrap() error { return feed.ErrRefused }

// unwrapped is the text of the boxes on a screen, their rows joined.
func unwrapped(screen string) string {
	var out []string
	for _, row := range strings.Split(screen, "\n") {
		if cells := strings.Split(row, "│"); len(cells) > 2 {
			out = append(out, strings.Fields(cells[1])...)
		}
	}
	return strings.Join(out, " ")
}

// A button that decides nothing says so.
func TestCancelSaysThatNothingWasDone(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(54)
	src, clk := &still{state: pictureOf(t, e, wide)}, newClock()
	m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
	presses(m, "v")
	clk.pass(decision.Guard)
	presses(m, "tab", "enter")
	s := text(m)
	if len(src.decides) != 0 ||
		m.decisions.dialog != nil ||
		!strings.Contains(s, "cancelled: nothing was done") {
		t.Errorf("%v\n%s", src.decides, s)
	}
}
