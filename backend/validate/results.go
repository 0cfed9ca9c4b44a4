package validate

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// results holds what a step led to, and the commands without a final answer.
type results struct {
	newID   func() uint64
	pending map[uint64]Command
	notes   []Note // held back while the job is held: writing takes time
	ready   Ready
}

// restarted is that of the next validation: commands of the one before are
// not waited for, what it led to is still handed out.
func (o *results) restarted() results {
	return results{
		newID:   o.newID,
		pending: map[uint64]Command{},
		ready:   o.ready,
	}
}

// send queues a command for one node under a new id.
func (o *results) send(c Command) {
	c.ID = o.newID()
	if c.Test != nil {
		c.Test.Test = c.ID
	}
	o.pending[c.ID] = c
	o.ready.Commands = append(o.ready.Commands, c)
}

// sendPhase queues one phase of a pause.
func (o *results) sendPhase(phase falconv1.PausePhase, pause uint64, c Command) {
	if c.Pause == nil {
		c.Pause = &falconv1.PauseCommand{}
	}
	c.Pause.Pause, c.Pause.Phase = pause, phase
	o.send(c)
}

// answered finds the command that a node answers, and closes it unless a further
// answer follows.
func (o *results) answered(in Answer) (c Command, closed, known bool) {
	c, known = o.pending[in.Result.GetId()]
	if !known || c.Node != in.Node {
		return Command{}, false, false
	}
	closed = in.Result.GetStatus() != falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED
	if closed {
		delete(o.pending, c.ID)
	}
	return c, closed, true
}

// closeAllButArm closes the commands whose answers no longer matter once the job
// is let go. The final answer to ARM says how long a rank was held.
func (o *results) closeAllButArm() {
	maps.DeleteFunc(o.pending, func(_ uint64, c Command) bool {
		return c.Pause.GetPhase() != falconv1.PausePhase_PAUSE_PHASE_ARM
	})
}

// pendingPhase lists a node's commands of one phase without a final answer, in the order
// of their ids.
func (o *results) pendingPhase(node falcon.Node, phase falconv1.PausePhase) []Command {
	var out []Command
	for _, id := range slices.Sorted(maps.Keys(o.pending)) {
		if c := o.pending[id]; c.Node == node && c.Pause.GetPhase() == phase {
			out = append(out, c)
		}
	}
	return out
}

func (o *results) addNote(about string, severity int32, format string, args ...any) {
	o.notes = append(o.notes, Note{about, severity, fmt.Sprintf(format, args...)})
}

func (o *results) flushNotes() {
	o.ready.Notes = append(o.ready.Notes, o.notes...)
	o.notes = nil
}

// persist asks for a validation to be made durable, with the pause that a restart
// would have to release (0 = none), and until when ranks may be held after it is over.
func (o *results) persist(v falcon.Validation, pause uint64, heldUntil time.Time) {
	o.ready.Persist = &v
	o.ready.Pause = pause
	o.ready.HeldUntil = heldUntil
}
