package agent

import (
	"sync/atomic"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// seenOrders is what the node knows of the orders that it has had.
type seenOrders struct {
	suspended uint64 // newest generation that the node was suspended for
	standing  atomic.Pointer[falconv1.Standing]
	standbys  atomic.Pointer[falconv1.Standbys]
}

// Standing is what the loop has published last; nil before that. It may be called from any
// goroutine; the message must not be changed.
func (o *seenOrders) Standing() *falconv1.Standing {
	return o.standing.Load()
}

// Standbys is what the loop has published last of the node's standbys; nil where it keeps
// none. It may be called from any goroutine; the message must not be changed.
func (o *seenOrders) Standbys() *falconv1.Standbys {
	return o.standbys.Load()
}

// publish publishes what is known now.
func (o *seenOrders) publish(a *Agent) {
	s := a.executor.Standing()
	s.Generation = max(o.suspended, a.launcher.Newest(), a.table.Newest())
	for _, p := range a.processes.living() {
		s.Generation = max(s.Generation, p.generation(), p.status.Generation)
		if at, ok := p.seg.Rejoined(); ok {
			s.Generation = max(s.Generation, at.Generation)
		}
		s.Order = max(s.Order, p.status.CommittedOrder, p.ranks.newest.Order)
	}
	o.standing.Store(s)
	o.standbys.Store(standbysMessage(a.launcher.Standbys()))
}
