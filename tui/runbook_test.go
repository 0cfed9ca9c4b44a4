package tui

import (
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui/internal/enginetest"
)

// R shows what the verdict on screen asks for, in the operator's terminal.
func TestRunbookOfTheVerdict(t *testing.T) {
	x, _ := slowTerm(t, enginetest.Options{})
	x.press('R')
	x.shows("RUNBOOK")
	x.shows("GPU degradation")
	x.shows("A GPU computes slower than the GPUs with the same work.")
	x.press('/')
	x.types("morning")
	x.shows("RUNBOOK with morning")
	x.shows("drain the device at the next restart")
	x.gone("A GPU computes slower")
	x.press(tea.KeyEscape)
	x.press(tea.KeyEscape)
	x.gone("RUNBOOK")
}

func TestRunbookWithoutAnIncident(t *testing.T) {
	e := enginetest.New(enginetest.Options{Healthy: true})
	e.AdvanceTo(30)
	x := openTerm(t, e, 120, 40)
	x.shows("running: ")
	x.press('R')
	x.shows("The first minute")
}
