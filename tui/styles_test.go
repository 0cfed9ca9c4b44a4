package tui

import (
	"fmt"
	"image/color"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/colorprofile"
	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/themes"
)

// look is a theme on a terminal of some colours.
type look struct {
	theme   string
	profile colorprofile.Profile
}

// looksMost is how many there are: each theme in each profile.
const looksMost = 8

// looks are all of them, the richest profile first.
var looks = func() (out []look) {
	for _, theme := range []string{"dark", "light"} {
		for _, profile := range slices.Backward(themes.Profiles) {
			out = append(out, look{theme, profile})
		}
	}
	return out
}()

// few reports whether the terminal has so few colours that glyphs take the place of shades.
func (l look) few() bool { return l.profile < colorprofile.ANSI256 }

// pictured is one screen in every look.
type pictured struct {
	name  string
	w, h  int
	grids [looksMost]uv.ScreenBuffer
}

// picture draws a screen in every look. It wants exact geometry and colours that the terminal has.
func picture(t *testing.T, name string, w, h int, draw func(look) string) *pictured {
	t.Helper()
	p := &pictured{name: fmt.Sprintf("%s-%dx%d", name, w, h), w: w, h: h}
	for i, l := range looks {
		view := draw(l)
		checkColours(t, view, l.profile)
		p.grids[i] = uv.NewScreenBuffer(w, h)
		uv.NewStyledString(view).Draw(p.grids[i], p.grids[i].Bounds())
	}
	p.sameText(t)
	return p
}

// text is what is drawn in one look.
func (p *pictured) text(i int) string {
	var b strings.Builder
	for y := range p.h {
		for x := range p.w {
			b.WriteString(p.grids[i].CellAt(x, y).Content)
		}
		b.WriteByte('\n')
	}
	return trimRows(strings.TrimSuffix(b.String(), "\n"))
}

// sameText wants a theme to change nothing but colours, and a profile nothing but glyphs in the
// place of shades.
func (p *pictured) sameText(t *testing.T) {
	t.Helper()
	first := map[bool]int{}
	for i, l := range looks {
		like, seen := first[l.few()]
		if !seen {
			first[l.few()] = i
			continue
		}
		if !p.alike(like, i) {
			t.Fatalf("%s in look %v:\n%s\nin look %v:\n%s", p.name, looks[like], p.text(like), l, p.text(i))
		}
	}
	if few := first[true]; p.w == 80 && !p.alike(first[false], few) {
		golden(t, "text/"+p.name+"-16-colours.txt", p.text(few))
	}
}

// alike reports whether two looks have the same text.
func (p *pictured) alike(a, b int) bool {
	for y := range p.h {
		for x := range p.w {
			if p.grids[a].CellAt(x, y).Content != p.grids[b].CellAt(x, y).Content {
				return false
			}
		}
	}
	return true
}

// inkMap is the text of the first look, and below each row the styles of its cells as letters.
func (p *pictured) inkMap() string {
	letters := map[string]byte{}
	inks := map[string]bool{}
	for y := range p.h {
		for x := range p.w {
			inks[inkOf(p.grids[0].CellAt(x, y))] = true
		}
	}
	var b strings.Builder
	for i, ink := range slices.Sorted(maps.Keys(inks)) {
		letters[ink] = byte('a' + i)
		fmt.Fprintf(&b, "%c  %s\n", 'a'+i, ink)
	}
	for y, row := range strings.Split(strings.TrimSuffix(p.text(0), "\n"), "\n") {
		line := make([]byte, p.w)
		for x := range p.w {
			line[x] = letters[inkOf(p.grids[0].CellAt(x, y))]
		}
		fmt.Fprintf(&b, "\n%s\n%s\n", row, line)
	}
	return b.String()
}

// inks are the styles of cells as all looks have them, and a screen that has each. The words of a
// screen are kept once; its colours in all looks are the rows of this table.
type inks map[[looksMost]uv.Style]string

func (k inks) add(p *pictured) {
	for y := range p.h {
		for x := range p.w {
			var ink [looksMost]uv.Style
			for i, g := range p.grids {
				ink[i] = seenStyle(g.CellAt(x, y))
			}
			if _, is := k[ink]; !is {
				k[ink] = p.name
			}
		}
	}
}

// table has a row for each style.
func (k inks) table() string {
	var b strings.Builder
	b.WriteString("# b bold, f faint, i italic, u underlined, r reversed; foreground on background\n")
	heads := make([]string, looksMost)
	for i, l := range looks {
		heads[i] = fmt.Sprintf("%s %s", l.theme, l.profile)
	}
	fmt.Fprintf(&b, "%s | first seen\n", strings.Join(heads, " | "))
	var rows []string
	for ink, where := range k {
		row := ""
		for _, style := range ink {
			row += inkName(style) + " | "
		}
		rows = append(rows, row+where+"\n")
	}
	slices.Sort(rows)
	b.WriteString(strings.Join(rows, ""))
	return b.String()
}

// seenStyle is the style of a cell as far as it can be seen.
func seenStyle(c *uv.Cell) uv.Style {
	s := c.Style
	if strings.TrimSpace(c.Content) == "" && s.Underline == 0 && s.Attrs&uv.AttrReverse == 0 {
		s.Fg = nil
		s.Attrs = 0
	}
	return s
}

// inkOf is it in words.
func inkOf(c *uv.Cell) string { return inkName(seenStyle(c)) }

func inkName(s uv.Style) string {
	marks := ""
	for _, m := range []struct {
		mark string
		has  bool
	}{
		{"b", s.Attrs&uv.AttrBold != 0},
		{"f", s.Attrs&uv.AttrFaint != 0},
		{"i", s.Attrs&uv.AttrItalic != 0},
		{"u", s.Underline != 0},
		{"r", s.Attrs&uv.AttrReverse != 0},
	} {
		if m.has {
			marks += m.mark
		}
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s on %s", marks, colourName(s.Fg), colourName(s.Bg)))
}

func colourName(c color.Color) string {
	switch c := c.(type) {
	case nil:
		return "-"
	case ansi.BasicColor:
		return fmt.Sprint(uint8(c))
	case ansi.IndexedColor:
		return fmt.Sprint(uint8(c))
	}
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}
