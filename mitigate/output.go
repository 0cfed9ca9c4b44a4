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

// advance moves the clock, never back.
func (k *clock) advance(now Clock) {
	if now.After(k.now) {
		k.now = now
	}
}

// takeReady hands out what there is; advance drops it once it was acted on.
func (o *output) takeReady() Ready {
	o.taken = !o.ready.Empty()
	return o.ready
}

func (o *output) advance() {
	if o.taken {
		o.ready, o.taken = Ready{}, false
	}
}

func (o *output) addOrder(v falcon.Order) { o.ready.Orders = append(o.ready.Orders, v) }

func (o *output) addActed(a Acted) { o.ready.Acted = append(o.ready.Acted, a) }

func (o *output) setLaunch(l falcon.Launch) { o.ready.Launch = &l }

// addImpact queues the cost of an incident, replacing an older one.
func (o *output) addImpact(v Impact) {
	for i := range o.ready.Impacts {
		if o.ready.Impacts[i].Incident == v.Incident {
			o.ready.Impacts[i] = v
			return
		}
	}
	o.ready.Impacts = append(o.ready.Impacts, v)
}

func (o *output) addNote(kind, format string, args ...any) {
	o.ready.Notes = append(o.ready.Notes, Note{Iteration: o.iterations.newestIndex(), Kind: kind, Text: fmt.Sprintf(format, args...)})
}

// addAction queues the action's whole present state, replacing an older one.
func (o *output) addAction(a falcon.Action) {
	for i := range o.ready.Actions {
		if o.ready.Actions[i].ID == a.ID {
			o.ready.Actions[i] = a
			return
		}
	}
	o.ready.Actions = append(o.ready.Actions, a)
}

func (o *output) expireAction(a *falcon.Action, why string) {
	if a.State == falcon.ActionProposed || a.State == falcon.ActionApproved {
		a.State, a.Reason, a.DeadlineUnixNs = falcon.ActionExpired, why, 0
		o.addAction(*a)
		o.addNote("action", "%s expired: %s", a.ID, why)
	}
}
