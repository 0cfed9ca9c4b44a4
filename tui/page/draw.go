package page

import (
	"fmt"
	"strings"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// Page is one screen between header and proposal bar.
type Page interface {
	// Act handles an action of the page's own scope; r is where it is drawn.
	// It returns the page to open, or "".
	Act(a key.Action, s *State, r widget.Rect) key.Scope
	// Draw draws s in r and nothing outside.
	Draw(c *widget.Canvas, r widget.Rect, s *State)
	// Want says how much of the series is needed to draw in r.
	Want(r widget.Rect) (columns, runLengths int)
}

// Health is a rank's state as glyph, word and role.
func (s *State) Health(r *falconv1.RankView) (glyph rune, word string, role themes.Role) {
	if s.Ended(r) {
		return '○', "finished", themes.Dim
	}
	return health(r.GetHealth())
}

func health(h falconv1.RankHealth) (glyph rune, word string, role themes.Role) {
	switch h {
	case falconv1.RankHealth_RANK_HEALTH_CULPRIT:
		return '✖', "culprit", themes.Culprit
	case falconv1.RankHealth_RANK_HEALTH_SLOW:
		return '▲', "slow", themes.Warn
	case falconv1.RankHealth_RANK_HEALTH_STALE:
		return '?', "stale", themes.Stale
	case falconv1.RankHealth_RANK_HEALTH_LOST:
		return '†', "lost", themes.Lost
	case falconv1.RankHealth_RANK_HEALTH_OK:
		return '●', "ok", themes.Good
	}
	return '?', "unknown", themes.Stale
}

// Legend explains the glyphs.
func (s *State) Legend() string {
	if s.Over() {
		return "○ finished"
	}
	return "● ok  ▲ slow  ✖ culprit  ? stale  † lost"
}

// Tally counts ranks by health, worst first: "1 culprit, 2 stale".
func (s *State) Tally() string { return s.tally }

func (s *State) count() string {
	var count [8]int
	ended := 0
	for _, r := range s.Ranks {
		if s.Ended(r) {
			ended++
			continue
		}
		count[r.GetHealth()&7]++
	}
	var parts []string
	for _, h := range []falconv1.RankHealth{
		falconv1.RankHealth_RANK_HEALTH_CULPRIT, falconv1.RankHealth_RANK_HEALTH_LOST, falconv1.RankHealth_RANK_HEALTH_SLOW,
		falconv1.RankHealth_RANK_HEALTH_STALE, falconv1.RankHealth_RANK_HEALTH_UNSPECIFIED,
	} {
		if n := count[h]; n > 0 {
			_, word, _ := health(h)
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	if ended > 0 {
		parts = append(parts, fmt.Sprintf("%d finished", ended))
	}
	if len(parts) == 0 {
		return fmt.Sprintf("all %d ok", len(s.Ranks))
	}
	return strings.Join(parts, ", ")
}

// Details describes one rank in up to three lines.
func (s *State) Details(c *widget.Canvas, r widget.Rect, rank int32) {
	if int(rank) >= len(s.Ranks) || r.Empty() {
		return
	}
	v := s.Ranks[rank]
	tp, dp, pp := s.Coord(rank)
	glyph, word, role := s.Health(v)
	row, rest := r.Rows(1)
	p := c.Pen(row).Putf(themes.Title, "rank %d ", rank).Put(role, string(glyph)+" "+word)
	p.Putf(themes.Text, "  %s  stage %d, replica %d, tp %d", device(v), pp, dp, tp)
	if s.following {
		p.Put(themes.Dim, "  (following the worst)")
	}
	if v == nil || rest.Empty() {
		return
	}
	row, rest = rest.Rows(1)
	p = c.Pen(row).Putf(themes.Text, "iteration %s  %s %s vs own base", phrase.Iteration(v.Iteration), phrase.Ms(v.Ms), phrase.Percent(v.Slowdown))
	if v.SelfRatio > 0 {
		p.Putf(themes.Text, "  self %s/micro-batch, %.2f× peers", phrase.Ms(v.SelfMs), v.SelfRatio)
	}
	if rest.Empty() {
		return
	}
	p = c.Pen(rest)
	if v.SmClockMhz > 0 {
		p.Putf(themes.Text, "SM %d MHz  %d °C  ", v.SmClockMhz, v.TemperatureC)
	}
	if v.WaitMs > 0 {
		p.Putf(themes.Text, "waits %s  ", phrase.Ms(v.WaitMs))
	}
	p.Putf(themes.Text, "P(change) %.2f", v.Probability)
}

func device(v *falconv1.RankView) string {
	if v.GetDevice() == "" {
		return "no device known"
	}
	return v.Device
}

// Empty says in r's middle why there is nothing to draw.
func Empty(c *widget.Canvas, r widget.Rect, why string) {
	lines := widget.Wrap(why, max(1, r.W-4))
	y := r.Y + max(0, (r.H-len(lines))/2)
	for i, l := range lines {
		if y+i < r.Y+r.H {
			c.Text(r.X+max(0, (r.W-widget.Width(l))/2), y+i, r.W, l, c.Pal.Style(themes.Dim))
		}
	}
}
