package widget

import "github.com/failslow/falcon/themes"

// Pixel values of a raster beyond the ramp's levels. They are states of their
// own, not colours of a scale, and carry glyphs.
const (
	PixelStale      uint8 = themes.Levels + iota // no fresh data
	PixelLost                                    // process gone
	PixelCulprit                                 // named by an open incident
	PixelExcluded                                // does not take part any more
	PixelUnmeasured                              // takes part, and the metric was not measured
	PixelMark                                    // overlay: the most probable run, the cursor
	PixelNone                                    // nothing there
)

// weights order pixels by how much they must be seen: of two that share a
// cell, a state of the heavier one takes the whole cell. Stale data hides no
// level from 2 on, and what was not measured hides nothing.
var weights = [PixelNone + 1]int8{
	3, 4, 6, 7, 8, 9, 10,
	PixelStale: 5, PixelLost: 11, PixelCulprit: 12, PixelExcluded: 1, PixelUnmeasured: 2,
	PixelMark: 0, PixelNone: 0,
}

// Worse reports whether pixel a must be seen rather than b.
func Worse(a, b uint8) bool { return weights[a] > weights[b] }

// Raster is a rectangle of pixels, row by row, each a ramp level or one of
// the Pixel states. With colour two rows share one text row.
type Raster struct {
	W, H int
	Pix  []uint8
}

// NewRaster makes a raster of PixelNone.
func NewRaster(w, h int) *Raster {
	r := &Raster{W: max(0, w), H: max(0, h)}
	r.Pix = make([]uint8, r.W*r.H)
	for i := range r.Pix {
		r.Pix[i] = PixelNone
	}
	return r
}

// Put sets one pixel; outside is ignored.
func (r *Raster) Put(x, y int, v uint8) {
	if x >= 0 && y >= 0 && x < r.W && y < r.H {
		r.Pix[y*r.W+x] = v
	}
}

func (r *Raster) pixelAt(x, y int) uint8 {
	if y >= r.H {
		return PixelNone
	}
	return r.Pix[y*r.W+x]
}

// PixelRows is how many raster rows fit in n text rows of the canvas.
func (c *Canvas) PixelRows(n int) int {
	if c.usesHalfBlocks() {
		return 2 * n
	}
	return n
}

func (c *Canvas) usesHalfBlocks() bool {
	return c.Pal.HalfBlocks() && !c.ASCII
}

// Raster draws pixels in the top left of rect with a ramp of the palette.
func (c *Canvas) Raster(rect Rect, r *Raster, ramp *[themes.Levels]themes.Color) {
	look := c.pixelLooks(ramp)
	if !c.usesHalfBlocks() {
		c.drawSingles(rect, r, &look)
		return
	}
	for row := 0; row < rect.H && 2*row < r.H; row++ {
		for x := 0; x < rect.W && x < r.W; x++ {
			top := r.pixelAt(x, 2*row)
			bottom := r.pixelAt(x, 2*row+1)
			c.halfBlocks(rect.X+x, rect.Y+row, top, bottom, &look)
		}
	}
}

// look is how each pixel value is drawn: a colour, and a glyph for states.
type look struct {
	color [PixelNone + 1]themes.Color
	style [PixelNone + 1]themes.Style
	glyph [PixelNone + 1]rune
}

// StateGlyphs are the shapes of the pixel states, from PixelStale on.
var StateGlyphs = [...]rune{'?', '†', '✖', '⊘', '◌', '◆', ' '}

// LevelGlyphs distinguish levels where colour can't.
var LevelGlyphs = [themes.Levels]rune{'·', '▁', '▂', '▃', '▅', '▆', '█'}

// asciiLevels do the same in ASCII.
var asciiLevels = [themes.Levels]rune{'.', ':', '-', '=', '+', '*', '#'}

func (c *Canvas) pixelLooks(ramp *[themes.Levels]themes.Color) look {
	var l look
	for i := range themes.Levels {
		l.color[i] = ramp[i]
		l.style[i] = themes.Style{FG: ramp[i], BG: c.Pal.Background}
		l.glyph[i] = c.LevelGlyph(i)
	}
	roles := [...]themes.Role{
		themes.Stale, themes.Lost, themes.Culprit, themes.Stale, themes.Dim, themes.Accent,
		themes.Text,
	}
	for i, role := range roles {
		v := PixelStale + uint8(i)
		s := c.Pal.Style(role)
		l.style[v], l.glyph[v] = s, StateGlyphs[i]
		l.color[v] = s.BG
		if s.BG == 0 {
			l.color[v] = s.FG
		}
	}
	l.color[PixelNone] = c.Pal.Background
	return l
}

// LevelGlyph is the shape of a level on this canvas.
func (c *Canvas) LevelGlyph(level int) rune {
	level = max(0, min(level, themes.Levels-1))
	if c.ASCII {
		return asciiLevels[level]
	}
	return LevelGlyphs[level]
}

// halfBlocks draws two pixels in one cell. A state keeps its glyph: it covers the
// whole cell, so that it can't vanish in a scale.
func (c *Canvas) halfBlocks(x, y int, top, bottom uint8, l *look) {
	worst := top
	if Worse(bottom, top) {
		worst = bottom
	}
	if isStatePixel(worst) {
		s := l.style[worst]
		if s.BG == 0 {
			s.BG = c.Pal.Background
		}
		c.Set(x, y, l.glyph[worst], s)
		return
	}
	if top == bottom {
		c.Set(x, y, ' ', themes.Style{FG: l.color[top], BG: l.color[top]})
		return
	}
	c.Set(x, y, '▀', themes.Style{FG: l.color[top], BG: l.color[bottom]})
}

func isStatePixel(v uint8) bool { return v >= PixelStale && v < PixelMark }

func (c *Canvas) drawSingles(rect Rect, r *Raster, l *look) {
	for y := 0; y < rect.H && y < r.H; y++ {
		for x := 0; x < rect.W && x < r.W; x++ {
			v := r.pixelAt(x, y)
			c.Set(rect.X+x, rect.Y+y, l.glyph[v], l.style[v])
		}
	}
}
