// Package ranks draws every rank of the job: cells with numbers while they
// fit, a half-block raster of worst values above that.
//
// A mark that stands for several ranks shows the worst of them, never a mean:
// one slow rank in sixteen must not vanish. Places depend on the layout alone,
// so that nothing moves when numbers change. Pure drawing and the operator's
// choices of level, order and ranks; no I/O.
package ranks

import (
	"fmt"
	"strings"

	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/posterior"
	"github.com/failslow/falcon/tui/roster"
	"github.com/failslow/falcon/tui/widget"
)

// Page is the ranks page.
type Page struct {
	level  Level
	order  Order
	halves int   // pixel rows a text row, as drawn last
	anchor int32 // where a range begins, -1 = none
	alone  bool  // the map fills the page, as drawn last
}

// New makes the page.
func New() *Page {
	return &Page{level: auto, halves: 2, anchor: -1}
}

// Zoom is the level that the operator chose.
func (p *Page) Zoom() (level int, chosen bool) {
	return int(p.level), p.level != auto
}

// SetZoom chooses a level; one too far is the nearest.
func (p *Page) SetZoom(level int) {
	p.level = max(Job, min(Table, Level(level)))
}

// detailRows are kept for the cursor's rank, legendRows for the metric's.
const (
	detailRows = 3
	legendRows = 1
)

// mapRectOf is where the map is drawn, below its title.
func mapRectOf(r widget.Rect) widget.Rect {
	_, body := r.Rows(1)
	body, _ = body.Rows(body.H - detailRows - 1 - legendRows)
	return body
}

// drawnMapRect is where this page has drawn its map.
func (p *Page) drawnMapRect(r widget.Rect) widget.Rect {
	if !p.alone {
		return mapRectOf(r)
	}
	_, body := r.Rows(1)
	body, _ = body.Rows(body.H - legendRows)
	return body
}

// isTable reports whether the page is a table of ranks: few of them, unless the operator chose a level.
func (p *Page) isTable(s *page.State) bool {
	return p.level == Table || p.level == auto && s.Roster.World() < page.Few
}

// drawnGeometry is what was drawn last in r.
func (p *Page) drawnGeometry(r widget.Rect, s *page.State) (geometry, widget.Rect) {
	if p.isTable(s) && !p.alone {
		rows := shapeTable(r, s.Roster.World()).rows
		return p.layoutTable(rows, s), rows
	}
	body := p.drawnMapRect(r)
	return layoutMap(body, s, p.mapLevel(), p.order, p.halves), body
}

// mapLevel is the level of the map, which is never the table's.
func (p *Page) mapLevel() Level {
	if p.level == Table {
		return Detail
	}
	return p.level
}

// Want asks for the cursor's series where it is drawn.
func (p *Page) Want(r widget.Rect) (columns, runLengths int) {
	return max(1, r.W-posterior.LabelWidth), 0
}

// Near reports how many iterations of every rank the page shows, and whether past tests.
func (p *Page) Near(s *page.State) (iterations int, tests bool) {
	if !p.isTable(s) {
		return 0, false
	}
	return SparkIterations, true
}

// Act moves the cursor, zooms and picks.
func (p *Page) Act(a key.Action, s *page.State, r widget.Rect) key.Scope {
	if s.Roster.World() == 0 {
		return ""
	}
	g, _ := p.drawnGeometry(r, s)
	switch a {
	case key.Next:
		s.StepShown(+1)
	case key.Prev:
		s.StepShown(-1)
	case key.Metric:
		s.ToggleMetric()
	case key.ZoomIn:
		p.level = min(Table, g.level+1)
	case key.ZoomOut:
		p.level = max(Job, g.level-1)
	case key.Order:
		p.order = (p.order + 1) % orders
	case key.Open:
		return p.openRank(s, g)
	default:
		p.moveCursor(a, s, g)
		p.pickUnderCursor(a, s, g)
	}
	return ""
}

// openRank zooms into a mark of several ranks, or opens a rank's posterior.
func (p *Page) openRank(s *page.State, g geometry) key.Scope {
	s.Select(s.Rank())
	if g.level >= Rank {
		return key.Posterior
	}
	p.level = g.level + 1
	return ""
}

func (p *Page) moveCursor(a key.Action, s *page.State, g geometry) {
	at, last := g.itemAt(s), len(g.first)-1
	to := at
	switch a {
	case key.Left:
		to--
	case key.Right:
		to++
	case key.Up:
		to -= g.columns
	case key.Down:
		to += g.columns
	case key.PageUp:
		to = max(0, to-g.columns*max(1, g.rows/2))
	case key.PageDown:
		to = min(last, to+g.columns*max(1, g.rows/2))
	case key.First:
		to = 0
	case key.Last:
		to = last
	default:
		return
	}
	if to >= 0 && to <= last && (to != at || a == key.First || a == key.Last) {
		s.Select(g.worstRankOf(s, to))
	}
}

