package overview

import (
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
)

// A minor incident is shown with what it costs an hour, any other with the time it has lost.
func TestCostText(t *testing.T) {
	now := time.Unix(100, 0)
	s := page.NewState(&feed.State{
		Snap: &falconv1.SnapshotReply{
			Ladder: &falconv1.Ladder{
				Incident:              "INC-0001",
				ImpactMs:              5800,
				LostGpuHours:          0.0129,
				LossPerMinuteGpuHours: 0.00742,
			},
			AtUnixNs: now.UnixNano(),
		},
		Conn:     feed.Live,
		Received: now,
		Memo:     &feed.Memo{},
	})
	if got, want := costText(s, true), "; minor: 0.45 GPU-h an hour, lost 0.0129 GPU-h"; got != want {
		t.Errorf("minor: %q, want %q", got, want)
	}
	if got, want := costText(s, false), "; lost 5.8 s, 0.0129 GPU-h"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
