package charts

import (
	"fmt"
	"time"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// drawAxis draws when incidents began and ended, the time at both ends, and what is not on screen.
func (v *View) drawAxis(c *widget.Canvas, r widget.Rect, s *page.State, w window, hidden int) {
	row, words := r.Rows(1)
	_, plot := row.Columns(LabelWidth)
	dim := c.Pal.Style(themes.Dim)
	c.Right(row.X+LabelWidth-1, row.Y, "clock", dim)
	left := phrase.Clock(w.from, s.EngineNow(), s.Zone)
	right := phrase.Clock(w.to, s.EngineNow(), s.Zone)
	used := c.Text(plot.X, plot.Y, plot.W, left, dim)
	if plot.W > used+widget.Width(right)+1 {
		c.Right(plot.X+plot.W, plot.Y, right, dim)
	}
	v.drawIncidents(c, plot, s, w, used, plot.W-widget.Width(right))
	pen := c.Pen(words).Put(themes.Dim, v.extent(s, w))
	if hidden > 0 && !v.rest {
		pen.Putf(themes.Dim, "; %d more charts: %s, %s",
			hidden, s.Key(key.Posterior, key.Down), s.Key(key.Posterior, key.Up))
	}
}

// drawIncidents marks onsets and ends between two columns.
func (v *View) drawIncidents(c *widget.Canvas, plot widget.Rect, s *page.State, w window, from, to int) {
	style := c.Pal.Style(themes.Accent).With(themes.Bold)
	mark := func(unixNs int64, glyph rune) {
		at := time.Unix(0, unixNs)
		if x := w.at(at, plot.W); unixNs != 0 && x >= from && x < to {
			c.Set(plot.X+x, plot.Y, glyph, style)
		}
	}
	for _, i := range s.Snap().GetIncidents() {
		mark(i.GetOnsetUnixNs(), '▼')
		mark(i.GetEndUnixNs(), '✓')
	}
}

// extent says how much of the run is on screen, and what leads elsewhere.
func (v *View) extent(s *page.State, w window) string {
	run := phrase.Lasting(w.known.Sub(w.begun))
	in := s.Key(key.Posterior, key.ZoomIn)
	out := s.Key(key.Posterior, key.ZoomOut)
	if v.rest {
		return fmt.Sprintf("%s, all that this console has seen; all charts: %s %s",
			run, s.Key(key.Global, key.ShowPosterior), s.Key(key.Posterior, key.Metric))
	}
	if v.span == 0 {
		return fmt.Sprintf("%s, all that this console has seen; %s zooms", run, in)
	}
	text := fmt.Sprintf("%s of %s; %s %s zoom, %s %s pan",
		phrase.Lasting(w.span()), run, in, out, s.Key(key.Posterior, key.Older),
		s.Key(key.Posterior, key.Newer))
	if !v.end.IsZero() {
		text += ", " + s.Key(key.Posterior, key.Last) + " follows"
	}
	return text
}
