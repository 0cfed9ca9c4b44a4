package ranks

import (
	"fmt"
	"math"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/posterior"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/roster"
	"github.com/failslow/falcon/tui/widget"
)

// SparkIterations is how many iterations of each rank a row shows.
const SparkIterations = 60

const (
	headRows    = 1
	deviceLeast = 6
	deviceMost  = 24
	chartLeast  = 8 // rows from which on a chart is worth its place
)

// tableShape is where the parts of the table page are.
type tableShape struct {
	title, head, rows, detail, chart widget.Rect
}

// shapeTable divides the page: as many rows as there are ranks, the rank's details, and what is
// left to its chart. Where not all of it fits the ranks scroll, and the details keep their rows.
func shapeTable(r widget.Rect, world int) tableShape {
	var t tableShape
	t.title, r = r.Rows(1)
	t.head, r = r.Rows(headRows)
	const details = 1 + detailRows + page.AboutRows
	t.rows, r = r.Rows(max(1, min(world, r.H-details)))
	if r.H-details < chartLeast {
		t.detail = r
		return t
	}
	t.detail, t.chart = r.Rows(details)
	return t
}

// tableColumns are the widths of what a row shows; 0 = left out.
type tableColumns struct {
	rank, device, time int
	spark, per         int // cells of the sparkline, and iterations in each
}

// column is one number of a row, with the metric by which it is coloured.
type column struct {
	name   string
	width  int
	metric roster.Metric
	text   func(*falconv1.RankView) string
}

// numbers are those of every row.
var numbers = []column{
	{"self", 6, roster.Self, selfText},
	{"wait", 7, roster.Wait, waitText},
	{"MHz", 4, roster.Clock, func(v *falconv1.RankView) string { return known(v.GetSmClockMhz()) }},
	{"°C", 3, roster.Temperature, func(v *falconv1.RankView) string { return known(v.GetTemperatureC()) }},
	{"CNP/s", 5, roster.CNP, cnpText},
	{"slow", 5, roster.Slowdown, slowText},
}

const (
	markW  = 1
	stateW = 11 // glyph and word
	timeW  = 8
)

// fitColumns divides w columns, as wide as the names of the ranks that are shown need it.
func fitColumns(w int, s *page.State, shown []int32) tableColumns {
	c := tableColumns{
		rank:   max(4, digitCount(s.Roster.World())),
		device: deviceLeast,
		per:    1,
	}
	for _, rank := range shown {
		c.device = max(c.device, min(deviceMost, widget.Width(s.Roster.View(rank).GetDevice())))
	}
	room := w - c.rank - markW - c.device - 1 - stateW
	for _, n := range numbers {
		room -= n.width + 1
	}
	if room >= SparkIterations+timeW+1 {
		c.time = timeW
		room = room - timeW - 1
	}
	if room < 1 || len(s.Snap().GetRecent().GetMs()) == 0 {
		return c
	}
	c.per = (SparkIterations + room - 1) / room
	c.spark = (SparkIterations + c.per - 1) / c.per
	return c
}

// drawTable draws the page as a table of ranks.
func (p *Page) drawTable(c *widget.Canvas, r widget.Rect, s *page.State) {
	t := shapeTable(r, s.Roster.World())
	g := p.layoutTable(t.rows, s)
	right := s.Key(key.Ranks, key.ZoomOut) + " heat map  ·  " + g.titleText(s)
	c.Rule(t.title, g.headingText(), p.rangeText(s)+right)
	if s.Roster.World() == 0 {
		page.Empty(c, r, page.NoRanks(s))
		return
	}
	shown := g.first[g.top:min(len(g.first), g.top+g.rows)]
	cols := fitColumns(t.rows.W, s, shown)
	cols.drawHead(c, t.head, s)
	marked := p.markedRanks(s, g)
	for i, rank := range shown {
		row := widget.Rect{
			X: t.rows.X,
			Y: t.rows.Y + i,
			W: t.rows.W,
			H: 1,
		}
		cols.drawRow(c, row, s, rank, marked(rank), !g.filtered || s.Shown(rank))
	}
	s.Details(c, c.Rule(t.detail, "CURSOR", s.Legend()), s.Rank())
	if !t.chart.Empty() {
		posterior.Chart(c, t.chart, s)
	}
}

// List draws the ranks in rows for other pages, with the chosen one's details, and what it was
// named for and tested; without a chart.
func List(c *widget.Canvas, r widget.Rect, s *page.State) {
	New().drawTable(
		c,
		widget.Rect{
			X: r.X,
			Y: r.Y,
			W: r.W,
			H: min(r.H, ListRows(s)),
		},
		s,
	)
}

// ListRows is what List takes where there is room.
func ListRows(s *page.State) int {
	return 1 + headRows + s.Roster.World() + 1 + detailRows + page.AboutRows
}

// layoutTable is the table's geometry: an item a row.
func (p *Page) layoutTable(rows widget.Rect, s *page.State) geometry {
	g := layoutMap(rows, s, Table, p.order, 1)
	g.filtered = s.RankFilter() != ""
	return g
}

// drawHead names the columns; the one of the chosen metric stands out.
func (t tableColumns) drawHead(c *widget.Canvas, r widget.Rect, s *page.State) {
	pen := c.Pen(r).Putf(themes.Dim, "%*s %-*s %-*s",
		t.rank, "rank", t.device, "device", stateW, "state")
	for _, n := range numbers {
		role := themes.Dim
		if s.Roster.Resolve(s.Metric) == n.metric {
			role = themes.Title
		}
		pen.Putf(role, "%*s", n.width, n.name).Space(1)
	}
	if t.time > 0 {
		pen.Putf(themes.Dim, "%*s ", t.time, "iter")
	}
	if t.spark == 0 {
		return
	}
	for _, text := range []string{
		fmt.Sprintf("last %d iterations, 0 to %s", SparkIterations, phrase.Ms(sparkTop(s))),
		fmt.Sprintf("last %d, 0-%s", SparkIterations, phrase.Ms(sparkTop(s))),
	} {
		if pen.Fits(text) {
			pen.Put(themes.Dim, text)
			return
		}
	}
}

