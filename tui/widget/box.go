package widget

import (
	"strings"

	"github.com/failslow/falcon/themes"
)

// Rule draws a panel's title line and returns the room below it. Right is
// cut first when the line is short.
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
	if Width(s) <= w {
		return s
	}
	used := 0
	for i, r := range s {
		n := runeWidth(r)
		if used+n > w-1 {
			if w < 1 {
				return ""
			}
			return s[:i] + "…"
		}
		used += n
	}
	return s
}

// Wrap breaks text at spaces into lines of at most w columns. A word that is
// longer than a line is cut into pieces.
func Wrap(s string, w int) []string {
	if w < 1 {
		return nil
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		for Width(word) > w {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			head := prefix(word, w)
			lines, word = append(lines, head), word[len(head):]
		}
		switch {
		case word == "":
		case line == "":
			line = word
		case Width(line)+1+Width(word) <= w:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// prefix is the longest head of s within w columns, at least one character.
func prefix(s string, w int) string {
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
	lines := Wrap(s, r.W)
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

// Box clears r, frames it and returns the room inside; dialogs lie on it.
func (c *Canvas) Box(r Rect, title string, frame themes.Role) Rect {
	if r.W < 4 || r.H < 3 {
		return Rect{}
	}
	surface := c.Pal.Style(themes.Dialog)
	c.Fill(r, ' ', surface)
	line := c.Pal.Style(frame)
	if line.BG != 0 {
		line = themes.Style{FG: line.BG, Attr: line.Attr}
	}
	line = line.On(surface.BG)
	x, y := r.X+r.W-1, r.Y+r.H-1
	c.Fill(Rect{r.X, r.Y, r.W, 1}, '─', line)
	c.Fill(Rect{r.X, y, r.W, 1}, '─', line)
	c.Fill(Rect{r.X, r.Y, 1, r.H}, '│', line)
	c.Fill(Rect{x, r.Y, 1, r.H}, '│', line)
	c.Set(r.X, r.Y, '┌', line)
	c.Set(x, r.Y, '┐', line)
	c.Set(r.X, y, '└', line)
	c.Set(x, y, '┘', line)
	c.Text(r.X+2, r.Y, r.W-4, " "+title+" ", c.Pal.Style(themes.Title).On(surface.BG))
	return r.Inset(2, 1)
}

// Centre is a rectangle of at most w × h in the middle of r.
func Centre(r Rect, w, h int) Rect {
	w, h = min(w, r.W), min(h, r.H)
	return Rect{r.X + (r.W-w)/2, r.Y + (r.H-h)/2, w, h}
}
