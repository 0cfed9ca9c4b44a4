package page_test

import (
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/colorprofile"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/overview"
	"github.com/failslow/falcon/tui/page/ranks"
)

// Where nothing is there yet, the page says what to do next.
func TestEmptyStateSaysWhatToDo(t *testing.T) {
	node := &falconv1.NodeView{Node: "n0", Connected: true}
	for _, c := range []struct {
		name     string
		snap     *falconv1.SnapshotReply
		received bool
		want     []string
	}{
		{"nothing received", &falconv1.SnapshotReply{}, false, []string{"no picture from the engine yet"}},
		{
			"no agent",
			&falconv1.SnapshotReply{Listening: "10.0.0.5:7440"},
			true,
			[]string{"listening on 10.0.0.5:7440", "falcon-agent --config agent.yaml", "falcon-agent run"},
		},
		{"local only", &falconv1.SnapshotReply{}, true, []string{"no network address", "listen"}},
		{
			"agents",
			&falconv1.SnapshotReply{Listening: "x:1", Nodes: []*falconv1.NodeView{node, node}},
			true,
			[]string{"2 agents are attached", "falcon-agent run"},
		},
		{
			"not followed",
			&falconv1.SnapshotReply{
				Nodes: []*falconv1.NodeView{node},
				Job:   &falconv1.Job{Alarm: "rank 1 on n0 is in a PID namespace"},
			},
			true,
			[]string{"no ranks yet: rank 1 on n0 is in a PID namespace"},
		},
	} {
		f := &feed.State{
			Snap: c.snap,
			Conn: feed.Live,
			Memo: &feed.Memo{},
		}
		f.Snap.Job = &falconv1.Job{
			Name:  "j",
			State: "waiting for agents",
			Alarm: c.snap.GetJob().GetAlarm(),
		}
		if c.received {
			f.Received = time.Unix(1000, 0)
		}
		s := page.NewState(f)
		for _, w := range []int{80, 200} {
			for _, p := range []page.Page{ranks.New(), overview.New()} {
				out := strings.Join(strings.Fields(draw(p, s, w, 35, colorprofile.ASCII)), " ")
				for _, want := range c.want {
					if !strings.Contains(out, want) {
						t.Errorf("%s, %d columns: %q lacks %q", c.name, w, out, want)
					}
				}
			}
		}
	}
}
