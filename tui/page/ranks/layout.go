package ranks

import (
	"fmt"
	"strconv"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// geometry is how ranks lie in a rectangle. Ranks run left to right, row by
// row; where a pipeline stage fits a row, each stage starts one.
type geometry struct {
	zoom    int // index into zooms
	per     int // ranks a pixel; 0 = cells
	columns int // pixels or cells a row
	rows    int // pixel or cell rows that fit
	first   int // first visible row
	total   int // rows in all
	cellW   int
	cellH   int

	filtered bool // draw only what the filter shows
}

const (
	smallCellW = 10 // "✖1023 +99%"
	bigCellW   = 18 // two lines: rank and delta, device and ms
	bigCellH   = 3
)

// layout fits the ranks of s into r; halves is 2 where one text row holds two
// pixel rows.
func layout(r widget.Rect, s *page.State, zoom, halves int) geometry {
	n := len(s.Ranks)
	if zoom == auto {
		zoom = closest(r, s, halves)
	}
	g := geometry{zoom: zoom, per: zooms[zoom], cellW: 1, cellH: 1, rows: max(1, r.H*halves)}
	stage := s.TP * s.DP
	if g.per == 0 {
		g.sizeCells(r, n, stage)
	} else {
		g.columns = pixelColumns(max(1, r.W), (n+g.per-1)/g.per, stage/g.per, g.rows)
	}
	items := n
	if g.per > 1 {
		items = (n + g.per - 1) / g.per
	}
	g.total = (items + g.columns - 1) / g.columns
	g.scroll(int(s.Rank()) / max(1, g.per) / g.columns)
	return g
}

func (g *geometry) sizeCells(r widget.Rect, n, stage int) {
	g.cellW, g.cellH = smallCellW+digits(n)-3, 1
	if cols := columns(max(1, r.W/bigCellW), n, stage); (n+cols-1)/cols*bigCellH <= r.H {
		g.cellW, g.cellH = bigCellW, bigCellH
	}
	g.cellW = max(g.cellW, smallCellW-1)
	g.columns = columns(max(1, r.W/g.cellW), n, stage)
	g.rows = max(1, r.H/g.cellH)
}

func digits(n int) int { return len(strconv.Itoa(max(1, n-1))) }

// columns is how many items a row holds: a stage if one fits, else as many as
// fit.
func columns(fit, items, stage int) int {
	if stage > 1 && stage <= fit && stage < items {
		return stage
	}
	return max(1, min(fit, items))
}

// pixelColumns is how many pixels a row holds: one stage where all stages then
// fit below each other, else as many whole stages as fit side by side.
func pixelColumns(fit, items, stage, rows int) int {
	one := columns(fit, items, stage)
	if one != stage || (items+one-1)/one <= rows {
		return one
	}
	return fit / stage * stage
}

// scroll keeps the cursor's row in view.
func (g *geometry) scroll(row int) {
	if g.total <= g.rows {
		return
	}
	g.first = max(0, min(row-g.rows/2, g.total-g.rows))
}

// closest is the nearest zoom at which everything fits.
func closest(r widget.Rect, s *page.State, halves int) int {
	for z := range zooms {
		if z == 0 && len(s.Ranks) > detailMost {
			continue
		}
		if g := layout(r, s, z, halves); g.total <= g.rows {
			return z
		}
	}
	return len(zooms) - 1
}

// Rows is how many text rows the map takes of a rectangle at its own zoom.
func Rows(r widget.Rect, s *page.State) int {
	g := layout(r, s, auto, 1)
	return min(r.H, g.total*g.cellH)
}

// detailMost is how many ranks start as cells with numbers.
const detailMost = 256

func (g geometry) step() int   { return max(1, g.per) }
func (g geometry) stride() int { return g.columns * max(1, g.per) }

// hidden counts anomalies outside the visible rows.
func (g geometry) hidden(s *page.State) int {
	n := 0
	for _, r := range s.Anomalies() {
		row := int(r) / max(1, g.per) / g.columns
		if row < g.first || row >= g.first+g.rows {
			n++
		}
	}
	return n
}

// cells draws one cell with numbers a rank, and of ranks that the filter hides
// the number alone.
func (g geometry) cells(c *widget.Canvas, r widget.Rect, s *page.State) {
	for i := range s.Ranks {
		row, col := i/g.columns-g.first, i%g.columns
		if row < 0 || row >= g.rows {
			continue
		}
		cell := widget.Rect{X: r.X + col*g.cellW, Y: r.Y + row*g.cellH, W: g.cellW - 1, H: min(g.cellH, 2)}
		if g.filtered && !s.Shown(int32(i)) {
			c.Text(cell.X, cell.Y, cell.W, fmt.Sprintf("·%*d", digits(len(s.Ranks)), i), c.Pal.Style(themes.Dim))
			continue
		}
		g.cell(c, cell, s, int32(i))
	}
}

func (g geometry) cell(c *widget.Canvas, r widget.Rect, s *page.State, rank int32) {
	v := s.Ranks[rank]
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
	c.Text(r.X+1, r.Y, r.W-1, fmt.Sprintf("%*d", digits(len(s.Ranks)), rank), st)
	delta := "—"
	if x, ok := s.Excess(v); ok {
		delta = phrase.Percent(x)
	}
	end := r.X + r.W
	if !c.Pal.HalfBlocks() || c.ASCII {
		end--
		c.Set(end, r.Y, c.LevelGlyph(s.Level(v)), st)
	}
	c.Right(end, r.Y, delta, st)
	if rank == s.Rank() {
		c.Set(r.X+r.W, r.Y, '←', c.Pal.Style(themes.Accent).With(themes.Bold))
	}
	if r.H > 1 {
		c.Text(r.X+1, r.Y+1, r.W-9, v.GetDevice(), st)
		c.Right(r.X+r.W, r.Y+1, phrase.Ms(v.GetMs()), st)
	}
}

// cellStyle is readable text on the level's colour.
func cellStyle(c *widget.Canvas, s *page.State, rank int32) themes.Style {
	v := s.Ranks[rank]
	if v == nil || s.Ended(v) || s.Pixel(v) == widget.PixelLost || s.Pixel(v) == widget.PixelStale {
		_, _, role := s.Health(v)
		return c.Pal.Style(role)
	}
	if !c.Pal.HalfBlocks() {
		_, _, role := s.Health(v)
		return c.Pal.Style(role)
	}
	return c.Pal.Ink(c.Pal.Heat[s.Level(v)])
}

// raster draws one pixel for every per ranks: the worst of them.
func (g geometry) raster(c *widget.Canvas, r widget.Rect, s *page.State) {
	pix := widget.NewRaster(g.columns, min(g.rows, g.total))
	for i, v := range s.Ranks {
		if g.filtered && !s.Shown(int32(i)) {
			continue
		}
		at := i / g.per
		x, y := at%g.columns, at/g.columns-g.first
		if y < 0 || y >= pix.H {
			continue
		}
		old := pix.Pix[y*pix.W+x]
		if p := s.Pixel(v); old == widget.PixelNone || p > old {
			pix.Put(x, y, p)
		}
	}
	c.Raster(r, pix, &c.Pal.Heat)
	g.cursor(c, r, s)
}

// cursor points at the cursor's pixel from the free column, or underlines it.
func (g geometry) cursor(c *widget.Canvas, r widget.Rect, s *page.State) {
	at := int(s.Rank()) / g.per
	x, row := at%g.columns, at/g.columns-g.first
	y := row / c.PixelRows(1)
	if y < 0 || y >= r.H || x >= r.W {
		return
	}
	cell := c.At(r.X+x, r.Y+y)
	cell.S.Attr |= themes.Reverse | themes.Bold
	ch := cell.R
	if ch == ' ' || ch == '▀' {
		ch = '◆'
		cell.S = c.Pal.Style(themes.Focus)
	}
	c.Set(r.X+x, r.Y+y, ch, cell.S)
}
