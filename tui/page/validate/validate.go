// Package validate draws active tests: which ranks or links are picked for the
// next one, and a validation: while it runs, its passes and who is tested now;
// then its results as a list, the slowest first, and as a matrix of the links'
// ends. Pure drawing and the operator's choice of what to test and to look at;
// the model asks the engine, after a dialog. No I/O.
package validate

import (
	"fmt"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

// Kind is what a test covers.
type Kind int

// The kinds.
const (
	Both Kind = iota
	GPUs
	Links
	kinds
)

// Covers reports whether GPUs and links are tested.
func (k Kind) Covers() (gpus, links bool) { return k != Links, k != GPUs }

func (k Kind) String() string {
	return [...]string{"GPUs and links", "GPUs only", "links only"}[k]
}

// look is how results are shown.
type look int

// The looks: a list beside the matrix where both have room.
const (
	asList look = iota
	byNode
	byRank
	looks
)

// Page is the validate page.
type Page struct {
	page.NoSeries
	kind   Kind
	scroll page.Scroll
	of     string // validation that scroll and cursor are for
	back   int    // validations back from the newest
	look   look
	chosen bool // the operator chose the look
	focus  bool // keys move the cursor in the matrix
	at     [2]int

	byLink bool            // links are picked from, not ranks
	row    int             // among links
	picked map[string]bool // links
}

// New makes the page.
func New() *Page {
	return &Page{picked: map[string]bool{}}
}

// Request is what a test asked for now would cover: the links named, else those
// picked here, else the ranks picked.
func (p *Page) Request(links []string, s *page.State) *falconv1.ValidateRequest {
	r := &falconv1.ValidateRequest{
		Links:    links,
		LinkTest: true,
		Reason:   "asked from the console",
	}
	if picked := p.Links(); len(links) == 0 && len(picked) > 0 {
		r.Links = picked
		r.Gemm, _ = p.kind.Covers()
	} else if len(links) == 0 {
		r.Ranks = s.Picks()
		r.Gemm, r.LinkTest = p.kind.Covers()
	}
	return r
}

// Act moves the cursor, picks ranks or links, and chooses what is shown.
func (p *Page) Act(a key.Action, s *page.State, r widget.Rect) key.Scope {
	if p.scroll.Act(a, r.H) {
		return ""
	}
	switch a {
	case key.Older:
		p.back = min(p.back+1, max(0, len(s.ValidationList())-1))
	case key.Newer:
		p.back = max(0, p.back-1)
	case key.Links:
		p.byLink = !p.byLink
		p.focus = false
	case key.Results:
		p.toResults(s)
	case key.Metric:
		p.switchLook(s)
	case key.Up, key.Down, key.Left, key.Right, key.Next, key.Prev:
		p.moveCursor(a, s, r)
	default:
		p.pickRanks(a, s)
	}
	return ""
}

// moveCursor moves the cursor of what the keys are with: matrix, links or ranks.
func (p *Page) moveCursor(a key.Action, s *page.State, r widget.Rect) {
	switch {
	case p.focus:
		m := newMatrix(p.shownValidation(s), p.look == byRank)
		switch a {
		case key.Next:
			p.at = m.nextSlow(p.at, +1)
		case key.Prev:
			p.at = m.nextSlow(p.at, -1)
		default:
			p.at = m.moveCursor(p.at, a)
		}
	case p.byLink:
		p.moveLinkCursor(a, s)
	default:
		moveRankCursor(a, s, r)
	}
}

func (p *Page) moveLinkCursor(a key.Action, s *page.State) {
	list, _ := p.candidates(s)
	switch a {
	case key.Up, key.Left, key.Prev:
		p.row--
	default:
		p.row++
	}
	p.row = max(0, min(p.row, len(list)-1))
}

func moveRankCursor(a key.Action, s *page.State, r widget.Rect) {
	across := int32(ranksPerRow(r.W))
	switch a {
	case key.Left:
		s.Select(s.Rank() - 1)
	case key.Right:
		s.Select(s.Rank() + 1)
	case key.Up:
		s.Select(s.Rank() - across)
	case key.Down:
		s.Select(s.Rank() + across)
	case key.Next:
		s.Step(+1)
	case key.Prev:
		s.Step(-1)
	}
}

// toResults moves the keys to the matrix, on its worst cell, or back.
func (p *Page) toResults(s *page.State) {
	v := p.shownValidation(s)
	if p.focus = !p.focus && len(v.GetLinks()) > 0; !p.focus {
		return
	}
	if p.look == asList {
		p.look = firstMatrix(v)
		p.chosen = true
	}
	p.of, p.at = v.GetId(), newMatrix(v, p.look == byRank).worstCell()
}

// firstMatrix is by node, or within one node by rank.
func firstMatrix(v *falconv1.Validation) look {
	if countNodes(v) > 1 {
		return byNode
	}
	return byRank
}

func (p *Page) switchLook(s *page.State) {
	v := p.shownValidation(s)
	p.look = (p.look + 1) % looks
	p.chosen = true
	if p.look == asList {
		p.focus = false
	}
	p.of, p.at = v.GetId(), newMatrix(v, p.look == byRank).worstCell()
}

// shownValidation is the validation on the page; empty before the first.
func (p *Page) shownValidation(s *page.State) *falconv1.Validation {
	list := s.ValidationList()
	if len(list) == 0 {
		return &falconv1.Validation{}
	}
	p.back = max(0, min(p.back, len(list)-1))
	return list[p.back]
}

// followLook goes to the validation that another page wants shown.
func (p *Page) followLook(s *page.State) {
	id, ok := s.Looked("VAL-")
	for i, v := range s.ValidationList() {
		if ok && v.GetId() == id {
			p.back = i
		}
	}
}

// pickRanks changes the picks; the cursor stays even if another rank gets worse.
func (p *Page) pickRanks(a key.Action, s *page.State) {
	at := s.Rank()
	switch a {
	case key.Pick:
		if p.byLink {
			p.pickLinkAt(s)
			return
		}
		s.Pick(at)
	case key.PickReplicas:
		s.PickAll(s.Replicas(at))
	case key.PickPipeline:
		s.PickAll(s.Pipeline(at))
	case key.Unpick:
		if p.byLink {
			clear(p.picked)
			return
		}
		s.Unpick()
	case key.TestKind:
		p.kind = (p.kind + 1) % kinds
		return
	default:
		return
	}
	s.Select(at)
}

// cellW is the room of one rank among those to pick from.
const cellW = 16

func ranksPerRow(w int) int { return max(1, w/cellW) }

// Draw draws what to pick from above, a validation below.
func (p *Page) Draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	p.followLook(s)
	rows := (s.Roster.World() + ranksPerRow(r.W) - 1) / ranksPerRow(r.W)
	if p.byLink {
		list, _ := p.candidates(s)
		rows = len(list)
	}
	top, rest := r.Rows(min(2+max(1, rows), max(4, r.H/3)))
	if p.byLink {
		p.drawLinks(c, top, s)
	} else {
		p.drawRanks(c, top, s)
	}
	p.validation(c, rest, s)
}

