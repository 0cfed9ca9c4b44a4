package tui

import (
	"context"
	"slices"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

// opened is a console with the approval dialog open and alive.
func opened(t *testing.T, o enginetest.Options, w, h int) (*enginetest.Engine, *still, *clock, *Model) {
	t.Helper()
	e := enginetest.New(o)
	e.AdvanceTo(enginetest.Proposed + 2)
	src, clk := &still{state: pictureOf(t, e, wide)}, newClock()
	m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, w, h)
	send(m, "a")
	if m.decisions.dialog == nil {
		t.Fatalf("no dialog:\n%s", text(m))
	}
	clk.pass(decision.Guard)
	return e, src, clk, m
}

// The first decision wins, and who looks at the dialog then sees at once who
// decided what; nothing can be decided any more.
func TestTheSecondSeesWhoDecided(t *testing.T) {
	for _, approve := range []bool{true, false} {
		e, src, _, m := opened(t, enginetest.Options{}, 80, 24)
		e.Elsewhere(approve, "li", "maintenance at ten")
		m.Update(updateMsg{pictureOf(t, e, wide)})
		want := "li has approved this; it is dispatched now"
		if !approve {
			want = "li has vetoed this: maintenance at ten"
		}
		if s := text(m); !containsAll(s, want) {
			t.Errorf("the open dialog does not say %q:\n%s", want, s)
		}
		presses(m, "tab", "enter")
		if len(src.decides) != 0 {
			t.Errorf("decided a second time: %v", src.decides)
		}
	}
}

func TestDialogNamesWhoElseReviews(t *testing.T) {
	e, src, _, m := opened(t, enginetest.Options{}, 80, 24)
	if got := src.want.Attending; got != "INC-0001/S2/1" {
		t.Errorf("others are told that it attends to %q", got)
	}
	// by the engine's clock
	since := pictureOf(t, e, wide).Snap.GetAtUnixNs() - (39500 * time.Millisecond).Nanoseconds()
	look := func(list ...*falconv1.Operator) string {
		s := pictureOf(t, e, wide)
		s.Session = "mine"
		s.Operators = append(list, &falconv1.Operator{
			Name:      "maria",
			Session:   "mine",
			Attending: "INC-0001/S2/1",
		})
		m.Update(updateMsg{s})
		return text(m)
	}
	if s := look(); containsAll(s, "reviewing") {
		t.Errorf("its own screen counts:\n%s", s)
	}
	if s := look(
		&falconv1.Operator{Name: "li", Session: "b", Attending: "INC-0001/S2/1", SinceUnixNs: since},
		&falconv1.Operator{Name: "zoe", Session: "c"},
	); !containsAll(s, "li is reviewing this too, for 40 s", "maria +2") {
		t.Errorf("li reviews, zoe looks on:\n%s", s)
	}
	presses(m, "esc")
	if got := src.want.Attending; got != "" {
		t.Errorf("after the dialog others are told %q", got)
	}
}

// A plan that changes under an open dialog is shown beside what was asked.
func TestChangedPlanIsShown(t *testing.T) {
	e, src, _, m := opened(t, enginetest.Options{}, 80, 24)
	s := pictureOf(t, e, wide)
	s.Snap = proto.CloneOf(s.Snap)
	p := s.Snap.Ladder.Proposal
	p.PlanHash = "other"
	p.MicroBatches = []int32{9, 9, 4, 10}
	p.PredictedMs = 250
	m.Update(updateMsg{s})
	if got := text(
		m,
	); !containsAll(
		got,
		"CHANGED since this dialog opened",
		"replica 2: 5 → 4 micro-batches",
		"replica 3: 9 → 10",
		"predicted iteration: 262 ms → 250 ms",
		"the plan has changed",
	) {
		t.Errorf("the dialog:\n%s", got)
	}
	presses(m, "tab", "enter")
	if len(src.decides) != 0 {
		t.Errorf("approved: %v", src.decides)
	}
}

func TestRestartedJobBlocksTheDialog(t *testing.T) {
	e, src, _, m := opened(t, enginetest.Options{}, 80, 24)
	s := pictureOf(t, e, wide)
	s.Snap = proto.CloneOf(s.Snap)
	s.Snap.Job.Epoch = 2
	m.Update(updateMsg{s})
	presses(m, "tab", "enter")
	if got := text(m); len(src.decides) != 0 ||
		!containsAll(got, "the job was restarted since this dialog opened (epoch 1, now 2)") {
		t.Errorf("%v\n%s", src.decides, got)
	}
}

