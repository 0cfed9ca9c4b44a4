package widget

import (
	"math"
	"strings"
	"testing"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/themes"
)

func traced(t *testing.T, w, h int, ascii bool, tr Trace) []string {
	t.Helper()
	theme, err := themes.Load("dark")
	if err != nil {
		t.Fatal(err)
	}
	c := NewCanvas(w, h, theme.Palette(colorprofile.TrueColor), ascii)
	c.Trace(c.Whole(), tr)
	return strings.Split(ansi.Strip(c.String()), "\n")
}

// A level is one row of dots, and a step between two is joined; nothing below is filled.
func TestTraceIsALine(t *testing.T) {
	level := traced(t, 4, 3, false, Trace{
		Mean:   []float64{5, 5, 5, 5, 5, 5, 5, 5},
		From:   0,
		To:     11,
		Cursor: -1,
	})
	if got := strings.Join(level, "|"); got != "    |⠤⠤⠤⠤|    " {
		t.Errorf("%q", got)
	}
	step := traced(t, 2, 2, false, Trace{
		Mean:   []float64{0, 0, 7, 7},
		From:   0,
		To:     7,
		Cursor: -1,
	})
	if got := strings.Join(step, "|"); got != " ⡏|⣀⠇" {
		t.Errorf("%q", got)
	}
	gap := traced(t, 3, 1, false, Trace{
		Mean:   []float64{0, 0, math.NaN(), math.NaN(), 0, 0},
		From:   0,
		To:     3,
		Cursor: -1,
	})
	if gap[0] != "⣀ ⣀" {
		t.Errorf("%q", gap)
	}
}

// The band lies around the line; what is beyond the edge has an arrow.
func TestTraceHasABand(t *testing.T) {
	two := []float64{2, 2}
	band := traced(t, 1, 1, false, Trace{
		Least:    []float64{1, 1},
		Mean:     two,
		Greatest: []float64{3, 3},
		From:     0,
		To:       3,
		Cursor:   -1,
	})
	if band[0] != "⠿" {
		t.Errorf("%q", band)
	}
	beyond := traced(t, 1, 2, false, Trace{
		Mean:   []float64{9, 9},
		From:   0,
		To:     3,
		Cursor: -1,
	})
	if beyond[0] != "↑" {
		t.Errorf("%q", beyond)
	}
}

// Without braille the same is drawn in ASCII alone.
func TestTraceInASCII(t *testing.T) {
	got := traced(t, 4, 3, true, Trace{
		Least:    []float64{0, 0, 2, 2},
		Mean:     []float64{0, 1, 2, 2},
		Greatest: []float64{0, 2, 2, 2},
		From:     0,
		To:       2,
		Cursor:   -1,
	})
	if s := strings.Join(got, "|"); s != " :**| *: |*:  " {
		t.Errorf("%q", s)
	}
}
