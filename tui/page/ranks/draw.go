package ranks

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/roster"
	"github.com/failslow/falcon/tui/widget"
)

// titleText returns what is out of sight before all else: on a narrow terminal the line's end
// is cut.
func (g geometry) titleText(s *page.State) string {
	var parts []string
	if seen, above, below := g.inSight(s.Roster.Critical); above+below > 0 {
		parts = append(parts, fmt.Sprintf("%d crit in view, %d outside%s",
			seen, above+below, scrollArrows(above, below)))
	}
	if g.filtered {
		parts = append(parts, fmt.Sprintf("filter %q: %d of %d, %s shows all",
			s.RankFilter(), len(s.Matched()), s.Roster.World(), s.Key(key.Ranks, key.Back)))
	}
	if n := s.PickCount(); n > 0 {
		parts = append(parts, fmt.Sprintf("%d picked", n))
	}
	parts = append(parts, s.Tally())
	if g.level != Table {
		parts = append(parts, s.MetricName())
	}
	if most := g.ranksPerItem(s); most > 1 {
		parts = append(parts, fmt.Sprintf("worst of %d", most))
	}
	return strings.Join(parts, "  ·  ")
}

func scrollArrows(above, below int) string {
	switch {
	case below == 0:
		return " ↑"
	case above == 0:
		return " ↓"
	}
	return " ↑↓"
}

// ranksPerItem is how many ranks an item stands for at most.
func (g geometry) ranksPerItem(s *page.State) int {
	switch g.level {
	case Job:
		return s.TP * g.per * s.PP
	case Stage:
		return s.TP * g.per * g.by
	case Node:
		return (s.Roster.World() + len(g.first) - 1) / max(1, len(g.first))
	}
	return 1
}

// headingText is the map's own name with its level and order.
func (g geometry) headingText() string {
	t := "RANKS"
	if g.level < Detail {
		t += " " + levelNames[g.level]
	}
	if g.order != Topology && g.level > Stage {
		t += " " + orderNames[g.order]
	}
	return t
}

// drawCells draws one cell an item, and of filtered ranks the number alone.
func (g geometry) drawCells(c *widget.Canvas, r widget.Rect, s *page.State, marked func(int32) bool) {
	for i := g.top * g.columns; i < min(len(g.first), (g.top+g.rows)*g.columns); i++ {
		row := i/g.columns - g.top
		col := i % g.columns
		cell := widget.Rect{
			X: r.X + col*g.cellW,
			Y: r.Y + row*g.cellH,
			W: g.cellW - 1,
			H: min(g.cellH, 2),
		}
		rank := g.first[i]
		switch {
		case g.level == Job:
			g.drawReplica(c, cell, s, i)
		case g.filtered && !s.Shown(rank):
			c.Text(
				cell.X,
				cell.Y,
				cell.W,
				fmt.Sprintf("·%*d", digitCount(s.Roster.World()), rank),
				c.Pal.Style(themes.Dim),
			)
		default:
			g.drawCell(c, cell, s, rank, marked(rank))
		}
	}
}

// drawReplica draws a replica's worst rank and its number of unhealthy ranks.
func (g geometry) drawReplica(c *widget.Canvas, r widget.Rect, s *page.State, item int) {
	rank := g.worstRankOf(s, item)
	n := 0
	for _, a := range s.Anomalies() {
		if int(g.place[a]) == item {
			n++
		}
	}
	glyph, _, role := s.Health(s.Roster.View(rank))
	st := cellStyle(c, s, rank)
	if item == g.itemAt(s) {
		st = st.With(themes.Bold | themes.Underline)
		c.Set(
			r.X+r.W,
			r.Y,
			widget.CursorMark,
			c.Pal.Style(themes.Accent).With(themes.Bold),
		)
	}
	c.Fill(r, ' ', st)
	c.Text(r.X, r.Y, r.W, fmt.Sprintf("r%d", item), st)
	mark := st
	if s := c.Pal.Style(role); s.BG != 0 {
		mark = s
	}
	text := string(glyph)
	if n > 0 {
		text += strconv.Itoa(n)
	}
	c.Right(r.X+r.W, r.Y, text, mark)
}

func (g geometry) drawCell(c *widget.Canvas, r widget.Rect, s *page.State, rank int32, marked bool) {
	v := s.Roster.View(rank)
	glyph, _, role := s.Health(v)
	st := cellStyle(c, s, rank)
	if rank == s.Rank() {
		st = st.With(themes.Bold | themes.Underline)
	}
	c.Fill(r, ' ', st)
	mark := st
	if s := c.Pal.Style(role); s.BG != 0 {
		mark = s
	}
	c.Set(r.X, r.Y, glyph, mark)
	c.Text(
		r.X+1,
		r.Y,
		r.W-1,
		fmt.Sprintf("%*d", digitCount(s.Roster.World()), rank),
		st,
	)
	end := r.X + r.W
	if !c.Pal.HalfBlocks() || c.ASCII {
		end--
		if n, ok := s.Roster.LevelOf(s.Metric, v); ok {
			c.Set(end, r.Y, c.LevelGlyph(n), st)
		}
	}
	c.Right(end, r.Y, s.Reading(v), st)
	switch {
	case rank == s.Rank():
		c.Set(
			r.X+r.W,
			r.Y,
			widget.CursorMark,
			c.Pal.Style(themes.Accent).With(themes.Bold),
		)
	case marked:
		c.Set(r.X+r.W, r.Y, '■', c.Pal.Style(themes.Accent))
	}
	if r.H > 1 {
		c.Text(r.X+1, r.Y+1, r.W-9, v.GetDevice(), st)
		c.Right(r.X+r.W, r.Y+1, phrase.Ms(v.GetMs()), st)
	}
}

