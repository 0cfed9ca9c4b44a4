package posterior

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

// drawBars draws the iteration time from zero, coloured by its excess over the
// baseline, with the baseline as a dashed line.
func (v view) drawBars(c *widget.Canvas, r widget.Rect, hair int64) {
	if r.Empty() {
		return
	}
	_, plot := r.Columns(LabelWidth)
	values := v.columnTimes()
	top, _ := v.chartScale()
	if r.H >= lineMin {
		v.drawLine(c, plot, values, top, hair)
	} else {
		c.Bars(plot, widget.Bars{
			Values: values,
			Max:    top,
			Line:   v.s.BaselineMs,
			Cursor: v.columnOf(hair),
			Style: func(i int) themes.Style {
				return v.styleOfMs(c, values[i])
			},
		})
	}
	dim := c.Pal.Style(themes.Dim)
	c.Right(r.X+LabelWidth-1, r.Y, fmt.Sprintf("%.0f", top), dim)
	line := r.Y + r.H - 1 - min(r.H-1, int(v.s.BaselineMs/top*float64(r.H)))
	if v.s.BaselineMs > 0 && line > r.Y {
		c.Right(r.X+LabelWidth-1, line, fmt.Sprintf("%.0f", v.s.BaselineMs), dim)
	}
	if r.H > 2 {
		c.Right(r.X+LabelWidth-1, r.Y+r.H-1, "0 ms", dim)
	}
}

// lineMin is from how many rows on a line shows more than columns, which would fill the screen.
const lineMin = 8

// drawLine draws the same as columns would, as a line.
func (v view) drawLine(c *widget.Canvas, plot widget.Rect, values []float64, top float64, hair int64) {
	n := c.DotColumns()
	means := make([]float64, 0, n*len(values))
	for _, x := range values {
		for range n {
			means = append(means, x)
		}
	}
	c.Trace(plot, widget.Trace{
		Mean:   means,
		To:     top,
		Line:   v.s.BaselineMs,
		Cursor: v.columnOf(hair),
		Style: func(i int) themes.Style {
			return v.styleOfMs(c, means[i])
		},
	})
}

const (
	usual    = 0.98 // share of the iterations on screen that must fit the chart
	headroom = 1.1  // above them
	stretch  = 1.5  // how much higher the edge goes rather than cut a column
	recent   = 5    // iterations whose median is the present level
)

// chartScale is the chart's top edge in ms, and the largest value on screen where
// that lies above the edge, else 0. A few stray iterations don't set the
// scale: it holds the usual ones, the baseline, and the present level even
// when that has just risen.
func (v view) chartScale() (top, beyond float64) {
	var known []float64
	for _, x := range v.s.Ms[v.hi-v.n : v.hi] {
		if y := float64(x); y > 0 && !math.IsInf(y, 0) {
			known = append(known, y)
		}
	}
	n := len(known)
	if n == 0 {
		return widget.NiceTop(v.s.BaselineMs), 0
	}
	last := slices.Sorted(slices.Values(known[max(0, n-recent):]))
	slices.Sort(known)
	most := known[n-1]
	robust := max(v.s.BaselineMs, last[len(last)/2], known[int(usual*float64(n-1))])
	top = widget.NiceTop(headroom * robust)
	if all := widget.NiceTop(max(most, v.s.BaselineMs)); all <= stretch*top {
		return all, 0
	}
	return top, most
}

// slowSteps are the lower bounds of levels 1 to 6, relative to the baseline:
// from jitter through FALCON's 10 % up to twice the time.
var slowSteps = [...]float64{0.05, 0.1, 0.25, 0.5, 0.75, 1}

func (v view) styleOfMs(c *widget.Canvas, ms float64) themes.Style {
	if v.s.BaselineMs <= 0 || math.IsNaN(ms) {
		return c.Pal.Style(themes.Text)
	}
	excess := ms/v.s.BaselineMs - 1
	switch {
	case excess >= slowSteps[3]:
		return c.Pal.Style(themes.Bad)
	case excess >= slowSteps[1]:
		return c.Pal.Style(themes.Warn)
	}
	return c.Pal.Style(themes.Good)
}

