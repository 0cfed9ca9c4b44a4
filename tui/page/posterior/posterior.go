// Package posterior draws one rank's iteration time above its BOCD run-length
// posterior, on one time axis: a column is an iteration, the newest at the
// right edge unless the operator has gone back in time.
//
// The heat shows log10 P of each run length, relative to its column's
// maximum, in seven steps from 1e-6 to 1, with the most probable run length
// over it; below it the strip P(r ≤ w) with the alarm's threshold. The bars are the
// rank's; posterior and strip are states of the filter of the job's series, which
// raises the alarms, each as it was after its iteration. What decided an alarm is
// a fact of the engine's (ChangeDecision), also where that was no filter. Of an engine
// from before these facts the posterior is one computed from the rank's times, and the page
// says so. Pure drawing and the operator's hairline; no I/O.
package posterior

import (
	"fmt"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/charts"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// LabelWidth is the room for the axis left of every part.
const LabelWidth = 7

// Run lengths to request, the last of them the tail: as many as a screen has rows for.
const (
	RunLengths     = 128
	RunLengthsTall = 256
	tallH          = 45
)

// pastStep rounds a request for the past, so that not every iteration changes it.
const pastStep = 64

// pastMost bounds it; the engine has a bound of its own.
const pastMost = 1024

// Page is the posterior page.
type Page struct {
	hair int64 // iteration under the hairline, -1 = none
	end  int64 // newest iteration on screen; following = the newest there is
	past int   // iterations between what is to be on screen and the newest

	run    charts.View
	charts bool // the course of the run is shown in place of the newest iterations
}

// New makes the page.
func New() *Page {
	return &Page{hair: -1, end: following}
}

// At is the iteration under the hairline.
func (p *Page) At() (iteration int64, chosen bool) {
	return p.hair, p.hair >= 0
}

// SetAt puts the hairline on an iteration.
func (p *Page) SetAt(iteration int64) {
	p.hair, p.end = iteration, following
}

// Want asks for as many iterations as fit, and for those up to the present.
func (p *Page) Want(r widget.Rect) (columns, runLengths int) {
	runLengths = RunLengths
	if r.H >= tallH {
		runLengths = RunLengthsTall
	}
	columns = max(1, r.W-LabelWidth)
	if p.end != following || p.hair >= 0 {
		columns += (p.past/pastStep + 2) * pastStep
	}
	return columns, runLengths
}

// seriesView is what is on screen: a hairline that is about to leave it holds it.
func (p *Page) seriesView(r widget.Rect, s *page.State) view {
	end := p.end
	v := newSeriesView(r, s.Snap().GetSeries(), end)
	if end == following && p.hair >= 0 && v.n > 0 && p.hair < v.oldestIteration() {
		end = p.hair + int64(v.width) - 1
		v = newSeriesView(r, s.Snap().GetSeries(), end)
	}
	if p.past = 0; end != following {
		p.past = int(min(pastMost, max(0, v.lastKnownIteration()-end)))
	}
	return v
}

// Act moves the hairline, the time on screen and the rank, or what of the run is on screen.
func (p *Page) Act(a key.Action, s *page.State, r widget.Rect) key.Scope {
	switch {
	case a == key.Metric:
		p.charts = !p.charts
		return ""
	case a == key.ZoomOut && !p.charts: // out of the newest iterations lies the run
		p.charts = true
		return ""
	case p.charts:
		p.run.Act(a, s, r)
		return ""
	}
	v := p.seriesView(r, s)
	switch a {
	case key.Left:
		p.moveCursor(v, -1)
	case key.Right:
		p.moveCursor(v, +1)
	case key.Older:
		p.scrubTo(v, -1)
	case key.Newer:
		p.scrubTo(v, +1)
	case key.First:
		p.end = v.s.FirstIteration + int64(v.width) - 1
		p.hair = v.s.FirstIteration
	case key.Last:
		p.hair, p.end = -1, following
	case key.Up:
		s.Select(s.Rank() - 1)
	case key.Down:
		s.Select(s.Rank() + 1)
	case key.Next:
		p.nextMark(v, +1)
	case key.Prev:
		p.nextMark(v, -1)
	}
	return ""
}

// moveCursor moves the hairline, and with it the screen where it would leave it.
func (p *Page) moveCursor(v view, by int64) {
	if v.n == 0 {
		return
	}
	if p.hair < 0 {
		p.hair = v.newestIteration() + 1
	}
	p.moveHairline(v, max(v.s.FirstIteration, min(v.lastKnownIteration(), p.hair+by)))
}

// moveHairline puts the hairline on an iteration and has that on screen.
func (p *Page) moveHairline(v view, i int64) {
	p.hair = i
	switch {
	case i < v.oldestIteration():
		p.end = i + int64(v.width) - 1
	case i > v.newestIteration():
		p.end = i
	}
	if p.end >= v.lastKnownIteration() {
		p.end = following
	}
}

// scrubTo moves the time on screen by half of what fits. Going back asks for more
// of the past; what the engine does not hold is not shown.
func (p *Page) scrubTo(v view, direction int64) {
	if v.n == 0 {
		return
	}
	half := max(1, int64(v.width)/2)
	p.end = v.newestIteration() + direction*half
	if p.end >= v.lastKnownIteration() {
		p.end = following
	}
	if p.past = 0; p.end != following {
		p.past = int(min(pastMost, max(0, v.lastKnownIteration()-p.end)))
	}
	if p.hair >= 0 && p.end != following {
		p.hair = min(p.hair, p.end)
	}
}

// nextMark jumps to the next or previous mark that is known, also off screen.
func (p *Page) nextMark(v view, direction int64) {
	from := p.hair
	if from < 0 {
		from = v.newestIteration() + 1
		if direction > 0 {
			from = v.oldestIteration() - 1
		}
	}
	best := int64(-1)
	for _, m := range v.s.GetMarks() {
		i := m.Iteration
		if i < v.s.FirstIteration ||
			i > v.lastKnownIteration() ||
			(i-from)*direction <= 0 {
			continue
		}
		if best < 0 || (best-i)*direction > 0 {
			best = i
		}
	}
	if best >= 0 {
		p.moveHairline(v, best)
	}
}

// clockMin is the fewest rows of a chart with a line of clock times.
const clockMin = 8

// heatMin is the fewest rows for which the posterior is worth drawing.
const heatMin = 8

// textRows are those of the numbers, the rank's included.
const textRows = 5

// parts are the rectangles of a page, top to bottom; heat is empty on small screens.
type parts struct{ chart, heat, strip, text widget.Rect }

func splitRows(r widget.Rect, lengths int) parts {
	strip := 3
	if r.H < 18 {
		strip = 2
	}
	text := textRows
	if r.H < 16 {
		text = 3
	}
	chart := r.H - (strip + 1) - text
	heat := 0
	if room := chart - 9; room > heatMin {
		heat = min(chart*55/100, (len(runLengthBins(1<<10, lengths))+1)/2+1)
		chart -= heat
	}
	var out parts
	out.chart, r = r.Rows(chart)
	out.heat, r = r.Rows(heat)
	out.strip, out.text = r.Rows(strip + 1)
	return out
}

// Draw draws chart, marks, posterior, strip and numbers from top to bottom.
func (p *Page) Draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	if p.charts {
		p.run.Draw(c, r, s)
		return
	}
	v := p.seriesView(r, s)
	c.HitEach(r, func(x, _ int) widget.Target { return v.targetAt(x) })
	at := splitRows(r, int(v.s.RunLengths))
	p.drawChart(c, at.chart, v, s)
	if v.n == 0 {
		return
	}
	if !at.heat.Empty() {
		drawHeatMap(c, at.heat, v, p.hair)
	}
	drawStrip(c, at.strip, v, p.hair)
	p.drawText(c, at.text, v, s)
}

