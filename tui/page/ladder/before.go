package ladder

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/roster"
	"github.com/failslow/falcon/tui/widget"
)

// Before and after: what the chosen rung would change in the job, as a table of
// replicas (S2) or as two grids of nodes (S3).

// drawBefore draws it and returns the room that is left.
func drawBefore(c *widget.Canvas, r widget.Rect, s *page.State, g *falconv1.RungView) widget.Rect {
	if !g.Applicable || r.H < 3 {
		return r
	}
	switch now := s.Snap().GetJob().GetMicroBatches(); {
	case g.Preview != nil && len(g.Preview.Swaps)+len(g.Preview.Groups) > 0:
		return drawGridPair(c, drawTitle(c, r, "BEFORE AND AFTER  * changes place  ! slow device"), s, g)
	case len(g.MicroBatches) > 0 && !g.Current && len(now) == len(g.MicroBatches):
		return splitTable(c, drawTitle(c, r, "MICRO-BATCHES A REPLICA"), now, g.MicroBatches)
	}
	return r
}

// drawTitle spends a row on a title where there is room.
func drawTitle(c *widget.Canvas, r widget.Rect, title string) widget.Rect {
	if r.H < titledH {
		return r
	}
	return c.Rule(r, title, "")
}

const titledH = 14

// The split's table.
const (
	splitHeadW = 10
	splitW     = 5
)

// splitTable draws a column a replica: before, after and, where there is room,
// the change. Of too many replicas those that change most are shown.
func splitTable(c *widget.Canvas, r widget.Rect, now, then []int32) widget.Rect {
	at := mostChanged(now, then, max(1, (r.W-splitHeadW-splitMoreW)/splitW))
	rows := []struct {
		name string
		cell func(i int) string
	}{
		{"replica", func(i int) string { return fmt.Sprint(i) }},
		{"before", func(i int) string { return fmt.Sprint(now[i]) }},
		{"after", func(i int) string { return fmt.Sprint(then[i]) }},
		{"change", func(i int) string { return signedChange(then[i] - now[i]) }},
	}
	if r.H < titledH-1 {
		rows = rows[:3]
	}
	for n, row := range rows {
		line, rest := r.Rows(1)
		r = rest
		pen := c.Pen(line).Putf(themes.Dim, "  %-*s", splitHeadW-2, row.name)
		for _, i := range at {
			role := themes.Text
			if n == 0 {
				role = themes.Dim
			} else if n > 1 && now[i] != then[i] {
				role = themes.Title
			}
			pen.Putf(role, "%*s", splitW, row.cell(i))
		}
		if hidden := len(now) - len(at); hidden > 0 && n == 0 {
			pen.Putf(themes.Dim, "  %d more", hidden)
		}
	}
	return r
}

// splitMoreW is the room for the number of replicas that are not shown.
const splitMoreW = 12

func signedChange(n int32) string {
	if n == 0 {
		return "="
	}
	return fmt.Sprintf("%+d", n)
}

// mostChanged picks at most n replicas, those that change most, in their order.
func mostChanged(now, then []int32, n int) []int {
	return pickFirst(len(now), n, func(i int) int32 {
		return -max(then[i]-now[i], now[i]-then[i])
	})
}

// pickFirst picks at most n of the numbers below count, lowest rank first, in their order.
func pickFirst(count, n int, rank func(i int) int32) []int {
	at := make([]int, count)
	for i := range at {
		at[i] = i
	}
	if count <= n {
		return at
	}
	slices.SortStableFunc(at, func(a, b int) int {
		return cmp.Compare(rank(a), rank(b))
	})
	at = at[:max(0, n)]
	slices.Sort(at)
	return at
}

// site is a node's place in the grid of stages by replicas.
type site struct {
	node        string
	moved, slow bool
}

// markedName marks the place without colour too.
func (x site) markedName() string {
	t := x.node
	if x.moved {
		t += "*"
	}
	if x.slow {
		t += "!"
	}
	return t
}

func (x site) placeRole() themes.Role {
	switch {
	case x.slow:
		return themes.Bad
	case x.moved:
		return themes.Accent
	}
	return themes.Text
}

// sites are all places by stage and replica.
type sites [][]site

// placement is where a proposal puts each rank, or nil where only the swaps are known.
func placement(s *page.State, g *falconv1.RungView) []string {
	prop := s.Proposal()
	if prop != nil &&
		prop.PlanHash == g.PlanHash &&
		len(prop.Placement) == s.Roster.World() {
		return prop.Placement
	}
	return nil
}

// nodeGrids are the nodes now and then: by the placement where it is known, else by
// the swaps in order. Slowness moves with its node.
func nodeGrids(s *page.State, v *falconv1.Preview, to []string) (now, then sites) {
	slow := map[string]bool{}
	for i, k := range s.Roster.Views() {
		if k.GetHealth() == falconv1.RankHealth_RANK_HEALTH_CULPRIT || s.Blamed(i) != "" {
			slow[roster.NodeOf(k.GetDevice())] = true
		}
	}
	now, then = make(sites, s.PP), make(sites, s.PP)
	for pp := range s.PP {
		for dp := range s.DP {
			a, b := nodeBeforeAfter(s, v, to, dp, pp)
			now[pp] = append(now[pp], site{a, a != b, slow[a]})
			then[pp] = append(then[pp], site{b, a != b, slow[b]})
		}
	}
	return now, then
}

