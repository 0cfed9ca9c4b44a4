// Package validate draws active tests: which ranks are picked for the next
// one, and the newest validation with its passes and results, the slowest
// first. Pure drawing and the operator's choice of ranks and of what to test;
// the model asks the engine, after a dialog. No I/O.
package validate

import (
	"fmt"
	"strings"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
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

// Covers says whether GPUs and links are tested.
func (k Kind) Covers() (gpus, links bool) { return k != Links, k != GPUs }

func (k Kind) String() string {
	return [...]string{"GPUs and links", "GPUs only", "links only"}[k]
}

// Page is the validate page.
type Page struct {
	kind   Kind
	scroll int
	of     string // validation that scroll is for
}

// New makes the page.
func New() *Page { return &Page{} }

// Kind is what the operator wants tested.
func (p *Page) Kind() Kind { return p.kind }

// Want says that no series is needed.
func (p *Page) Want(widget.Rect) (columns, runLengths int) { return 1, 0 }

// Act moves the cursor, picks ranks and scrolls the results.
func (p *Page) Act(a key.Action, s *page.State, r widget.Rect) key.Scope {
	across := int32(perRow(r.W))
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
	case key.PageUp:
		p.scroll = max(0, p.scroll-max(1, r.H/4))
	case key.PageDown:
		p.scroll += max(1, r.H/4)
	default:
		p.pick(a, s)
	}
	return ""
}

