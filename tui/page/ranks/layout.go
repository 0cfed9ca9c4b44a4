package ranks

import (
	"strconv"

	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/roster"
	"github.com/failslow/falcon/tui/widget"
)

// geometry is how the items of a level lie in a rectangle.
type geometry struct {
	*arrangement
	level   Level
	order   Order
	per, by int // replicas and stages an item
	columns int // items a row
	rows    int // item rows that fit
	top     int // first visible row
	total   int // rows in all
	cellW   int // 1 = pixels
	cellH   int
	gutter  int // columns at the left for where a row begins
	halves  int // pixel rows a text row

	filtered bool // draw only what the filter shows
}

const (
	smallCellW = 10 // "✖1023 +99%"
	bigCellW   = 18 // two lines: rank and delta, device and ms
	bigCellH   = 3
	detailMost = 256 // ranks that start as cells with numbers
	gutterFrom = 40  // columns below which no room is spent on a gutter
)

func (g geometry) hasCells() bool { return g.cellW > 1 }

// layoutMap fits the ranks of s into r, with halves pixel rows a text row.
func layoutMap(r widget.Rect, s *page.State, level Level, order Order, halves int) geometry {
	if level == auto {
		level = closestLevel(r, s, order, halves)
	}
	g := geometry{
		level:  level,
		order:  order,
		per:    1,
		by:     1,
		cellW:  1,
		cellH:  1,
		halves: halves,
	}
	switch level {
	case Detail:
		g.arrangement = arrangeRanks(s, level, order, 1, 1)
		g.sizeCells(r, s.Roster.World())
	case Table:
		g.arrangement = arrangeRanks(s, level, order, 1, 1)
		g.cellW = max(2, r.W)
		g.columns = 1
		g.rows = max(1, r.H)
	case Job:
		g.sizeForJob(r, s)
	case Stage:
		g.sizeStages(r, s)
	default:
		g.arrangement = arrangeRanks(s, level, order, 1, 1)
		g.sizePixels(r, s.Roster.World())
	}
	g.total = (len(g.first) + g.columns - 1) / g.columns
	if s.Roster.World() > 0 {
		g.scrollTo(int(g.place[s.Rank()]) / g.columns)
	}
	return g
}

func (g *geometry) sizeCells(r widget.Rect, n int) {
	g.cellW = max(smallCellW+digitCount(n)-3, smallCellW-1)
	cols := columnCount(max(1, r.W/bigCellW), n, g.line)
	if (n+cols-1)/cols*bigCellH <= r.H {
		g.cellW, g.cellH = bigCellW, bigCellH
	}
	g.columns = columnCount(max(1, r.W/g.cellW), n, g.line)
	g.rows = max(1, r.H/g.cellH)
}

// jobCellW is the room of one replica in words: "r781 ✖12 ".
const jobCellW = 10

// sizeForJob gives each replica a cell, else a pixel, else several replicas one.
func (g *geometry) sizeForJob(r widget.Rect, s *page.State) {
	if fit := max(1, r.W/jobCellW); (s.DP+fit-1)/fit <= r.H {
		g.cellW = jobCellW
		g.columns = fit
		g.rows = max(1, r.H)
		g.arrangement = arrangeRanks(s, Job, Topology, 1, 1)
		return
	}
	g.roomFor(r, 10*s.DP)
	fit := max(1, (r.W-g.gutter)*g.rows)
	g.per = (s.DP + fit - 1) / fit
	g.arrangement = arrangeRanks(s, Job, Topology, g.per, 1)
	g.columns = max(1, min(r.W-g.gutter, len(g.first)))
}

// sizeStages gives each stage a row and each replica a column, or several.
func (g *geometry) sizeStages(r widget.Rect, s *page.State) {
	g.roomFor(r, 10*s.PP)
	w := max(1, r.W-g.gutter)
	g.per, g.by = (s.DP+w-1)/w, (s.PP+g.rows-1)/g.rows
	g.arrangement = arrangeRanks(s, Stage, Topology, g.per, g.by)
	g.columns = max(1, g.line)
}

func (g *geometry) sizePixels(r widget.Rect, n int) {
	g.roomFor(r, n)
	g.columns = pixelColumns(max(1, r.W-g.gutter), len(g.first), g.line, g.rows)
}

// roomFor spends columns on the gutter, which names numbers below n.
func (g *geometry) roomFor(r widget.Rect, n int) {
	if r.W >= gutterFrom {
		g.gutter = digitCount(n) + 1
		if g.level == Node {
			g.gutter = max(g.gutter, 7)
		}
	}
	g.rows = max(1, r.H*g.halves)
}

func digitCount(n int) int {
	return len(strconv.Itoa(max(1, n-1)))
}

// columnCount is the number of items in a row: a stage if one fits, else all that fit.
func columnCount(fit, items, line int) int {
	if line > 1 && line <= fit && line < items {
		return line
	}
	return max(1, min(fit, items))
}