// Panes are the parts that can fill the page alone.
func (p *Page) Panes(*page.State) []page.Pane {
	what := page.Pane{Name: "ranks", Draw: p.drawRanks}
	if p.byLink {
		what = page.Pane{Name: "links", Draw: p.drawLinks}
	}
	return []page.Pane{what, {
		Name: "results",
		Draw: func(c *widget.Canvas, r widget.Rect, s *page.State) {
			p.followLook(s)
			p.validation(c, r, s)
		},
	}}
}

func (p *Page) drawRanks(c *widget.Canvas, r widget.Rect, s *page.State) {
	picked := "none picked: all are tested"
	if n := len(s.Picks()); n > 0 {
		picked = fmt.Sprintf("%d of %d picked", n, s.Roster.World())
	}
	body := c.Rule(r, "TEST", picked+"  ·  "+p.kind.String())
	if s.Roster.World() == 0 {
		page.Empty(c, body, "no ranks known yet")
		return
	}
	body, foot := body.Rows(body.H - 1)
	across := ranksPerRow(body.W)
	first := firstShownRow(int(s.Rank())/across, body.H, (s.Roster.World()+across-1)/across) * across
	for i := range body.H * across {
		if rank := first + i; rank < s.Roster.World() {
			drawRankCell(
				c,
				widget.Rect{
					X: body.X + i%across*cellW,
					Y: body.Y + i/across,
					W: cellW - 1,
					H: 1,
				},
				s,
				int32(rank),
			)
		}
	}
	tp, dp, pp := s.Coord(s.Rank())
	c.Pen(foot).Putf(themes.Dim, "rank %d: stage %d, replica %d, tp %d", s.Rank(), pp, dp, tp)
}