// nodeBeforeAfter is the node of a stage's replica before and after; of several, as where
// tensor parallelism spans nodes, the first that changes.
func nodeBeforeAfter(s *page.State, v *falconv1.Preview, to []string, dp, pp int) (now, then string) {
	for tp := range s.TP {
		i := int(s.At(tp, dp, pp))
		if i >= s.Roster.World() {
			break
		}
		a := s.NodeOf(int32(i))
		b := afterSwaps(a, v.GetSwaps())
		if groups := v.GetGroups(); len(groups) > 0 {
			first := s.Roster.View(s.At(0, dp, pp)).GetDevice() // a group moves as one
			b = roster.NodeOf(afterSwaps(first, groups))
		}
		if i < len(to) {
			b = roster.NodeOf(to[i])
		}
		if now == "" || a != b {
			now, then = a, b
		}
		if a != b {
			break
		}
	}
	return now, then
}

// afterSwaps is who takes a node's place, or a device's, after the swaps.
func afterSwaps(n string, swaps []*falconv1.NodeSwap) string {
	for _, w := range swaps {
		switch n {
		case w.GetA():
			n = w.GetB()
		case w.GetB():
			n = w.GetA()
		}
	}
	return n
}

// linesWorthDrawing picks at most n of the lines of a grid: those that hold what moves or is
// slow before others, in their order.
func linesWorthDrawing(count, n int, of func(i int) []site) []int {
	return pickFirst(count, n, func(i int) int32 {
		if slices.ContainsFunc(of(i), func(x site) bool {
			return x.moved || x.slow
		}) {
			return 0
		}
		return 1
	})
}

// stageW is the room for a stage's name in a grid.
const stageW = 6

// drawGridPair draws the grid before and, where there is room beside it, after; else
// only after. The links that are left and joined are listed below.
func drawGridPair(c *widget.Canvas, r widget.Rect, s *page.State, g *falconv1.RungView) widget.Rect {
	v := g.Preview
	now, then := nodeGrids(s, v, placement(s, g))
	cell := cellWidth(now)
	links := linkLines(v, r.W)
	rows := max(1, r.H-2-min(len(links), max(1, r.H/4)))
	stages := linesWorthDrawing(s.PP, rows, func(pp int) []site { return now[pp] })
	half := (r.W - 3) / 2
	fit := (half - stageW) / cell
	two := fit >= min(s.DP, 2)
	if !two {
		fit = (r.W - stageW) / cell
	}
	replicas := linesWorthDrawing(s.DP, max(1, fit), func(dp int) []site {
		return gridColumn(now, dp)
	})
	top, rest := r.Rows(min(r.H, len(stages)+1))
	if two {
		left, right := top.Columns(half + 3)
		drawOneGrid(c, left, "before", now, stages, replicas, cell)
		drawOneGrid(c, right, "after", then, stages, replicas, cell)
	} else {
		drawOneGrid(c, top, "after", then, stages, replicas, cell)
	}
	if hidden := s.DP*s.PP - len(stages)*len(replicas); hidden > 0 {
		links = append(links, page.Line{
			Text: fmt.Sprintf("  %d of %d places shown, first those that change",
				len(stages)*len(replicas), s.DP*s.PP),
			Role: themes.Dim,
		})
	}
	page.DrawLines(c, rest, links)
	_, rest = rest.Rows(len(links))
	return rest
}

func gridColumn(g sites, dp int) []site {
	var out []site
	for _, row := range g {
		out = append(out, row[dp])
	}
	return out
}

// cellWidth is the width of a place: its name, both marks and a gap.
func cellWidth(g sites) int {
	w := 2
	for _, row := range g {
		for _, x := range row {
			w = max(w, widget.Width(x.node))
		}
	}
	return min(w, 12) + 3
}

func drawOneGrid(c *widget.Canvas, r widget.Rect, title string, g sites, stages, replicas []int, cell int) {
	row, r := r.Rows(1)
	pen := c.Pen(row).Putf(themes.Title, "%-*s", stageW, title)
	for _, dp := range replicas {
		pen.Putf(themes.Dim, " %-*s", cell-1, fmt.Sprint("r", dp))
	}
	for _, pp := range stages {
		if row, r = r.Rows(1); row.Empty() {
			return
		}
		pen := c.Pen(row).Putf(themes.Dim, "%-*s", stageW, fmt.Sprint("s", pp))
		for _, dp := range replicas {
			x := g[pp][dp]
			pen.Putf(x.placeRole(), " %-*s", cell-1, widget.Cut(x.markedName(), cell-1))
		}
	}
}

// linkLines describe the links that a dimension leaves and uses, and its traffic then.
func linkLines(v *falconv1.Preview, w int) []page.Line {
	var out []page.Line
	for _, side := range []struct {
		of   []*falconv1.LinksOf
		sign string
		what string
		role themes.Role
	}{{v.GetLeft(), "−", "no longer uses", themes.Dim}, {v.GetJoined(), "+", "then uses", themes.Accent}} {
		for _, l := range side.of {
			if len(l.GetLinks()) == 0 {
				continue
			}
			text := fmt.Sprintf("  %s %s %s %s",
				side.sign, strings.ToUpper(l.Dimension), side.what, fewNames(l.Links))
			if mb := v.TrafficMb[l.Dimension]; mb > 0 && side.sign == "+" {
				text += fmt.Sprintf("; it carries %s an iteration between nodes then", sizeText(mb))
			}
			out = append(out, page.Line{Text: widget.Cut(text, w), Role: side.role})
		}
	}
	return out
}