var markGlyphs = map[string]rune{
	"onset":    '▼',
	"relief":   '✓',
	"applied":  'A',
	"reverted": 'R',
	"jitter":   '·',
	"epoch":    'E',
	"engine":   'e',
}

func markGlyph(kind string) rune {
	if g, ok := markGlyphs[kind]; ok {
		return g
	}
	return '╎'
}

// drawMarks draws the iterations at both ends, and each mark with its iteration if it fits. Signs come
// first; a label stands where it touches nothing but its own sign.
func (v view) drawMarks(c *widget.Canvas, r widget.Rect) {
	if r.Empty() {
		return
	}
	dim := c.Pal.Style(themes.Dim)
	c.Right(r.X+LabelWidth-1, r.Y, "iter", dim)
	_, axis := r.Columns(LabelWidth)
	v.drawDecisions(c, r)
	marks := slices.SortedStableFunc(slices.Values(v.s.Marks), func(a, b *falconv1.Mark) int {
		return cmp.Compare(a.Iteration, b.Iteration)
	})
	for _, m := range marks {
		if x := v.columnOf(m.Iteration); x >= 0 {
			c.Set(
				axis.X+x,
				axis.Y,
				markGlyph(m.Kind),
				c.Pal.Style(themes.Accent).With(themes.Bold),
			)
		}
	}
	left := fmt.Sprintf("%d", v.oldestIteration())
	right := fmt.Sprintf("%d", v.newestIteration())
	drawLabel(c, axis, left, v.width-v.n, -1, dim)
	if v.n > len(left)+len(right)+2 {
		drawLabel(c, axis, right, v.width-len(right), -1, dim)
	}
	for _, m := range marks {
		x := v.columnOf(m.Iteration)
		label := fmt.Sprintf("%d", m.Iteration)
		if x < 0 || m.Kind == "jitter" {
			continue
		}
		style := c.Pal.Style(themes.Accent)
		if !drawLabel(c, axis, label, x+1, x, style) {
			drawLabel(c, axis, label, x-len(label), x, style)
		}
	}
}

// drawLabel draws a label where nothing is drawn so far, beside nothing but the sign in its own column,
// -1 for none; ok tells whether it did.
func drawLabel(c *widget.Canvas, axis widget.Rect, label string, at, own int, s themes.Style) (ok bool) {
	free := func(x int) bool {
		return x < 0 ||
			x >= axis.W ||
			x == own ||
			c.Blank(widget.Rect{
				X: axis.X + x,
				Y: axis.Y,
				W: 1,
				H: 1,
			})
	}
	if at < 0 ||
		at+len(label) > axis.W ||
		!c.Blank(widget.Rect{X: axis.X + at, Y: axis.Y, W: len(label), H: 1}) ||
		!free(at-1) ||
		!free(at+len(label)) {
		return false
	}
	c.Text(axis.X+at, axis.Y, len(label), label, s)
	return true
}

// deciderGlyphs mark where something else than the filter decided; removed is an iteration of a
// burst, which the filter was not fed.
var deciderGlyphs = map[string]rune{
	"reference":  'r',
	"shift":      's',
	"early":      'w',
	"throughput": 't',
	"windows":    'p',
}

const removedGlyph = '×'

// drawDecisions marks what the filter was not fed, and what was decided by something else.
func (v view) drawDecisions(c *widget.Canvas, r widget.Rect) {
	set := func(iteration int64, glyph rune, role themes.Role) {
		if x := v.columnOf(iteration); x >= 0 {
			c.Set(r.X+LabelWidth+x, r.Y, glyph, c.Pal.Style(role))
		}
	}
	for _, d := range v.s.Decisions {
		for _, x := range d.GetFilter().GetRemoved() {
			set(x.Iteration, removedGlyph, themes.Dim)
		}
	}
	for _, d := range v.s.Decisions {
		if g, other := deciderGlyphs[d.By]; other {
			set(d.DecidedIteration, g, themes.Accent)
		}
	}
}

