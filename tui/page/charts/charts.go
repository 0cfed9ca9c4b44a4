// Package charts draws the course of the run: several measures one above the other on one time axis,
// from when this console was first sent iterations on. What one column of dots shows is the mean of
// its time within the least and the greatest, so that nothing short is lost by zooming out. Pure
// drawing and the operator's zoom, pan and hairline; no I/O, and no truth beyond page.Course.
package charts

import (
	"fmt"
	"math"
	"time"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/history"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// LabelWidth is the room for the scale left of every chart.
const LabelWidth = 7

// shortest is the least time that fills the screen.
const shortest = 30 * time.Second

// View is what of the run is on screen.
type View struct {
	span time.Duration // 0 = the whole run
	end  time.Time     // zero = the present
	hair time.Time     // zero = none
	top  int           // the first measure on screen
	rest bool          // it lies beside something else: the keys are not its own
}

// window is the time on screen, within the run.
type window struct {
	from, to     time.Time
	begun, known time.Time // of the run
}

func (w window) span() time.Duration {
	return w.to.Sub(w.from)
}

// at is where a moment lies on screen, in cells of n.
func (w window) at(t time.Time, n int) int {
	return int(math.Floor(float64(t.Sub(w.from)) / float64(max(1, w.span())) * float64(n)))
}

// windowOf is the time on screen; ok is false where nothing is known.
func (v *View) windowOf(s *page.State) (w window, ok bool) {
	w.begun, w.known, ok = s.Course.Span()
	if !ok {
		return w, false
	}
	// a picture that is held ends where it was held
	if now := s.EngineNow(); !s.Over() && now.After(w.begun) {
		w.known = now
	}
	run := max(shortest, w.known.Sub(w.begun))
	w.to = w.known
	span := run
	if v.span > 0 {
		span = min(run, v.span)
		if !v.end.IsZero() && v.end.Before(w.known) {
			w.to = v.end
		}
	}
	if w.to.Add(-span).Before(w.begun) {
		w.to = w.begun.Add(span)
	}
	w.from = w.to.Add(-span)
	return w, true
}

// Act moves the time on screen, the hairline and the measures.
func (v *View) Act(a key.Action, s *page.State, r widget.Rect) {
	w, ok := v.windowOf(s)
	if !ok {
		return
	}
	switch a {
	case key.ZoomIn:
		v.zoom(w, w.span()/2)
	case key.ZoomOut:
		v.zoom(w, w.span()*2)
	case key.Older:
		v.pan(w, -w.span()/2)
	case key.Newer:
		v.pan(w, w.span()/2)
	case key.Left:
		v.moveHair(w, r, -1)
	case key.Right:
		v.moveHair(w, r, +1)
	case key.First:
		v.span = 0
		v.end = time.Time{}
		v.hair = time.Time{}
	case key.Last:
		v.end = time.Time{}
		v.hair = time.Time{}
	case key.Up:
		v.top = max(0, v.top-1)
	case key.Down:
		v.top = min(int(page.Measures)-1, v.top+1)
	}
}

// zoom shows a span around the hairline, or up to the same end where there is none.
func (v *View) zoom(w window, span time.Duration) {
	span = max(shortest, span)
	if span >= w.known.Sub(w.begun) {
		v.span = 0
		v.end = time.Time{}
		return
	}
	v.span = span
	if !v.hair.IsZero() {
		share := float64(v.hair.Sub(w.from)) / float64(max(1, w.span()))
		v.setEnd(w, v.hair.Add(time.Duration((1-share)*float64(span))))
	}
}

func (v *View) setEnd(w window, end time.Time) {
	if v.end = end; !end.Before(w.known) {
		v.end = time.Time{}
	}
}

func (v *View) pan(w window, by time.Duration) {
	if v.span == 0 {
		return
	}
	end := w.to.Add(by)
	if earliest := w.begun.Add(v.span); end.Before(earliest) {
		end = earliest
	}
	v.setEnd(w, end)
}

// moveHair moves the hairline by a cell, and the screen where it would leave it.
func (v *View) moveHair(w window, r widget.Rect, by int) {
	cells := max(1, r.W-LabelWidth)
	step := w.span() / time.Duration(cells)
	if v.hair.IsZero() {
		v.hair = w.to
	}
	v.hair = v.hair.Add(time.Duration(by) * step)
	switch {
	case v.hair.Before(w.begun):
		v.hair = w.begun
	case v.hair.After(w.known):
		v.hair = w.known
	}
	if v.hair.Before(w.from) || v.hair.After(w.to) {
		v.pan(w, time.Duration(by)*w.span()/2)
	}
}

// paneLeast is the fewest rows of a chart with its title.
const paneLeast = 4

// Draw draws as many measures as there is room for, and the time below them.
func (v *View) Draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	w, ok := v.windowOf(s)
	if !ok {
		page.Empty(c, c.Rule(r, "CHARTS", ""),
			"nothing measured yet: charts begin with the first iterations that this console is sent")
		return
	}
	body, axis := r.Rows(r.H - 2)
	shown := v.shown(body.H)
	for i, m := range shown {
		var at widget.Rect
		at, body = body.Rows(body.H / (len(shown) - i))
		v.drawMeasure(c, at, s, w, m)
	}
	v.drawAxis(c, axis, s, w, int(page.Measures)-len(shown))
}