// pick changes what is picked; the cursor then stays where it is, even if
// another rank gets worse.
func (p *Page) pick(a key.Action, s *page.State) {
	at := s.Rank()
	switch a {
	case key.Pick:
		s.Pick(at)
	case key.PickReplicas:
		s.PickAll(s.Replicas(at))
	case key.PickPipeline:
		s.PickAll(s.Pipeline(at))
	case key.Unpick:
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

func perRow(w int) int { return max(1, w/cellW) }

// Draw draws the ranks to pick from above, the newest validation below.
func (p *Page) Draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	rows := (len(s.Ranks) + perRow(r.W) - 1) / perRow(r.W)
	top, rest := r.Rows(min(2+max(1, rows), max(4, r.H/3)))
	p.ranks(c, top, s)
	p.newest(c, rest, s)
}

func (p *Page) ranks(c *widget.Canvas, r widget.Rect, s *page.State) {
	picked := "none picked: all are tested"
	if n := len(s.Picks()); n > 0 {
		picked = fmt.Sprintf("%d of %d picked", n, len(s.Ranks))
	}
	body := c.Rule(r, "TEST", picked+"  ·  "+p.kind.String())
	if len(s.Ranks) == 0 {
		page.Empty(c, body, "no ranks known yet")
		return
	}
	body, foot := body.Rows(body.H - 1)
	across := perRow(body.W)
	first := firstRow(int(s.Rank())/across, body.H, (len(s.Ranks)+across-1)/across) * across
	for i := range body.H * across {
		if rank := first + i; rank < len(s.Ranks) {
			cell(c, widget.Rect{X: body.X + i%across*cellW, Y: body.Y + i/across, W: cellW - 1, H: 1}, s, int32(rank))
		}
	}
	tp, dp, pp := s.Coord(s.Rank())
	c.Pen(foot).Putf(themes.Dim, "rank %d: stage %d, replica %d, tp %d", s.Rank(), pp, dp, tp)
}

// firstRow is the first row shown of n where h fit and row at must be seen.
func firstRow(at, h, n int) int {
	return max(0, min(at-h/2, n-h))
}

func cell(c *widget.Canvas, r widget.Rect, s *page.State, rank int32) {
	pen, role := c.Pen(r), themes.Text
	if rank == s.Rank() {
		sel := c.Pal.Style(themes.Selected)
		c.Fill(r, ' ', sel)
		pen.Over(sel)
		role = themes.Selected
	}
	box := "[ ]"
	if s.Picked(rank) {
		box = "[x]"
	}
	glyph, _, health := s.Health(s.Ranks[rank])
	pen.Put(role, box+" ").Put(health, string(glyph)).Putf(role, " %d", rank)
	if d := s.Ranks[rank].GetDevice(); d != "" && pen.Fits(" "+d) {
		pen.Put(role, " "+d)
	}
}

func (p *Page) newest(c *widget.Canvas, r widget.Rect, s *page.State) {
	v := s.Snap().GetValidation()
	if v.GetId() == "" {
		page.Empty(c, c.Rule(r, "RESULTS", ""), "nothing has been tested yet; x holds the job for a moment and tests what is picked")
		return
	}
	if v.Id != p.of {
		p.of, p.scroll = v.Id, 0
	}
	body := c.Rule(r, v.Id+" "+v.State, Summary(v))
	head, body := body.Rows(min(2, body.H))
	used := c.Paragraph(head, Story(v), c.Pal.Style(stateRole(v)))
	if used < head.H {
		body = widget.Rect{X: body.X, Y: body.Y - 1, W: body.W, H: body.H + 1}
	}
	lines := resultLines(c, v, body.W)
	p.scroll = max(0, min(p.scroll, len(lines)-body.H))
	for i, l := range lines[p.scroll:] {
		if i >= body.H {
			break
		}
		l(widget.Rect{X: body.X, Y: body.Y + i, W: body.W, H: 1})
	}
}

func stateRole(v *falconv1.Validation) themes.Role {
	switch v.State {
	case "refused", "failed":
		return themes.Warn
	case "done":
		return themes.Text
	}
	return themes.Accent
}

// Summary is what a validation has cost so far.
func Summary(v *falconv1.Validation) string {
	var parts []string
	if v.Passes > 0 {
		t := fmt.Sprintf("pass %d of %d", v.PassesDone, v.Passes)
		if v.PassesDone >= v.Passes {
			t = fmt.Sprintf("%d passes", v.Passes)
		}
		if v.ExtraPasses > 0 {
			t += fmt.Sprintf(" (%d extra: shared NICs)", v.ExtraPasses)
		}
		parts = append(parts, t)
	}
	if v.PausedMs > 0 {
		parts = append(parts, "job held "+phrase.Ms(v.PausedMs))
	}
	if v.Emulated {
		parts = append(parts, "emulated")
	}
	return strings.Join(parts, "  ·  ")
}

// Story says in a sentence or two who asked, why, and what came of it.
func Story(v *falconv1.Validation) string {
	by := v.By
	if by == "" {
		by = "the engine"
	}
	t := "Asked by " + by
	why := strings.TrimRight(v.Why, ".?! ")
	switch {
	case why != "" && strings.Contains(why, v.Incident):
		t += ": " + why
	case why != "":
		t += " for " + v.Incident + ": " + why
	case v.Incident != "":
		t += " for " + v.Incident
	}
	switch v.State {
	case "surveying":
		if v.Reason != "" { // it waits for its moment
			return t + ". It " + v.Reason + "; X calls it off."
		}
		return t + ". Seeking a boundary at which all ranks have made equal calls."
	case "arming", "waiting":
		return t + fmt.Sprintf(". The ranks run up to iteration %s and stop there; X calls it off.", phrase.Iteration(v.Iteration))
	case "testing":
		return t + fmt.Sprintf(". The job is held at iteration %s; X lets it go.", phrase.Iteration(v.Iteration))
	case "resuming":
		return t + ". The job is being let go."
	case "refused":
		return t + ". Refused, nothing was held: " + v.Reason
	case "failed":
		return t + ". The job goes on; the test did not end: " + v.Reason
	}
	return t + ". " + Findings(v)
}

// Findings counts what was slow.
func Findings(v *falconv1.Validation) string {
	var slow []string
	for _, g := range v.Gemm {
		if g.Slow {
			slow = append(slow, g.Device)
		}
	}
	seen := map[string]bool{}
	for _, l := range v.Links {
		if name := LinkName(l); l.Slow && !seen[name] {
			seen[name] = true
			slow = append(slow, name)
		}
	}
	if len(slow) == 0 {
		return fmt.Sprintf("Nothing slow among %d GPUs and %d directions of links.", len(v.Gemm), len(v.Links))
	}
	return "Slow: " + strings.Join(slow, ", ") + "."
}

// LinkName is the node pair, or both devices within a node.
func LinkName(l *falconv1.LinkResult) string {
	if l.Link != "" {
		return l.Link
	}
	return l.FromDevice + "-" + l.ToDevice
}
