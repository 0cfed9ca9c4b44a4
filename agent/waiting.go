package agent

import (
	"time"

	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// callCount adds up the calls of a process over all its communicators. It never
// goes back, though the hook gives the slots of ended ones to others.
type callCount struct {
	comms []ring.Comm
	slots map[uint32]ring.Comm // as last seen
	past  uint64               // calls of those that have lost their slots
}

func (c *callCount) updateCalls(seg Segment) uint64 {
	if c.slots == nil {
		c.slots = map[uint32]ring.Comm{}
	}
	c.comms = seg.Comms(c.comms)
	for _, now := range c.comms {
		was := c.slots[now.Slot]
		if was.Generation != now.Generation {
			c.past += was.Calls
		} else {
			now.Calls = max(now.Calls, was.Calls)
		}
		c.slots[now.Slot] = now
	}
	sum := c.past
	for _, s := range c.slots {
		sum += s.Calls
	}
	return sum
}

// addProgress adds how far the process's calls have come, and whether it waits.
func (p *process) addProgress(b *falconv1.RankBeat, st ring.Control, monoNs int64) {
	b.Calls = p.calls.updateCalls(p.seg)
	b.WaitingKnown = st.Coverage&ring.CoverWaiting != 0
	if since := st.WaitingSinceNs; b.WaitingKnown && since > 0 {
		b.WaitingMs = float64(max(monoNs-since, 0)) / float64(time.Millisecond)
	}
}