// pickUnderCursor changes the picks; the cursor stays even if another rank gets worse.
func (p *Page) pickUnderCursor(a key.Action, s *page.State, g geometry) {
	at := s.Rank()
	item := g.itemAt(s)
	switch a {
	case key.Pick:
		s.PickAll(g.ranksWithin(item, item))
	case key.PickRange:
		if p.anchor < 0 {
			p.anchor = at
			break
		}
		from := int(g.place[min(p.anchor, int32(len(g.place))-1)])
		for _, r := range g.ranksWithin(min(from, item), max(from, item)) {
			if !s.Picked(r) {
				s.Pick(r)
			}
		}
		p.anchor = -1
	case key.PickSuspects:
		for _, r := range s.Suspects() {
			if !s.Picked(r) {
				s.Pick(r)
			}
		}
	case key.Unpick:
		s.Unpick()
		p.anchor = -1
	default:
		return
	}
	s.Select(at)
}

// Draw draws the map, the metric's legend, and below them the cursor's rank; of few ranks a table.
func (p *Page) Draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	p.alone = false
	if p.isTable(s) {
		p.drawTable(c, r, s)
		return
	}
	top, rest := r.Rows(r.H - detailRows - 1)
	g := p.drawRankMap(c, r, top, s)
	s.Details(c, c.Rule(rest, p.cursorTitle(s, g), s.Legend()), s.Rank())
}

// drawRankMap draws the map and its legend in a part of the page.
func (p *Page) drawRankMap(c *widget.Canvas, r, part widget.Rect, s *page.State) geometry {
	p.halves = c.PixelRows(1)
	g := layoutMap(p.drawnMapRect(r), s, p.mapLevel(), p.order, p.halves)
	g.filtered = s.RankFilter() != ""
	top, row := part.Rows(part.H - legendRows)
	p.drawWith(c, top, s, g)
	drawLegend(c, row, s)
	return g
}

// Panes are the parts that can fill the page alone.
func (p *Page) Panes(s *page.State) []page.Pane {
	if s.Roster.World() == 0 {
		return nil
	}
	return []page.Pane{{
		Name: "map",
		Draw: func(c *widget.Canvas, r widget.Rect, s *page.State) {
			p.alone = true
			p.drawRankMap(c, r, r, s)
		},
	}}
}

func (p *Page) drawWith(c *widget.Canvas, r widget.Rect, s *page.State, g geometry) {
	body := c.Rule(r, g.headingText(), p.rangeText(s)+g.titleText(s))
	showRank(c, body, s, g, p.markedRanks(s, g))
}

// rangeText is what is said of a range that is being picked, or "".
func (p *Page) rangeText(s *page.State) string {
	if p.anchor < 0 || s.Roster.World() == 0 {
		return ""
	}
	return fmt.Sprintf("range from rank %d: %s picks it, %s drops it  ·  ",
		p.anchor, s.Key(key.Ranks, key.PickRange), s.Key(key.Ranks, key.Unpick))
}

// markedRanks reports what is picked, or would be with the range that is being picked.
func (p *Page) markedRanks(s *page.State, g geometry) func(int32) bool {
	if p.anchor < 0 || s.Roster.World() == 0 {
		return s.Picked
	}
	from, to := int(g.place[min(p.anchor, int32(len(g.place))-1)]), g.itemAt(s)
	return func(r int32) bool {
		i := int(g.place[r])
		return s.Picked(r) || i >= min(from, to) && i <= max(from, to)
	}
}

// cursorTitle describes what the cursor's mark stands for.
func (p *Page) cursorTitle(s *page.State, g geometry) string {
	if g.level >= Rank || s.Roster.World() == 0 {
		return "CURSOR"
	}
	item := g.itemAt(s)
	var count [roster.Standings]int
	n := 0
	for r, i := range g.place {
		if int(i) == item {
			count[s.Roster.Standing(int32(r))]++
			n++
		}
	}
	text := fmt.Sprintf("CURSOR worst of %d ranks", n)
	if t := page.TallyOf(count); t != "" {
		text += ": " + t
	}
	return text
}

func showRank(c *widget.Canvas, body widget.Rect, s *page.State, g geometry, marked func(int32) bool) {
	switch {
	case s.Roster.World() == 0:
		page.Empty(c, body, page.NoRanks(s))
		return
	case g.hasCells():
		g.drawCells(c, body, s, marked)
	default:
		g.drawPixels(c, body, s, marked)
	}
	c.HitEach(body, func(x, y int) widget.Target {
		if rank, ok := g.worstRankAt(s, body, body.X+x, body.Y+y); ok {
			return widget.Target{Kind: widget.TargetRank, N: int64(rank)}
		}
		return widget.Target{}
	})
	if x, y, ok := g.cornerOfItem(body, s.Rank()); ok {
		c.Focus(x, y)
	}
}

// Map draws title and map in r for other pages too, at the level that fits.
func Map(c *widget.Canvas, r widget.Rect, s *page.State) {
	_, body := r.Rows(1)
	g := layoutMap(body, s, auto, Topology, c.PixelRows(1))
	c.Rule(r, strings.TrimSpace(g.headingText()), g.titleText(s))
	showRank(c, body, s, g, s.Picked)
}
