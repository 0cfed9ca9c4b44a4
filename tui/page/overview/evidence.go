package overview

import (
	"fmt"
	"slices"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/widget"
)

// evidenceLines are an incident's evidence, clearest first. Where not all of it fits, each piece has
// one line, and the last says how many are left out and where they are.
func evidenceLines(s *page.State, inc *falconv1.Incident, r widget.Rect) []page.Line {
	v := inc.GetVerdict()
	if v == nil || r.Empty() {
		return nil
	}
	ordered := page.ClearestFirst(slices.Concat(page.KernelEvidence(s, inc), v.Evidence))
	lines := ladder.EvidenceLines(&falconv1.Verdict{Evidence: ordered}, r.W)
	if len(lines) <= r.H {
		return lines
	}
	lines = lines[:0]
	for _, e := range ordered {
		first := ladder.EvidenceLines(
			&falconv1.Verdict{Evidence: []*falconv1.Evidence{e}},
			max(r.W, 1<<10),
		)[0]
		lines = append(lines, page.Line{
			Text: widget.Cut(first.Text, r.W),
			Role: first.Role,
		})
	}
	if more := len(lines) - r.H; more > 0 {
		lines = lines[:r.H]
		note := fmt.Sprintf("  +%d more: %s", more, s.Key(key.Overview, key.ShowLadder))
		last := &lines[r.H-1]
		last.Text = fmt.Sprintf("%-*s%s",
			r.W-widget.Width(note), widget.Cut(last.Text, max(0, r.W-widget.Width(note))), note)
	}
	return lines
}
