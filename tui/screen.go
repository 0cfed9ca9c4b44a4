package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
)

// frameCache owns the picture on the terminal until something has changed.
type frameCache struct {
	cached   string
	cursor   *tea.Cursor
	page     string    // the page within it
	paged    time.Time // when that was drawn
	keepPage bool      // the page may stay as it is
	dirty    bool
	drawn    int // pictures composed, for tests and benchmarks
}

// takePicture takes a picture over.
func (s *frameCache) takePicture(picture string, cursor *tea.Cursor) {
	s.cached = picture
	s.cursor = cursor
	s.dirty = false
	s.drawn++
}

// calmAfter is how long after the last key every picture is drawn at once.
const calmAfter = 3 * time.Second

// calmPeriod is how often the page is drawn while all is well; the clock and
// the header's numbers go on every second.
const calmPeriod = 2 * time.Second

// mayKeepPage reports whether a tick need not draw the page again.
func (m *Model) mayKeepPage() bool {
	return !m.screen.dirty &&
		m.screen.page != "" &&
		!m.isInUse() &&
		page.AllWell(m.work.live.Feed) &&
		m.now().Sub(m.screen.paged) < calmPeriod
}

// isInUse reports whether the operator has just acted, or is about to.
func (m *Model) isInUse() bool {
	return m.now().Sub(m.touched) < calmAfter ||
		m.prompt != nil ||
		m.decisions.dialog != nil ||
		m.help != nil ||
		!m.work.isRunning()
}

// noteActivity notes that the operator acts.
func (m *Model) noteActivity() {
	m.touched, m.screen.dirty = m.now(), true
}

// mayWaitForTick reports whether a new state may wait for a tick of the clock: the
// operator has not just acted, nothing is wrong, and nothing but measurements
// has moved. Over a slow line that is a tenth of the bytes, and at night a
// screen that holds still until it matters.
func (m *Model) mayWaitForTick(s *feed.State) bool {
	if m.isInUse() {
		return false
	}
	old := m.work.live.Feed
	return page.AllWell(s) &&
		page.AllWell(old) &&
		page.SameButMeasurements(old, s) &&
		feed.SameOperators(old, s)
}

// overlayLayer lays a layer over the screen.
func overlayLayer(screen string, over *lipgloss.Layer) string {
	return lipgloss.NewCompositor(lipgloss.NewLayer(screen), over).Render()
}