// drawClock draws when the iterations at both ends and in the middle were, by the clock.
func (v view) drawClock(c *widget.Canvas, r widget.Rect, s *page.State) {
	dim := c.Pal.Style(themes.Dim)
	c.Right(r.X+LabelWidth-1, r.Y, "clock", dim)
	from := v.width - v.n
	left := v.clockOf(v.oldestIteration(), s)
	right := v.clockOf(v.newestIteration(), s)
	w := widget.Width(left)
	most := v.n
	if len(right) > 0 && most >= widget.Width(right) {
		c.Right(r.X+LabelWidth+v.width, r.Y, right, dim)
		most -= widget.Width(right) + 1
	}
	if w <= most {
		c.Text(r.X+LabelWidth+from, r.Y, w, left, dim)
	}
	middle := v.clockOf((v.oldestIteration()+v.newestIteration())/2, s)
	at := from + v.n/2 - widget.Width(middle)/2
	if middle != "" && left != right && most-w > 3*widget.Width(middle) {
		c.Text(r.X+LabelWidth+at, r.Y, widget.Width(middle), middle, dim)
	}
}

// changeLines draws a change decided as a line through a part of the page.
func (v view) changeLines(c *widget.Canvas, plot widget.Rect) {
	style := c.Pal.Style(themes.Accent)
	for _, m := range v.s.Marks {
		x := v.columnOf(m.Iteration)
		if x < 0 || m.Kind != "onset" && m.Kind != "relief" {
			continue
		}
		for y := range plot.H {
			c.Set(plot.X+x, plot.Y+y, '╎', themes.Style{
				FG:   style.FG,
				Attr: style.Attr,
			})
		}
	}
}

// drawStrip draws P(r ≤ w) with the alarm's threshold as a line; columns in which an alarm waited for its
// verification are red.
func (v view) drawStrip(c *widget.Canvas, r widget.Rect, hair int64) {
	if r.Empty() {
		return
	}
	_, plot := r.Columns(LabelWidth)
	values := v.columnValues(v.s.Probability)
	for i, p := range values {
		values[i] = min(p, 1) // rounding must not look like a value off the scale
	}
	c.Bars(plot, widget.Bars{
		Values: values,
		Max:    1,
		Line:   v.threshold(),
		Cursor: v.columnOf(hair),
		Style: func(i int) themes.Style {
			if v.isAlarm(v.indexOfColumn(i)) {
				return c.Pal.Style(themes.Bad)
			}
			return c.Pal.Style(themes.Accent)
		},
	})
	dim := c.Pal.Style(themes.Dim)
	c.Right(r.X+LabelWidth-1, r.Y, "1", dim)
	if r.H > 1 {
		c.Right(r.X+LabelWidth-1, r.Y+r.H-1, "0", dim)
	}
}

// bin is a row of the heat: run lengths from lo to hi, both included.
type bin struct{ lo, hi int }

// linearRuns are drawn one row each; above them rows grow by powers of 2^(1/2).
const linearRuns = 16

// runLengthBins cuts run lengths into at most rows rows, short runs at the bottom. The
// last run length holds the tail of all longer ones and has a row of its own.
func runLengthBins(rows, lengths int) []bin {
	var out []bin
	for r := 0; r < min(linearRuns, lengths) && len(out) < rows; r++ {
		out = append(out, bin{r, r})
	}
	lo := linearRuns
	for step := 1; lo < lengths-1 && len(out) < rows-1; step++ {
		hi := min(lengths-2, max(lo, int(linearRuns*math.Pow(2, float64(step)/2))-1))
		out = append(out, bin{lo, hi})
		lo = hi + 1
	}
	if lo < lengths && len(out) < rows {
		out = append(out, bin{lo, lengths - 1})
	}
	if len(out) > 0 {
		out[len(out)-1].hi = lengths - 1
	}
	return out
}

// floor is the least log10 of probability that has a colour of its own.
const floor = -6.0

// Step is the ramp's step for a probability relative to its column's maximum, 6 to 0 (1e-6).
func Step(p float64) uint8 {
	if p <= 0 || math.IsNaN(p) {
		return 0
	}
	x := math.Log10(min(p, 1))
	if x < floor {
		return 0
	}
	return uint8(math.Round((x - floor) / -floor * (themes.Levels - 1)))
}

