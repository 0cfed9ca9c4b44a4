package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// point is a line of the summary; the highest weights are dropped first.
type point struct {
	weight int
	text   string
}

// summary is the screen where it is too small to draw: the essentials in words.
type summary struct {
	banner
	dialog *dialog // open, or nil
	h      int
}

// drawText says the essentials where the screen is too small to draw: in the
// order of a sentence, and where that is too much, what matters most.
func (m summary) drawText() string {
	points := m.essentials()
	var rows []string
	for len(points) > 0 {
		rows = layoutPoints(points, m.w, true)
		if len(rows) > m.h {
			rows = layoutPoints(points, m.w, false)
		}
		if len(rows) <= m.h {
			break
		}
		least := slices.MaxFunc(points, func(a, b point) int {
			return cmp.Compare(a.weight, b.weight)
		})
		points = slices.DeleteFunc(points, func(p point) bool { return p == least })
	}
	return m.blankStyle().
		Lipgloss().
		Width(m.w).
		MaxWidth(m.w).
		Height(m.h).
		MaxHeight(m.h).
		Render(strings.Join(rows, "\n"))
}

// layoutPoints lays points out in w columns, wrapped or one row each.
func layoutPoints(points []point, w int, wrap bool) []string {
	var rows []string
	for _, p := range points {
		if wrap {
			rows = append(rows, widget.Wrap(p.text, w)...)
		} else {
			rows = append(rows, widget.Cut(p.text, w))
		}
	}
	return rows
}

// essentialMost is how many statements are said where the screen is too small to draw.
const essentialMost = 3

func (m summary) essentials() []point {
	job := m.Live.Snap().GetJob()
	conn, _ := m.connection()
	list := []point{
		{5, fmt.Sprintf("%s iter %s", cmp.Or(job.GetName(), noJob), phrase.Iteration(job.GetIteration()))},
		{6, fmt.Sprintf("%s %s vs base", phrase.Ms(job.GetIterationMs()), phrase.Percent(job.GetSlowdown()))},
		{7, strings.TrimSpace(conn) + " " + phrase.Mode(m.Live.Snap().GetPolicy())},
	}
	said := page.Statements(m.Live)
	for i, x := range said[:min(essentialMost, len(said))] {
		list = append(list, point{i + 1, page.Say(m.Live, &x)})
	}
	list = append(list, m.worstRank()...)
	list = append(list, m.remedyPoint())
	for i := range list {
		list[i].text = widget.Arrows(list[i].text, m.ascii)
	}
	return list
}

// worstRank is the rank that most needs a look, if one does.
func (m summary) worstRank() []point {
	list := m.Live.Anomalies()
	if len(list) == 0 || int(m.Live.Rank()) >= m.Live.Roster.World() {
		return nil
	}
	_, word, _ := m.Live.Health(m.Live.Roster.View(m.Live.Rank()))
	return []point{{8, fmt.Sprintf("rank %d %s; %s", m.Live.Rank(), word, m.Live.Tally())}}
}

// remedyPoint returns what to do about the small screen.
func (m summary) remedyPoint() point {
	size := fmt.Sprintf("%d×%d", minWidth, minHeight)
	switch {
	case m.dialog.asksToLeave():
		title, _ := dialogTitles(m.dialog.question)
		return point{0, title + " tab, then enter, leaves; esc stays"}
	case m.dialog != nil:
		title, _ := dialogTitles(m.dialog.question)
		return point{0, title + " enlarge to " + size + " to decide; esc cancels"}
	case m.Live.Awaited() != nil || page.Open(m.Live.Incident()):
		return point{4, "enlarge to " + size + " to decide; q quits"}
	}
	return point{4, "enlarge to " + size + "; q quits"}
}