// sparkTop is the value at a sparkline's top edge: the same for all ranks, so that they compare.
func sparkTop(s *page.State) float64 {
	top := 0.0
	for _, x := range s.Snap().GetRecent().GetMs() {
		if y := float64(x); !math.IsNaN(y) && !math.IsInf(y, 0) {
			top = max(top, y)
		}
	}
	return widget.NiceTop(top)
}

func (t tableColumns) drawRow(
	c *widget.Canvas,
	r widget.Rect,
	s *page.State,
	rank int32,
	marked, shown bool,
) {
	v := s.Roster.View(rank)
	text := themes.Text
	if !shown {
		text = themes.Dim
	}
	glyph, word, role := s.Health(v)
	pen := c.Pen(r)
	if rank == s.Rank() {
		pen = c.SelectedPen(r)
		c.Focus(r.X, r.Y)
	}
	c.Hit(r, widget.Target{Kind: widget.TargetRank, N: int64(rank)})
	mark := " "
	if marked {
		mark = "■"
	}
	pen.Putf(text, "%*d", t.rank, rank).
		Put(themes.Accent, mark).
		Putf(text, "%-*s ", t.device, widget.Cut(v.GetDevice(), t.device))
	if !shown {
		pen.Put(role, string(glyph))
		return
	}
	pen.Putf(role, "%c %-*s", glyph, stateW-2, widget.Cut(word, stateW-3))
	for _, n := range numbers {
		drawNumber(c, pen, s, v, n)
	}
	if t.time > 0 {
		pen.Putf(text, "%*s ", t.time, timeText(v))
	}
	t.drawSpark(
		c,
		widget.Rect{
			X: pen.X,
			Y: r.Y,
			W: min(t.spark, pen.Left()),
			H: 1,
		},
		s,
		rank,
	)
	pen.Space(min(t.spark, pen.Left()))
	cause := phrase.Cause(s.Blamed(rank))
	if s.Blamed(rank) != "" && pen.Left() > 1 {
		pen.Put(themes.Warn, " "+widget.Cut(cause, pen.Left()-1))
	}
}

// drawNumber draws one number; that of the chosen metric in its level's colour, as a map has it.
func drawNumber(c *widget.Canvas, pen *widget.Pen, s *page.State, v *falconv1.RankView, n column) {
	text := fmt.Sprintf("%*s", n.width, n.text(v))
	level, ok := s.Roster.LevelOf(n.metric, v)
	switch {
	case s.Roster.Resolve(s.Metric) != n.metric || !ok || !s.Taking(v):
		pen.Put(themes.Text, text)
	case c.Pal.HalfBlocks() && !c.ASCII:
		pen.Style(c.Pal.Ink(c.Pal.Heat[level]), text)
	case level > 0:
		pen.Put(themes.Warn, text)
	default:
		pen.Put(themes.Text, text)
	}
	pen.Space(1)
}

func (t tableColumns) drawSpark(c *widget.Canvas, r widget.Rect, s *page.State, rank int32) {
	if r.Empty() {
		return
	}
	c.Bars(r, widget.Bars{
		Values: sparkValues(s.Snap().GetRecent(), rank, t.per, r.W),
		Max:    sparkTop(s),
		Cursor: -1,
		Style:  func(int) themes.Style { return c.Pal.Style(themes.Text) },
	})
}

// sparkValues are a rank's newest iterations in cells of per iterations each, the newest in the
// last: the slowest of a cell, never a mean; NaN where none is known.
func sparkValues(recent *falconv1.Recent, rank int32, per, cells int) []float64 {
	n := int(recent.GetColumns())
	out := make([]float64, cells)
	for i := range out {
		out[i] = math.NaN()
	}
	if n < 1 || len(recent.GetMs()) < (int(rank)+1)*n {
		return out
	}
	own := recent.Ms[int(rank)*n : (int(rank)+1)*n]
	for back := range min(n, per*cells) {
		at := cells - 1 - back/per
		ms := float64(own[n-1-back])
		if ms > 0 && !math.IsInf(ms, 0) && !(out[at] >= ms) {
			out[at] = ms
		}
	}
	return out
}

func selfText(v *falconv1.RankView) string {
	if v.GetSelfRatio() <= 0 {
		return "—"
	}
	return fmt.Sprintf("%.2f×", v.SelfRatio)
}

func waitText(v *falconv1.RankView) string {
	if v.GetSelfRatio() <= 0 || v.GetWaitMs() < 0 {
		return "—"
	}
	return phrase.Ms(v.WaitMs)
}

func slowText(v *falconv1.RankView) string {
	if v.GetMs() <= 0 {
		return "—"
	}
	return phrase.Percent(v.Slowdown)
}

func timeText(v *falconv1.RankView) string {
	if v.GetMs() <= 0 {
		return "—"
	}
	return phrase.Ms(v.Ms)
}

func cnpText(v *falconv1.RankView) string {
	if v == nil || v.CnpPerS < 0 {
		return "—"
	}
	return page.Thousands(v.CnpPerS)
}

func known(x uint32) string {
	if x == 0 {
		return "—"
	}
	return fmt.Sprint(x)
}
