package recovery

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

// stage is how far a process can be, least far first: what a mark of several
// ranks shows is the least far of them, never a mean.
type stage struct {
	name  string
	glyph rune
	role  themes.Role
}

var stages = [...]stage{
	{"gone", '†', themes.Lost},
	{"fenced", '✖', themes.Culprit},
	{"running", '●', themes.Text},
	{"starting", '▲', themes.Warn},
	{"joining", '◆', themes.Warn},
	{"parked", '■', themes.Accent},
	{"restoring", '▼', themes.Accent},
	{"training", '✓', themes.Good},
}

// unknown is the stage of a process that has not reported.
var unknown = stage{"unknown", '?', themes.Stale}

// stageIndex is how far a rank is, 0 = least.
func stageIndex(x *falconv1.RankRecovery) int {
	return slices.IndexFunc(stages[:], func(s stage) bool {
		return s.name == x.GetStage()
	})
}

func stageAt(i int) stage {
	if i < 0 || i >= len(stages) {
		return unknown
	}
	return stages[i]
}

// Tally counts ranks by stage, least far first, with the glyphs as legend.
func Tally(v *falconv1.Recovery) string {
	count := map[int]int{}
	for _, x := range v.GetRanks() {
		count[stageIndex(x)]++
	}
	var parts []string
	for i := -1; i < len(stages); i++ {
		if n := count[i]; n > 0 {
			parts = append(parts, fmt.Sprintf("%c %d %s", stageAt(i).glyph, n, stageAt(i).name))
		}
	}
	return strings.Join(parts, "  ")
}

// cursorOf is the chosen rank; while the worst is followed, the first that is least far.
func cursorOf(s *page.State, v *falconv1.Recovery) int32 {
	if !s.Following() || len(v.GetRanks()) == 0 {
		return s.Rank()
	}
	return furthestBehind(v)[0]
}

// furthestBehind lists the ranks that are least far, as the recovery lists them.
func furthestBehind(v *falconv1.Recovery) []int32 {
	least := len(stages)
	var out []int32
	for _, x := range v.GetRanks() {
		switch f := stageIndex(x); {
		case f < least:
			least = f
			out = append(out[:0], x.GetRank())
		case f == least:
			out = append(out, x.GetRank())
		}
	}
	return out
}

// grid is how ranks lie in a rectangle: cells with words, cells with numbers,
// or marks of one or more ranks each, whichever first has room for all.
type grid struct {
	s     *page.State
	v     *falconv1.Recovery
	r     widget.Rect
	cellW int
	words bool
	per   int // ranks a mark; 0 = cells
	cols  int
}

// gridRectOf is where the ranks are, between their title and the cursor's row.
func gridRectOf(r widget.Rect) widget.Rect {
	_, body := r.Rows(1)
	if body.H > 1 {
		body.H--
	}
	return body
}

func newRankGrid(s *page.State, v *falconv1.Recovery, r widget.Rect) grid {
	n := len(v.GetRanks())
	digits := len(strconv.Itoa(max(1, len(v.GetRanks())-1)))
	g := grid{
		s:     s,
		v:     v,
		r:     r,
		words: true,
		cellW: digits + 22,
	}
	if g.fitsCells(n) {
		return g
	}
	g.words = false
	g.cellW = digits + 3
	if g.fitsCells(n) {
		return g
	}
	g.cellW = 1
	for g.per = 1; ; g.per++ {
		marks := (n + g.per - 1) / g.per
		g.cols = max(1, r.W-1)
		if stage := s.TP * s.DP; stage%g.per == 0 && stage/g.per <= g.cols {
			g.cols -= g.cols % (stage / g.per) // stages begin in the same column
		}
		if (marks+g.cols-1)/g.cols <= max(1, r.H) || g.per >= n {
			return g
		}
	}
}

// fitsCells sets the columns and says whether n cells have room.
func (g *grid) fitsCells(n int) bool {
	g.cols = max(1, g.r.W/g.cellW)
	return (n+g.cols-1)/g.cols <= g.r.H
}

func (g grid) moveCursor(a key.Action) {
	rank := cursorOf(g.s, g.v)
	step := int32(max(1, g.per))
	switch a {
	case key.Left:
		rank -= step
	case key.Right:
		rank += step
	case key.Up:
		rank -= step * int32(g.cols)
	case key.Down:
		rank += step * int32(g.cols)
	case key.Next, key.Prev:
		rank = nextInList(furthestBehind(g.v), rank, a == key.Next)
	default:
		return
	}
	g.s.Select(rank)
}

