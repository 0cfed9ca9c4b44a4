// Package grid draws the job as pipeline stages (rows) by data-parallel
// replicas (columns): a slow stage shows as a row, a slow replica as a column,
// and the margins name the worst of each. Pure drawing; no I/O.
package grid

import (
	"fmt"
	"strconv"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// Page is the grid page.
type Page struct{}

// New makes the page.
func New() *Page { return &Page{} }

const detailRows = 3

// Want says that no series is needed.
func (p *Page) Want(widget.Rect) (columns, runLengths int) { return 1, 0 }

// Act moves the cursor by stage and replica.
func (p *Page) Act(a key.Action, s *page.State, _ widget.Rect) key.Scope {
	tp, dp, pp := s.Coord(s.Rank())
	switch a {
	case key.Left:
		dp--
	case key.Right:
		dp++
	case key.Up:
		pp--
	case key.Down:
		pp++
	case key.First:
		tp, dp, pp = 0, 0, 0
	case key.Last:
		tp, dp, pp = s.TP-1, s.DP-1, s.PP-1
	case key.Next:
		s.Step(+1)
		return ""
	case key.Prev:
		s.Step(-1)
		return ""
	case key.Metric:
		s.ToggleMetric()
		return ""
	case key.Open:
		s.Select(s.Rank())
		return key.Posterior
	}
	if dp >= 0 && dp < s.DP && pp >= 0 && pp < s.PP {
		s.Select(worstOf(s, dp, pp, tp, a))
	}
	return ""
}

// worstOf lands on the worst rank of a cell; First and Last mean what they say.
func worstOf(s *page.State, dp, pp, tp int, a key.Action) int32 {
	if a == key.First || a == key.Last {
		return s.At(tp, dp, pp)
	}
	best := s.At(0, dp, pp)
	for t := 1; t < s.TP; t++ {
		if r := s.At(t, dp, pp); heavier(s, r, best) {
			best = r
		}
	}
	return best
}

func heavier(s *page.State, a, b int32) bool {
	pa, pb := s.Pixel(view(s, a)), s.Pixel(view(s, b))
	if pa != pb {
		return pa > pb
	}
	xa, _ := s.Excess(view(s, a))
	xb, _ := s.Excess(view(s, b))
	return xa > xb
}

func view(s *page.State, r int32) *falconv1.RankView {
	if int(r) >= len(s.Ranks) {
		return nil
	}
	return s.Ranks[r]
}

// Draw draws the table, and below it the cursor's rank.
func (p *Page) Draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	top, rest := r.Rows(r.H - detailRows - 1)
	Table(c, top, s)
	legend := "C compute  L link  H host  F facility  ? unknown"
	s.Details(c, c.Rule(rest, "CURSOR", legend), s.Rank())
}

const (
	labelW   = 5 // "s127 "
	marginW  = 9 // " max cell"
	maxCellW = 12
	minCellW = 3
)

// Table draws title and grid in r.
func Table(c *widget.Canvas, r widget.Rect, s *page.State) {
	body := c.Rule(r, "GRID", fmt.Sprintf("stages × replicas  ·  worst of %d  ·  %s", s.TP, s.MetricName()))
	if len(s.Ranks) == 0 || body.H < 3 || len(s.Ranks) < s.TP*s.DP*s.PP {
		if body.H > 0 {
			page.Empty(c, body, "no layout known yet")
		}
		return
	}
	t := newTable(s, body)
	t.header(c, body)
	for row := range t.rows {
		t.row(c, body, row)
	}
	t.foot(c, body)
}

// table is the geometry of one drawing.
type table struct {
	s     *page.State
	per   int // replicas a column
	cols  int
	cellW int
	first int // first visible stage
	rows  int
}

func newTable(s *page.State, r widget.Rect) table {
	room := max(minCellW, r.W-labelW-marginW)
	t := table{s: s, per: 1, cellW: min(maxCellW, room/s.DP), rows: min(s.PP, r.H-2)}
	if t.cellW < minCellW {
		fit := max(1, room/minCellW)
		t.per = (s.DP + fit - 1) / fit
		t.cellW = minCellW
	}
	t.cols = (s.DP + t.per - 1) / t.per
	_, _, pp := s.Coord(s.Rank())
	t.first = max(0, min(pp-t.rows/2, s.PP-t.rows))
	return t
}

