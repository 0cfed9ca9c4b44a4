package validate

import (
	"fmt"
	"strings"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// liveRows are those of a validation in progress.
const liveRows = 3

// drawLive draws what a validation in progress is at: the pass, how long the job is
// held of how long it may be, and who is tested now.
func drawLive(c *widget.Canvas, r widget.Rect, s *page.State, v *falconv1.Validation) {
	row, rest := r.Rows(1)
	pen := c.Pen(row).Put(themes.Accent, "▸ ").Put(themes.Title, stepText(v))
	if text := Held(s, v); text != "" {
		pen.Put(themes.Warn, "  ·  "+text)
	}
	row, rest = rest.Rows(1)
	drawProgress(c, row, v)
	c.Text(rest.X, rest.Y, rest.W, testedNow(s, v), c.Pal.Style(themes.Text))
}

// stepText is what a validation is at, in words.
func stepText(v *falconv1.Validation) string {
	n := v.GetNow()
	switch n.GetStep() {
	case "gemm":
		return "GEMM on the GPUs"
	case "ids":
		return "pairs agree on where to meet"
	case "pass":
		t := fmt.Sprintf("pass %d of %d", n.GetPass()+1, v.GetPasses())
		if n.GetAgain() {
			t += ", again: was it slow by chance?"
		}
		return t
	}
	return v.GetState()
}

// Held is how long all ranks have been held, and how long at most they still
// are: then they let go by themselves.
func Held(s *page.State, v *falconv1.Validation) string {
	n := v.GetNow()
	if n.GetHeldUnixNs() == 0 {
		return ""
	}
	t := "job held " + phrase.Ms(float64(s.EngineNow().UnixNano()-n.HeldUnixNs)/1e6)
	left := time.Duration(n.GetDeadlineUnixNs() - s.EngineNow().UnixNano())
	if n.GetDeadlineUnixNs() > 0 {
		t += ", at most " + phrase.Seconds(max(0, left)) + " more"
	}
	return t
}

// drawProgress is a bar over the passes.
func drawProgress(c *widget.Canvas, r widget.Rect, v *falconv1.Validation) {
	if v.GetPasses() <= 0 {
		return
	}
	w := min(40, max(4, r.W-30))
	c.Pen(r).Put(themes.Accent, "["+Bar(float64(v.GetPassesDone()), float64(v.GetPasses()), w, c.ASCII)+"]").
		Putf(themes.Text, " %d of %d passes done", v.GetPassesDone(), v.GetPasses())
}

// testedNow is tested now, or awaited.
func testedNow(s *page.State, v *falconv1.Validation) string {
	n := v.GetNow()
	switch {
	case len(n.GetPairs()) > 0:
		var pairs []string
		for _, p := range n.Pairs {
			pairs = append(pairs, deviceOfRank(s, p.GetA())+"↔"+deviceOfRank(s, p.GetB()))
		}
		return fmt.Sprintf("%d pairs talk now: %s", len(pairs), strings.Join(pairs, "  "))
	case len(n.GetRanks()) > 0:
		return "awaited: " + phrase.Ranks(n.Ranks, 8)
	}
	return ""
}

func deviceOfRank(s *page.State, rank int32) string {
	if rank >= 0 &&
		int(rank) < s.Roster.World() &&
		s.Roster.View(rank).GetDevice() != "" {
		return s.Roster.View(rank).Device
	}
	return fmt.Sprintf("rank %d", rank)
}
