package widget

import (
	"math"

	"github.com/failslow/falcon/themes"
)

// Trace is a line chart in dots: for each column of dots the mean of what was measured in its time,
// between two fainter lines of the least and the greatest. Nothing is filled. Values that are
// NaN leave a gap; those beyond the top edge end in an arrow there.
type Trace struct {
	Least, Mean, Greatest []float64 // one a column of dots; Least and Greatest nil = those of Mean
	From, To              float64   // values at the lower and the upper edge
	Line                  float64   // dashed horizontal line, 0 = none
	Style                 func(i int) themes.Style
	Cursor                int // cell under the hairline, -1 = none
}

// Dots of a cell: as braille has them, or one where only ASCII may be drawn.
const (
	brailleColumns = 2
	brailleRows    = 4
	brailleBlank   = '⠀'
)

// brailleBits are the dots of a cell, column by column from the top.
var brailleBits = [brailleColumns][brailleRows]rune{{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}

// DotColumns is how many columns of dots a cell has here.
func (c *Canvas) DotColumns() int {
	if c.ASCII {
		return 1
	}
	return brailleColumns
}

// dots is a raster of dots being set; a cell takes the style of the last mean in it.
type dots struct {
	rect   Rect
	across int
	down   int
	bits   []rune
	line   []bool // a mean is in the cell
	style  []themes.Style
}

// Trace draws the chart in rect.
func (c *Canvas) Trace(rect Rect, t Trace) {
	if rect.Empty() || !(t.To > t.From) {
		return
	}
	d := &dots{
		rect:   rect,
		across: c.DotColumns(),
		down:   brailleRows,
		bits:   make([]rune, rect.W*rect.H),
		line:   make([]bool, rect.W*rect.H),
		style:  make([]themes.Style, rect.W*rect.H),
	}
	if c.ASCII {
		d.down = 1
	}
	c.drawTraceLine(rect, t)
	d.plot(c, t)
	for i, bits := range d.bits {
		x := rect.X + i%rect.W
		y := rect.Y + i/rect.W
		switch {
		case bits == 0:
		case !c.ASCII:
			c.Set(x, y, brailleBlank+bits, d.style[i])
		case d.line[i]:
			c.Set(x, y, '*', d.style[i])
		default:
			c.Set(x, y, ':', d.style[i])
		}
	}
	c.drawTraceEdges(rect, t)
}

// drawTraceLine draws the dashed line and the hairline, which lie behind.
func (c *Canvas) drawTraceLine(rect Rect, t Trace) {
	if t.Line > t.From && t.Line <= t.To {
		y := rect.Y + rect.H - 1 - min(rect.H-1, int((t.Line-t.From)/(t.To-t.From)*float64(rect.H)))
		for x := range rect.W {
			c.Set(rect.X+x, y, '┄', c.Pal.Style(themes.Dim))
		}
	}
	if t.Cursor >= 0 && t.Cursor < rect.W {
		for y := range rect.H {
			c.Set(rect.X+t.Cursor, rect.Y+y, '│', c.Pal.Style(themes.Accent))
		}
	}
}

// drawTraceEdges marks where the line leaves the chart.
func (c *Canvas) drawTraceEdges(rect Rect, t Trace) {
	for i, v := range t.Mean {
		if x := i / c.DotColumns(); v > t.To && x < rect.W {
			c.Set(rect.X+x, rect.Y, '↑', t.styleOf(c, i))
		}
	}
}

func (t *Trace) styleOf(c *Canvas, i int) themes.Style {
	if t.Style == nil {
		return c.Pal.Style(themes.Accent)
	}
	return t.Style(i)
}

// plot sets the dots, the mean over the other two.
func (d *dots) plot(c *Canvas, t Trace) {
	dim := c.Pal.Style(themes.Dim)
	faint := func(int) themes.Style { return dim }
	d.plotLine(t, t.Greatest, faint, false)
	d.plotLine(t, t.Least, faint, false)
	d.plotLine(t, t.Mean, func(i int) themes.Style {
		return t.styleOf(c, i)
	}, true)
}

// plotLine sets the dots of one line, each column joined to the one before.
func (d *dots) plotLine(t Trace, values []float64, style func(int) themes.Style, mean bool) {
	before := -1
	for i := 0; i < len(values) && i < d.rect.W*d.across; i++ {
		if math.IsNaN(values[i]) {
			before = -1
			continue
		}
		at := d.row(t, values[i])
		if before >= 0 {
			for y := min(at, before+1); y <= max(at, before-1); y++ {
				d.set(i, y, style(i), mean)
			}
		}
		d.set(i, at, style(i), mean)
		before = at
	}
}

// row is the row of dots of a value, from the top.
func (d *dots) row(t Trace, v float64) int {
	rows := d.rect.H * d.down
	share := min(1, max(0, (v-t.From)/(t.To-t.From)))
	return rows - 1 - int(math.Round(share*float64(rows-1)))
}

func (d *dots) set(column, row int, s themes.Style, mean bool) {
	i := row/d.down*d.rect.W + column/d.across
	if d.across == 1 {
		d.bits[i] |= 1
	} else {
		d.bits[i] |= brailleBits[column%d.across][row%d.down]
	}
	if mean || !d.line[i] {
		d.style[i] = s
	}
	d.line[i] = d.line[i] || mean
}
