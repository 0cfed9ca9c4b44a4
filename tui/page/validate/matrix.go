package validate

import (
	"cmp"
	"fmt"
	"slices"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/roster"
	"github.com/failslow/falcon/tui/widget"
)

// Limit is where FALCON calls a GPU or link slow: over 1.2 × the median of its kind. Where
// repeats differ by chance the engine takes a higher one.
const Limit = 1.2

// matrix is a validation's link results by their ends: rows send, columns
// receive; a cell holds every direction between two ends, the worst first.
type matrix struct {
	names []string
	cells map[[2]int][]*falconv1.LinkResult
}

// newMatrix parts results by nodes, or by ranks.
func newMatrix(v *falconv1.Validation, byRank bool) matrix {
	m := matrix{cells: map[[2]int][]*falconv1.LinkResult{}}
	ends := map[string]int{}
	type end struct {
		name string
		rank int32
	}
	var list []end
	note := func(device string, rank int32) {
		if name := nameOfEnd(device, rank, byRank); ends[name] == 0 {
			ends[name] = 1
			list = append(list, end{name, rank})
		}
	}
	for _, l := range v.GetLinks() {
		note(l.GetFromDevice(), l.GetFrom())
		note(l.GetToDevice(), l.GetTo())
	}
	slices.SortStableFunc(list, func(a, b end) int {
		return cmp.Compare(a.rank, b.rank)
	})
	for i, e := range list {
		ends[e.name] = i
		m.names = append(m.names, e.name)
	}
	for _, l := range v.GetLinks() {
		at := [2]int{
			ends[nameOfEnd(l.GetFromDevice(), l.GetFrom(), byRank)],
			ends[nameOfEnd(l.GetToDevice(), l.GetTo(), byRank)],
		}
		m.cells[at] = append(m.cells[at], l)
	}
	for _, list := range m.cells {
		slices.SortStableFunc(list, phrase.WorseFirst)
	}
	return m
}

func nameOfEnd(device string, rank int32, byRank bool) string {
	if byRank {
		return fmt.Sprintf("r%d", rank)
	}
	return roster.NodeOf(device)
}

// countNodes counts the nodes of a validation's links.
func countNodes(v *falconv1.Validation) int {
	return len(newMatrix(v, false).names)
}

const (
	nameW = 9 // of a row's name
	numW  = 6 // of a cell with its ratio
)

// cellWidth is that of cells with numbers, or of marks where those don't fit.
func (m matrix) cellWidth(w int) int {
	if nameW+numW*len(m.names) <= w {
		return numW
	}
	return 1
}

// moveCursor moves the cursor within the matrix.
func (m matrix) moveCursor(at [2]int, a key.Action) [2]int {
	switch a {
	case key.Up:
		at[0]--
	case key.Down:
		at[0]++
	case key.Left:
		at[1]--
	case key.Right:
		at[1]++
	}
	return m.clampCursor(at)
}

func (m matrix) clampCursor(at [2]int) [2]int {
	for i := range at {
		at[i] = max(0, min(at[i], len(m.names)-1))
	}
	return at
}

// nextSlow is the next cell with a slow result, in reading order, around the end.
func (m matrix) nextSlow(at [2]int, direction int) [2]int {
	n := len(m.names)
	for i := 1; i <= n*n; i++ {
		at := ((at[0]*n+at[1]+direction*i)%(n*n) + n*n) % (n * n)
		list := m.cells[[2]int{at / n, at % n}]
		if len(list) > 0 && list[0].GetSlow() {
			return [2]int{at / n, at % n}
		}
	}
	return at
}

// worstCell is the cell to look at first.
func (m matrix) worstCell() [2]int {
	best := [2]int{}
	found := (*falconv1.LinkResult)(nil)
	for i := range m.names {
		for j := range m.names {
			list := m.cells[[2]int{i, j}]
			if len(list) > 0 && (found == nil || phrase.WorseFirst(list[0], found) < 0) {
				best = [2]int{i, j}
				found = list[0]
			}
		}
	}
	return best
}

// drawGrid draws the part around the cursor, and the cursor's cell in words.
func (m matrix) drawGrid(c *widget.Canvas, r widget.Rect, at [2]int, focus bool) {
	if len(m.names) == 0 {
		page.Empty(c, r, "no link was tested in this validation; t chooses what the next one tests")
		return
	}
	at = m.clampCursor(at)
	body := r
	foot := widget.Rect{}
	if r.H > 4 {
		body, foot = r.Rows(r.H - 2)
	}
	if n := len(m.names) + 1; !foot.Empty() && n < body.H { // right below, not at the page's end
		foot.Y = body.Y + n
	}
	w := m.cellWidth(body.W)
	rows := max(1, body.H-1)
	cols := max(1, (body.W-nameW)/w)
	top := firstShownRow(at[0], rows, len(m.names))
	left := firstShownRow(at[1], cols, len(m.names))
	m.drawHead(c, body, left, cols, w, at[1])
	for i := top; i < len(m.names) && i-top < rows; i++ {
		y := body.Y + 1 + i - top
		role := themes.Dim
		if i == at[0] {
			role = themes.Key
		}
		c.Text(body.X, y, nameW-1, m.names[i], c.Pal.Style(role))
		for j := left; j < len(m.names) && j-left < cols; j++ {
			m.drawCell(
				c,
				widget.Rect{
					X: body.X + nameW + (j-left)*w,
					Y: y,
					W: w,
					H: 1,
				},
				[2]int{i, j},
				focus && at == [2]int{i, j},
			)
		}
	}
	m.drawDetail(c, foot, at)
}

