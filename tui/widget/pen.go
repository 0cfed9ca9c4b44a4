package widget

import (
	"fmt"

	"github.com/failslow/falcon/themes"
)

// Pen writes runs of differently styled text on one row.
type Pen struct {
	c         *Canvas
	X, Y, End int
	base      themes.Style
}

// Pen starts writing at the left of r's first row.
func (c *Canvas) Pen(r Rect) *Pen {
	return &Pen{c: c, X: r.X, Y: r.Y, End: r.X + r.W}
}

// SelectedPen writes on a row that is drawn as selected.
func (c *Canvas) SelectedPen(r Rect) *Pen {
	sel := c.Pal.Style(themes.Selected)
	c.Fill(r, ' ', sel)
	return c.Pen(r).Over(sel)
}

// Over makes all further text lie on a background and carry attributes.
func (p *Pen) Over(s themes.Style) *Pen {
	p.base = s
	return p
}

// Put writes text in a role.
func (p *Pen) Put(role themes.Role, s string) *Pen {
	return p.Style(p.c.Pal.Style(role), s)
}

// Putf writes formatted text in a role.
func (p *Pen) Putf(role themes.Role, format string, a ...any) *Pen {
	return p.Put(role, fmt.Sprintf(format, a...))
}

// Style writes text in a style of its own.
func (p *Pen) Style(st themes.Style, s string) *Pen {
	st = p.c.Pal.On(st, p.base)
	st.Attr |= p.base.Attr
	p.X += p.c.Text(p.X, p.Y, p.End-p.X, s, st)
	return p
}

// Space moves on by n columns.
func (p *Pen) Space(n int) *Pen {
	p.X = min(p.X+n, p.End)
	return p
}

// Left is the number of columns that remain.
func (p *Pen) Left() int {
	return max(0, p.End-p.X)
}

// Fits reports whether s can be written whole.
func (p *Pen) Fits(s string) bool {
	return Width(s) <= p.Left()
}
