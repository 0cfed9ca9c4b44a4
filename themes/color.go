package themes

import (
	"math"
	"strconv"
)

// Color is one terminal colour: a kind in the top byte, a value below it.
// Zero means "leave what is there".
type Color uint32

const (
	kindMask Color = 0xff000000
	kind16   Color = 0x01000000
	kind256  Color = 0x02000000
	kindRGB  Color = 0x03000000
)

// AppendSGR appends the parameters that select the colour as foreground or
// background; nothing for a zero colour.
func (c Color) AppendSGR(b []byte, background bool) []byte {
	v := uint64(c &^ kindMask)
	base := uint64(30)
	if background {
		base = 40
	}
	switch c & kindMask {
	case kind16:
		if v >= 8 {
			base, v = base+60, v-8
		}
		return strconv.AppendUint(b, base+v, 10)
	case kind256:
		b = strconv.AppendUint(b, base+8, 10)
		b = append(b, ";5;"...)
		return strconv.AppendUint(b, v, 10)
	case kindRGB:
		b = strconv.AppendUint(b, base+8, 10)
		b = append(b, ";2;"...)
		b = strconv.AppendUint(b, v>>16, 10)
		b = append(b, ';')
		b = strconv.AppendUint(b, v>>8&0xff, 10)
		b = append(b, ';')
		return strconv.AppendUint(b, v&0xff, 10)
	}
	return b
}

// RGB is the colour as a common terminal shows it; ok is false for a zero
// colour. The first 16 are xterm's defaults: terminals differ there.
func (c Color) RGB() (r, g, b uint8, ok bool) {
	v := int(c &^ kindMask)
	switch c & kindMask {
	case kindRGB:
		return uint8(v >> 16), uint8(v >> 8), uint8(v), true
	case kind16, kind256:
		r, g, b = indexed(v)
		return r, g, b, true
	}
	return 0, 0, 0, false
}

var basic = [16][3]uint8{
	{0, 0, 0},
	{205, 0, 0},
	{0, 205, 0},
	{205, 205, 0},
	{0, 0, 238},
	{205, 0, 205},
	{0, 205, 205},
	{229, 229, 229},
	{127, 127, 127},
	{255, 0, 0},
	{0, 255, 0},
	{255, 255, 0},
	{92, 92, 255},
	{255, 0, 255},
	{0, 255, 255},
	{255, 255, 255},
}

// indexed is xterm's 256-colour table: 16 basic, a 6×6×6 cube, 24 greys.
func indexed(v int) (r, g, b uint8) {
	switch {
	case v < 16:
		return basic[v][0], basic[v][1], basic[v][2]
	case v < 232:
		v -= 16
		return cube(v / 36), cube(v / 6 % 6), cube(v % 6)
	default:
		grey := uint8(8 + 10*(v-232))
		return grey, grey, grey
	}
}

func cube(i int) uint8 {
	if i == 0 {
		return 0
	}
	return uint8(55 + 40*i)
}

// Luminance is the relative luminance of WCAG 2, 0 to 1.
func (c Color) Luminance() float64 {
	r, g, b, _ := c.RGB()
	return 0.2126*linear(r) + 0.7152*linear(g) + 0.0722*linear(b)
}

func linear(v uint8) float64 {
	x := float64(v) / 255
	if x <= 0.04045 {
		return x / 12.92
	}
	return math.Pow((x+0.055)/1.055, 2.4)
}

// Contrast is the WCAG 2 contrast ratio of two colours, 1 to 21.
func Contrast(a, b Color) float64 {
	x, y := a.Luminance(), b.Luminance()
	if x < y {
		x, y = y, x
	}
	return (x + 0.05) / (y + 0.05)
}
