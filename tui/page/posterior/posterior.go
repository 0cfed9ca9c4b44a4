// Package posterior draws one rank's iteration time above its BOCD run-length
// posterior, on one time axis: a column is an iteration, the newest at the
// right edge.
//
// The heat shows log10 P of each run length, relative to its column's
// maximum, in seven steps from 1e-6 to 1; below it the strip P(r ≤ w) with the
// alarm's threshold. Pure drawing; no I/O.
package posterior

import (
	"fmt"
	"math"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// labelW is the room for the axis left of every part.
const labelW = 7

// RunLengths are asked for: 0 to 126 and the tail.
const RunLengths = 128

// Page is the posterior page.
type Page struct {
	hair int64 // iteration under the hairline, -1 = none
}

// New makes the page.
func New() *Page { return &Page{hair: -1} }

// At is the iteration under the hairline.
func (p *Page) At() (iteration int64, chosen bool) { return p.hair, p.hair >= 0 }

// SetAt puts the hairline on an iteration.
func (p *Page) SetAt(iteration int64) { p.hair = iteration }

// Want asks for as many iterations as fit, and for the posterior where it is
// drawn.
func (p *Page) Want(r widget.Rect) (columns, runLengths int) {
	if heatRows(r) > 0 {
		runLengths = RunLengths
	}
	return max(1, r.W-labelW), runLengths
}

// Act moves the hairline and the rank.
func (p *Page) Act(a key.Action, s *page.State, r widget.Rect) key.Scope {
	v := newView(r, s.Snap().GetSeries())
	switch a {
	case key.Left:
		p.move(v, -1)
	case key.Right:
		p.move(v, +1)
	case key.First:
		p.hair = v.oldest()
	case key.Last:
		p.hair = -1
	case key.Up:
		s.Select(s.Rank() - 1)
	case key.Down:
		s.Select(s.Rank() + 1)
	case key.Next:
		p.mark(v, +1)
	case key.Prev:
		p.mark(v, -1)
	}
	return ""
}

func (p *Page) move(v view, by int64) {
	if v.n == 0 {
		return
	}
	if p.hair < 0 {
		p.hair = v.newest() + 1
	}
	p.hair = max(v.oldest(), min(v.newest(), p.hair+by))
}

// mark jumps to the next or previous mark on screen.
func (p *Page) mark(v view, direction int64) {
	from := p.hair
	if from < 0 {
		from = v.newest() + 1
		if direction > 0 {
			from = v.oldest() - 1
		}
	}
	best := int64(-1)
	for _, m := range v.s.GetMarks() {
		i := m.Iteration
		if i < v.oldest() || i > v.newest() || (i-from)*direction <= 0 {
			continue
		}
		if best < 0 || (best-i)*direction > 0 {
			best = i
		}
	}
	if best >= 0 {
		p.hair = best
	}
}

// heatRows is the room for the posterior; 0 where only chart and strip fit.
func heatRows(r widget.Rect) int {
	if r.H < 26 {
		return 0
	}
	return min(2*themes.Levels+6, r.H/2)
}

// Draw draws chart, marks, posterior, strip and numbers from top to bottom.
func (p *Page) Draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	v := newView(r, s.Snap().GetSeries())
	rows := heatRows(r)
	stripRows := 2
	if r.H >= 16 {
		stripRows = 3
	}
	bottom := stripRows + 1 + 3
	if rows > 0 {
		bottom += rows + 1
	}
	chart, rest := r.Rows(r.H - bottom)
	title := fmt.Sprintf("ITERATION TIME rank %d", v.s.GetRank())
	p.chart(c, chart, v, title)
	if v.n == 0 {
		return
	}
	if rows > 0 {
		var heat widget.Rect
		heat, rest = rest.Rows(rows + 1)
		body := c.Rule(heat, "RUN-LENGTH POSTERIOR", "log10 P 1e-6 … 1 of each column's maximum  ◆ most probable")
		v.heat(c, body, p.hair)
	}
	strip, text := rest.Rows(stripRows + 1)
	body := c.Rule(strip, "P(r ≤ w)", fmt.Sprintf("alarm above %.2f", v.s.GetThreshold()))
	v.strip(c, body, p.hair)
	p.text(c, text, v, s)
}