// nextInList is the rank of a list after or before another, around its ends.
func nextInList(list []int32, rank int32, up bool) int32 {
	if len(list) == 0 {
		return rank
	}
	best := rank
	end := list[0]
	for _, r := range list {
		if (r > rank) == up && r != rank && (best == rank || (r < best) == up) {
			best = r
		}
		if (r < end) == up {
			end = r
		}
	}
	if best == rank {
		return end
	}
	return best
}

// drawRanks draws where every process is, and the cursor's in words.
func drawRanks(c *widget.Canvas, r widget.Rect, s *page.State, v *falconv1.Recovery) {
	g := newRankGrid(s, v, gridRectOf(r))
	title := "RANKS"
	if g.per > 1 {
		title += fmt.Sprintf(", least far of %d a mark", g.per)
	}
	body := c.Rule(r, title, Tally(v))
	if len(v.GetRanks()) == 0 {
		page.Empty(c, body, "the engine has not reported the processes yet")
		return
	}
	if g.per > 0 {
		g.drawMarks(c)
	} else {
		g.drawCells(c)
	}
	if body.H > 1 {
		g.drawDetail(c, widget.Rect{
			X: r.X,
			Y: r.Y + r.H - 1,
			W: r.W,
			H: 1,
		})
	}
}

func (g grid) drawCells(c *widget.Canvas) {
	mine := cursorOf(g.s, g.v)
	for i, x := range g.v.Ranks {
		cell := widget.Rect{
			X: g.r.X + i%g.cols*g.cellW,
			Y: g.r.Y + i/g.cols,
			W: g.cellW - 1,
			H: 1,
		}
		if i/g.cols >= g.r.H {
			return
		}
		pen := c.Pen(cell)
		look := stageAt(stageIndex(x))
		st := c.Pal.Style(look.role)
		if x.GetRank() == mine {
			st = st.With(themes.Bold | themes.Underline)
			c.Set(
				cell.X+cell.W,
				cell.Y,
				widget.CursorMark,
				c.Pal.Style(themes.Accent).With(themes.Bold),
			)
		}
		pen.Style(st, fmt.Sprintf("%c%d", look.glyph, x.GetRank()))
		if g.words {
			pen.Put(themes.Text, fmt.Sprintf(" %-9s ", look.name)).Put(dim, x.GetDevice())
		}
	}
}

func (g grid) drawMarks(c *widget.Canvas) {
	mine := cursorOf(g.s, g.v)
	for from := 0; from < len(g.v.Ranks); from += g.per {
		i := from / g.per
		if i/g.cols >= g.r.H {
			return
		}
		least := len(stages)
		here := false
		for _, x := range g.v.Ranks[from:min(len(g.v.Ranks), from+g.per)] {
			least, here = min(least, stageIndex(x)), here || x.GetRank() == mine
		}
		st := c.Pal.Style(stageAt(least).role)
		if here {
			st = st.With(themes.Bold | themes.Reverse)
		}
		c.Set(g.r.X+i%g.cols, g.r.Y+i/g.cols, stageAt(least).glyph, st)
	}
}

// drawDetail draws the cursor's rank in words.
func (g grid) drawDetail(c *widget.Canvas, r widget.Rect) {
	rank := cursorOf(g.s, g.v)
	for _, x := range g.v.Ranks {
		if x.GetRank() == rank {
			look := stageAt(stageIndex(x))
			_, dp, pp := g.s.Coord(rank)
			c.Pen(r).
				Putf(themes.Title, "rank %d ", rank).
				Put(look.role, fmt.Sprintf("%c %s", look.glyph, look.name)).
				Put(themes.Text, "  "+placeOfRank(x)).
				Putf(dim, "  stage %d, replica %d", pp, dp)
			return
		}
	}
}

func placeOfRank(x *falconv1.RankRecovery) string {
	text := x.GetDevice()
	if x.GetPid() > 0 {
		text += fmt.Sprintf("  process %d", x.Pid)
	}
	var holds []string
	for _, step := range x.GetSteps() {
		if step >= 0 {
			holds = append(holds, strconv.FormatInt(step, 10))
		}
	}
	if len(holds) > 0 {
		text += "  holds step " + strings.Join(holds, " and ")
	} else if x.GetStage() == "parked" || x.GetStage() == "joining" {
		text += "  holds no step"
	}
	return text
}
