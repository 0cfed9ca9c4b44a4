package tui

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui/internal/enginetest"
)

// hand is somebody who has never seen the console: it presses only what the
// screen names at that moment.
type hand struct {
	*term
	pressed []string
}

// follow looks for the words that name a key, then presses it.
func (u *hand) follow(words string, code rune) {
	u.t.Helper()
	s := u.shows(words)
	u.pressed = append(u.pressed, words)
	if !strings.Contains(s, words) {
		u.t.Fatalf("nothing on screen says %q:\n%s", words, s)
	}
	u.press(code)
}

// At three in the morning, somebody new, with what the screen says alone: find
// the slow rank, see why, approve S2, in under ten key presses.
func TestNewUserApprovesInUnderTenKeys(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {120, 40}} {
		e := enginetest.New(enginetest.Options{})
		e.AdvanceTo(enginetest.Proposed + 3)
		u := &hand{term: openTerm(t, e, size[0], size[1])}

		u.shows("S2 PROPOSED")
		u.follow("? help", '?') // how does one get about here?
		u.shows("Ranks: heatmap of all ranks.")
		u.follow("esc close", tea.KeyEscape)
		u.follow("2 ranks", '2')
		u.until("the slow rank under the cursor", func(s string) bool {
			return strings.Contains(s, "rank 2") &&
				strings.Contains(s, "n1.g0") &&
				strings.Contains(s, "culprit")
		})
		u.follow("i why", 'i')
		u.until("the evidence", func(s string) bool {
			return strings.Contains(s, "EVIDENCE") && strings.Contains(s, "2.01 times the median")
		})
		u.follow("a approve", 'a')
		u.shows("APPROVE S2?")
		u.armed()
		u.follow("tab, then enter, approves", tea.KeyTab)
		u.shows("▸ Approve")
		u.follow("then enter, approves", tea.KeyEnter)
		u.gone("APPROVE S2?")

		e.Advance(12)
		u.shows("kept")
		d := e.Decides()
		if len(d) != 1 || !d[0].Approve || d[0].PlanHash != "9f2c41d0" {
			t.Errorf("decisions: %v", d)
		}
		if n := len(u.pressed); n >= 10 {
			t.Errorf("%d keys: %v", n, u.pressed)
		}
		t.Logf("%d × %d: %d keys: %s",
			size[0], size[1], len(u.pressed), strings.Join(u.pressed, " · "))
	}
}
