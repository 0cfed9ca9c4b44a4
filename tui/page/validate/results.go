package validate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/report"
	"github.com/failslow/falcon/tui/widget"
)

// line draws one row of results into a rectangle.
type line func(widget.Rect)

// resultLines are the rows of a validation's results, the slowest of each kind first.
func resultLines(c *widget.Canvas, v *falconv1.Validation, w int) []line {
	var out []line
	gemm := slices.Clone(v.Gemm)
	slices.SortStableFunc(gemm, func(a, b *falconv1.GemmResult) int {
		return cmp.Compare(b.Ratio, a.Ratio)
	})
	top := 0.0
	for _, g := range gemm {
		top = max(top, g.Ms, 1.1*limitOf(g)*g.MedianMs)
	}
	if len(gemm) > 0 {
		out = append(out, func(r widget.Rect) {
			drawGEMMHeading(c, r, gemm[0])
		})
	}
	for _, g := range gemm {
		out = append(out, func(r widget.Rect) {
			drawGEMMResult(c, r, g, top)
		})
	}
	return append(out, linkLines(c, v, w)...)
}

// linkLines are the rows of the links: what was asked for, then what was tested to
// compare with; the gravest first.
func linkLines(c *widget.Canvas, v *falconv1.Validation, w int) []line {
	links := slices.Clone(v.Links)
	slices.SortStableFunc(links, func(a, b *falconv1.LinkResult) int {
		return cmp.Or(compareBools(a.Reference, b.Reference), phrase.WorseFirst(a, b))
	})
	var out []line
	top := 0.0
	for _, l := range links {
		top = max(top, l.Ms)
	}
	table := newLinkTable(w)
	for i, l := range links {
		if i == 0 {
			out = append(out, func(r widget.Rect) { table.drawHeading(c, r) })
		}
		out = append(out, func(r widget.Rect) {
			table.drawResult(c, r, l, top)
		})
	}
	return out
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// drawGEMMHeading shows what the bars are measured against.
func drawGEMMHeading(c *widget.Canvas, r widget.Rect, g *falconv1.GemmResult) {
	pen := c.Pen(r).Put(themes.Dim, "GEMM")
	if g.Bits > 0 {
		pen.Putf(themes.Dim, " %d-bit", g.Bits)
	}
	if g.MedianMs > 0 {
		pen.Putf(themes.Dim, " median %s  ╎ slow beyond %.1f ×", phrase.Ms(g.MedianMs), limitOf(g))
	}
}

// limitOf is the ratio over which a device is slow; an older engine names none.
func limitOf(g *falconv1.GemmResult) float64 {
	return cmp.Or(g.Limit, Limit)
}

// gemmNumW is the room of a result's numbers.
const gemmNumW = 28

func drawGEMMResult(c *widget.Canvas, r widget.Rect, g *falconv1.GemmResult, top float64) {
	pen := c.Pen(r).Putf(themes.Text, "%-10s rank %-5d", widget.Cut(g.Device, 10), g.Rank)
	if g.Err != "" {
		pen.Put(themes.Warn, g.Err)
		return
	}
	role := verdictRole(g.Slow)
	room := max(4, pen.Left()-gemmNumW)
	limit := pen.X + int(limitOf(g)*g.MedianMs/top*float64(room))
	bar := pen.X
	pen.Put(role, Bar(g.Ms, top, room, c.ASCII))
	if pen.Putf(role, "%9s", phrase.Ms(g.Ms)); g.Ratio > 0 {
		pen.Putf(role, " %5.2f×%s", g.Ratio, slowVerdict(g.Slow))
	}
	switch {
	case g.Unjudged != "" && !g.Reference && !g.Slow:
		pen.Put(themes.Warn, " not judged")
	case g.Reference && !g.Slow:
		pen.Put(themes.Dim, " compare")
	}
	if g.MedianMs > 0 && top > 0 && limit >= bar && limit < bar+room {
		style := c.Pal.Style(themes.Accent)
		if c.At(limit, r.Y).R != ' ' { // over the bar: of its colour's opposite
			style = c.Pal.Style(role).With(themes.Reverse)
		}
		c.Set(limit, r.Y, '╎', style)
	}
}

// linkTable is the columns of link results: name, bar, now, rate, usual, verdict. The
// bar takes what is left, and where little is, there is none.
type linkTable struct {
	name, bar int
	usual     bool
	from      bool // which test the usual time is from
}

// Widths of the columns of link results.
const (
	linkNameW     = 17
	linkNameWideW = 28
	linkNumW      = 10
	linkNoteW     = 20 // of a verdict, at least
	linkBarW      = 40 // at most
	linkBarMin    = 6
)

func newLinkTable(w int) linkTable {
	t := linkTable{name: linkNameW}
	if t.from = w >= wideResults; t.from {
		t.name = linkNameWideW
	}
	left := w - t.name - 2*linkNumW - linkNoteW
	if t.usual = left >= linkNumW; t.usual {
		left -= linkNumW
	}
	if t.from {
		left -= linkNumW
	}
	if left >= linkBarMin {
		t.bar = min(linkBarW, left)
	}
	return t
}

func (t linkTable) drawHeading(c *widget.Canvas, r widget.Rect) {
	pen := c.Pen(r).Putf(themes.Dim, "%-*s", t.name+t.bar, "LINKS")
	pen.Putf(themes.Dim, "%*s%*s", linkNumW, "now", linkNumW, "rate")
	if t.usual {
		pen.Putf(themes.Dim, "%*s", linkNumW, "usual")
	}
	if t.from {
		pen.Putf(themes.Dim, " %-*s", linkNumW-1, "of")
	}
	pen.Put(themes.Dim, "  verdict")
}

func (t linkTable) drawResult(c *widget.Canvas, r widget.Rect, l *falconv1.LinkResult, top float64) {
	role := linkRole(l)
	pen := c.Pen(r).Putf(role, "%-*s",
		t.name, widget.Cut(widget.Arrows(l.FromDevice+" → "+l.ToDevice, c.ASCII), t.name-1))
	if l.Err != "" {
		pen.Put(themes.Warn, l.Err)
		return
	}
	if t.bar > 0 {
		pen.Put(role, Bar(l.Ms, top, t.bar, c.ASCII))
	}
	usual, of := "-", ""
	if l.BaseMs > 0 {
		usual = phrase.Ms(l.BaseMs)
		of = cmp.Or(l.BaseFrom, l.Basis)
	}
	rate := report.Rate(falcon.LinkResult{Bytes: l.Bytes, Ms: l.Ms}.MBPerS())
	pen.Putf(role, "%*s%*s", linkNumW, phrase.Ms(l.Ms), linkNumW, rate)
	if t.usual {
		pen.Putf(themes.Dim, "%*s", linkNumW, usual)
	}
	if t.from {
		pen.Putf(themes.Dim, " %-*s", linkNumW-1, widget.Cut(of, linkNumW-1))
	}
	pen.Put(linkVerdictRole(l), "  "+linkVerdict(l))
}

// linkVerdict is the last column: the ratio and a verdict, or why there is none.
func linkVerdict(l *falconv1.LinkResult) string {
	ratio := ""
	if l.Ratio > 0 && l.Unjudged != falcon.NothingToCompare {
		ratio = fmt.Sprintf("%.2f× ", l.Ratio)
	}
	switch {
	case l.Slow:
		return ratio + "SLOW"
	case l.Reference:
		return ratio + "reference"
	case l.Unjudged != "":
		return ratio + "not judged: " + l.Unjudged
	case l.Ratio > 0:
		return ratio + "fine"
	}
	return ""
}

func linkRole(l *falconv1.LinkResult) themes.Role {
	switch {
	case l.Slow:
		return themes.Bad
	case l.Reference:
		return themes.Dim
	}
	return themes.Text
}

func linkVerdictRole(l *falconv1.LinkResult) themes.Role {
	if l.Unjudged != "" && !l.Reference {
		return themes.Warn
	}
	return linkRole(l)
}

func verdictRole(slow bool) themes.Role {
	if slow {
		return themes.Bad
	}
	return themes.Text
}

func slowVerdict(slow bool) string {
	if slow {
		return " SLOW"
	}
	return ""
}

var eighths = [...]string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

// Bar is a bar of at most w columns for v of top, from zero, padded to w.
func Bar(v, top float64, w int, ascii bool) string {
	if top <= 0 || w <= 0 || v < 0 || v > top {
		v, top = 0, 1
	}
	units := int(v/top*float64(w)*8 + 0.5)
	full := "█"
	part := eighths[units%8]
	if ascii {
		full, part = "#", ""
	}
	bar := strings.Repeat(full, max(0, units/8)) + part // units of NaN are the least int
	return fmt.Sprintf("%s%*s", bar, w-widget.Width(bar), "")
}
