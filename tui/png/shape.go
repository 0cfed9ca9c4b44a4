package png

import (
	"image"
	"image/color"
	"math"

	"golang.org/x/image/vector"
)

// drawShape draws a character that is geometry, and says whether it is.
func (p *painter) drawShape(at image.Rectangle, r rune, fg, bg color.RGBA) bool {
	switch {
	case r >= 0x2580 && r <= 0x259f:
		p.drawBlock(at, r, fg, bg)
	case r >= 0x2800 && r <= 0x28ff:
		p.drawBraille(at, r, fg)
	case p.drawDashed(at, r, fg):
	case arms[r] != 0:
		p.drawLines(at, arms[r], fg)
	default:
		return p.drawSign(at, r, fg)
	}
	return true
}

// eighthBlock is n eighths of a length, rounded so that n and 8−n make it whole.
func eighthBlock(length, n int) int { return (length*n + 4) / 8 }

// drawBlock draws U+2580 to U+259F: halves, eighths, shades and quadrants.
func (p *painter) drawBlock(at image.Rectangle, r rune, fg, bg color.RGBA) {
	w := at.Dx()
	h := at.Dy()
	switch n := int(r - 0x2580); {
	case n == 0:
		at.Max.Y = at.Min.Y + h/2
	case n <= 8: // lower eighths
		at.Min.Y = at.Max.Y - eighthBlock(h, n)
	case n <= 15: // left eighths, from seven down
		at.Max.X = at.Min.X + eighthBlock(w, 16-n)
	case n == 16:
		at.Min.X += w / 2
	case n <= 19: // shades
		fg = mixColours(bg, fg, uint32(n-16)*64)
	case n == 20:
		at.Max.Y = at.Min.Y + eighthBlock(h, 1)
	case n == 21:
		at.Min.X = at.Max.X - eighthBlock(w, 1)
	default:
		p.quadrants(at, quadrants[n-22], fg)
		return
	}
	fillImage(p.img, at, fg)
}

// quadrants of U+2596 to U+259F: upper left 1, upper right 2, lower left 4,
// lower right 8.
var quadrants = [10]int{4, 8, 1, 1 | 4 | 8, 1 | 8, 1 | 2 | 4, 1 | 2 | 8, 2, 2 | 4, 2 | 4 | 8}

func (p *painter) quadrants(at image.Rectangle, set int, fg color.RGBA) {
	mid := image.Pt(at.Min.X+at.Dx()/2, at.Min.Y+at.Dy()/2)
	for i, q := range []image.Rectangle{
		{at.Min, mid},
		image.Rect(mid.X, at.Min.Y, at.Max.X, mid.Y),
		image.Rect(at.Min.X, mid.Y, mid.X, at.Max.Y),
		{mid, at.Max},
	} {
		if set&(1<<i) != 0 {
			fillImage(p.img, q, fg)
		}
	}
}

// brailleDots are the places of the bits of U+2800 to U+28FF, column and row.
var brailleDots = [8]image.Point{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}, {0, 3}, {1, 3}}

func (p *painter) drawBraille(at image.Rectangle, r rune, fg color.RGBA) {
	w, h := at.Dx()/2, at.Dy()/4
	for i, d := range brailleDots {
		if (r-0x2800)&(1<<i) != 0 {
			x := at.Min.X + d.X*w + w/2
			y := at.Min.Y + d.Y*h + h/2
			fillImage(p.img, image.Rect(x-1, y-1, x+1, y+1), fg)
		}
	}
}

// Arms of a box-drawing character, from the middle of its cell.
const (
	left = 1 << iota
	right
	up
	down
	heavy
)

var arms = map[rune]int{
	'─': left | right,
	'│': up | down,
	'┌': right | down,
	'┐': left | down,
	'└': right | up,
	'┘': left | up,
	'├': up | down | right,
	'┤': up | down | left,
	'┬': left | right | down,
	'┴': left | right | up,
	'┼': left | right | up | down,
	'╭': right | down,
	'╮': left | down,
	'╰': right | up,
	'╯': left | up,
	'╴': left,
	'╵': up,
	'╶': right,
	'╷': down,
	'━': left | right | heavy,
	'┃': up | down | heavy,
	'┏': right | down | heavy,
	'┓': left | down | heavy,
	'┗': right | up | heavy,
	'┛': left | up | heavy,
}

func (p *painter) drawLines(at image.Rectangle, set int, fg color.RGBA) {
	x, y := at.Min.X+at.Dx()/2, at.Min.Y+at.Dy()/2
	thick := 1
	if set&heavy != 0 {
		thick = 2
	}
	for arm, r := range map[int]image.Rectangle{
		left:  image.Rect(at.Min.X, y, x+thick, y+thick),
		right: image.Rect(x, y, at.Max.X, y+thick),
		up:    image.Rect(x, at.Min.Y, x+thick, y+thick),
		down:  image.Rect(x, y, x+thick, at.Max.Y),
	} {
		if set&arm != 0 {
			fillImage(p.img, r, fg)
		}
	}
}