// Panes are the parts that can fill the page alone, each with the hairline.
func (p *Page) Panes(s *page.State) []page.Pane {
	if p.charts {
		return p.run.Panes()
	}
	if len(s.Snap().GetSeries().GetMs()) == 0 {
		return nil
	}
	fill := func(
		draw func(*widget.Canvas, widget.Rect, view, *page.State),
	) func(*widget.Canvas, widget.Rect, *page.State) {
		return func(c *widget.Canvas, r widget.Rect, s *page.State) {
			v := p.seriesView(r, s)
			c.HitEach(r, func(x, _ int) widget.Target {
				return v.targetAt(x)
			})
			draw(c, r, v, s)
		}
	}
	panes := []page.Pane{
		{Name: "iteration time", Draw: fill(p.drawChart)},
		{
			Name: "change",
			Draw: fill(func(c *widget.Canvas, r widget.Rect, v view, _ *page.State) {
				drawStrip(c, r, v, p.hair)
			}),
		},
	}
	if s.Snap().GetSeries().GetRunLengths() > 0 {
		heat := fill(func(c *widget.Canvas, r widget.Rect, v view, _ *page.State) {
			drawHeatMap(c, r, v, p.hair)
		})
		panes = append(panes, page.Pane{Name: "run lengths", Draw: heat})
	}
	return panes
}

