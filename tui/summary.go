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

// point is a line of the summary; of those that don't fit, the ones with the
// highest number go first.
type point struct {
	weight int
	text   string
}

// summary says the essentials where the screen is too small to draw: in the
// order of a sentence, and where that is too much, what matters most.
func (m *Model) summary() string {
	points := m.points()
	var rows []string
	for len(points) > 0 {
		rows = laid(points, m.w, true)
		if len(rows) > m.h {
			rows = laid(points, m.w, false)
		}
		if len(rows) <= m.h {
			break
		}
		least := slices.MaxFunc(points, func(a, b point) int { return cmp.Compare(a.weight, b.weight) })
		points = slices.DeleteFunc(points, func(p point) bool { return p == least })
	}
	return m.skin.blank().Lipgloss().Width(m.w).MaxWidth(m.w).Height(m.h).MaxHeight(m.h).Render(strings.Join(rows, "\n"))
}

// laid lays points out in w columns, wrapped or one row each.
func laid(points []point, w int, wrap bool) []string {
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

func (m *Model) points() []point {
	job := m.live.Snap().GetJob()
	conn, _ := m.banner().connection()
	list := []point{
		{4, fmt.Sprintf("%s iter %s", orText(job.GetName(), noJob), phrase.Iteration(job.GetIteration()))},
		{5, fmt.Sprintf("%s %s vs base", phrase.Ms(job.GetIterationMs()), phrase.Percent(job.GetSlowdown()))},
		{7, strings.TrimSpace(conn) + " " + phrase.Mode(m.live.Snap().GetPolicy())},
	}
	if inc := m.live.Incident(); inc != nil {
		list = append(list, point{2, inc.Id + " " + inc.State + ": " + phrase.Verdict(inc.Verdict)})
	} else {
		list = append(list, point{2, orText(job.GetState(), noSnapshot)})
	}
	if r := m.live.Recovering(); r != nil {
		list = append(list, point{1, r.Id + " " + m.live.Story(r)})
	}
	if s := m.awaited(); page.Standing(s, s.Awaited()) != "" {
		list = append(list, point{1, s.Awaited().Rung + " " + page.Standing(s, s.Awaited())})
	} else if p := m.live.Proposal(); p != nil {
		list = append(list, point{1, p.Rung + " PROPOSED " + phrase.Change(p.BeforeMs, p.PredictedMs)})
	}
	list = append(list, m.worst()...)
	list = append(list, m.remedy())
	for i := range list {
		list[i].text = widget.Arrows(list[i].text, m.opts.ASCII)
	}
	return list
}

// worst is the rank that most needs a look, if one does.
func (m *Model) worst() []point {
	list := m.live.Anomalies()
	if len(list) == 0 || int(m.live.Rank()) >= len(m.live.Ranks) {
		return nil
	}
	_, word, _ := m.live.Health(m.live.Ranks[m.live.Rank()])
	return []point{{6, fmt.Sprintf("rank %d %s; %s", m.live.Rank(), word, m.live.Tally())}}
}

// remedy says what to do about the small screen.
func (m *Model) remedy() point {
	size := fmt.Sprintf("%d×%d", minWidth, minHeight)
	switch {
	case m.dialog.leaves():
		title, _ := titlesOf(m.dialog.question)
		return point{0, title + " enter leaves, esc stays"}
	case m.dialog != nil:
		title, _ := titlesOf(m.dialog.question)
		return point{0, title + " enlarge to " + size + " to decide; esc cancels"}
	case m.live.Awaited() != nil || page.Open(m.live.Incident()):
		return point{3, "enlarge to " + size + " to decide; q quits"}
	}
	return point{3, "enlarge to " + size + "; q quits"}
}