// drawDashed draws dashed lines: so many dashes a cell.
func (p *painter) drawDashed(at image.Rectangle, r rune, fg color.RGBA) bool {
	n, tall := 0, false
	switch r {
	case '╌':
		n = 2
	case '╎':
		n, tall = 2, true
	case '┄':
		n = 3
	case '┆':
		n, tall = 3, true
	case '┈':
		n = 4
	case '┊':
		n, tall = 4, true
	default:
		return false
	}
	x, y := at.Min.X+at.Dx()/2, at.Min.Y+at.Dy()/2
	for i := range n {
		if tall {
			from := at.Min.Y + at.Dy()*i/n
			fillImage(p.img, image.Rect(x, from, x+1, from+at.Dy()/n-1), fg)
		} else {
			from := at.Min.X + at.Dx()*i/n
			fillImage(p.img, image.Rect(from, y, from+max(1, at.Dx()/n-1), y+1), fg)
		}
	}
	return true
}

// point is a place in a cell: 0 to 1 across, and as far down, from the top of
// the square that lies in the cell's middle.
type point struct{ x, y float32 }

// signs are polygons in that square.
var signs = map[rune][][]point{
	'■': {{{0.1, 0.1}, {0.9, 0.1}, {0.9, 0.9}, {0.1, 0.9}}},
	'◆': {{{0.5, 0}, {1, 0.5}, {0.5, 1}, {0, 0.5}}},
	'▲': {{{0.5, 0.1}, {1, 0.9}, {0, 0.9}}},
	'▼': {{{0, 0.1}, {1, 0.1}, {0.5, 0.9}}},
	'▶': {{{0.1, 0}, {1, 0.5}, {0.1, 1}}},
	'◀': {{{0.9, 0}, {0.9, 1}, {0, 0.5}}},
	'▸': {{{0.2, 0.15}, {0.9, 0.5}, {0.2, 0.85}}},
	'◂': {{{0.8, 0.15}, {0.8, 0.85}, {0.1, 0.5}}},
	'▴': {{{0.5, 0.2}, {0.85, 0.8}, {0.15, 0.8}}},
	'▾': {{{0.15, 0.2}, {0.85, 0.2}, {0.5, 0.8}}},
	'✓': {{{0, 0.55}, {0.15, 0.4}, {0.38, 0.65}, {0.85, 0}, {1, 0.12}, {0.4, 0.95}}},
	'✗': {{{0.05, 0.15}, {0.2, 0}, {1, 0.85}, {0.85, 1}}, {{0.8, 0}, {0.95, 0.15}, {0.15, 1}, {0, 0.85}}},
	'✖': {{{0, 0.2}, {0.2, 0}, {1, 0.8}, {0.8, 1}}, {{0.8, 0}, {1, 0.2}, {0.2, 1}, {0, 0.8}}},
	'⏸': {
		{{0.1, 0.05}, {0.4, 0.05}, {0.4, 0.95}, {0.1, 0.95}},
		{{0.6, 0.05}, {0.9, 0.05}, {0.9, 0.95}, {0.6, 0.95}},
	},
}

// discs are their radius, and that of the hole in them.
var discs = map[rune][2]float64{
	'●': {0.45, 0},
	'○': {0.45, 0.33},
	'◉': {0.45, 0.2},
	'•': {0.25, 0},
}

func (p *painter) drawSign(at image.Rectangle, r rune, fg color.RGBA) bool {
	if d, ok := discs[r]; ok {
		p.fillRect(at, fg, circlePolygon(d[0], false), circlePolygon(d[1], true))
		return true
	}
	shapes, ok := signs[r]
	if ok {
		for _, s := range shapes {
			p.fillRect(at, fg, s)
		}
	}
	return ok
}

// circlePolygon is a polygon as round as a cell can show; a hole runs the other way.
func circlePolygon(radius float64, hole bool) []point {
	const corners = 48
	var out []point
	for i := range corners {
		a := 2 * math.Pi * float64(i) / corners
		if hole {
			a = -a
		}
		out = append(out, point{float32(0.5 + radius*math.Cos(a)), float32(0.5 + radius*math.Sin(a))})
	}
	return out
}

// fillRect draws polygons in the square in the cell's middle.
func (p *painter) fillRect(at image.Rectangle, fg color.RGBA, shapes ...[]point) {
	side := float32(at.Dx())
	top := float32(at.Dy()-at.Dx()) / 2
	z := vector.NewRasterizer(at.Dx(), at.Dy())
	for _, s := range shapes {
		for i, q := range s {
			if i == 0 {
				z.MoveTo(q.x*side, top+q.y*side)
			} else {
				z.LineTo(q.x*side, top+q.y*side)
			}
		}
		z.ClosePath()
	}
	z.Draw(p.img, at, image.NewUniform(fg), image.Point{})
}
