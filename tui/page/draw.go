package page

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/roster"
	"github.com/failslow/falcon/tui/widget"
)

// Page is one screen between header and proposal bar.
type Page interface {
	// Act handles an action of the page's own scope; r is where it is drawn.
	// It returns the page to open, or "".
	Act(a key.Action, s *State, r widget.Rect) key.Scope
	// Draw draws s in r and nothing outside.
	Draw(c *widget.Canvas, r widget.Rect, s *State)
	// Want returns how much of the series is needed to draw in r.
	Want(r widget.Rect) (columns, runLengths int)
}

// Pane is a part of a page that can fill it alone.
type Pane struct {
	Name string
	Draw func(c *widget.Canvas, r widget.Rect, s *State)
}

// Near is a page that shows ranks one by one.
type Near interface {
	// Near reports how many newest iterations of every rank the page needs, 0 for none, and
	// whether it needs past tests.
	Near(s *State) (iterations int, tests bool)
}

// Paned is a page that consists of panes.
type Paned interface {
	// Panes lists the panes in reading order.
	Panes(s *State) []Pane
}

// looks are how standings are drawn and called.
var looks = [roster.Standings]struct {
	glyph rune
	word  string
	role  themes.Role
}{
	roster.Culprit: {'✖', "culprit", themes.Culprit},
	roster.LinkEnd: {'≈', "link end", themes.Warn},
	roster.Lost:    {'†', "lost", themes.Lost},
	roster.Slow:    {'▲', "slow", themes.Warn},
	roster.Stale:   {'?', "stale", themes.Stale},
	roster.Parked:  {'■', "parked", themes.Accent},
	roster.Fenced:  {'⊘', "fenced", themes.Stale},
	roster.Unknown: {'?', "unknown", themes.Stale},
	roster.Ended:   {'○', "finished", themes.Dim},
	roster.Exited:  {'○', "ended", themes.Dim},
	roster.OK:      {'●', "ok", themes.Good},
}

// Legend explains the glyphs that are in use.
func (s *State) Legend() string {
	if s.Over() {
		return "○ finished"
	}
	text := "● ok  ▲ slow  ✖ culprit  ? stale  † lost"
	if s.Roster.Count[roster.LinkEnd] > 0 {
		text += "  ≈ link end"
	}
	if s.Roster.Count[roster.Parked] > 0 {
		text += "  ■ parked"
	}
	if s.Roster.Count[roster.Fenced] > 0 {
		text += "  ⊘ fenced"
	}
	if s.Roster.Count[roster.Exited] > 0 {
		text += "  ○ ended"
	}
	return text
}

// Tally counts ranks by health, worst first: "1 culprit, 2 stale".
func (s *State) Tally() string { return s.tally }

func (s *State) countTally() string {
	if text := TallyOf(s.Roster.Count); text != "" {
		return text
	}
	return fmt.Sprintf("all %d ok", s.Roster.World())
}

// TallyOf counts the standings other than OK, worst first; "" where all are OK.
func TallyOf(count [roster.Standings]int) string {
	var parts []string
	for st, n := range count {
		if n > 0 && roster.Standing(st) != roster.OK {
			parts = append(parts, fmt.Sprintf("%d %s", n, countedWord(roster.Standing(st), n)))
		}
	}
	return strings.Join(parts, ", ")
}

// countedWord names a standing beside a number; those that are no nouns stay as they are.
func countedWord(st roster.Standing, n int) string {
	word := looks[st].word
	if n != 1 && (st == roster.Culprit || st == roster.LinkEnd) {
		word += "s"
	}
	return word
}

// Details describes one rank in up to three lines, and where there is room in those of AboutRank.
func (s *State) Details(c *widget.Canvas, r widget.Rect, rank int32) {
	const measured = 3
	top, below := r.Rows(measured)
	drawMeasured(c, top, s, rank, below.H < AboutRows)
	if below.H >= AboutRows {
		DrawLines(c, below, AboutRank(s, rank, below.W))
	}
}

// drawMeasured draws what was measured of a rank, and in the last line what it was named for.
func drawMeasured(c *widget.Canvas, r widget.Rect, s *State, rank int32, history bool) {
	if int(rank) >= s.Roster.World() || r.Empty() {
		return
	}
	v := s.Roster.View(rank)
	tp, dp, pp := s.Coord(rank)
	glyph, word, role := s.Health(v)
	row, rest := r.Rows(1)
	p := c.Pen(row).Putf(themes.Title, "rank %d ", rank).Put(role, string(glyph)+" "+word)
	p.Putf(themes.Text, "  %s  stage %d, replica %d, tp %d",
		cmp.Or(v.GetDevice(), "no device known"), pp, dp, tp)
	if s.following {
		p.Put(themes.Dim, "  (following the worst)")
	}
	if v == nil || rest.Empty() {
		return
	}
	row, rest = rest.Rows(1)
	p = c.Pen(row).Putf(themes.Text, "iteration %s  %s %s vs own base",
		phrase.Iteration(v.Iteration), phrase.Ms(v.Ms), phrase.Percent(v.Slowdown))
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
	if text := phrase.Busy(v); text != "" {
		p.Put(themes.Text, text+"  ")
	}
	if v.WaitMs > 0 {
		p.Putf(themes.Text, "waits %s  ", phrase.Ms(v.WaitMs))
	}
	if v.CnpPerS > 0 {
		p.Putf(themes.Text, "CNP %s/s  ", Thousands(v.CnpPerS))
	}
	p.Putf(themes.Text, "P(change) %.2f", v.Probability)
	if text := KernelOf(s, rank); text != "" {
		p.Put(themes.Warn, "  "+text)
	}
	if text := DeviceHistory(s, v.GetDevice()); text != "" && history {
		p.Put(themes.Warn, "  "+text)
	}
}

// Empty shows in r's middle why there is nothing to draw.
func Empty(c *widget.Canvas, r widget.Rect, why string) {
	lines := widget.Wrap(why, max(1, r.W-4))
	y := r.Y + max(0, (r.H-len(lines))/2)
	for i, l := range lines {
		if y+i < r.Y+r.H {
			c.Text(
				r.X+max(0, (r.W-widget.Width(l))/2),
				y+i,
				r.W,
				l,
				c.Pal.Style(themes.Dim),
			)
		}
	}
}
