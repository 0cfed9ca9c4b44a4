package overview

import (
	"fmt"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// hangLines are what is known of a hang, wrapped to a width.
func hangLines(s *page.State, h *falconv1.Hang, w int) []page.Line {
	var out []page.Line
	add := func(role themes.Role, sign, text string) {
		for n, line := range widget.Wrap(text, max(1, w-2)) {
			if n > 0 {
				sign = "  "
			}
			out = append(out, page.Line{Text: sign + line, Role: role})
		}
	}
	parts := phrase.HangParts(h)
	for i, p := range parts {
		if i == 0 {
			add(themes.Accent, "→ ", p.GetAdvice())
		}
		add(themes.Text, "• ", p.GetText())
		if i > 0 {
			add(themes.Accent, "→ ", p.GetAdvice())
		}
	}
	if c := h.GetCulprits(); len(c) == 1 && len(c[0].GetRanks()) == 1 {
		add(themes.Accent, "→ ", fmt.Sprintf(":renew %d WHY replaces its process from here",
			c[0].GetRanks()[0]))
	}
	for _, d := range h.GetDoubts() {
		add(themes.Dim, "? ", d)
	}
	if inc := s.Incident(); page.Open(inc) {
		add(
			themes.Warn,
			"▲ ",
			inc.GetId()+" is open: "+phrase.Verdict(inc.GetVerdict()),
		)
	}
	return out
}
