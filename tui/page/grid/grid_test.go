package grid

import (
	"fmt"
	"strings"
	"testing"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

func state(tp, dp, pp int) *page.State {
	s := &falconv1.SnapshotReply{Job: &falconv1.Job{
		Tp:    int32(tp),
		Dp:    int32(dp),
		Pp:    int32(pp),
		World: int32(tp * dp * pp),
	}}
	views := make([]falconv1.RankView, tp*dp*pp)
	for r := range views {
		v := &views[r]
		v.Rank = int32(r)
		v.Device = fmt.Sprintf("n%d.g%d", r/8, r%8)
		v.Ms = 200
		v.SelfRatio = 1
		v.Health = falconv1.RankHealth_RANK_HEALTH_OK
		s.Ranks = append(s.Ranks, v)
	}
	return page.NewState(&feed.State{Snap: s, Conn: feed.Live, Memo: &feed.Memo{}})
}

// Labels of columns never run into each other or into the margin.
func TestHeaderLabelsStayApart(t *testing.T) {
	th, err := themes.Load("dark")
	if err != nil {
		t.Fatal(err)
	}
	for _, dp := range []int{1, 2, 8, 13, 64, 100, 781, 999, 1250, 5000} {
		s := state(2, dp, 2)
		for w := 40; w <= 200; w++ {
			c := widget.NewCanvas(w, 8, th.Palette(colorprofile.TrueColor), false)
			Table(c, c.Whole(), s)
			head := strings.Split(ansi.Strip(c.String()), "\n")[1]
			words := strings.Fields(head)
			last := words[len(words)-1]
			if last != "max" || strings.Count(head, "r") != len(words)-1 {
				t.Fatalf("%d replicas at %d columns: %q", dp, w, head)
			}
		}
	}
}