// pixelColumns is how many pixels a row holds: one stage where all stages then
// fit below each other, else as many whole stages as fit side by side.
func pixelColumns(fit, items, line, rows int) int {
	one := columnCount(fit, items, line)
	if one != line || (items+one-1)/one <= rows {
		return one
	}
	return fit / line * line
}

// scrollTo keeps the cursor's row in view; with half blocks text rows stay whole.
func (g *geometry) scrollTo(row int) {
	if g.total <= g.rows {
		return
	}
	g.top = max(0, min(row-g.rows/2, g.total-g.rows))
	if !g.hasCells() {
		g.top -= g.top % g.halves
	}
}

// closestLevel is the nearest level at which everything fits; Stage always does.
func closestLevel(r widget.Rect, s *page.State, order Order, halves int) Level {
	for l := Detail; l > Stage; l-- {
		if l == Detail && s.Roster.World() > detailMost {
			continue
		}
		if g := layoutMap(r, s, l, order, halves); g.total <= g.rows {
			return l
		}
	}
	return Stage
}

// Rows is how many text rows the map takes of a rectangle at its own zoom.
func Rows(r widget.Rect, s *page.State) int {
	g := layoutMap(r, s, auto, Topology, 1)
	return min(r.H, g.total*g.cellH)
}

// itemAt is where the cursor is.
func (g geometry) itemAt(s *page.State) int {
	return int(g.place[s.Rank()])
}

// worstRankOf is the rank of an item that most needs a look: what the item shows.
func (g geometry) worstRankOf(s *page.State, item int) int32 {
	best, codes := g.first[item], s.Roster.Codes(s.Metric)
	if g.level >= Rank {
		return best
	}
	for r := best; int(r) < len(g.place); r++ {
		if int(g.place[r]) == item && codes[r] > codes[best] {
			best = r
		}
	}
	return best
}

// ranksWithin lists the ranks of the items from a to b, ascending.
func (g geometry) ranksWithin(a, b int) []int32 {
	var out []int32
	for r, i := range g.place {
		if int(i) >= a && int(i) <= b {
			out = append(out, int32(r))
		}
	}
	return out
}

// inSight counts those of some ranks that are in view, above and below.
func (g geometry) inSight(ranks []int32) (seen, above, below int) {
	for _, r := range ranks {
		switch row := int(g.place[r]) / g.columns; {
		case row < g.top:
			above++
		case row >= g.top+g.rows:
			below++
		default:
			seen++
		}
	}
	return seen, above, below
}

// itemsAtCell lists the items drawn at a cell of r: two where a cell holds two pixels.
func (g geometry) itemsAtCell(r widget.Rect, x, y int) []int {
	x = x - r.X - g.gutter
	y -= r.Y
	if x < 0 || y < 0 || y >= r.H || x/g.cellW >= g.columns {
		return nil
	}
	row := y / g.cellH
	rows := 1
	if !g.hasCells() {
		row = y * g.halves
		rows = g.halves
	}
	var out []int
	for i := range rows {
		item := (g.top+row+i)*g.columns + x/g.cellW
		if row+i < g.rows && item < len(g.first) {
			out = append(out, item)
		}
	}
	return out
}

// worstRankAt is the rank at a cell of r, the worst of several; there
// is none once the job has other ranks than were laid out.
func (g geometry) worstRankAt(s *page.State, r widget.Rect, x, y int) (rank int32, ok bool) {
	codes := s.Roster.Codes(s.Metric)
	if len(codes) != len(g.place) {
		return 0, false
	}
	for _, item := range g.itemsAtCell(r, x, y) {
		if worst := g.worstRankOf(s, item); !ok || codes[worst] > codes[rank] {
			rank, ok = worst, true
		}
	}
	return rank, ok
}

// cornerOfItem is where a rank's item begins in r; ok is false out of view.
func (g geometry) cornerOfItem(r widget.Rect, rank int32) (x, y int, ok bool) {
	item := int(g.place[rank])
	row := item/g.columns - g.top
	x = g.gutter + item%g.columns*g.cellW
	y = row * g.cellH
	if !g.hasCells() {
		y = row / g.halves
	}
	return r.X + x, r.Y + y, row >= 0 && row < g.rows && x < r.W && y < r.H
}

// visibleRaster is the visible part as pixels: the worst of each item.
func (g geometry) visibleRaster(s *page.State) *widget.Raster {
	pix := widget.NewRaster(g.columns, min(g.rows, g.total-g.top))
	for i := range pix.Pix {
		pix.Pix[i] = uint8(roster.None)
	}
	codes, lo := s.Roster.Codes(s.Metric), int32(g.top*g.columns)
	if g.filtered {
		g.aggregateOf(s.Matched(), codes, lo, pix.Pix)
	} else {
		g.aggregate(codes, lo, pix.Pix)
	}
	for i, code := range pix.Pix {
		pix.Pix[i] = page.Pixels[code]
	}
	return pix
}
