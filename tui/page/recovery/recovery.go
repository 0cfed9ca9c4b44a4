// Package recovery draws how lost ranks and nodes are recovered: each phase
// with its predicted and actual time, the faults with their evidence, who is
// replaced where, which shard comes from whom, and where every process is.
// While nothing is being recovered it shows what the loss of each node and
// failure domain would cost now. Pure drawing and the operator's cursor; the
// model asks the engine, after a dialog. No I/O.
package recovery

import (
	"fmt"
	"slices"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// Page is the recovery page.
type Page struct {
	page.NoSeries
	back   int         // recoveries back from the newest
	of     string      // recovery that scroll is for
	scroll page.Scroll // of the details
	row    int         // of the map, under the cursor
	wanted string      // recovery to show once it is known
	alone  bool        // the ranks fill the page, as drawn last
}

// New makes the page.
func New() *Page { return &Page{} }

// Act moves the cursor, scrolls the details and steps through older recoveries.
func (p *Page) Act(a key.Action, s *page.State, r widget.Rect) key.Scope {
	if p.scroll.Act(a, r.H) {
		return ""
	}
	switch a {
	case key.Older:
		p.wanted = ""
		p.back = min(p.back+1, max(0, len(s.RecoveryList())-1))
	case key.Newer:
		p.back = max(0, p.back-1)
	default:
		p.moveCursor(a, s, r)
	}
	return ""
}

func (p *Page) moveCursor(a key.Action, s *page.State, r widget.Rect) {
	if v := p.shownRecovery(s); feed.Recovering(v) {
		_, rest := splitPage(r, s, v)
		if p.alone {
			rest = r
		}
		newRankGrid(s, v, gridRectOf(rest)).moveCursor(a)
		return
	}
	switch a {
	case key.Up:
		p.row--
	case key.Down:
		p.row++
	}
	p.row = max(0, min(p.row, len(s.Feed.Recoveries.GetExposures())-1))
}

// Chosen is the id of the recovery on the page, or "".
func (p *Page) Chosen(s *page.State) string {
	return p.shownRecovery(s).GetId()
}

// Choose shows a recovery as soon as it is known.
func (p *Page) Choose(id string) {
	p.wanted = id
}

// shownRecovery is the recovery on the page, or nil.
func (p *Page) shownRecovery(s *page.State) *falconv1.Recovery {
	list := s.RecoveryList()
	if len(list) == 0 {
		return nil
	}
	i := slices.IndexFunc(list, func(r *falconv1.Recovery) bool {
		return r.GetId() == p.wanted
	})
	if i >= 0 {
		p.back, p.wanted = i, ""
	}
	p.back = max(0, min(p.back, len(list)-1))
	return list[p.back]
}

// Node is the node under the cursor, or "" for a failure domain of several.
func (p *Page) Node(s *page.State) string {
	if v := p.shownRecovery(s); feed.Recovering(v) {
		return s.NodeOf(p.Rank(s))
	}
	list := s.Feed.Recoveries.GetExposures()
	if p.row < len(list) && len(list[p.row].GetNodes()) == 1 {
		return list[p.row].Nodes[0]
	}
	return ""
}

// Rank is the rank under the cursor.
func (p *Page) Rank(s *page.State) int32 {
	if v := p.shownRecovery(s); feed.Recovering(v) {
		return cursorOf(s, v)
	}
	return s.Rank()
}

// restRows is what ranks or map keep of a small screen.
const restRows = 6

// splitPage parts the room between the recovery and ranks or map: the phases have
// room first, on a large screen the details too, up to three fifths.
func splitPage(r widget.Rect, s *page.State, v *falconv1.Recovery) (top, rest widget.Rect) {
	rows := min(2+len(phrase.Phases)+2, max(4, r.H-restRows))
	if most := r.H * 3 / 5; rows < most {
		rows = max(rows, min(most, 1+len(Details(s, v, r.W-phasesW-1))))
	}
	return r.Rows(rows)
}

// Draw draws the recovery chosen, and below it ranks or map.
func (p *Page) Draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	p.alone = false
	v := p.shownRecovery(s)
	if v == nil {
		p.exposures(c, r, s)
		return
	}
	top, rest := splitPage(r, s, v)
	p.drawRecovery(c, top, s, v)
	if feed.Recovering(v) {
		drawRanks(c, rest, s, v)
	} else {
		p.exposures(c, rest, s)
	}
}

// Panes are the parts that can fill the page alone; without a recovery the map
// of what could be lost is all there is.
func (p *Page) Panes(s *page.State) []page.Pane {
	v := p.shownRecovery(s)
	if v == nil {
		return nil
	}
	below := page.Pane{Name: "if it failed now", Draw: p.exposures}
	if feed.Recovering(v) {
		below = page.Pane{
			Name: "ranks",
			Draw: func(c *widget.Canvas, r widget.Rect, s *page.State) {
				p.alone = true
				drawRanks(c, r, s, v)
			},
		}
	}
	return []page.Pane{{
		Name: "recovery",
		Draw: func(c *widget.Canvas, r widget.Rect, s *page.State) {
			p.alone = false
			p.drawRecovery(c, r, s, v)
		},
	}, below}
}

// clockW is the width from which on the head line has the time.
const clockW = 100

// phasesW is the room for the table of phases.
const phasesW = 36

func (p *Page) drawRecovery(c *widget.Canvas, r widget.Rect, s *page.State, v *falconv1.Recovery) {
	if v.Id != p.of {
		p.of = v.Id
		p.scroll = page.Scroll{}
	}
	title := v.Id + " " + v.State
	if at := v.GetStartedUnixNs(); at > 0 && r.W >= clockW {
		title += " since " + phrase.Clock(time.Unix(0, at), s.EngineNow(), s.Zone)
		if !feed.Recovering(v) {
			title = fmt.Sprintf("%s %s, %s ago",
				v.Id, v.State,
				phrase.Lasting(s.EngineNow().Sub(time.Unix(0, max(at, v.GetEndedUnixNs())))))
		}
	}
	if p.back > 0 {
		title += fmt.Sprintf(" (%d before the newest)", p.back)
	}
	body := c.Rule(r, title, headlineText(s, v))
	left, right := body.Columns(phasesW)
	drawPhases(c, left, s, v)
	p.drawDetails(
		c,
		widget.Rect{
			X: right.X + 1,
			Y: right.Y,
			W: right.W - 1,
			H: right.H,
		},
		s,
		v,
	)
}

// headlineText describes the deadline last: where that is cut, the details have it.
func headlineText(s *page.State, v *falconv1.Recovery) string {
	text := "not begun"
	if v.Attempts > 0 {
		text = fmt.Sprintf("generation %d, attempt %d", v.Generation, v.Attempts)
	}
	if feed.Recovering(v) && !v.GetNoReturn() {
		text += "  ·  ! no return from groups on"
	}
	if d := s.Deadline(v); d != "" {
		text += "  ·  " + d
	}
	return text
}

func (p *Page) drawDetails(c *widget.Canvas, r widget.Rect, s *page.State, v *falconv1.Recovery) {
	lines := Details(s, v, r.W)
	p.scroll.Rows(c, r, len(lines), func(row widget.Rect, i int) {
		page.DrawLines(c, row, lines[i:])
	})
}
