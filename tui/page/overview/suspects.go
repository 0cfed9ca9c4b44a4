package overview

import (
	"fmt"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// bySeverity is the order in which suspects are listed.
var bySeverity = [...]falconv1.RankHealth{
	falconv1.RankHealth_RANK_HEALTH_CULPRIT, falconv1.RankHealth_RANK_HEALTH_LOST,
	falconv1.RankHealth_RANK_HEALTH_SLOW,
	falconv1.RankHealth_RANK_HEALTH_STALE, falconv1.RankHealth_RANK_HEALTH_UNSPECIFIED,
}

// worstRanks lists up to n ranks that are not healthy, gravest first.
func worstRanks(s *page.State, n int) []int32 {
	var out []int32
	for _, h := range bySeverity {
		for _, r := range s.Anomalies() {
			if len(out) >= n {
				return out
			}
			if s.Roster.View(r).GetHealth() == h {
				out = append(out, r)
			}
		}
	}
	return out
}

// drawSuspects lists the ranks that are not healthy.
func drawSuspects(c *widget.Canvas, r widget.Rect, s *page.State) {
	body := c.Rule(r, "SUSPECTS", s.Tally())
	if len(s.Anomalies()) == 0 {
		page.Empty(c, body, "no rank is slow, stale or lost")
		return
	}
	head, body := body.Rows(1)
	c.Pen(head).Putf(themes.Dim, "%5s %-9s %-9s %7s %5s %9s",
		"rank", "device", "state", "self", "slow", "clock")
	for _, rank := range worstRanks(s, body.H) {
		row, rest := body.Rows(1)
		body = rest
		drawSuspect(c, row, s, rank)
	}
}

func drawSuspect(c *widget.Canvas, r widget.Rect, s *page.State, rank int32) {
	v := s.Roster.View(rank)
	glyph, word, role := s.Health(v)
	pen := c.Pen(r).
		Putf(themes.Title, "%5d ", rank).
		Putf(themes.Text, "%-9s ", widget.Cut(v.GetDevice(), 9))
	pen.Putf(role, "%c %-8s", glyph, widget.Cut(word, 8))
	self := "—"
	if v.GetSelfRatio() > 0 {
		self = fmt.Sprintf("%.2f×", v.SelfRatio)
	}
	clock := "—"
	if v.GetSmClockMhz() > 0 {
		clock = fmt.Sprintf("%d MHz", v.SmClockMhz)
	}
	pen.Putf(themes.Text, "%7s %5s %9s", self, phrase.Percent(v.GetSlowdown()), clock)
	cause := "  " + phrase.Cause(s.Blamed(rank))
	if s.Blamed(rank) != "" && pen.Fits(cause) {
		pen.Put(themes.Warn, cause)
	}
}
