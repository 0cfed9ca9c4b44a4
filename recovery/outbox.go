package recovery

import (
	"fmt"
	"iter"

	"github.com/failslow/falcon"
)

// outbox collects what the inputs since the last Advance led to.
type outbox struct {
	changed map[string]bool // ids of recoveries
	ready   Ready
}

func newOutbox() outbox { return outbox{changed: map[string]bool{}} }

// pending is what is to be done, with copies of those recoveries that have changed.
func (o *outbox) pending(all iter.Seq[*falcon.Recovery]) Ready {
	r := Ready{Commands: o.ready.Commands, Notes: o.ready.Notes, Ended: o.ready.Ended}
	for c := range all {
		if o.changed[c.ID] {
			r.Recoveries = append(r.Recoveries, clone(c))
		}
	}
	return r
}

func (o *outbox) clear() {
	o.ready = Ready{}
	clear(o.changed)
}

// change has a recovery made durable.
func (o *outbox) change(c *falcon.Recovery) { o.changed[c.ID] = true }

func (o *outbox) note(kind string, severity int, format string, args ...any) {
	o.ready.Notes = append(o.ready.Notes, Note{Kind: kind, Text: fmt.Sprintf(format, args...), Severity: severity})
}

func (o *outbox) command(c Command) { o.ready.Commands = append(o.ready.Commands, c) }

// ended lists ranks that have ended with success.
func (o *outbox) ended(ranks []falcon.Rank) { o.ready.Ended = append(o.ready.Ended, ranks...) }
