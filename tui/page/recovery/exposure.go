package recovery

import (
	"fmt"
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// exposures draws what the loss of each node and domain would cost, worst first.
func (p *Page) exposures(c *widget.Canvas, r widget.Rect, s *page.State) {
	list := s.Feed.Recoveries.GetExposures()
	body := c.Rule(r, "IF IT FAILED NOW", whoDecides(s.Snap().GetPolicy()))
	if page.Ended(s) {
		list = nil // of before
	}
	if len(list) == 0 {
		page.Empty(c, body, noMapReason(s))
		return
	}
	p.row = max(0, min(p.row, len(list)-1))
	detail := min(4, body.H/3)
	table, foot := body.Rows(body.H - detail)
	head, table := table.Rows(1)
	if spare := table.H - len(list) - 1; spare > 0 { // few nodes: what is said of one follows them
		foot.Y -= spare
		table.H -= spare
	}
	c.Pen(head).Putf(dim, "  %-*s%-*s%s", domainW, "lost", costWidth(r.W), "cost", "spare")
	from := max(0, min(p.row-table.H/2, len(list)-table.H))
	for i := from; i < len(list) && i-from < table.H; i++ {
		row := widget.Rect{
			X: table.X,
			Y: table.Y + i - from,
			W: table.W,
			H: 1,
		}
		drawExposure(c, row, s, list[i], i == p.row)
	}
	c.Paragraph(foot, Explain(s, list[p.row]), c.Pal.Style(themes.Text))
}

// whoDecides decides on recoveries, in the head line.
func whoDecides(p *falconv1.Policy) string {
	switch r := p.GetRecovery(); {
	case p == nil:
		return ""
	case p.GetFrozen():
		return "policy is frozen: a person decides"
	case p.GetMode() == string(falcon.ModeObserve):
		return "mode observe: a person decides"
	case r.GetApproval() == falcon.ApprovalPerson:
		return "policy asks for a person"
	case r.GetCountdownS() > 0:
		return fmt.Sprintf("recovered without a person after %g s", r.CountdownS)
	}
	return "recovered without a person"
}

func noMapReason(s *page.State) string {
	f := s.Feed
	switch {
	case page.Ended(s):
		return "the job has no processes any more: nothing can be lost"
	case f.RecoveriesErr != "":
		return "what a loss would cost is not known: " + f.RecoveriesErr
	case f.Recoveries.GetNote() != "":
		return "what a loss would cost is not known: " + f.Recoveries.Note
	case s.Recovering() != nil:
		return s.Recovering().Id + " is in progress; ] shows it"
	}
	return "asking the engine what a loss would cost …"
}

const (
	domainW = 14
	spareW  = 8
)

func costWidth(w int) int {
	return max(20, w-2-domainW-spareW)
}

func drawExposure(c *widget.Canvas, r widget.Rect, s *page.State, x *falconv1.Exposure, cursor bool) {
	pen := c.Pen(r)
	mark := "  "
	role := themes.Text
	if len(x.GetRanks()) > 0 {
		role = themes.Warn
	}
	spare := "yes"
	spareRole := themes.Text
	if !x.GetSpare() {
		spare = "none"
		spareRole = themes.Warn
	}
	if cursor {
		pen = c.SelectedPen(r)
		role = themes.Selected
		spareRole = themes.Selected
		mark = "▸ "
	}
	w := costWidth(r.W)
	if len(x.GetRanks()) > 0 && !cursor {
		mark = "▲ "
	}
	pen.Put(role, mark+padRight(x.GetDomain(), domainW)).
		Put(role, padRight(costText(s, x), w)).
		Put(spareRole, spare)
}

// padRight cuts or fills to w columns, the last of them blank.
func padRight(text string, w int) string {
	text = widget.Cut(text, w-1)
	return text + strings.Repeat(" ", max(0, w-widget.Width(text)))
}

// costText is what a loss takes from the job, short.
func costText(s *page.State, x *falconv1.Exposure) string {
	n := len(x.GetRanks())
	if n == 0 {
		return "at most one step: replicas hold all of it"
	}
	what := fmt.Sprintf("%s of %d without replica: ", pluralOf(n, "rank"), s.Roster.World())
	if x.GetCheckpointIteration() < 0 {
		return what + "no checkpoint known"
	}
	return what + "back " +
		pluralOf(int(max(0, s.Snap().GetJob().GetIteration()-x.CheckpointIteration)), "iteration")
}

func pluralOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return phrase.Count(int64(n)) + " " + what + "s"
}

// Explain says of a loss what would follow.
func Explain(s *page.State, x *falconv1.Exposure) string {
	parts := []string{x.GetDomain()}
	nodes := x.GetNodes()
	if len(nodes) > 1 || len(nodes) == 1 && nodes[0] != x.GetDomain() {
		parts[0] += " (" + phrase.Few(nodes, fewMost) + ")"
	}
	if len(x.GetRanks()) == 0 {
		parts[0] += ": all that it holds has a replica elsewhere; the survivors keep their processes and at most one step is done again"
	} else {
		parts[0] += ": " + phrase.Ranks(x.Ranks, 6) + " would have no replica"
		if x.GetWhy() != "" {
			parts[0] += ": " + x.Why
		}
		parts = append(parts, fallbackText(s, x))
	}
	if text := standbysText(s, x); text != "" {
		parts = append(parts, text)
	}
	if !x.GetSpare() {
		parts = append(parts,
			"No spare is there for each of its nodes: the recovery would wait for one, or go on with fewer replicas where policy allows",
		)
	}
	return strings.Join(parts, ". ") + "."
}

// standbysText is what a single node keeps to take its lost ranks.
func standbysText(s *page.State, x *falconv1.Exposure) string {
	for _, n := range s.Snap().GetNodes() {
		if len(x.GetNodes()) == 1 && n.GetNode() == x.GetNodes()[0] {
			return phrase.Standbys(n.GetStandbys())
		}
	}
	return ""
}

func fallbackText(s *page.State, x *falconv1.Exposure) string {
	if x.GetCheckpointIteration() < 0 {
		return "No checkpoint is known: the job would start from the beginning"
	}
	lost := max(0, s.Snap().GetJob().GetIteration()-x.CheckpointIteration)
	return fmt.Sprintf("All ranks would go back to the checkpoint of iteration %s, %s",
		phrase.Iteration(x.CheckpointIteration), pluralOf(int(lost), "iteration"))
}

// fewMost is how many names of a list are listed.
const fewMost = 4

// ExposureLines are what the loss of each node and domain would cost, as lines for other pages;
// none where it is not known.
func ExposureLines(s *page.State) []page.Line {
	var out []page.Line
	for _, x := range s.Feed.Recoveries.GetExposures() {
		role := themes.Text
		spare := "; a spare is there"
		if len(x.GetRanks()) > 0 {
			role = themes.Warn
		}
		if !x.GetSpare() {
			spare = "; no spare"
		}
		out = append(out, page.Line{
			Text: x.GetDomain() + ": " + costText(s, x) + spare,
			Role: role,
		})
	}
	return out
}