// Rows of the chart on other pages at most, and those that are left over for the run at least.
const (
	chartMost = 14
	runLeast  = 10
)

// Chart draws the iteration time of the series for other pages, and where there is much room the course
// of the run below it.
func Chart(c *widget.Canvas, r widget.Rect, s *page.State) {
	if r.H >= chartMost+runLeast {
		var run widget.Rect
		r, run = r.Rows(chartMost)
		charts.Beside(c, run, s)
	}
	v := newSeriesView(r, s.Snap().GetSeries(), following)
	New().drawChart(c, r, v, s)
}

// Heat draws the posterior of the series for other pages, where it was sent.
func Heat(c *widget.Canvas, r widget.Rect, s *page.State) {
	drawHeatMap(c, r, newSeriesView(r, s.Snap().GetSeries(), following), -1)
}

// Strip draws P(r ≤ w) for other pages.
func Strip(c *widget.Canvas, r widget.Rect, s *page.State) {
	drawStrip(c, r, newSeriesView(r, s.Snap().GetSeries(), following), -1)
}

// recentName is what the strip shows, in words that need no paper.
func recentName(s *falconv1.Series) string {
	if s.GetWindow() > 0 {
		return fmt.Sprintf("P(change ≤%d steps)", s.Window)
	}
	return "P(change just now)"
}

func drawStrip(c *widget.Canvas, r widget.Rect, v view, hair int64) {
	body := c.Rule(r, recentName(v.s), fmt.Sprintf("┄ alarm above %.2f", v.threshold()))
	if v.n > 0 {
		v.drawStrip(c, body, hair)
	}
}

func drawHeatMap(c *widget.Canvas, r widget.Rect, v view, hair int64) {
	name := "RUN-LENGTH POSTERIOR of the job"
	if !v.s.OfJob {
		name = "RUN-LENGTH POSTERIOR recomputed"
	}
	body := c.Rule(r, name, "")
	if v.n == 0 || len(v.s.Posterior) == 0 {
		page.Empty(c, body, "no posterior yet: it comes with the first iterations after this page is opened")
		return
	}
	heatLegend(c, r)
	v.drawHeat(c, body, hair)
}

// whereWords returns what part of time is on screen.
func (p *Page) whereWords(v view) string {
	if n := v.laterIterations(); n > 0 {
		return fmt.Sprintf("%s newer, G follows  ", phrase.Count(int64(n)))
	}
	return ""
}

func (p *Page) drawChart(c *widget.Canvas, r widget.Rect, v view, s *page.State) {
	title := fmt.Sprintf("ITERATION TIME rank %d", v.s.GetRank())
	before := p.whereWords(v)
	if _, beyond := v.chartScale(); beyond > 0 {
		before = "↑ up to " + phrase.Ms(beyond) + "  " + before
	}
	right := before + markWords(v, false)
	if widget.Width(title+right) > r.W-ruleRoom {
		right = before + markWords(v, true)
	}
	body := c.Rule(r, title, right)
	if v.n == 0 {
		page.Empty(c, body, "no iterations yet: the series starts when agents report samples")
		return
	}
	if r.H >= clockMin && len(v.s.GetMoments()) > 0 {
		var clock widget.Rect
		body, clock = body.Rows(body.H - 1)
		v.drawClock(c, clock, s)
	}
	body, marks := body.Rows(body.H - 1)
	v.drawBars(c, body, p.hair)
	v.drawMarks(c, marks)
}

