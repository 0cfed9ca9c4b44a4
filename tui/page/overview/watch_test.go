package overview

import (
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/colorprofile"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

// Nothing to watch is good news only where something was checked.
func TestGreenNeedsSomethingChecked(t *testing.T) {
	agent := []*falconv1.NodeView{{Node: "n0", Connected: true}}
	for name, c := range map[string]struct {
		state falcon.JobState
		nodes []*falconv1.NodeView
		want  string
	}{
		"agents and a job": {
			falcon.JobSteady,
			agent,
			"✓ nothing else: agents, hosts and data are well",
		},
		"no agent": {falcon.JobSteady, nil, "no agent is attached: nothing is watched"},
		"a job that has ended": {
			falcon.JobFinished,
			agent,
			"the job has ended: nothing is watched any more",
		},
		"ended, its agents left": {falcon.JobFinished, nil, "the job has ended: nothing is watched any more"},
	} {
		now := time.Unix(100, 0)
		s := page.NewState(&feed.State{
			Snap: &falconv1.SnapshotReply{
				Job:      &falconv1.Job{State: string(c.state)},
				Nodes:    c.nodes,
				AtUnixNs: now.UnixNano(),
			},
			Conn:     feed.Live,
			Received: now,
			Memo:     &feed.Memo{},
		})
		s.Now = now
		theme, err := themes.Load("dark")
		if err != nil {
			t.Fatal(err)
		}
		cv := widget.NewCanvas(100, 3, theme.Palette(colorprofile.ASCII), false)
		drawWatch(cv, widget.Rect{W: 100, H: 3}, s)
		out := cv.String()
		if !strings.Contains(out, c.want) ||
			strings.Contains(out, "✓") != strings.Contains(c.want, "✓") {
			t.Errorf("%s: want %q:\n%s", name, c.want, out)
		}
	}
}

// What slows all GPUs alike is worth a line, in the engine's words.
func TestGPUsThatAreSlowAlikeAreWorthALine(t *testing.T) {
	now := time.Unix(100, 0)
	s := page.NewState(&feed.State{
		Snap: &falconv1.SnapshotReply{
			AtUnixNs: now.UnixNano(),
			Job: &falconv1.Job{Silicon: &falconv1.Silicon{
				Found: []*falconv1.SiliconFinding{{
					Slow: falconv1.SiliconSlow_SILICON_SLOW_CLOCKS,
					Text: "the job's GPUs run at 50 %",
				}},
			}},
		},
		Conn:     feed.Live,
		Received: now,
		Memo:     &feed.Memo{},
	})
	s.Now = now
	for _, line := range concernLines(s) {
		if line.Text == "the job's GPUs run at 50 %" && line.Role == themes.Warn {
			return
		}
	}
	t.Errorf("no line of %v", concernLines(s))
}