// cellStyle is text on the level's colour, or the style of the state without a level.
func cellStyle(c *widget.Canvas, s *page.State, rank int32) themes.Style {
	v := s.Roster.View(rank)
	_, _, role := s.Health(v)
	n, ok := s.Roster.LevelOf(s.Metric, v)
	switch {
	case !s.Taking(v) || ok && !c.Pal.HalfBlocks():
		return c.Pal.Style(role)
	case !ok:
		return c.Pal.Style(themes.Dim)
	}
	return c.Pal.Ink(c.Pal.Heat[n])
}

// drawPixels draws one pixel an item: the worst of its ranks.
func (g geometry) drawPixels(c *widget.Canvas, r widget.Rect, s *page.State, marked func(int32) bool) {
	g.drawGutter(c, r, s)
	_, body := r.Columns(g.gutter)
	c.Raster(body, g.visibleRaster(s), &c.Pal.Heat)
	for _, rank := range s.Picks() {
		g.drawPickMark(c, r, rank)
	}
	if marked != nil {
		for i := g.top * g.columns; i < min(len(g.first), (g.top+g.rows)*g.columns); i++ {
			if marked(g.first[i]) {
				g.drawPickMark(c, r, g.first[i])
			}
		}
	}
	g.drawCursor(c, r, s)
}

// drawGutter names the first item of every text row.
func (g geometry) drawGutter(c *widget.Canvas, r widget.Rect, s *page.State) {
	if g.gutter == 0 {
		return
	}
	for y := range r.H {
		item := (g.top + y*g.halves) * g.columns
		if y*g.halves >= g.rows || item >= len(g.first) {
			return
		}
		c.Text(
			r.X,
			r.Y+y,
			g.gutter-1,
			g.cellLabel(s, item),
			c.Pal.Style(themes.Dim),
		)
	}
}

// cellLabel names an item in few characters.
func (g geometry) cellLabel(s *page.State, item int) string {
	rank := g.first[item]
	_, dp, pp := s.Coord(rank)
	switch g.level {
	case Job:
		return "r" + strconv.Itoa(dp)
	case Stage:
		return "s" + strconv.Itoa(pp)
	case Node:
		if name := roster.NodeOf(s.Roster.View(rank).GetDevice()); name != "" {
			return name
		}
	}
	return strconv.Itoa(int(rank))
}

// drawPickMark shows that a rank is picked; a state keeps its glyph.
func (g geometry) drawPickMark(c *widget.Canvas, r widget.Rect, rank int32) {
	x, y, ok := g.cornerOfItem(r, rank)
	if !ok {
		return
	}
	cell := c.At(x, y)
	if cell.R == ' ' || cell.R == '▀' {
		cell.R, cell.S.FG = '■', c.Pal.Style(themes.Accent).FG
	}
	c.Set(x, y, cell.R, cell.S.With(themes.Underline|themes.Bold))
}

// drawCursor points at the cursor's pixel, or underlines it.
func (g geometry) drawCursor(c *widget.Canvas, r widget.Rect, s *page.State) {
	x, y, ok := g.cornerOfItem(r, s.Rank())
	if !ok {
		return
	}
	cell := c.At(x, y)
	cell.S.Attr |= themes.Reverse | themes.Bold
	ch := cell.R
	if ch == ' ' || ch == '▀' {
		ch = '◆'
		cell.S = c.Pal.Style(themes.Focus)
	}
	c.Set(x, y, ch, cell.S)
}

// drawLegend shows where the metric's levels begin.
func drawLegend(c *widget.Canvas, r widget.Rect, s *page.State) {
	bounds, unit := s.Roster.Bounds(s.Metric)
	p := c.Pen(r).Put(themes.Dim, s.MetricName()+"  ")
	for i := range themes.Levels {
		if c.Pal.HalfBlocks() && !c.ASCII {
			p.Style(themes.Style{BG: c.Pal.Heat[i]}, "  ")
		} else {
			p.Style(themes.Style{FG: c.Pal.Heat[i]}, string(c.LevelGlyph(i)))
		}
		if i == 0 {
			p.Put(themes.Dim, " fine  ")
		} else {
			p.Put(themes.Dim, " "+bounds[i-1]+"  ")
		}
	}
	p.Put(themes.Dim, unit)
	for _, v := range s.Roster.Codes(s.Metric) {
		if v == roster.Unmeasured {
			p.Put(
				themes.Dim,
				"   "+string(widget.StateGlyphs[widget.PixelUnmeasured-widget.PixelStale])+" not measured",
			)
			return
		}
	}
}
