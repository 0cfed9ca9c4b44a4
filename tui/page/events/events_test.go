package events

import (
	"fmt"
	"strings"
	"testing"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

var screen = widget.Rect{W: 100, H: 19}

func stateOf(events ...*falconv1.EventLine) *page.State {
	snap := &falconv1.SnapshotReply{Job: &falconv1.Job{World: 8}}
	for r := range int32(8) {
		snap.Ranks = append(snap.Ranks, &falconv1.RankView{
			Rank:   r,
			Device: fmt.Sprintf("n%d.g%d", r/2, r%2),
		})
	}
	for i, e := range events {
		e.Seq = uint64(i + 1)
	}
	return page.NewState(&feed.State{Snap: snap, Events: events})
}

func story() *page.State {
	return stateOf(
		&falconv1.EventLine{Kind: "agent", Text: "the agent of node n0 is here"},
		&falconv1.EventLine{Kind: "jitter", About: "rank 3", Text: "rank 3: one slow iteration"},
		&falconv1.EventLine{
			Kind:     "verdict",
			About:    "INC-0001",
			Text:     "INC-0001: GPU degradation on n1.g0",
			Severity: 3,
		},
		&falconv1.EventLine{
			Kind:     "audit",
			Text:     "maria (approver, ssh): approve INC-0001/S2/1",
			Severity: 0,
			Audit: &falconv1.Audit{
				Actor:    "maria",
				Role:     "approver",
				From:     "ssh 10.0.0.7",
				Verb:     "approve",
				About:    "INC-0001/S2/1",
				PlanHash: "9f2c",
				Reason:   "seen",
			},
		},
		&falconv1.EventLine{Kind: "rank", About: "n3.g1", Text: "n3.g1 has ended: signal 9", Severity: 2},
		&falconv1.EventLine{Kind: "recovery", About: "REC-0002", Text: "REC-0002: resumed", Severity: 1},
	)
}

func draw(t *testing.T, p *Page, s *page.State, r widget.Rect) string {
	t.Helper()
	theme, err := themes.Load("dark")
	if err != nil {
		t.Fatal(err)
	}
	c := widget.NewCanvas(r.W, r.H, theme.Palette(colorprofile.ASCII), false)
	p.Draw(c, c.Whole(), s)
	return ansi.Strip(c.String())
}

func TestKindsAndSeverities(t *testing.T) {
	p := New()
	s := story()
	p.Act(key.Kind, s, screen)
	out := draw(t, p, s, screen)
	if strings.Contains(out, "jitter") ||
		!strings.Contains(out, "audit: who did what: 1 of 6") ||
		!strings.Contains(out, "maria (approver) from ssh 10.0.0.7: approve INC-0001/S2/1  plan 9f2c") {
		t.Errorf("audit lines only:\n%s", out)
	}
	for range len(classes) - 1 {
		p.Act(key.Kind, s, screen)
	}
	p.Act(key.Severity, s, screen)
	if out := draw(t, p, s, screen); strings.Contains(out, "agent of node") ||
		!strings.Contains(out, "warnings only: 2 of 6") {
		t.Errorf("warnings only:\n%s", out)
	}
	s.Filter = "no such text"
	if out := draw(t, p, s, screen); !strings.Contains(out, "esc drops the text") {
		t.Errorf("an empty list says nothing of how to go on:\n%s", out)
	}
}

// Enter opens what a line tells of.
func TestEnterOpensWhatTheLineTellsOf(t *testing.T) {
	p := New()
	s := story()
	for i, want := range []struct {
		page key.Scope
		id   string
		rank int32
	}{
		{key.Recovery, "REC-0002", 0},
		{key.Ranks, "", 7},
		{key.Ladder, "INC-0001", 0},
		{key.Ladder, "INC-0001", 0},
		{key.Ranks, "", 3},
		{"", "", 0},
	} {
		s.Follow()
		if got := p.Act(key.Open, s, screen); got != want.page {
			t.Errorf("line %d from below opens %q, want %q", i, got, want.page)
		}
		if want.id != "" {
			if id, ok := s.Looked(want.id[:4]); !ok || id != want.id {
				t.Errorf("line %d shows %q, want %q", i, id, want.id)
			}
		} else if want.page != "" && s.Rank() != want.rank {
			t.Errorf("line %d selects rank %d, want %d", i, s.Rank(), want.rank)
		}
		p.Act(key.Up, s, screen)
	}
}

// The cursor stays on its line while newer ones come, and is always on screen.
func TestTheCursorHoldsOnToItsLine(t *testing.T) {
	var list []*falconv1.EventLine
	for i := range 60 {
		list = append(list, &falconv1.EventLine{
			Kind: "note",
			Text: fmt.Sprintf("line %02d", i),
		})
	}
	p := New()
	s := stateOf(list...)
	for range 25 {
		p.Act(key.Up, s, screen)
	}
	for range 3 {
		list = append(list, &falconv1.EventLine{
			Kind: "note",
			Text: "newer",
			Seq:  uint64(len(list) + 1),
		})
		s.Feed = &feed.State{Snap: s.Snap(), Events: list}
		out := draw(t, p, s, screen)
		if strings.Count(out, "line 34") != 2 || !strings.Contains(out, "newer below, G follows") {
			t.Errorf("line 34 is not both in the list and in full:\n%s", out)
		}
	}
	p.Act(key.Last, s, screen)
	if out := draw(t, p, s, screen); !strings.Contains(out, "newest last") {
		t.Errorf("newest:\n%s", out)
	}
}
