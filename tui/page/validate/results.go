package validate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// line draws one row of results into a rectangle.
type line func(widget.Rect)

// resultLines are the rows of a validation's results, the slowest of each kind first.
func resultLines(c *widget.Canvas, v *falconv1.Validation, w int) []line {
	var out []line
	gemm := slices.Clone(v.Gemm)
	slices.SortStableFunc(gemm, func(a, b *falconv1.GemmResult) int { return cmp.Compare(b.Ratio, a.Ratio) })
	top := 0.0
	for _, g := range gemm {
		top = max(top, g.Ms, 1.1*Limit*g.MedianMs)
	}
	if len(gemm) > 0 {
		out = append(out, func(r widget.Rect) { drawGEMMHeading(c, r, gemm[0]) })
	}
	for _, g := range gemm {
		out = append(out, func(r widget.Rect) { drawGEMMResult(c, r, g, top) })
	}
	links := slices.Clone(v.Links)
	slices.SortStableFunc(links, func(a, b *falconv1.LinkResult) int { return cmp.Compare(b.Ratio, a.Ratio) })
	for _, l := range links {
		out = append(out, func(r widget.Rect) { drawLinkResult(c, r, l, w) })
	}
	return out
}

// drawGEMMHeading shows what the bars are measured against.
func drawGEMMHeading(c *widget.Canvas, r widget.Rect, g *falconv1.GemmResult) {
	pen := c.Pen(r).Put(themes.Dim, "GEMM")
	if g.MedianMs > 0 {
		pen.Putf(themes.Dim, " median %s  ╎ %.1f × the median: slow beyond", phrase.Ms(g.MedianMs), Limit)
	}
}

// gemmNumW is the room of a result's numbers.
const gemmNumW = 24

func drawGEMMResult(c *widget.Canvas, r widget.Rect, g *falconv1.GemmResult, top float64) {
	pen := c.Pen(r).Putf(themes.Text, "%-10s rank %-5d", widget.Cut(g.Device, 10), g.Rank)
	if g.Err != "" {
		pen.Put(themes.Warn, g.Err)
		return
	}
	role := verdictRole(g.Slow)
	room := max(4, pen.Left()-gemmNumW)
	limit := pen.X + int(Limit*g.MedianMs/top*float64(room))
	bar := pen.X
	pen.Put(role, Bar(g.Ms, top, room, c.ASCII))
	if pen.Putf(role, "%9s", phrase.Ms(g.Ms)); g.Ratio > 0 {
		pen.Putf(role, " %5.2f×%s", g.Ratio, slowVerdict(g.Slow))
	}
	if g.MedianMs > 0 && top > 0 && limit >= bar && limit < bar+room {
		style := c.Pal.Style(themes.Accent)
		if c.At(limit, r.Y).R != ' ' { // over the bar: of its colour's opposite
			style = c.Pal.Style(role).With(themes.Reverse)
		}
		c.Set(limit, r.Y, '╎', style)
	}
}

func drawLinkResult(c *widget.Canvas, r widget.Rect, l *falconv1.LinkResult, w int) {
	pen := c.Pen(r).Put(themes.Text, fmt.Sprintf("%-20s ", widget.Cut(widget.Arrows(l.FromDevice+" → "+l.ToDevice, c.ASCII), 20)))
	if w >= 70 {
		pen.Putf(themes.Dim, "%-10s %-10s pass %-2d ", widget.Cut(l.Link, 10), l.Class, l.Pass+1)
	}
	if l.Err != "" {
		pen.Put(themes.Warn, l.Err)
		return
	}
	role := verdictRole(l.Slow)
	pen.Putf(role, "%9s", phrase.Ms(l.Ms))
	if l.Ratio > 0 {
		pen.Putf(role, " %5.2f×", l.Ratio)
	} else {
		pen.Put(themes.Dim, "  nothing to compare with")
	}
	pen.Put(role, slowVerdict(l.Slow))
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
	full, part := "█", eighths[units%8]
	if ascii {
		full, part = "#", ""
	}
	bar := strings.Repeat(full, max(0, units/8)) + part // units of NaN are the least int
	return fmt.Sprintf("%s%*s", bar, w-widget.Width(bar), "")
}