// drawHead names the columns, or where they are marks, the cursor's only.
func (m matrix) drawHead(c *widget.Canvas, r widget.Rect, left, cols, w, cursor int) {
	c.Text(r.X, r.Y, nameW-1, "from\\to", c.Pal.Style(themes.Dim))
	for j := left; j < len(m.names) && j-left < cols; j++ {
		role := themes.Dim
		if j == cursor {
			role = themes.Key
		}
		x := r.X + nameW + (j-left)*w
		switch {
		case w == numW:
			c.Text(
				x,
				r.Y,
				numW-1,
				fmt.Sprintf("%5s", widget.Cut(m.names[j], numW-1)),
				c.Pal.Style(role),
			)
		case j == cursor:
			c.Text(x, r.Y, r.X+r.W-x, "▼"+m.names[j], c.Pal.Style(role))
		}
	}
}

// ratioSteps are the lower bounds of levels 1 to 6 of a link's ratio.
var ratioSteps = [...]float64{1.05, 1.1, Limit, 1.5, 2, 4}

func ratioLevel(x float64) int {
	level := 0
	for i, lower := range ratioSteps {
		if x >= lower {
			level = i + 1
		}
	}
	return level
}

func (m matrix) drawCell(c *widget.Canvas, r widget.Rect, at [2]int, cursor bool) {
	text, style := m.cellFace(c, at, r.W)
	if cursor {
		style = c.Pal.Style(themes.Selected)
	}
	c.Text(r.X, r.Y, r.W, text, style)
}

// cellFace is a cell's text and style: the worst of its directions.
func (m matrix) cellFace(c *widget.Canvas, at [2]int, w int) (string, themes.Style) {
	list := m.cells[at]
	fit := func(s string) string {
		return fmt.Sprintf("%*s", w-min(1, w-1), s)
	}
	switch {
	case len(list) == 0:
		return fit("·"), c.Pal.Style(themes.Dim)
	case list[0].GetErr() != "":
		return fit("!"), c.Pal.Style(themes.Warn)
	case list[0].GetRatio() <= 0 || list[0].GetUnjudged() != "" && !list[0].GetSlow():
		return fit("?"), c.Pal.Style(themes.Warn)
	}
	role := themes.Text
	switch {
	case list[0].GetSlow():
		role = themes.Bad
	case list[0].GetRatio() >= ratioSteps[1]:
		role = themes.Warn
	}
	if w == 1 {
		level := ratioLevel(list[0].GetRatio())
		return string(c.LevelGlyph(level)), c.Pal.Style(role)
	}
	mark := ""
	if list[0].GetSlow() {
		mark = "✖"
	}
	return fit(fmt.Sprintf("%s%.2f", mark, list[0].GetRatio())), c.Pal.Style(role)
}

// drawDetail says the cursor's cell in numbers, and the way back.
func (m matrix) drawDetail(c *widget.Canvas, r widget.Rect, at [2]int) {
	if r.Empty() {
		return
	}
	row, rest := r.Rows(1)
	m.drawWay(c, row, at)
	if at[0] != at[1] {
		m.drawWay(c, rest, [2]int{at[1], at[0]})
	}
}

func (m matrix) drawWay(c *widget.Canvas, r widget.Rect, at [2]int) {
	pen := c.Pen(r).Putf(themes.Title, "%s → %s ", m.names[at[0]], m.names[at[1]])
	list := m.cells[at]
	if len(list) == 0 {
		pen.Put(themes.Dim, "not tested")
		return
	}
	l := list[0]
	if l.GetErr() != "" {
		pen.Put(themes.Warn, l.GetErr())
		return
	}
	role := verdictRole(l.GetSlow())
	pen.Put(role, phrase.Ms(l.GetMs()))
	if l.GetRatio() > 0 {
		pen.Putf(role, ", %.2f× of %s%s", l.GetRatio(), phrase.Ms(l.GetBaseMs()), basisWords(l))
	}
	pen.Put(role, slowVerdict(l.GetSlow()))
	if l.GetUnjudged() != "" {
		pen.Put(themes.Warn, " not judged: "+l.GetUnjudged())
	}
	if len(list) > 1 {
		pen.Putf(themes.Dim, "  worst of %d: %s → %s",
			len(list), l.GetFromDevice(), l.GetToDevice())
	}
	pen.Putf(themes.Dim, "  %s, pass %d", l.GetClass(), l.GetPass()+1)
}

func basisWords(l *falconv1.LinkResult) string {
	switch {
	case l.GetBasis() == "class":
		return " (median of its class)"
	case l.GetBaseFrom() != "":
		return " (" + l.GetBaseFrom() + ")"
	case l.GetBasis() == "own":
		return " (an earlier test of it)"
	}
	return ""
}
