package tui

import (
	"time"

	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
)

// calmAfter is how long after the last key every picture is drawn at once.
const calmAfter = 3 * time.Second

// calmPeriod is how often the page is drawn while all is well; the clock and
// the header's numbers go on every second.
const calmPeriod = 2 * time.Second

// restful says that the clock's tick finds nothing new worth drawing the page
// for.
func (m *Model) restful() bool {
	return !m.dirty && m.page != "" && !m.busy() && page.AllWell(m.live.Feed) && m.now().Sub(m.paged) < calmPeriod
}

// busy says that somebody has just acted, or is about to.
func (m *Model) busy() bool {
	return m.now().Sub(m.touched) < calmAfter || m.prompt != nil || m.dialog != nil || m.help != nil || !m.pausedAt.IsZero()
}

// touch notes that somebody acts.
func (m *Model) touch() { m.touched, m.dirty = m.now(), true }

// calm says that a new picture may wait for a tick of the clock: nobody has
// just acted, nothing is wrong, and nothing but measurements has moved. Over a
// slow line that is a tenth of the bytes, and at night a screen that holds
// still until it matters.
func (m *Model) calm(s *feed.State) bool {
	if m.busy() {
		return false
	}
	old := m.live.Feed
	return page.AllWell(s) && page.AllWell(old) && page.SameButMeasurements(old, s) && feed.SameOperators(old, s)
}
