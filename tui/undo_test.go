package tui

import (
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui/internal/enginetest"
)

// What is in force is taken back with U, tab, enter; the dialog says what comes back with it.
func TestUndoByKeys(t *testing.T) {
	x, e := slowTerm(t, enginetest.Options{})
	x.press('U')
	x.shows("nothing is in force for INC-0001")
	x.press('a')
	x.shows("INC-0001: APPROVE S2?")
	x.armed()
	x.press(tea.KeyTab)
	x.press(tea.KeyEnter)
	x.gone("APPROVE S2?")
	e.AdvanceTo(enginetest.Proposed + 20)
	x.shows("S2 (shift micro-batches) kept")
	x.press('U')
	x.shows("INC-0001: UNDO S2?")
	x.shows("expect about 400 ms an iteration again, 262 ms with it")
	x.armed()
	x.press(tea.KeyTab)
	x.press(tea.KeyEnter)
	x.shows("S2 (shift micro-batches) is being reverted: undone by maria")
	list := e.Decides()
	q := list[len(list)-1]
	if !q.GetUndo() ||
		q.GetAction() != "INC-0001/S2/1" ||
		q.GetPlanHash() == "" ||
		q.GetJobEpoch() != 1 {
		t.Errorf("sent %v", q)
	}
	e.AdvanceTo(enginetest.Proposed + 21)
	x.gone("→ S2 (shift micro-batches) kept")
	x.press('U')
	x.shows("S2 is being reverted already")
}

func TestAViewerUndoesNothing(t *testing.T) {
	x, _ := slowTerm(t, enginetest.Options{Role: "operator"})
	x.press('U')
	x.shows("undoing needs the role approver; yours is operator")
}
