package detect

import (
	"slices"

	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/detect/peer"
)

// drift is the net below the change points: a single hiccup one or two
// iterations before a real change can make the posterior's most probable run
// begin at the hiccup, whose spread then hides the change. So the level that
// the last verified change led to is compared with what the job does now.
//
// A net must not be finer than what it lies under: it takes as many points,
// all of them beyond the middle of the two levels, as verification takes and
// one more.
func (m *Machine) drift(iteration int64) {
	if m.slow.tracker.Learning() || m.levelMs <= 0 || m.settling(iteration) {
		return
	}
	for _, n := range []int{driftSoon, driftLate} {
		tail := m.slow.tail(n)
		if len(tail) < n || iteration-m.levelAt < int64(n) {
			continue
		}
		level := peer.Median(slices.Clone(tail))
		middle := (level + m.levelMs) / 2
		size := max(level/m.levelMs, m.levelMs/level) - 1
		if size < m.cfg.Tracker.Verify || (n == driftSoon && size < driftLarge) {
			continue
		}
		if up := level > m.levelMs; (up && slices.Min(tail) > middle) || (!up && slices.Max(tail) < middle) {
			m.drifted(level, middle, up)
			return
		}
	}
}

// Points that the net needs, and the change from which fewer do.
const (
	driftSoon  = 5
	driftLate  = 9
	driftLarge = 0.30
)

func (m *Machine) drifted(level, middle float64, up bool) {
	i := m.slow.seen - 1
	for i > m.slow.seen-len(m.slow.ms) && (m.slow.value(i-1) > middle) == up {
		i--
	}
	c := bocd.Change{
		Index: i, BeforeMs: m.levelMs, AfterMs: level, Change: level/m.levelMs - 1,
		Probability: slices.Max(m.suspicion[:]), DetectedAt: m.slow.seen - 1, Kind: bocd.KindRelief,
	}
	if up {
		c.Kind = bocd.KindOnset
	}
	m.jobChange(c)
}

// leveled notes the level that a change led to.
func (m *Machine) leveled(ms float64) { m.levelMs, m.levelAt = ms, m.slow.last() }
