package decision

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/page"
)

// proposed is a moment at which a rung waits for a decision.
func proposed(t *testing.T, o enginetest.Options) *page.State {
	t.Helper()
	e := enginetest.New(o)
	e.AdvanceTo(enginetest.Proposed + 2)
	r, err := e.Snapshot(context.Background(), &falconv1.SnapshotRequest{Rank: feed.WorstRank})
	if err != nil {
		t.Fatal(err)
	}
	return page.NewState(&feed.State{
		Snap:     r,
		Conn:     feed.Live,
		Received: time.Unix(1, 0),
		Memo:     &feed.Memo{},
	})
}

// changed is the same with another snapshot.
func changed(s *page.State, f func(*falconv1.SnapshotReply)) *page.State {
	feed := *s.Feed
	feed.Snap = proto.CloneOf(s.Feed.Snap)
	f(feed.Snap)
	return page.NewState(&feed)
}

func operatorOf(s *page.State) Operator {
	return Operator{Live: s, Subject: s, At: s}
}

// What blocks an approval and a veto of the same plan, on the screen and in the
// plain stream alike.
func TestBlocked(t *testing.T) {
	s := proposed(t, enginetest.Options{Rung: "S4"})
	approve, _ := operatorOf(s).Approve()
	veto, _ := operatorOf(s).Veto()
	typed := Typed{Word: "gpt-lab 8", Reason: "worn"}
	action := func(r *falconv1.SnapshotReply) *falconv1.Action { return r.Ladder.Proposal }
	lost := changed(s, func(*falconv1.SnapshotReply) {})
	lost.Feed.Conn = feed.Lost
	for name, c := range map[string]struct {
		live          *page.State
		typed         Typed
		approve, veto string
	}{
		"as asked":     {s, typed, "", ""},
		"nothing":      {s, Typed{}, "type the job's name and its number of ranks: gpt-lab 8", "type "},
		"other world":  {s, Typed{Word: "gpt-lab 9", Reason: "worn"}, "type the job's name", "type "},
		"blank reason": {s, Typed{Word: "gpt-lab 8", Reason: "  "}, "say why", ""},
		"other epoch": {
			changed(s, func(r *falconv1.SnapshotReply) { r.Job.Epoch++ }),
			typed,
			"the job was restarted",
			"the job was restarted",
		},
		"other plan": {changed(s, func(r *falconv1.SnapshotReply) {
			action(r).PlanHash = "0badc0de"
		}), typed, "the plan has changed", "the plan has changed"},
		"gone": {changed(s, func(r *falconv1.SnapshotReply) {
			r.Ladder.Proposal, r.Ladder.Actions = nil, nil
		}), typed, "no longer open", "no longer open"},
		"offline": {lost, typed, "the engine is unreachable", "the engine is unreachable"},
	} {
		if got := Blocked(approve, c.live, c.typed); !fits(got, c.approve) {
			t.Errorf("%s: the approval: %q, want %q", name, got, c.approve)
		}
		v := c.typed
		v.Word = ""
		if c.veto == "type " {
			c.veto = ""
		}
		if got := Blocked(veto, c.live, v); !fits(got, c.veto) {
			t.Errorf("%s: the veto: %q, want %q", name, got, c.veto)
		}
	}
}

func fits(got, want string) bool {
	return (got == "") == (want == "") && strings.Contains(got, want)
}

// Who approved first is not the second approver, and may still veto.
func TestSecondApprover(t *testing.T) {
	for by, may := range map[string]bool{"li": true, "maria": false} {
		e := enginetest.New(enginetest.Options{Rung: "S3", Two: true})
		e.AdvanceTo(enginetest.Proposed + 2)
		e.Elsewhere(true, by, "")
		r, err := e.Snapshot(context.Background(), &falconv1.SnapshotRequest{Rank: feed.WorstRank})
		if err != nil {
			t.Fatal(err)
		}
		s := page.NewState(&feed.State{
			Snap:     r,
			Conn:     feed.Live,
			Received: time.Unix(1, 0),
			Memo:     &feed.Memo{},
		})
		if q, why := operatorOf(s).Approve(); (q != nil) != may {
			t.Errorf("approved by %s: %v, %q", by, q, why.Text)
		}
		list := Waiting(s)
		if len(list) != 1 ||
			list[0].OnlyRefuse() == may ||
			(Blocked(list[0].Approve(), s, Typed{}) == "") != may {
			t.Errorf("approved by %s: asked as %+v", by, list)
		}
		if q, why := operatorOf(s).Veto(); q == nil {
			t.Errorf("no veto: %q", why.Text)
		}
	}
}

// Changing the mode keeps what else the policy says.
func TestModesKeepThePolicy(t *testing.T) {
	p := proposed(t, enginetest.Options{}).Snap().Policy
	p.Owner = "ml-oncall"
	p.Hours = "22:00-06:00"
	p.AllowDrop = true
	p.Variants = []string{"replace"}
	for _, o := range newSetMode(p).Options {
		if o.Owner != p.Owner ||
			o.Hours != p.Hours ||
			!o.AllowDrop ||
			len(o.Variants) != 1 ||
			o.Version != p.Version {
			t.Errorf("%v drops parts of %v", o, p)
		}
	}
}

// A recording and a role too low offer nothing.
func TestNothingIsOffered(t *testing.T) {
	s := proposed(t, enginetest.Options{Role: "viewer"})
	for _, o := range []Operator{operatorOf(s), {Live: s, Subject: s, At: s, Replay: true}} {
		for name, f := range map[string]func() (Question, Refusal){
			"approve": o.Approve,
			"veto":    o.Veto,
			"mode":    o.SetMode,
			"freeze":  o.Freeze,
		} {
			if q, why := f(); q != nil || why.Text == "" {
				t.Errorf("%s: %v, %q", name, q, why.Text)
			}
		}
	}
}
