package themes

import (
	"image/color"
	"math"
	"strconv"

	"github.com/charmbracelet/x/ansi"
)

// Color is one terminal colour: a kind in the top byte, a value below. Zero leaves what is there.
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

// AppendSGR appends the sequence that selects a style from scratch: shorter
// than it looks, as most changes in a raster change both colours anyway.
func (s Style) AppendSGR(b []byte) []byte {
	b = append(b, "\x1b["...)
	start := len(b)
	b = append(b, '0')
	for _, a := range [...]struct {
		bit  Attr
		code byte
	}{{Bold, '1'}, {Faint, '2'}, {Underline, '4'}, {Reverse, '7'}} {
		if s.Attr&a.bit != 0 {
			b = append(b, ';', a.code)
		}
	}
	if s.FG != 0 {
		b = s.FG.AppendSGR(append(b, ';'), false)
	}
	if s.BG != 0 {
		b = s.BG.AppendSGR(append(b, ';'), true)
	}
	if len(b) == start+1 {
		b = b[:start]
	}
	return append(b, 'm')
}

// SGR is the sequence that selects a style from scratch.
func (s Style) SGR() string { return string(s.AppendSGR(nil)) }

// Terminal is the colour for the libraries, as the theme names it; nil for a zero colour.
func (c Color) Terminal() color.Color {
	v := uint32(c &^ kindMask)
	switch c & kindMask {
	case kind16:
		return ansi.BasicColor(v)
	case kind256:
		return ansi.IndexedColor(v)
	case kindRGB:
		return ansi.RGBColor{
			R: uint8(v >> 16),
			G: uint8(v >> 8),
			B: uint8(v),
		}
	}
	return nil
}

// Luminance is the relative luminance of WCAG 2, 0 to 1, of the colour as a
// common terminal shows it; terminals differ in the first 16.
func (c Color) Luminance() float64 {
	at := c.Terminal()
	if at == nil {
		return 0
	}
	r, g, b, _ := at.RGBA()
	return 0.2126*linearLight(r) + 0.7152*linearLight(g) + 0.0722*linearLight(b)
}

func linearLight(v uint32) float64 {
	x := float64(v) / 0xffff
	if x <= 0.04045 {
		return x / 12.92
	}
	return math.Pow((x+0.055)/1.055, 2.4)
}

// Contrast is the WCAG 2 contrast ratio of two colours, 1 to 21.
func Contrast(a, b Color) float64 {
	x := a.Luminance()
	y := b.Luminance()
	if x < y {
		x, y = y, x
	}
	return (x + 0.05) / (y + 0.05)
}