func (t table) header(c *widget.Canvas, r widget.Rect) {
	dim := c.Pal.Style(themes.Dim)
	c.Text(r.X, r.Y, labelW, "", dim)
	for col := range t.cols {
		label := "r" + strconv.Itoa(col*t.per)
		if widget.Width(label) >= t.cellW && col%2 == 1 {
			continue
		}
		c.Text(r.X+labelW+col*t.cellW, r.Y, max(t.cellW, widget.Width(label)), label, dim)
	}
	c.Text(r.X+labelW+t.cols*t.cellW+1, r.Y, marginW, "max", dim)
}

func (t table) row(c *widget.Canvas, r widget.Rect, row int) {
	stage := t.first + row
	y := r.Y + 1 + row
	c.Text(r.X, y, labelW, "s"+strconv.Itoa(stage), c.Pal.Style(themes.Dim))
	worst := int32(-1)
	for col := range t.cols {
		rank := t.worst(col, stage)
		if worst < 0 || heavier(t.s, rank, worst) {
			worst = rank
		}
		t.cell(c, widget.Rect{X: r.X + labelW + col*t.cellW, Y: y, W: t.cellW - 1, H: 1}, rank, t.holds(col, stage))
	}
	t.cell(c, widget.Rect{X: r.X + labelW + t.cols*t.cellW + 1, Y: y, W: marginW - 2, H: 1}, worst, false)
}

// foot draws the worst of every column; stages out of view count too.
func (t table) foot(c *widget.Canvas, r widget.Rect) {
	y := r.Y + 1 + t.rows
	if y >= r.Y+r.H {
		return
	}
	c.Text(r.X, y, labelW, "max", c.Pal.Style(themes.Dim))
	for col := range t.cols {
		worst := t.worst(col, 0)
		for stage := 1; stage < t.s.PP; stage++ {
			if rank := t.worst(col, stage); heavier(t.s, rank, worst) {
				worst = rank
			}
		}
		t.cell(c, widget.Rect{X: r.X + labelW + col*t.cellW, Y: y, W: t.cellW - 1, H: 1}, worst, false)
	}
}

// worst is the rank that a cell shows.
func (t table) worst(col, stage int) int32 {
	best := t.s.At(0, col*t.per, stage)
	for dp := col * t.per; dp < min(t.s.DP, (col+1)*t.per); dp++ {
		for tp := range t.s.TP {
			if r := t.s.At(tp, dp, stage); heavier(t.s, r, best) {
				best = r
			}
		}
	}
	return best
}

func (t table) holds(col, stage int) bool {
	_, dp, pp := t.s.Coord(t.s.Rank())
	return dp/t.per == col && pp == stage
}

// letter is the cause that an open incident names. An unhealthy rank that no
// incident explains carries a question mark; one that only waits for a culprit
// found elsewhere carries none.
func (t table) letter(rank int32, v *falconv1.RankView) rune {
	cause := t.s.Blamed(rank)
	switch {
	case !t.s.Anomalous(v):
		return ' '
	case cause == "" && v.Health == falconv1.RankHealth_RANK_HEALTH_SLOW && t.s.Explained():
		return ' '
	}
	return phrase.CauseLetter(cause)
}

// cell shows the state's glyph, the excess where it fits, and the letter of
// the cause.
func (t table) cell(c *widget.Canvas, r widget.Rect, rank int32, cursor bool) {
	v := view(t.s, rank)
	glyph, _, role := t.s.Health(v)
	st := c.Pal.Style(role)
	if c.Pal.HalfBlocks() && v != nil && t.s.Pixel(v) != widget.PixelLost && t.s.Pixel(v) != widget.PixelStale && !t.s.Ended(v) {
		st = c.Pal.Ink(c.Pal.Heat[t.s.Level(v)])
	}
	if cursor {
		st = st.With(themes.Bold | themes.Underline)
	}
	c.Fill(r, ' ', st)
	letter := t.letter(rank, v)
	mark := st
	if s := c.Pal.Style(role); s.BG != 0 {
		mark = s
	}
	c.Set(r.X, r.Y, glyph, mark)
	if r.W > 1 {
		c.Set(r.X+r.W-1, r.Y, letter, mark)
	}
	if x, ok := t.s.Excess(v); ok && r.W >= 7 {
		c.Right(r.X+r.W-2, r.Y, phrase.Percent(x), st)
	}
	if cursor {
		c.Set(r.X+r.W, r.Y, '←', c.Pal.Style(themes.Accent).With(themes.Bold))
	}
}
