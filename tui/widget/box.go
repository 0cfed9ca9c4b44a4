package widget

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/themes"
)

// Rule draws a panel's title line and returns the room below; right is cut first.
func (c *Canvas) Rule(r Rect, title, right string) Rect {
	if r.Empty() {
		return r
	}
	line := c.Pal.Style(themes.Border)
	c.Fill(Rect{r.X, r.Y, r.W, 1}, '─', line)
	used := 2 + c.Text(r.X+2, r.Y, r.W-3, " "+title+" ", c.Pal.Style(themes.Title))
	if right != "" && r.W-used > 6 {
		room := r.W - used - 3
		text := " " + right + " "
		if Width(text) > room {
			text = Cut(text, room)
		}
		c.Right(r.X+r.W-1, r.Y, text, c.Pal.Style(themes.Dim))
	}
	_, rest := r.Rows(1)
	return rest
}

// Cut shortens s to w columns with an ellipsis.
func Cut(s string, w int) string {
	return ansi.Truncate(s, w, "…")
}

// Wrap breaks text at spaces into lines of at most w columns. A word that is
// longer than a line is cut into pieces. The library's Wrap also breaks after
// every hyphen, which would part "-34%" and "INC-0001".
func Wrap(s string, w int) []string {
	if w < 1 {
		return nil
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		for Width(word) > w {
			if line != "" {
				lines = append(lines, line)
				line = ""
			}
			head := longestPrefix(word, w)
			lines = append(lines, head)
			word = word[len(head):]
		}
		switch {
		case word == "":
		case line == "":
			line = word
		case Width(line)+1+Width(word) <= w:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// longestPrefix is the longest head of s within w columns, at least one character.
func longestPrefix(s string, w int) string {
	used := 0
	for i, r := range s {
		if used += runeWidth(r); used > w && i > 0 {
			return s[:i]
		}
	}
	return s
}

// Paragraph writes wrapped text in r and returns the rows used.
func (c *Canvas) Paragraph(r Rect, s string, st themes.Style) int {
	lines := Wrap(Arrows(s, c.ASCII), r.W)
	for i, l := range lines {
		if i >= r.H {
			return r.H
		}
		if i == r.H-1 && len(lines) > r.H {
			l = Cut(l+" …", r.W)
		}
		c.Text(r.X, r.Y+i, r.W, l, st)
	}
	return len(lines)
}

// Centre is a rectangle of at most w × h in the middle of r.
func Centre(r Rect, w, h int) Rect {
	w = min(w, r.W)
	h = min(h, r.H)
	return Rect{r.X + (r.W-w)/2, r.Y + (r.H-h)/2, w, h}
}
