package tui

import (
	"strings"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/page"
)

// An approval whose placement uses a device that incidents have named says so; one
// that leaves it does not.
func TestDialogNamesThePast(t *testing.T) {
	e := enginetest.New(enginetest.Options{Past: true})
	e.AdvanceTo(54)
	live := page.NewState(pictureOf(t, e, feed.Want{Rank: -1}))
	q := &decision.Approve{}
	q.Action = &falconv1.Action{Rung: "S4", Placement: []string{"n0.g0", "n1.g0"}}
	if lines := pastLines(q, live, 80); len(lines) != 1 || !strings.Contains(lines[0].Text, "n1.g0: culprit of INC-0907, 5 min ago") {
		t.Errorf("%+v", lines)
	}
	q.Action.Placement[1] = "n3.g0"
	if lines := pastLines(q, live, 80); len(lines) != 0 {
		t.Errorf("%+v", lines)
	}
}
