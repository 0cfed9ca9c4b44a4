package tui

import (
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
)

// No age and no countdown depends on what the console's clock says: it may be hours from the
// engine's, or be set while it runs.
func TestTheConsolesClockChangesNoAge(t *testing.T) {
	for name, state := range map[string]func(*testing.T) *feed.State{
		"proposed":  at(enginetest.Options{}, 54, nil),
		"automatic": at(enginetest.Options{Auto: true}, 50, nil),
		"goes out":  at(enginetest.Options{Rung: "S3", Undo: 10}, 92, approves("li")),
		"recovery": at(enginetest.Options{}, 54, func(e *enginetest.Engine) {
			e.Lose(falcon.RecoveryProposed)
		}),
		"stands": at(enginetest.Options{}, 40, func(e *enginetest.Engine) { e.Hang(true) }),
	} {
		pages := map[time.Duration][]string{}
		for _, off := range []time.Duration{0, time.Hour, -10 * time.Minute} {
			now := newClock().now().Add(off)
			s := state(t)
			s.Received = now.Add(-time.Second)
			m := quiet(
				t,
				&still{state: s},
				Options{Theme: "dark", Now: func() time.Time { return now }},
				120,
				40,
			)
			m.Update(updateMsg{s})
			for _, p := range []key.Scope{key.Overview, key.Ladder, key.Recovery} {
				m.work.showPage(p)
				rows := strings.Split(text(m), "\n")
				// the second has the time of day here
				pages[off] = append(pages[off], strings.Join(append(rows[:1:1], rows[2:]...), "\n"))
			}
		}
		for off, list := range pages {
			for i := range list {
				if list[i] != pages[0][i] {
					t.Errorf("%s, clock off by %s:\n%s\ninstead of\n%s", name, off, list[i], pages[0][i])
				}
			}
		}
	}
}
