package widget

import (
	"math"
	"strings"
	"testing"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/failslow/falcon/themes"
)

func palette(t testing.TB, p colorprofile.Profile) *themes.Palette {
	t.Helper()
	th, err := themes.Load("dark")
	if err != nil {
		t.Fatal(err)
	}
	return th.Palette(p)
}

func plain(c *Canvas) string {
	return ansi.Strip(c.String())
}

func TestTextIsClippedAndWideCharactersTakeTwoColumns(t *testing.T) {
	c := NewCanvas(8, 2, palette(t, colorprofile.TrueColor), false)
	c.Text(0, 0, 99, "abcdefghij", themes.Style{})
	c.Text(0, 1, 5, "日本語です", themes.Style{})
	if got, want := plain(c), "abcdefg…\n日本…   "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Whatever is drawn wherever, every row keeps its exact width.
func TestCanvasNeverBursts(t *testing.T) {
	pal := palette(t, colorprofile.ANSI256)
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.IntRange(0, 40).Draw(t, "w")
		h := rapid.IntRange(0, 10).Draw(t, "h")
		c := NewCanvas(w, h, pal, false)
		for range rapid.IntRange(1, 6).Draw(t, "n") {
			r := Rect{
				rapid.IntRange(-5, 45).Draw(t, "x"), rapid.IntRange(-5, 12).Draw(t, "y"),
				rapid.IntRange(-3, 50).Draw(t, "rw"), rapid.IntRange(-3, 15).Draw(t, "rh"),
			}
			text := rapid.StringMatching(`[a-z日語 ✖]{0,30}`).Draw(t, "text")
			c.Text(r.X, r.Y, r.W, text, themes.Style{})
			c.Rule(r, text, text)
			c.Paragraph(r, text, themes.Style{})
			c.Bars(r, Bars{
				Values: []float64{1, math.NaN(), 3, -1, math.Inf(1)},
				Line:   2,
				Cursor: 1,
			})
			c.Raster(r, NewRaster(r.W, r.H), &pal.Heat)
		}
		if h == 0 {
			return
		}
		rows := strings.Split(plain(c), "\n")
		if len(rows) != h {
			t.Fatalf("%d rows, want %d", len(rows), h)
		}
		for _, row := range rows {
			if got := ansi.StringWidth(row); got != w {
				t.Fatalf("row %q is %d wide, want %d", row, got, w)
			}
		}
	})
}

func TestRasterPairsAndStates(t *testing.T) {
	c := NewCanvas(4, 1, palette(t, colorprofile.TrueColor), false)
	r := NewRaster(4, 2)
	r.Pix = []uint8{0, 3, PixelCulprit, PixelStale, 6, 3, 0, PixelLost}
	c.Raster(c.Whole(), r, &c.Pal.Heat)
	if got, want := plain(c), "▀ ✖†"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	cell := c.At(0, 0)
	if cell.S.FG != c.Pal.Heat[0] || cell.S.BG != c.Pal.Heat[6] {
		t.Errorf("top and bottom colours are %x over %x", cell.S.FG, cell.S.BG)
	}
}

func TestRasterWithoutColourTellsAllLevelsApart(t *testing.T) {
	for _, mode := range []struct {
		profile colorprofile.Profile
		ascii   bool
	}{{colorprofile.ASCII, false}, {colorprofile.ANSI, false}, {colorprofile.TrueColor, true}} {
		c := NewCanvas(13, 1, palette(t, mode.profile), mode.ascii)
		r := NewRaster(13, 1)
		for i := range r.Pix {
			r.Pix[i] = uint8(i)
		}
		c.Raster(c.Whole(), r, &c.Pal.Heat)
		seen := map[rune]bool{}
		for _, ch := range plain(c) {
			seen[ch] = true
		}
		if len(seen) != 13 {
			t.Errorf("%v ascii=%v: %d of 13 shapes differ: %q", mode.profile, mode.ascii, len(seen), plain(c))
		}
	}
}

func TestASCIIWritesASCIIOnly(t *testing.T) {
	c := NewCanvas(40, 3, palette(t, colorprofile.TrueColor), true)
	c.Rule(c.Whole(), "→ ✖ 日", "262 ms → 400 ms")
	c.Bars(
		Rect{2, 1, 9, 1},
		Bars{Values: []float64{1, 2, 3, 4, 5, 6, 7, 8}, Cursor: -1},
	)
	for _, r := range c.String() {
		if r > 126 {
			t.Fatalf("%q holds %q", c.String(), r)
		}
	}
}

func TestBarsScaleFromZero(t *testing.T) {
	c := NewCanvas(4, 2, palette(t, colorprofile.ASCII), false)
	c.Bars(c.Whole(), Bars{Values: []float64{16, 8, 1, math.NaN()}, Cursor: -1})
	if got, want := plain(c), "█   \n██▁ "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLineStaysVisibleAcrossBars(t *testing.T) {
	c := NewCanvas(2, 2, palette(t, colorprofile.ASCII), false)
	c.Bars(c.Whole(), Bars{Values: []float64{16, 1}, Line: 6, Cursor: -1})
	if got, want := plain(c), "█ \n┄▁"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestValuesOffTheScaleAreMarked(t *testing.T) {
	c := NewCanvas(3, 2, palette(t, colorprofile.ASCII), false)
	c.Bars(c.Whole(), Bars{Values: []float64{16, 17, 8}, Max: 16, Cursor: -1})
	if got, want := plain(c), "█↑ \n███"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestArrowsAreWrittenAlike(t *testing.T) {
	for _, text := range []string{"8,8 -> 9,7", "8,8 → 9,7"} {
		for ascii, want := range map[bool]string{false: "8,8 → 9,7 ", true: "8,8 -> 9,7"} {
			c := NewCanvas(10, 1, palette(t, colorprofile.ASCII), ascii)
			c.Text(0, 0, 10, text, themes.Style{})
			if got := plain(c); got != want {
				t.Errorf("%q drawn as %q, want %q", text, got, want)
			}
		}
	}
}

// "AUTO ≤ S2" with "<" alone reads as S1.
func TestAtMostIsNotLessInASCII(t *testing.T) {
	for ascii, want := range map[bool]string{false: "AUTO ≤ S2 ", true: "AUTO <= S2"} {
		c := NewCanvas(10, 1, palette(t, colorprofile.ASCII), ascii)
		c.Text(0, 0, 10, "AUTO ≤ S2", themes.Style{})
		if got := plain(c); got != want {
			t.Errorf("drawn as %q, want %q", got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	got := strings.Join(Wrap("one two threefourfive six", 6), "|")
	if want := "one|two|threef|ourfiv|e six"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNiceTop(t *testing.T) {
	for in, want := range map[float64]float64{0: 1, 212: 250, 400: 400, 401: 500, 0.07: 0.08, 9.1: 10} {
		if got := NiceTop(in); math.Abs(got-want) > 1e-9 {
			t.Errorf("NiceTop(%v) = %v, want %v", in, got, want)
		}
	}
}

func BenchmarkRaster200x60(b *testing.B) {
	pal := palette(b, colorprofile.TrueColor)
	r := NewRaster(200, 120)
	for i := range r.Pix {
		r.Pix[i] = 0
		if i%33 == 0 {
			r.Pix[i] = uint8(i / 33 % themes.Levels)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		c := NewCanvas(200, 60, pal, false)
		c.Raster(c.Whole(), r, &pal.Heat)
		if len(c.String()) == 0 {
			b.Fatal("nothing drawn")
		}
	}
}
