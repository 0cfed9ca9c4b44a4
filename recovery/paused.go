package recovery

import (
	"time"

	"github.com/failslow/falcon"
)

// OnlyPaused reports whether a node that a recovery gave up, and replaced, has only paused: nothing but
// the node's silence spoke against it, once within an hour, and it has been heard without a break for
// as long as least. What still runs there is for the caller to know.
func (m *Machine) OnlyPaused(now time.Time, n falcon.Node, least time.Duration) bool {
	h := m.nodes.Get(n, now)
	_, _, failed := h.Fatal(now)
	if failed ||
		!h.Connected() ||
		!h.HeardWithin(now, m.cfg.Beat) ||
		h.AwaySince(now.Add(-least)) {
		return false
	}
	silent := 0
	for _, c := range m.hist.newestFirst() {
		for _, f := range c.Faults {
			recent := now.UnixNano()-f.DetectedNs < int64(hour)
			switch {
			case f.Node != n || !f.LosesNode() || !recent:
			case f.Kind != falcon.FaultNode ||
				!f.MayPass() ||
				f.Unanswered && !h.AwaySince(time.Unix(0, f.DetectedNs)):
				return false
			default:
				silent++
			}
		}
	}
	return silent == 1
}
