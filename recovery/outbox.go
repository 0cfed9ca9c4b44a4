package recovery

import (
	"fmt"

	"github.com/failslow/falcon"
)

// outbox collects what the inputs since the last Advance led to.
type outbox struct {
	changed map[string]bool // ids of recoveries
	ready   Ready
}

func newOutbox() outbox {
	return outbox{changed: map[string]bool{}}
}

// pendingReady is what is to be done, with copies of those recoveries that have changed.
func (o *outbox) pendingReady(all []*falcon.Recovery) Ready {
	r := Ready{
		Commands: o.ready.Commands,
		Notes:    o.ready.Notes,
		Ended:    o.ready.Ended,
	}
	for _, c := range all {
		if o.changed[c.ID] {
			r.Recoveries = append(r.Recoveries, cloneRecovery(c))
		}
	}
	return r
}

func (o *outbox) clearAll() {
	o.ready = Ready{}
	clear(o.changed)
}

// markChanged has a recovery made durable.
func (o *outbox) markChanged(c *falcon.Recovery) {
	o.changed[c.ID] = true
}

func (o *outbox) addNote(about, kind string, severity int, format string, args ...any) {
	o.ready.Notes = append(o.ready.Notes, Note{
		About:    about,
		Kind:     kind,
		Text:     fmt.Sprintf(format, args...),
		Severity: severity,
	})
}

func (o *outbox) addCommand(c Command) {
	o.ready.Commands = append(o.ready.Commands, c)
}

// addEnded lists ranks that have ended with success.
func (o *outbox) addEnded(ranks []falcon.Rank) {
	o.ready.Ended = append(o.ready.Ended, ranks...)
}