// Beside draws the whole run beside a chart of the newest iterations.
func Beside(c *widget.Canvas, r widget.Rect, s *page.State) {
	(&View{top: int(page.Throughput), rest: true}).Draw(c, r, s)
}

// shown are the measures that fit, from the first chosen on.
func (v *View) shown(rows int) []page.Measure {
	n := max(1, min(int(page.Measures), rows/paneLeast))
	first := min(v.top, int(page.Measures)-n)
	out := make([]page.Measure, n)
	for i := range out {
		out[i] = page.Measure(first + i)
	}
	return out
}

// Panes are the charts one by one.
func (v *View) Panes() []page.Pane {
	var out []page.Pane
	for m := range page.Measures {
		out = append(out, page.Pane{
			Name: measures[m].name,
			Draw: func(c *widget.Canvas, r widget.Rect, s *page.State) {
				w, ok := v.windowOf(s)
				if !ok {
					return
				}
				body, axis := r.Rows(r.H - 2)
				v.drawMeasure(c, body, s, w, m)
				v.drawAxis(c, axis, s, w, 0)
			},
		})
	}
	return out
}

// drawMeasure draws one chart with its title, which says what the hairline is on.
func (v *View) drawMeasure(c *widget.Canvas, r widget.Rect, s *page.State, w window, m page.Measure) {
	is := measures[m]
	_, plot := r.Columns(LabelWidth)
	columns := s.Course.Of(m).Columns(w.from, w.to, plot.W*c.DotColumns())
	body := c.Rule(r, is.title, v.reading(columns, s, w, m))
	least, greatest, known := extremes(columns)
	if !known {
		page.Empty(c, body, is.absent)
		return
	}
	_, plot = body.Columns(LabelWidth)
	t := traceOf(columns, w.span())
	t.From, t.To = is.scale(least, greatest)
	t.Cursor = -1
	if !v.hair.IsZero() {
		t.Cursor = min(w.at(v.hair, plot.W), plot.W-1)
	}
	t.Line = is.line(s)
	t.Style = func(i int) themes.Style {
		return c.Pal.Style(is.role(s, t.Mean[i]))
	}
	c.Trace(plot, t)
	dim := c.Pal.Style(themes.Dim)
	c.Right(r.X+LabelWidth-1, body.Y, is.label(t.To), dim)
	if body.H > 1 {
		c.Right(r.X+LabelWidth-1, body.Y+body.H-1, is.label(t.From), dim)
	}
}

func extremes(columns []history.Bucket) (least, greatest float64, known bool) {
	for _, b := range columns {
		switch {
		case b.N == 0:
		case !known:
			least = b.Min
			greatest = b.Max
			known = true
		default:
			least = min(least, b.Min)
			greatest = max(greatest, b.Max)
		}
	}
	return least, greatest, known
}

// bridge is the longest time without a value across which a line is drawn: a screen that shows little
// time has more dots than there are pictures.
const bridge = 3 * time.Second

func traceOf(columns []history.Bucket, span time.Duration) widget.Trace {
	n := len(columns)
	t := widget.Trace{
		Least:    make([]float64, n),
		Mean:     make([]float64, n),
		Greatest: make([]float64, n),
	}
	put := func(i int, b history.Bucket) {
		t.Least[i], t.Mean[i], t.Greatest[i] = b.Min, b.Mean(), b.Max
	}
	most := max(2, int(bridge/max(1, span/time.Duration(max(1, n)))))
	last := -1
	for i, b := range columns {
		if b.N == 0 {
			t.Least[i], t.Mean[i], t.Greatest[i] = math.NaN(), math.NaN(), math.NaN()
			continue
		}
		put(i, b)
		for k := last + 1; last >= 0 && i-last <= most && k < i; k++ {
			put(k, columns[last])
		}
		last = i
	}
	return t
}

// reading is what the hairline is on, else the newest on screen, with its spread.
func (v *View) reading(columns []history.Bucket, s *page.State, w window, m page.Measure) string {
	at := len(columns) - 1
	when := ""
	if !v.hair.IsZero() {
		at = min(w.at(v.hair, len(columns)), len(columns)-1)
		when = phrase.Clock(v.hair, s.EngineNow(), s.Zone) + "  "
	}
	for at >= 0 && columns[at].N == 0 {
		at--
	}
	if at < 0 {
		return ""
	}
	b, is := columns[at], measures[m]
	text := when + is.value(b.Mean())
	if b.Max > b.Min && is.label(b.Max) != is.label(b.Min) {
		text += fmt.Sprintf("  (%s to %s)", is.label(b.Min), is.value(b.Max))
	}
	return text
}