// S3's dialog says what moves, what that does to the job, why, and what undoes it.
func TestTopologyDialogSaysAll(t *testing.T) {
	_, src, _, m := opened(t, enginetest.Options{Rung: "S3"}, 100, 50)
	if s := text(
		m,
	); !containsAll(
		s,
		"APPROVE S3?",
		"Changes places: n1 with n3",
		"n0-n1 leave DP",
		"n0-n3 join DP",
		"Impact: the job pauses",
		"Evidence: GPU degradation",
		"If wrong: a failure before the ranks' second vote",
	) {
		t.Errorf("the dialog:\n%s", s)
	}
	presses(m, "enter")
	if len(src.decides) != 0 || m.decisions.dialog != nil {
		t.Error("enter alone must cancel")
	}
}

// Nothing that is pasted decides, whatever is open, wherever the focus is.
func TestPasteDecidesNothing(t *testing.T) {
	for _, o := range []enginetest.Options{{}, {Rung: "S3"}, {Rung: "S4"}} {
		for _, open := range [][]string{
			{"a"},
			{"v"},
			{"c"},
			{"5", "x"},
			{"5", "j", "j", "x"},
			{"6", "x"},
			{":"},
			{"F"},
		} {
			for tabs := range 4 {
				e := enginetest.New(o)
				e.AdvanceTo(enginetest.Proposed + 2)
				src, clk := &still{state: pictureOf(t, e, wide)}, newClock()
				m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
				presses(m, open...)
				clk.pass(decision.Guard)
				for range tabs {
					presses(m, "tab")
				}
				m.Update(tea.PasteMsg{Content: "gpt-lab 8\r\n\tunfreeze\r\ty\n"})
				n := len(src.decides) + len(src.tests) + len(src.words) + len(src.policies)
				if n != 0 {
					t.Errorf("%v, %d tabs: a paste led to %v %v %v %v",
						open, tabs, src.decides, src.tests, src.words, src.policies)
				}
			}
		}
	}
}

// A resize, however small, neither decides nor loses what was typed.
func TestResizeDuringADialog(t *testing.T) {
	_, src, _, m := opened(t, enginetest.Options{Rung: "S4"}, 80, 24)
	types(m, "gpt-lab 8")
	for _, s := range [][2]int{{200, 60}, {61, 17}, {1, 1}, {40, 10}, {0, 0}, {300, 90}, {60, 16}, {80, 24}} {
		m.Update(tea.WindowSizeMsg{Width: s[0], Height: s[1]})
		if s[0] > 0 && s[1] > 0 {
			checkGeometry(t, m.View().Content, s[0], s[1])
		}
		if s[0] < minWidth { // what can't be seen can't be confirmed
			presses(m, "enter", "tab", "x")
		}
	}
	if len(src.decides) != 0 ||
		m.decisions.dialog == nil ||
		m.decisions.dialog.word.Value() != "gpt-lab 8" {
		t.Fatalf("%v, dialog %v\n%s", src.decides, m.decisions.dialog, text(m))
	}
	if !containsAll(text(m), "say why") {
		t.Errorf("the dialog:\n%s", text(m))
	}
}

// A lost connection decides nothing, and its return does not either.
func TestLostConnectionNeverApproves(t *testing.T) {
	e, src, clk, m := opened(t, enginetest.Options{}, 80, 24)
	presses(m, "tab")
	lost := pictureOf(t, e, wide)
	lost.Conn, lost.Err = 2, "gone"
	m.Update(updateMsg{lost})
	presses(m, "enter", "enter")
	clk.pass(time.Minute)
	m.Update(updateMsg{pictureOf(t, e, wide)})
	if len(src.decides) != 0 {
		t.Fatalf("a key pressed while the engine was away decided: %v", src.decides)
	}
	src.err = context.DeadlineExceeded
	presses(m, "enter")
	if len(src.decides) != 1 || !containsAll(text(m), "not approved") {
		t.Errorf("an unanswered decision is not said to be one: %v\n%s", src.decides, text(m))
	}
	if slices.Contains(m.decisions.dialog.focusStops(), fieldWord) {
		t.Error("an S2 dialog asks for a word")
	}
}
