package validate

import (
	"testing"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// A node is lost while its ranks are held: their release is unknown
// until the order's life ends or the node confirms it.
func TestRanksOfALostNodeMayBeHeld(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	held := func() *Machine {
		m := New(Config{}, func() uint64 { return 9 })
		m.nodes = newNodeStates([]falcon.Node{"n0", "n1"})
		m.pause = 5
		m.lifeEnds = at.Add(LifeDefault)
		m.nodes.released["n0"] = true
		m.out.pending = map[uint64]Command{9: {
			ID:    9,
			Node:  "n1",
			Pause: &falconv1.PauseCommand{Pause: 5, Phase: falconv1.PausePhase_PAUSE_PHASE_RESUME},
		}}
		return m
	}
	m := held()
	if !m.MayHold(at) || !m.MayHold(at.Add(LifeDefault)) {
		t.Error("n1 has not confirmed, and its order lives")
	}
	if m.MayHold(at.Add(LifeDefault + 2*releaseWait)) {
		t.Error("its hooks have let go by themselves")
	}
	m = held()
	m.Step(at, Answer{
		Node:   "n1",
		Result: &falconv1.CommandResult{Id: 9, Status: falconv1.CommandStatus_COMMAND_STATUS_DONE},
	})
	if m.MayHold(at) {
		t.Error("n1 has confirmed, though the validation was over")
	}
	m = held()
	m.Step(at, Begin{ID: "VAL-0002"})
	m.Step(at, Stop{Why: "test"})
	if !m.MayHold(at) {
		t.Error("a later validation dropped the hold of the one before")
	}
}
