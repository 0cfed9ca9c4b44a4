// Package grid draws the job as pipeline stages (rows) by data-parallel
// replicas (columns): a slow stage shows as a row, a slow replica as a column,
// and the margins name the worst of each. Pure drawing; no I/O.
package grid

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/posterior"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/roster"
	"github.com/failslow/falcon/tui/widget"
)

// Page is the grid page.
type Page struct {
	alone bool // the grid fills the page, as last drawn
}

// New makes the page.
func New() *Page { return &Page{} }

const (
	detailRows = 3
	chartLeast = 8 // rows from which on a chart is worth its place
	tableExtra = 4 // title, head, foot, and the names of links
)

// Want asks for the cursor's series where it is drawn.
func (p *Page) Want(r widget.Rect) (columns, runLengths int) {
	return max(1, r.W-posterior.LabelWidth), 0
}

// Near asks for what the details of a rank say: the processes come with an iteration.
func (p *Page) Near(s *page.State) (iterations int, tests bool) {
	if s.Roster.World() >= page.Few {
		return 0, false
	}
	return 1, true
}

// tableRect is where the table is drawn, its title included.
func (p *Page) tableRect(r widget.Rect, s *page.State) widget.Rect {
	if p.alone {
		return r
	}
	top, _, _ := shapePage(r, s)
	return top
}

// shapePage divides the page: the stages, the cursor's rank, and what few stages leave to its
// chart.
func shapePage(r widget.Rect, s *page.State) (table, detail, chart widget.Rect) {
	table, detail = r.Rows(r.H - detailRows - 1)
	spare := table.H - tableExtra - s.PP
	if !isComplete(s) || spare < chartLeast+page.AboutRows {
		return table, detail, widget.Rect{}
	}
	table, r = r.Rows(s.PP + tableExtra)
	detail, chart = r.Rows(1 + detailRows + page.AboutRows)
	chart.H = min(chart.H, 2*r.H/3) // a taller one costs a slow line too many bytes a second
	return table, detail, chart
}

// Act moves the cursor by stage and column.
func (p *Page) Act(a key.Action, s *page.State, r widget.Rect) key.Scope {
	switch a {
	case key.Next:
		s.Step(+1)
	case key.Prev:
		s.Step(-1)
	case key.Metric:
		s.ToggleMetric()
	case key.First:
		s.Select(0)
	case key.Last:
		s.Select(s.At(s.TP-1, s.DP-1, s.PP-1))
	case key.Open:
		s.Select(s.Rank())
		return key.Posterior
	case key.Left, key.Right, key.Up, key.Down:
		if isComplete(s) {
			_, body := p.tableRect(r, s).Rows(1)
			moveCursor(a, s, newNodeTable(s, body))
		}
	}
	return ""
}

// moveCursor lands on the worst rank of the next cell.
func moveCursor(a key.Action, s *page.State, t *table) {
	_, dp, pp := s.Coord(s.Rank())
	col := dp / t.per
	switch a {
	case key.Left:
		col--
	case key.Right:
		col++
	case key.Up:
		pp--
	case key.Down:
		pp++
	}
	if col >= 0 && col < t.cols && pp >= 0 && pp < s.PP {
		s.Select(t.worstRankOf(col, pp))
	}
}

// isComplete reports whether every place of the layout has a rank.
func isComplete(s *page.State) bool {
	n := s.Roster.World()
	return s.TP <= n && s.DP <= n/s.TP && s.PP <= n/(s.TP*s.DP) // without overflow
}

// Draw draws the table, below it the cursor's rank, and its chart where there is room.
func (p *Page) Draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	p.alone = false
	table, detail, chart := shapePage(r, s)
	Table(c, table, s)
	legend := "C compute  L link  H host  B bubble  F facility  ? unknown"
	s.Details(c, c.Rule(detail, "CURSOR", legend), s.Rank())
	if !chart.Empty() {
		posterior.Chart(c, chart, s)
	}
}

// Panes are the parts that can fill the page alone.
func (p *Page) Panes(s *page.State) []page.Pane {
	if !isComplete(s) {
		return nil
	}
	return []page.Pane{{
		Name: "grid",
		Draw: func(c *widget.Canvas, r widget.Rect, s *page.State) {
			p.alone = true
			Table(c, r, s)
		},
	}}
}

const (
	labelW   = 5 // "s127 "
	marginW  = 9 // " max cell"
	maxCellW = 12
	minCellW = 3
)

// Table draws title and grid in r.
func Table(c *widget.Canvas, r widget.Rect, s *page.State) {
	_, body := r.Rows(1)
	if !isComplete(s) || body.H < 3 {
		c.Rule(r, "GRID", "stages × replicas")
		if body.H > 0 {
			page.Empty(c, body, "no layout known yet")
		}
		return
	}
	t := newNodeTable(s, body)
	c.Rule(r, "GRID", t.titleText())
	t.drawHeader(c, body)
	for row := range t.rows {
		t.drawRow(c, body, row)
	}
	t.drawFoot(c, body)
	t.drawLinkNames(c, body)
}

