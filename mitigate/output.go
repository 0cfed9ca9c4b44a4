package mitigate

import (
	"fmt"
	"slices"

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
		o.ready = Ready{}
		o.taken = false
	}
}

func (o *output) addOrder(v falcon.Order) {
	o.ready.Orders = append(o.ready.Orders, v)
}

func (o *output) addActed(a Acted) {
	o.ready.Acted = append(o.ready.Acted, a)
}

func (o *output) setLaunch(l falcon.Launch) {
	o.ready.Launch = &l
}

// askLook asks for a profile of the ranks.
func (o *output) askLook(why string) {
	o.ready.Look = why
}

// addFence queues the replacement of a node.
func (o *output) addFence(f Fence) {
	o.ready.Fences = replaceOrAdd(o.ready.Fences, f, func(g Fence) bool {
		return g.Action == f.Action
	})
}

// addImpact queues the cost of an incident, replacing an older one.
func (o *output) addImpact(v Impact) {
	o.ready.Impacts = replaceOrAdd(o.ready.Impacts, v, func(w Impact) bool {
		return w.Incident == v.Incident
	})
}

func (o *output) addNote(about, kind, format string, args ...any) {
	o.ready.Notes = append(o.ready.Notes, Note{
		Iteration: o.iterations.newestIndex(),
		About:     about,
		Kind:      kind,
		Text:      fmt.Sprintf(format, args...),
	})
}

// addAction queues the action's whole present state, replacing an older one.
func (o *output) addAction(a falcon.Action) {
	o.ready.Actions = replaceOrAdd(o.ready.Actions, a, func(b falcon.Action) bool {
		return b.ID == a.ID
	})
}

// replaceOrAdd puts v in the place of the one that is the same, else at the end.
func replaceOrAdd[T any](list []T, v T, same func(T) bool) []T {
	if i := slices.IndexFunc(list, same); i >= 0 {
		list[i] = v
		return list
	}
	return append(list, v)
}

func (o *output) expireAction(a *falcon.Action, why string) {
	if a.State == falcon.ActionProposed || a.State == falcon.ActionApproved {
		a.State = falcon.ActionExpired
		a.Reason = why
		a.DeadlineUnixNs = 0
		a.Phase = ""
		o.addAction(*a)
		o.addNote(a.ID, "action", "%s expired: %s", a.ID, why)
	}
}
