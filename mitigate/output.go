package mitigate

import (
	"fmt"

	"github.com/failslow/falcon"
)

// output is what steps have led to since the last Advance.
type output struct {
	iterations *iterationLog
	ready      Ready
	taken      bool
}

// clock is the newest time that came in.
type clock struct{ now Clock }

// tell moves the clock, never back.
func (k *clock) advance(now Clock) {
	if now.After(k.now) {
		k.now = now
	}
}

func (o *output) note(kind, format string, args ...any) {
	o.ready.Notes = append(o.ready.Notes, Note{Iteration: o.iterations.newest(), Kind: kind, Text: fmt.Sprintf(format, args...)})
}

// changed queues the action's whole present state, replacing an older one.
func (o *output) update(a falcon.Action) {
	for i := range o.ready.Actions {
		if o.ready.Actions[i].ID == a.ID {
			o.ready.Actions[i] = a
			return
		}
	}
	o.ready.Actions = append(o.ready.Actions, a)
}

func (o *output) expire(a *falcon.Action, why string) {
	if a.State == falcon.ActionProposed || a.State == falcon.ActionApproved {
		a.State, a.Reason, a.DeadlineUnixNs = falcon.ActionExpired, why, 0
		o.update(*a)
		o.note("action", "%s expired: %s", a.ID, why)
	}
}