// drawHeat draws the posterior: one row a bin, the shortest runs at the bottom.
func (v view) drawHeat(c *widget.Canvas, r widget.Rect, hair int64) {
	lengths := int(v.s.RunLengths)
	if r.Empty() || lengths <= 0 {
		return
	}
	rows := runLengthBins(c.PixelRows(r.H), lengths)
	pix := widget.NewRaster(v.width, c.PixelRows(r.H))
	base := pix.H - 1
	for col := range v.width {
		i := v.indexOfColumn(col)
		p := v.posterior(i)
		if i < 0 || p == nil {
			continue
		}
		known := v.fillHeat(pix, col, base, rows, p)
		if known && i < len(v.s.MapRunLength) {
			pix.Put(
				col,
				base-runLengthBin(rows, int(v.s.MapRunLength[i])),
				widget.PixelMark,
			)
		}
	}
	_, plot := r.Columns(LabelWidth)
	c.Raster(plot, pix, &c.Pal.Posterior)
	v.changeLines(c, plot)
	v.runLabels(c, r, rows)
	if x := v.columnOf(hair); x >= 0 {
		for y := range plot.H {
			c.Set(plot.X+x, plot.Y+y, '│', themes.Style{
				FG:   c.Pal.Style(themes.Accent).FG,
				Attr: themes.Bold,
			})
		}
	}
}

// heatLegend shows the ramp as it is drawn, at the right of the title.
func heatLegend(c *widget.Canvas, r widget.Rect) {
	const words = " log10 P -6"
	const after = "0 of column's max   likeliest stretch  ╎ change "
	w := widget.Width(words) + themes.Levels + 2 + widget.Width(after)
	if r.W < w+28 {
		return
	}
	pen := c.Pen(widget.Rect{
		X: r.X + r.W - 1 - w,
		Y: r.Y,
		W: w,
		H: 1,
	})
	pen.Put(themes.Dim, words+" ")
	ramp := widget.NewRaster(themes.Levels, 2)
	for i := range themes.Levels {
		ramp.Put(i, 0, uint8(i))
		ramp.Put(i, 1, uint8(i))
	}
	c.Raster(
		widget.Rect{
			X: pen.X,
			Y: r.Y,
			W: themes.Levels,
			H: 1,
		},
		ramp,
		&c.Pal.Posterior,
	)
	pen.Space(themes.Levels)
	mark := pen.X + widget.Width(" 0 of column's max ")
	pen.Put(themes.Dim, " "+after)
	one := widget.NewRaster(1, 2)
	one.Put(0, 0, widget.PixelMark)
	one.Put(0, 1, widget.PixelMark)
	c.Raster(widget.Rect{X: mark, Y: r.Y, W: 1, H: 1}, one, &c.Pal.Posterior)
}

// fillHeat fills one column: each bin holds the sum of its run lengths. It reports whether there
// is a posterior.
func (v view) fillHeat(pix *widget.Raster, col, base int, rows []bin, p []float32) bool {
	sums := make([]float64, len(rows))
	top := 0.0
	for i, b := range rows {
		for r := b.lo; r <= b.hi && r < len(p); r++ {
			sums[i] += float64(p[r])
		}
		top = max(top, sums[i])
	}
	for i, s := range sums {
		if top > 0 {
			pix.Put(col, base-i, Step(s/top))
		}
	}
	return top > 0
}

func runLengthBin(rows []bin, run int) int {
	i, _ := slices.BinarySearchFunc(rows, run, func(b bin, run int) int {
		return cmp.Compare(b.hi, run)
	})
	return min(i, len(rows)-1)
}

// runLabels names the run lengths at the left, the tail's as one and more.
func (v view) runLabels(c *widget.Canvas, r widget.Rect, rows []bin) {
	per := c.PixelRows(1)
	dim := c.Pal.Style(themes.Dim)
	for y := r.H - 1; y >= 0; y -= 2 {
		if i := (r.H - 1 - y) * per; i < len(rows)-per {
			c.Right(r.X+LabelWidth-1, r.Y+y, fmt.Sprintf("%d", rows[i].lo), dim)
		}
	}
	if n := len(rows) - 1; n > 0 {
		c.Right(
			r.X+LabelWidth-1,
			r.Y+r.H-1-n/per,
			fmt.Sprintf("%d+", rows[n].lo),
			dim,
		)
	}
}
