package widget

import (
	"math"

	"github.com/failslow/falcon/themes"
)

// Bars is a column chart: one value a column, from zero up, so that heights
// compare honestly. Values that are NaN leave a gap; those beyond the top edge
// end in an arrow there, so that a cut column is not taken for a measured one.
type Bars struct {
	Values []float64
	Max    float64                  // value at the top edge; 0 = the largest value
	Line   float64                  // dashed horizontal line, 0 = none
	Style  func(i int) themes.Style // of column i; nil = text
	Cursor int                      // column under the hairline, -1 = none
}

var eighths = [...]rune{' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'}

// Bars draws the chart in rect, one column per value, from the left edge.
func (c *Canvas) Bars(rect Rect, b Bars) {
	top := b.highestBar()
	if rect.Empty() || top <= 0 {
		return
	}
	lineRow := -1
	if b.Line > 0 && b.Line <= top {
		lineRow = min(rect.H-1, int(b.Line/top*float64(rect.H)))
	}
	for x := range rect.W {
		c.drawBar(rect, b, x, top, lineRow)
	}
}

func (b Bars) highestBar() float64 {
	if b.Max > 0 {
		return b.Max
	}
	top := 0.0
	for _, v := range b.Values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			top = max(top, v)
		}
	}
	return top
}

func (c *Canvas) drawBar(rect Rect, b Bars, x int, top float64, lineRow int) {
	units := -1
	style := c.Pal.Style(themes.Text)
	clipped := false
	if x < len(b.Values) && !math.IsNaN(b.Values[x]) {
		clipped = b.Values[x] > top
		units = barHeightUnits(b.Values[x], top, rect.H)
		if b.Style != nil {
			style = b.Style(x)
		}
	}
	for row := range rect.H {
		y := rect.Y + rect.H - 1 - row
		fill := max(0, min(8, units-8*row))
		switch {
		case clipped && row == rect.H-1:
			c.Set(rect.X+x, y, '↑', c.inverseBar(style))
			continue // under the hairline too
		case fill == 8 && row == lineRow:
			c.Set(rect.X+x, y, '┄', c.inverseBar(style))
		case fill > 0:
			c.Set(rect.X+x, y, eighths[fill], style)
		case x == b.Cursor:
			c.Set(rect.X+x, y, '│', c.Pal.Style(themes.Accent))
		case row == lineRow:
			c.Set(rect.X+x, y, '┄', c.Pal.Style(themes.Dim))
		}
		if x == b.Cursor && fill > 0 {
			c.Set(
				rect.X+x,
				y,
				eighths[fill],
				c.Pal.Style(themes.Accent).With(themes.Bold),
			)
		}
	}
}

// inverseBar draws on a full cell of a style's colour, so that a line stays
// visible across a bar.
func (c *Canvas) inverseBar(s themes.Style) themes.Style {
	if s.FG == 0 || c.Pal.Background == 0 {
		return s.With(themes.Reverse)
	}
	return themes.Style{FG: c.Pal.Background, BG: s.FG}
}

// barHeightUnits is the bar's height in eighths of a row. A value above zero shows
// at least one eighth: small is not nothing.
func barHeightUnits(v, top float64, rows int) int {
	if v <= 0 || math.IsNaN(v) {
		return 0
	}
	u := int(math.Round(min(v/top, 1) * float64(8*rows)))
	return max(1, u)
}

// NiceTop rounds v up to 1, 1.5, 2, 2.5, 3, 4, 5 or 8 times a power of ten,
// so that a chart's scale doesn't tremble with its data.
func NiceTop(v float64) float64 {
	if v <= 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 1.5, 2, 2.5, 3, 4, 5, 8, 10} {
		if v <= m*p*(1+1e-9) {
			return m * p
		}
	}
	return 10 * p
}