// table is the geometry of one drawing, and what its cells show.
type table struct {
	s     *page.State
	per   int // replicas a column
	cols  int
	cellW int
	first int // first visible stage
	rows  int

	codes  []roster.Code
	worsts []int32      // by stage and column: the rank that the cell shows
	ends   map[int]bool // cells, likewise, that a suspicious link ends in
	named  []string     // those links

	compared [2]falconv1.RankView // used again: a cell is the gravest of many ranks
}

func newNodeTable(s *page.State, r widget.Rect) *table {
	room := max(minCellW, r.W-labelW-marginW)
	t := &table{
		s:     s,
		per:   1,
		cellW: min(maxCellW, room/s.DP),
		rows:  max(0, min(s.PP, r.H-2)),
	}
	if t.cellW < minCellW {
		fit := max(1, room/minCellW)
		t.per = (s.DP + fit - 1) / fit
		t.cellW = minCellW
	}
	t.cols = (s.DP + t.per - 1) / t.per
	_, _, pp := s.Coord(s.Rank())
	t.first = max(0, min(pp-t.rows/2, s.PP-t.rows))
	t.aggregate()
	t.markLinkEnds()
	return t
}

// aggregate finds the rank that each cell shows: the gravest by what must be
// seen, of equals above the lowest level the slowest, else the lowest number.
func (t *table) aggregate() {
	s := t.s
	t.codes = s.Roster.Codes(s.Metric)
	t.worsts = make([]int32, s.PP*t.cols)
	for i := range t.worsts {
		t.worsts[i] = -1
	}
	rank := int32(0)
	for pp := range s.PP {
		for dp := range s.DP {
			at := &t.worsts[pp*t.cols+dp/t.per]
			for range s.TP {
				if *at < 0 || t.heavierThan(rank, *at) {
					*at = rank
				}
				rank++
			}
		}
	}
}

func (t *table) heavierThan(a, b int32) bool {
	if t.codes[a] != t.codes[b] {
		return t.codes[a] > t.codes[b]
	}
	if t.codes[a] <= roster.Level0 {
		return false
	}
	t.s.Roster.Fill(&t.compared[0], a)
	t.s.Roster.Fill(&t.compared[1], b)
	x, _ := t.s.Excess(&t.compared[0])
	y, _ := t.s.Excess(&t.compared[1])
	return x > y
}

// worstRankOf is the rank that a cell shows.
func (t *table) worstRankOf(col, stage int) int32 {
	return t.worsts[stage*t.cols+col]
}

func (t *table) titleText() string {
	text := "stages × replicas"
	if t.rows < t.s.PP {
		text = fmt.Sprintf("stages %d to %d of %d × replicas",
			t.first, t.first+t.rows-1, t.s.PP)
	}
	return fmt.Sprintf("%s  ·  worst of %d  ·  %s", text, t.s.TP*t.per, t.s.MetricName())
}

// markLinkEnds notes where suspicious links end: those that open incidents name, and
// those that the newest validation found slow.
func (t *table) markLinkEnds() {
	for _, i := range t.s.Snap().Incidents {
		if page.Open(i) {
			t.named = append(t.named, i.GetVerdict().GetLinks()...)
		}
	}
	for _, l := range t.s.Snap().GetValidation().GetLinks() {
		if l.GetSlow() && l.GetLink() != "" {
			t.named = append(t.named, l.Link)
		}
	}
	slices.Sort(t.named)
	t.named = slices.Compact(t.named)
	t.ends = map[int]bool{}
	for _, name := range t.named {
		a, b, _ := strings.Cut(name, "-")
		for _, r := range t.s.RanksOn(a, b) {
			if _, dp, pp := t.s.Coord(r); pp < t.s.PP {
				t.ends[pp*t.cols+dp/t.per] = true
			}
		}
	}
}

// drawLinkNames names the suspicious links below the table.
func (t *table) drawLinkNames(c *widget.Canvas, r widget.Rect) {
	y := t.rows + 2
	if len(t.named) == 0 || y >= r.H {
		return
	}
	p := c.Pen(widget.Rect{X: r.X, Y: r.Y + y, W: r.W, H: 1}).Put(themes.Warn,
		"≈ ends of a suspicious link: ")
	p.Put(themes.Text, strings.Join(t.named, ", "))
}

