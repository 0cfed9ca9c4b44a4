package page

import (
	"fmt"
	"slices"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/roster"
	"github.com/failslow/falcon/tui/widget"
)

// Measured owns what is known of the ranks, and by which metric maps show it.
type Measured struct {
	Roster *roster.Roster // derived from the snapshot, shared by all who show it
	Metric roster.Metric
}

// Anomalous reports whether a rank is not simply healthy.
func (m *Measured) Anomalous(r *falconv1.RankView) bool {
	return roster.Gravity(m.Roster.StandingOf(r)) > 0
}

// Anomalies lists the ranks that are not healthy, ascending.
func (m *Measured) Anomalies() []int32 { return m.Roster.Anomalies }

// BySelf reports whether maps show self time.
func (m *Measured) BySelf() bool {
	return m.Roster.Resolve(m.Metric) == roster.Self
}

// ToggleMetric goes on to the next metric.
func (m *Measured) ToggleMetric() {
	i := slices.Index(roster.Cycle, m.Roster.Resolve(m.Metric))
	m.Metric = roster.Cycle[(i+1)%len(roster.Cycle)]
}

// MetricName is what the maps show, for titles.
func (m *Measured) MetricName() string {
	return m.Roster.Name(m.Metric)
}

// Excess is how much slower a rank is than it should be, 0.5 for half more, by
// self time or by its own baseline; ok is false where it was not measured.
func (m *Measured) Excess(r *falconv1.RankView) (x float64, ok bool) {
	if r == nil {
		return 0, false
	}
	if m.BySelf() {
		return r.SelfRatio - 1, r.SelfRatio > 0
	}
	return r.Slowdown, r.Ms > 0
}

// Reading is what the metric says of a rank in at most five columns, "+12%" or
// "1.9k"; "—" where it was not measured.
func (m *Measured) Reading(r *falconv1.RankView) string {
	x, ok := m.Roster.Value(m.Metric, r)
	if !ok {
		return "—"
	}
	switch m.Roster.Resolve(m.Metric) {
	case roster.Self:
		return phrase.Percent(x - 1)
	case roster.Slowdown:
		return phrase.Percent(x / 100)
	case roster.Wait:
		return fmt.Sprintf("%.0f%%", min(x, 999))
	case roster.Temperature:
		return fmt.Sprintf("%d°", min(r.TemperatureC, 999))
	case roster.Clock:
		return fmt.Sprintf("%dM", min(r.SmClockMhz, 9999))
	}
	return Thousands(x)
}

// Ended reports whether a rank is silent because the job has ended.
func (m *Measured) Ended(r *falconv1.RankView) bool {
	st := m.Roster.StandingOf(r)
	return st == roster.Ended || st == roster.Exited
}

// Taking reports whether a rank takes part with fresh data, so that its level is valid.
func (m *Measured) Taking(r *falconv1.RankView) bool {
	switch m.Roster.StandingOf(r) {
	case roster.OK, roster.Slow, roster.Culprit, roster.LinkEnd:
		return true
	}
	return false
}

// Health is a rank's state as glyph, word and role.
func (m *Measured) Health(r *falconv1.RankView) (glyph rune, word string, role themes.Role) {
	l := looks[m.Roster.StandingOf(r)]
	return l.glyph, l.word, l.role
}

// Thousands writes a count in at most four columns.
func Thousands(x float64) string {
	for _, unit := range []string{"", "k", "M"} {
		if x < 999.5 {
			return fmt.Sprintf("%.0f%s", x, unit)
		}
		x /= 1000
	}
	return "≥1G"
}

// Pixels are the values of codes in a raster.
var Pixels = [...]uint8{
	roster.None:        widget.PixelNone,
	roster.Excluded:    widget.PixelExcluded,
	roster.Unmeasured:  widget.PixelUnmeasured,
	roster.StaleCode:   widget.PixelStale,
	roster.Level0:      0,
	roster.Level1:      1,
	roster.Level2:      2,
	roster.Level3:      3,
	roster.Level4:      4,
	roster.Level5:      5,
	roster.Level6:      6,
	roster.LostCode:    widget.PixelLost,
	roster.CulpritCode: widget.PixelCulprit,
}