// firstShownRow is the first row shown of n where h fit and row at must be seen.
func firstShownRow(at, h, n int) int {
	return max(0, min(at-h/2, n-h))
}

func drawRankCell(c *widget.Canvas, r widget.Rect, s *page.State, rank int32) {
	pen := c.Pen(r)
	role := themes.Text
	c.Hit(r, widget.Target{Kind: widget.TargetRank, N: int64(rank)})
	if rank == s.Rank() {
		c.Focus(r.X, r.Y)
		pen = c.SelectedPen(r)
		role = themes.Selected
	}
	box := "[ ]"
	if s.Picked(rank) {
		box = "[x]"
	}
	glyph, _, health := s.Health(s.Roster.View(rank))
	pen.Put(role, box+" ").Put(health, string(glyph)).Putf(role, " %d", rank)
	if d := s.Roster.View(rank).GetDevice(); d != "" && pen.Fits(" "+d) {
		pen.Put(role, " "+d)
	}
}

// validation draws the one chosen.
func (p *Page) validation(c *widget.Canvas, r widget.Rect, s *page.State) {
	v := p.shownValidation(s)
	if v.GetId() == "" {
		c.Pen(c.Rule(r, "RESULTS", "")).Put(
			themes.Dim,
			"nothing has been tested yet; "+s.Key(key.Validate, key.RunTest)+
				" holds the job for a moment and tests what is picked",
		)
		return
	}
	if v.Id != p.of {
		p.of = v.Id
		p.scroll = page.Scroll{}
		p.at = [2]int{}
		if !p.chosen {
			p.look = firstLook(v)
		}
	}
	title := v.Id + " " + v.State
	if n := len(s.ValidationList()); n > 1 {
		title += fmt.Sprintf("  %d of %d", n-p.back, n)
	}
	body := p.drawOutcome(c, c.Rule(r, title, Summary(v)), s, v)
	if page.Underway(v) && body.H > liveRows {
		var now widget.Rect
		now, body = body.Rows(liveRows)
		drawLive(c, now, s, v)
	}
	p.drawResults(c, body, v)
}

// listMost is how many directions that were asked for a list shows at first; more are
// a matrix.
const listMost = 8

func firstLook(v *falconv1.Validation) look {
	asked := 0
	for _, l := range v.Links {
		if !l.Reference {
			asked++
		}
	}
	if len(v.Gemm) > 0 || asked <= listMost {
		return asList
	}
	return firstMatrix(v)
}

// wideResults is the width from which list and matrix are drawn side by side.
const wideResults = 110

func (p *Page) drawResults(c *widget.Canvas, r widget.Rect, v *falconv1.Validation) {
	byRank := p.look == byRank || p.look == asList && firstMatrix(v) == byRank
	switch {
	case r.W >= wideResults &&
		len(v.Links) > 0 &&
		(firstLook(v) != asList || len(v.Gemm) > 0 || p.look != asList):
		left, right := r.Columns(r.W * 45 / 100)
		p.resultList(c, left, v)
		_, right = right.Columns(2)
		p.drawMatrix(c, right, v, byRank)
	case p.look == asList:
		p.resultList(c, r, v)
	default:
		p.drawMatrix(c, r, v, byRank)
	}
}

func (p *Page) drawMatrix(c *widget.Canvas, r widget.Rect, v *falconv1.Validation, byRank bool) {
	newMatrix(v, byRank).drawGrid(c, r, p.at, p.focus)
}

func (p *Page) resultList(c *widget.Canvas, r widget.Rect, v *falconv1.Validation) {
	lines := resultLines(c, v, r.W)
	_, last := r.Rows(r.H - 1)
	if len(lines)-p.scroll.First(len(lines), r.H) > r.H && r.H > 1 {
		c.Fill(last, ' ', c.Pal.Style(themes.Dim))
	}
	p.scroll.Rows(c, r, len(lines), func(row widget.Rect, i int) {
		lines[i](row)
	})
}

func stateRole(v *falconv1.Validation) themes.Role {
	switch falcon.ValidationState(v.State) {
	case falcon.ValidationRefused, falcon.ValidationFailed:
		return themes.Warn
	case falcon.ValidationDone:
		return themes.Text
	}
	return themes.Accent
}