// Chart draws the iteration time of the series for other pages.
func Chart(c *widget.Canvas, r widget.Rect, s *page.State) {
	v := newView(r, s.Snap().GetSeries())
	(&Page{hair: -1}).chart(c, r, v, fmt.Sprintf("ITERATION TIME rank %d", v.s.GetRank()))
}

// Strip draws P(r ≤ w) for other pages.
func Strip(c *widget.Canvas, r widget.Rect, s *page.State) {
	v := newView(r, s.Snap().GetSeries())
	body := c.Rule(r, "P(r ≤ w)", fmt.Sprintf("alarm above %.2f", v.s.GetThreshold()))
	if v.n > 0 {
		v.strip(c, body, -1)
	}
}

func (p *Page) chart(c *widget.Canvas, r widget.Rect, v view, title string) {
	right := "▼ onset  A applied  R reverted  ✓ relief"
	if _, beyond := v.scale(); beyond > 0 {
		right = "↑ up to " + phrase.Ms(beyond) + "  " + right
	}
	body := c.Rule(r, title, right)
	if v.n == 0 {
		page.Empty(c, body, "no iterations yet: the series starts when agents report samples")
		return
	}
	body, marks := body.Rows(body.H - 1)
	v.bars(c, body, p.hair)
	v.marks(c, marks)
}

// text explains the column under the hairline, or the newest.
func (p *Page) text(c *widget.Canvas, r widget.Rect, v view, s *page.State) {
	at, what := v.newest(), "newest"
	if p.hair >= 0 && p.hair >= v.oldest() && p.hair <= v.newest() {
		at, what = p.hair, "hairline"
	}
	i := int(at - v.s.FirstIteration)
	ms := float64(v.s.Ms[i])
	row, rest := r.Rows(1)
	pen := c.Pen(row).Putf(themes.Title, "iteration %s", phrase.Count(at)).Putf(themes.Dim, " (%s)", what)
	pen.Putf(themes.Text, "  %.1f ms  %s vs baseline %s", ms, phrase.Change(v.s.BaselineMs, ms), phrase.Ms(v.s.BaselineMs))
	row, rest = rest.Rows(1)
	pen = c.Pen(row)
	if i < len(v.s.Probability) {
		pen.Putf(alarmRole(v, i), "P(r ≤ w) %.3f", v.s.Probability[i])
	}
	if i < len(v.s.MapRunLength) {
		pen.Putf(themes.Text, "  most probable run %d iterations", v.s.MapRunLength[i])
		if i > 0 {
			pen.Putf(themes.Dim, " (was %d)", v.s.MapRunLength[i-1])
		}
	}
	for _, m := range v.s.Marks {
		if m.Iteration == at {
			pen.Putf(themes.Accent, "  %s", m.Kind)
		}
	}
	s.Details(c, rest, v.s.GetRank())
}

func alarmRole(v view, i int) themes.Role {
	if float64(v.s.Probability[i]) > v.threshold() {
		return themes.Bad
	}
	return themes.Text
}

// view maps columns to iterations: the newest at the right edge.
type view struct {
	s     *falconv1.Series
	n     int // iterations on screen
	width int // columns
}

func newView(r widget.Rect, s *falconv1.Series) view {
	if s == nil {
		s = &falconv1.Series{}
	}
	v := view{s: s, width: max(0, r.W-labelW)}
	v.n = min(v.width, len(s.Ms))
	return v
}

func (v view) newest() int64 { return v.s.FirstIteration + int64(len(v.s.Ms)) - 1 }
func (v view) oldest() int64 { return v.newest() - int64(v.n) + 1 }

// column is where an iteration is drawn, -1 if it isn't.
func (v view) column(i int64) int {
	if v.n == 0 || i < v.oldest() || i > v.newest() {
		return -1
	}
	return v.width - 1 - int(v.newest()-i)
}

// index is the place in the series of what a column shows, -1 for none.
func (v view) index(col int) int {
	i := len(v.s.Ms) - (v.width - col)
	if col < v.width-v.n || i < 0 {
		return -1
	}
	return i
}

func (v view) threshold() float64 {
	if v.s.Threshold > 0 {
		return v.s.Threshold
	}
	return 0.9
}

func (v view) values(from []float32) []float64 {
	out := make([]float64, v.width)
	for col := range out {
		out[col] = math.NaN()
		if i := v.index(col); i >= 0 && i < len(from) {
			out[col] = float64(from[i])
		}
	}
	return out
}
