// Package png draws a console's screen as a picture, cell by cell: what a
// terminal would show, without a terminal.
//
// The text is the Go Mono font's. Lines, blocks, half blocks and braille are
// drawn as geometry, so that neighbours meet without a seam, and so are the few
// signs that the font lacks. The same screen gives the same pixels everywhere.
// The package holds pure functions: no goroutines that outlive a call, no
// clock, no files.
package png

import (
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	stdpng "image/png"
	"io"
	"maps"
	"slices"
	"strings"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/vt"
)

// A cell's size in pixels, and the margin around the screen.
const (
	CellW  = 10
	CellH  = 20
	margin = 10
)

// maxSide bounds a screen, in cells.
const maxSide = 1000

// Options are the terminal's own colours, where the screen sets none.
type Options struct {
	Foreground color.Color // nil = light grey
	Background color.Color // nil = that of most text, else black
}

// Draw draws a screen of w × h cells, as lines of text with escape sequences.
// Missing lists the characters that it has no shape for, drawn as a frame.
func Draw(screen string, w, h int, o Options) (img *image.RGBA, missing []string, err error) {
	if w < 1 || h < 1 || w > maxSide || h > maxSide {
		return nil, nil, fmt.Errorf("picture: %d×%d cells: a side may be 1 to %d", w, h, maxSide)
	}
	t := vt.NewEmulator(w, h)
	defer t.Close()
	if _, err := t.WriteString(strings.ReplaceAll(
		strings.TrimSuffix(screen, "\n"),
		"\n",
		"\r\n",
	)); err != nil {
		return nil, nil, err
	}
	if o.Background == nil {
		o.Background = backgroundOf(t, w, h)
	}
	p := newPainter(w, h, o)
	for y := range h {
		for x := range w {
			if c := t.CellAt(x, y); c != nil {
				p.drawCell(x, y, c)
			}
		}
	}
	slices.Sort(p.missing)
	return p.img, slices.Compact(p.missing), nil
}

// backgroundOf is the background behind most text, for the margin to be part
// of the screen; nil where none is set. Cells of maps are blanks or blocks.
func backgroundOf(t *vt.Emulator, w, h int) color.Color {
	count := map[color.RGBA]int{}
	best := color.Color(nil)
	for i, most := 0, 0; i < w*h; i++ {
		c := t.CellAt(i%w, i/w)
		if c != nil && c.Style.Bg != nil && c.Content != " " && c.Content != "▀" {
			bg := colourOf(c.Style.Bg, color.RGBA{})
			if count[bg]++; count[bg] > most {
				most = count[bg]
				best = bg
			}
		}
	}
	return best
}

// Encode writes a picture as PNG of at most 256 colours: a screen has few, and
// the shades of its letters' edges are near to each other.
func Encode(out io.Writer, img *image.RGBA) error {
	e := stdpng.Encoder{CompressionLevel: stdpng.BestCompression}
	return e.Encode(out, palettedImage(img))
}

// palettedImage gives each pixel the nearest of the picture's commonest colours.
func palettedImage(img *image.RGBA) *image.Paletted {
	const most = 256
	count := map[color.RGBA]int{}
	eachPixel(img, func(_, _ int, c color.RGBA) { count[c]++ })
	common := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(
			cmp.Compare(count[b], count[a]),
			cmp.Compare(a.R, b.R),
			cmp.Compare(a.G, b.G),
			cmp.Compare(a.B, b.B),
		)
	})
	out := image.NewPaletted(img.Rect, nil)
	for _, c := range common[:min(most, len(common))] {
		out.Palette = append(out.Palette, c)
	}
	index := make(map[color.RGBA]uint8, len(count))
	for _, c := range common {
		index[c] = uint8(out.Palette.Index(c))
	}
	eachPixel(img, func(x, y int, c color.RGBA) {
		out.SetColorIndex(x, y, index[c])
	})
	return out
}

func eachPixel(img *image.RGBA, do func(x, y int, c color.RGBA)) {
	for y := img.Rect.Min.Y; y < img.Rect.Max.Y; y++ {
		for x := img.Rect.Min.X; x < img.Rect.Max.X; x++ {
			do(x, y, img.RGBAAt(x, y))
		}
	}
}

type painter struct {
	img     *image.RGBA
	fg, bg  color.RGBA
	fonts   fonts
	missing []string
}

func newPainter(w, h int, o Options) *painter {
	p := &painter{
		fg:    colourOf(o.Foreground, color.RGBA{0xcc, 0xcc, 0xcc, 0xff}),
		bg:    colourOf(o.Background, color.RGBA{A: 0xff}),
		fonts: loadFonts(),
	}
	p.img = image.NewRGBA(image.Rect(0, 0, w*CellW+2*margin, h*CellH+2*margin))
	fillImage(p.img, p.img.Bounds(), p.bg)
	return p
}

func colourOf(c color.Color, none color.RGBA) color.RGBA {
	if c == nil {
		return none
	}
	return color.RGBAModel.Convert(c).(color.RGBA)
}

func fillImage(img draw.Image, r image.Rectangle, c color.Color) {
	draw.Draw(img, r, image.NewUniform(c), image.Point{}, draw.Src)
}

// drawCell draws one cell; one of two columns covers the next.
func (p *painter) drawCell(x, y int, c *uv.Cell) {
	if c.Width == 0 {
		return
	}
	fg := colourOf(c.Style.Fg, p.fg)
	bg := colourOf(c.Style.Bg, p.bg)
	if c.Style.Attrs&uv.AttrReverse != 0 {
		fg, bg = bg, fg
	}
	if c.Style.Attrs&uv.AttrFaint != 0 {
		fg = mixColours(fg, bg, 0x80)
	}
	at := image.Rect(x*CellW, y*CellH, (x+c.Width)*CellW, (y+1)*CellH).Add(image.Pt(margin, margin))
	fillImage(p.img, at, bg)
	p.drawGlyph(at, c, fg, bg)
	if c.Style.Underline != uv.UnderlineNone {
		fillImage(p.img, image.Rect(at.Min.X, at.Max.Y-3, at.Max.X, at.Max.Y-2), fg)
	}
}

func (p *painter) drawGlyph(at image.Rectangle, c *uv.Cell, fg, bg color.RGBA) {
	text := strings.TrimSpace(c.Content)
	if text == "" {
		return
	}
	first := []rune(text)[0]
	switch {
	case p.drawShape(at, first, fg, bg):
	case p.fonts.drawRune(p.img, at, first, fg, c.Style.Attrs&uv.AttrBold != 0):
	default:
		p.missing = append(p.missing, string(first))
		drawFrame(p.img, at.Inset(2), fg)
	}
}

// mixColours is a with share/255 of b.
func mixColours(a, b color.RGBA, share uint32) color.RGBA {
	one := func(x, y uint8) uint8 {
		return uint8((uint32(x)*(255-share) + uint32(y)*share) / 255)
	}
	return color.RGBA{one(a.R, b.R), one(a.G, b.G), one(a.B, b.B), 0xff}
}

func drawFrame(img draw.Image, r image.Rectangle, c color.Color) {
	fillImage(img, image.Rect(r.Min.X, r.Min.Y, r.Max.X, r.Min.Y+1), c)
	fillImage(img, image.Rect(r.Min.X, r.Max.Y-1, r.Max.X, r.Max.Y), c)
	fillImage(img, image.Rect(r.Min.X, r.Min.Y, r.Min.X+1, r.Max.Y), c)
	fillImage(img, image.Rect(r.Max.X-1, r.Min.Y, r.Max.X, r.Max.Y), c)
}
