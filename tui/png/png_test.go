package png

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"image/color"
	stdpng "image/png"
	"slices"
	"testing"
)

// small has letters, lines, blocks, half blocks, braille and colours.
const small = "\x1b[1mab\x1b[0m ─┼┐\n\x1b[38;2;200;40;40m▀▄█▌\x1b[0m ⣿⠁\n\x1b[7m✖ ●▲\x1b[0m┃"

// The same screen gives the same pixels, here and on any machine.
func TestPixelsStay(t *testing.T) {
	img, missing, err := Draw(small, 8, 3, Options{})
	if err != nil || len(missing) > 0 {
		t.Fatalf("%v, missing %q", err, missing)
	}
	sum := sha256.Sum256(img.Pix)
	const want = "9ac11c729116cb7e"
	if got := hex.EncodeToString(sum[:8]); got != want {
		t.Errorf("pixels are %s, want %s; look at the picture, then mend the constant", got, want)
	}
}

// Full blocks and lines meet their neighbours without a seam.
func TestNeighboursMeet(t *testing.T) {
	img, _, err := Draw("██\n██\n──\n││", 2, 4, Options{Foreground: color.White})
	if err != nil {
		t.Fatal(err)
	}
	white := color.RGBA{0xff, 0xff, 0xff, 0xff}
	for y := range 2 * CellH {
		for x := range 2 * CellW {
			if img.RGBAAt(margin+x, margin+y) != white {
				t.Fatalf("a seam at %d,%d", x, y)
			}
		}
	}
	for x := range 2 * CellW {
		if img.RGBAAt(margin+x, margin+2*CellH+CellH/2) != white {
			t.Fatalf("the line is cut at %d", x)
		}
	}
}

// What has no shape is named and drawn as a frame.
func TestMissingIsNamed(t *testing.T) {
	img, missing, err := Draw("a\u4e2d\U0001f600\u4e2d", 8, 1, Options{})
	if err != nil || !slices.Equal(missing, []string{"\u4e2d", "\U0001f600"}) {
		t.Fatalf("%v, missing %q", err, missing)
	}
	at := img.RGBAAt(margin+CellW+2, margin+CellH/2)
	if at == (color.RGBA{A: 0xff}) {
		t.Error("no frame")
	}
}

// The margin is the screen's ground.
func TestMarginIsTheGround(t *testing.T) {
	img, _, err := Draw("\x1b[48;2;250;250;250mab\n\x1b[48;2;9;9;9mc", 2, 2, Options{})
	if err != nil || img.RGBAAt(0, 0) != (color.RGBA{250, 250, 250, 255}) {
		t.Errorf("%v, %v", img.RGBAAt(0, 0), err)
	}
}

// A PNG of few colours shows every pixel as it is.
func TestEncodeKeepsFewColours(t *testing.T) {
	img, _, err := Draw(small, 8, 3, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	got, err := stdpng.Decode(&b)
	if err != nil || got.Bounds() != img.Bounds() {
		t.Fatalf("%v", err)
	}
	far := 0
	eachPixel(img, func(x, y int, c color.RGBA) {
		r, g, bl, _ := got.At(x, y).RGBA()
		d := func(a uint8, b uint32) int {
			return max(int(a)-int(b>>8), int(b>>8)-int(a))
		}
		far = max(far, d(c.R, r), d(c.G, g), d(c.B, bl))
	})
	if far > 24 {
		t.Errorf("a pixel is off by %d", far)
	}
}

func TestBadSizes(t *testing.T) {
	for _, s := range [][2]int{{0, 1}, {1, 0}, {maxSide + 1, 1}} {
		if _, _, err := Draw("", s[0], s[1], Options{}); err == nil {
			t.Errorf("%v was drawn", s)
		}
	}
}