// drawText explains the column under the hairline, or the newest.
func (p *Page) drawText(c *widget.Canvas, r widget.Rect, v view, s *page.State) {
	at := v.newestIteration()
	what := "newest"
	if v.laterIterations() > 0 {
		what = "newest shown"
	}
	if v.holdsIteration(p.hair) {
		at = p.hair
		what = "hairline, G lets go"
	}
	i := v.indexOfIteration(at)
	ms := float64(v.s.Ms[i])
	row, rest := r.Rows(1)
	pen := c.Pen(row).
		Putf(themes.Title, "iteration %s", phrase.Count(at)).
		Putf(themes.Dim, " (%s)", what+phrase.Prefixed(", ", v.clockOf(at, s)))
	pen.Putf(themes.Text, "  %.1f ms  %s vs baseline %s",
		ms, phrase.Change(v.s.BaselineMs, ms), phrase.Ms(v.s.BaselineMs))
	row, rest = rest.Rows(1)
	v.drawBelief(c, row, i, at)
	d := v.decisionAt(at, v.holdsIteration(p.hair))
	if d != nil {
		row, rest = rest.Rows(1)
		c.Pen(row).Put(decisionRole(d), phrase.Decided(d))
	}
	if rest.H > 2 {
		row, rest = rest.Rows(1)
		v.drawRunLengths(c, row, i)
	}
	if on := phrase.DecidedOn(d, v.s.Window); on != "" && rest.H > 1 {
		row, rest = rest.Rows(1)
		c.Pen(row).Put(themes.Dim, on)
	}
	s.Details(c, rest, v.s.GetRank())
}

func decisionRole(d *falconv1.ChangeDecision) themes.Role {
	if d.GetKind() == "jitter" {
		return themes.Dim
	}
	return themes.Accent
}

// drawBelief draws what the filter holds for the most probable.
func (v view) drawBelief(c *widget.Canvas, r widget.Rect, i int, at int64) {
	pen := c.Pen(r)
	if i < len(v.s.Probability) {
		role := themes.Text
		if v.isAlarm(i) {
			role = themes.Bad
		}
		pen.Putf(role, "%s %s", recentName(v.s), probability(float64(v.s.Probability[i])))
		if role == themes.Bad {
			pen.Put(role, " ALARM")
		}
		pen.Put(themes.Text, ";")
	}
	if i < len(v.s.MapRunLength) {
		pen.Putf(themes.Text, " likeliest stretch %s", phrase.Count(int64(v.s.MapRunLength[i])))
		if was, ok := v.wasBefore(i); ok {
			pen.Putf(themes.Dim, " (was %s)", phrase.Count(int64(was)))
		}
	}
	for _, m := range v.s.Marks {
		if m.Iteration == at {
			pen.Putf(themes.Accent, "  %c %s", markGlyph(m.Kind), m.Kind)
		}
	}
}

// drawRunLengths lists the most probable run lengths with their probabilities.
func (v view) drawRunLengths(c *widget.Canvas, r widget.Rect, i int) {
	const most = 6
	pen := c.Pen(r).Put(themes.Dim, "run lengths")
	list := v.mostProbableRuns(i, most)
	if len(list) == 0 {
		pen.Put(themes.Dim, " not sent yet")
	}
	for _, x := range list {
		length := phrase.Count(int64(x.length))
		if x.length == int(v.s.RunLengths)-1 {
			length += "+"
		}
		if text := fmt.Sprintf("  %s: %s", length, probability(x.p)); pen.Fits(text) {
			pen.Put(themes.Text, text)
		}
	}
}

// probability is a probability with as many digits as distinguish it from 0 and 1.
func probability(p float64) string {
	switch {
	case p > 0 && p < 0.001:
		return fmt.Sprintf("%.0e", p)
	case p > 0.999 && p < 1:
		return fmt.Sprintf("%.5f", p)
	}
	return fmt.Sprintf("%.3f", min(p, 1))
}
