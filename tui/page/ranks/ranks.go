// Package ranks draws every rank of the job: cells with numbers while they
// fit, a half-block raster of worst values above that.
//
// A pixel that stands for several ranks shows the worst of them, never a
// mean: one slow rank in sixteen must not vanish. Pure drawing; no I/O.
package ranks

import (
	"fmt"

	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

// zooms are ranks per pixel; 0 is a cell with numbers for each rank.
var zooms = [...]int{0, 1, 2, 4, 8, 16, 32, 64, 128, 256}

// auto picks the closest zoom that shows every rank.
const auto = -1

// Page is the ranks page.
type Page struct {
	zoom int // index into zooms, or auto
}

// New makes the page.
func New() *Page { return &Page{zoom: auto} }

// Zoom is the level that the operator chose.
func (p *Page) Zoom() (level int, chosen bool) { return p.zoom, p.zoom != auto }

// SetZoom chooses a level; one too far is the farthest.
func (p *Page) SetZoom(level int) { p.zoom = max(0, min(len(zooms)-1, level)) }

// detailRows are kept for the cursor's rank.
const detailRows = 3

// Want says that no series is needed.
func (p *Page) Want(widget.Rect) (columns, runLengths int) { return 1, 0 }

// Act moves the cursor and zooms.
func (p *Page) Act(a key.Action, s *page.State, r widget.Rect) key.Scope {
	body := mapRect(r)
	g := layout(body, s, p.zoom, 2)
	switch a {
	case key.Left:
		s.Select(s.Rank() - int32(g.step()))
	case key.Right:
		s.Select(s.Rank() + int32(g.step()))
	case key.Up:
		s.Select(s.Rank() - int32(g.stride()))
	case key.Down:
		s.Select(s.Rank() + int32(g.stride()))
	case key.PageUp:
		s.Select(max(0, s.Rank()-int32(g.stride()*max(1, g.rows/2))))
	case key.PageDown:
		s.Select(min(int32(len(s.Ranks))-1, s.Rank()+int32(g.stride()*max(1, g.rows/2))))
	case key.First:
		s.Select(0)
	case key.Last:
		s.Select(int32(len(s.Ranks)) - 1)
	case key.Next:
		s.StepShown(+1)
	case key.Prev:
		s.StepShown(-1)
	case key.Metric:
		s.ToggleMetric()
	case key.ZoomIn:
		p.zoom = max(0, g.zoom-1)
	case key.ZoomOut:
		p.zoom = min(len(zooms)-1, g.zoom+1)
	case key.Open:
		s.Select(s.Rank())
		return key.Posterior
	}
	return ""
}

func mapRect(r widget.Rect) widget.Rect {
	_, body := r.Rows(1)
	body, _ = body.Rows(body.H - detailRows - 1)
	return body
}

// Draw draws the map, and below it the cursor's rank.
func (p *Page) Draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	body := drawMap(c, widget.Rect{X: r.X, Y: r.Y, W: r.W, H: r.H - detailRows - 1}, s, p.zoom, s.RankFilter() != "")
	rest := widget.Rect{X: r.X, Y: body.Y + body.H, W: r.W, H: detailRows + 1}
	s.Details(c, c.Rule(rest, "CURSOR", s.Legend()), s.Rank())
}

// Map draws title and map in r for other pages too; zoom is auto (-1) or an
// index of the zoom levels. It returns the room that the map took.
func Map(c *widget.Canvas, r widget.Rect, s *page.State, zoom int) widget.Rect {
	return drawMap(c, r, s, zoom, false)
}

func drawMap(c *widget.Canvas, r widget.Rect, s *page.State, zoom int, filtered bool) widget.Rect {
	_, body := r.Rows(1)
	g := layout(body, s, zoom, c.PixelRows(1))
	g.filtered = filtered
	c.Rule(r, "RANKS", g.title(s))
	switch {
	case len(s.Ranks) == 0:
		page.Empty(c, body, "no ranks known yet")
	case g.per == 0:
		g.cells(c, body, s)
	default:
		g.raster(c, body, s)
	}
	return body
}

func (g geometry) title(s *page.State) string {
	t := s.Tally()
	if hidden := g.hidden(s); hidden > 0 {
		t += fmt.Sprintf(" (%d of them outside)", hidden)
	}
	if g.filtered {
		return fmt.Sprintf("filter %q: %d of %d, esc shows all  ·  ", s.RankFilter(), len(s.Matched()), len(s.Ranks)) + t
	}
	t += "  ·  " + s.MetricName()
	if g.per > 1 {
		t += fmt.Sprintf("  ·  worst of %d", g.per)
	}
	return t
}