func (t *table) drawHeader(c *widget.Canvas, r widget.Rect) {
	dim := c.Pal.Style(themes.Dim)
	c.Text(r.X, r.Y, labelW, "", dim)
	end := r.X + labelW + t.cols*t.cellW // where the margin begins
	for col := range t.cols {
		label := "r" + strconv.Itoa(col*t.per)
		x := r.X + labelW + col*t.cellW
		if widget.Width(label) >= t.cellW && col%2 == 1 || x+widget.Width(label) > end {
			continue
		}
		c.Text(x, r.Y, max(t.cellW, widget.Width(label)), label, dim)
	}
	c.Text(end+1, r.Y, marginW, "max", dim)
}

func (t *table) drawRow(c *widget.Canvas, r widget.Rect, row int) {
	stage := t.first + row
	y := r.Y + 1 + row
	c.Text(r.X, y, labelW, "s"+strconv.Itoa(stage), c.Pal.Style(themes.Dim))
	worst := int32(-1)
	for col := range t.cols {
		rank := t.worstRankOf(col, stage)
		if worst < 0 || t.heavierThan(rank, worst) {
			worst = rank
		}
		at := widget.Rect{
			X: r.X + labelW + col*t.cellW,
			Y: y,
			W: t.cellW - 1,
			H: 1,
		}
		t.drawCell(c, at, rank, t.holdsRank(col, stage))
		if t.ends[stage*t.cols+col] && !t.holdsRank(col, stage) {
			c.Set(at.X+at.W, y, '≈', c.Pal.Style(themes.Warn).With(themes.Bold))
		}
	}
	t.drawCell(
		c,
		widget.Rect{
			X: r.X + labelW + t.cols*t.cellW + 1,
			Y: y,
			W: marginW - 2,
			H: 1,
		},
		worst,
		false,
	)
}

// drawFoot draws the worst of every column; stages out of view count too.
func (t *table) drawFoot(c *widget.Canvas, r widget.Rect) {
	y := r.Y + 1 + t.rows
	if y >= r.Y+r.H {
		return
	}
	c.Text(r.X, y, labelW, "max", c.Pal.Style(themes.Dim))
	for col := range t.cols {
		worst := t.worstRankOf(col, 0)
		for stage := 1; stage < t.s.PP; stage++ {
			if rank := t.worstRankOf(col, stage); t.heavierThan(rank, worst) {
				worst = rank
			}
		}
		t.drawCell(
			c,
			widget.Rect{
				X: r.X + labelW + col*t.cellW,
				Y: y,
				W: t.cellW - 1,
				H: 1,
			},
			worst,
			false,
		)
	}
}

func (t *table) holdsRank(col, stage int) bool {
	_, dp, pp := t.s.Coord(t.s.Rank())
	return dp/t.per == col && pp == stage
}

// waitsFrom is the share of an iteration, in percent, from which a rank is slow
// because it waits for others: the pipeline's bubble, not its own work.
const waitsFrom = 30

// causeLetter is the cause that an open incident names. A slow rank that none names
// carries B where waiting fills its time; else a question mark, unless the
// incident's culprits are elsewhere and explain it.
func (t *table) causeLetter(rank int32, v *falconv1.RankView) rune {
	cause := t.s.Blamed(rank)
	slow := v.GetHealth() == falconv1.RankHealth_RANK_HEALTH_SLOW
	share, measured := t.s.Roster.Value(roster.Wait, v)
	switch {
	case !t.s.Anomalous(v):
		return ' '
	case cause == "" && slow && measured && share >= waitsFrom && roster.SelfLevel(v.SelfRatio) < 2:
		return 'B'
	case cause == "" && slow && t.s.Explained():
		return ' '
	}
	return phrase.CauseLetter(cause)
}

// drawCell shows the state's glyph, the excess where it fits, and the cause's letter.
func (t *table) drawCell(c *widget.Canvas, r widget.Rect, rank int32, cursor bool) {
	v := t.s.Roster.View(rank)
	glyph, _, role := t.s.Health(v)
	st := c.Pal.Style(role)
	n, ok := t.s.Roster.LevelOf(t.s.Metric, v)
	if ok && c.Pal.HalfBlocks() && t.s.Taking(v) {
		st = c.Pal.Ink(c.Pal.Heat[n])
	}
	if cursor {
		st = st.With(themes.Bold | themes.Underline)
	}
	c.Fill(r, ' ', st)
	c.Hit(r, widget.Target{Kind: widget.TargetRank, N: int64(rank)})
	letter := t.causeLetter(rank, v)
	mark := st
	if s := c.Pal.Style(role); s.BG != 0 {
		mark = s
	}
	c.Set(r.X, r.Y, glyph, mark)
	if r.W > 1 {
		c.Set(r.X+r.W-1, r.Y, letter, mark)
	}
	if r.W >= 7 {
		c.Right(r.X+r.W-2, r.Y, t.s.Reading(v), st)
	}
	if cursor {
		c.Focus(r.X, r.Y)
		c.Set(
			r.X+r.W,
			r.Y,
			widget.CursorMark,
			c.Pal.Style(themes.Accent).With(themes.Bold),
		)
	}
}
