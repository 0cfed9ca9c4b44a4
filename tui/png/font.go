package png

import (
	"image"
	"image/color"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/gomonobold"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
)

// points makes the font's characters, 0.6 of their size, as wide as a cell.
const points = CellW / 0.6

// baseline is the letters' base line, from a cell's top.
const baseline = 15

// fonts are one picture's: a face is not safe for use by several at once.
type fonts struct{ plain, bold typeface }

type typeface struct {
	font *sfnt.Font
	face font.Face
}

// parsed are the fonts, which are part of the program and never fail to parse.
var parsed = sync.OnceValue(func() [2]*sfnt.Font {
	var out [2]*sfnt.Font
	for i, ttf := range [][]byte{gomono.TTF, gomonobold.TTF} {
		f, err := opentype.Parse(ttf)
		if err != nil {
			panic(err)
		}
		out[i] = f
	}
	return out
})

func loadFonts() fonts {
	both := parsed()
	return fonts{newTypeface(both[0]), newTypeface(both[1])}
}

func newTypeface(f *sfnt.Font) typeface {
	face, err := opentype.NewFace(f, &opentype.FaceOptions{
		Size:    points,
		DPI:     72,
		Hinting: font.HintingNone,
	})
	if err != nil {
		panic(err) // only for options that make no sense
	}
	return typeface{f, face}
}

// drawRune draws a character and says whether the font has it.
func (f fonts) drawRune(img *image.RGBA, at image.Rectangle, r rune, c color.Color, bold bool) bool {
	t := f.plain
	if bold {
		t = f.bold
	}
	if n, err := t.font.GlyphIndex(nil, r); err != nil || n == 0 {
		return false
	}
	d := font.Drawer{
		Dst:  img.SubImage(at).(*image.RGBA),
		Src:  image.NewUniform(c),
		Face: t.face,
		Dot:  fixed.P(at.Min.X, at.Min.Y+baseline),
	}
	d.DrawString(string(r))
	return true
}
