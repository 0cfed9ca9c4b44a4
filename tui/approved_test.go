package tui

import (
	"fmt"
	"testing"
	"time"

	"github.com/charmbracelet/colorprofile"
	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
)

// approvedBy is a console at a moment at which somebody has approved S3.
func approvedBy(t *testing.T, o enginetest.Options, by string) (*enginetest.Engine, *still, *clock, *Model) {
	t.Helper()
	o.Rung = "S3"
	e := enginetest.New(o)
	e.AdvanceTo(92)
	e.Elsewhere(true, by, "the link is worn")
	src, clk := &still{state: pictureOf(t, e, wide)}, newClock()
	return e, src, clk, quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
}

// What is approved and can be undone is reported on every page, with its time, and
// v takes it back; a approves nothing.
func TestWithdrawingAnApproval(t *testing.T) {
	e, src, clk, m := approvedBy(t, enginetest.Options{Undo: 10}, "li")
	for _, p := range key.Pages {
		m.work.showPage(p)
		if s := text(m); !containsAll(s, "S3 approved by li, acts in 10 s, v withdraws it") {
			t.Errorf("page %s:\n%s", p, s)
		}
	}
	clk.pass(3 * time.Second)
	m.screen.dirty = true
	if s := text(m); !containsAll(s, "acts in 7 s") {
		t.Errorf("after 3 s:\n%s", s)
	}
	presses(m, "a")
	if s := text(m); m.decisions.dialog != nil ||
		!containsAll(s, "S3 is approved by li, acts in 7 s; v withdraws it") {
		t.Errorf("a:\n%s", s)
	}
	presses(m, "v")
	clk.pass(decision.Guard)
	m.screen.dirty = true
	if s := text(
		m,
	); !containsAll(s, "WITHDRAW S3?", "approved by li, acts in 7 s: the link is worn", "Withdraw") {
		t.Errorf("v:\n%s", s)
	}
	presses(m, "n", "o", "enter")
	if len(src.decides) != 1 {
		t.Fatalf("decisions: %v", src.decides)
	}
	r := src.decides[0]
	if r.Approve ||
		r.Action != "INC-0001/S3/1" ||
		r.PlanHash != "77e1b0c3" ||
		r.Reason != "no" ||
		r.JobEpoch != 1 {
		t.Errorf("sent: %v", r)
	}
	// It goes out under the open dialog: nothing is left to withdraw.
	presses(m, "v")
	clk.pass(decision.Guard)
	e.Advance(40)
	m.Update(updateMsg{pictureOf(t, e, wide)})
	presses(m, "x", "enter")
	if s := text(m); len(src.decides) != 1 ||
		!containsAll(s, "too late: it went out at 14:0", "U undoes it") {
		t.Errorf("withdrawn too late: %v\n%s", src.decides, s)
	}
	if got := m.decisions.dialog.reason.Value(); got != "" {
		t.Errorf("a spent dialog takes text: %q", got)
	}
}

// A veto dialog that is open while somebody approves goes on as a withdrawal;
// an approval's does not.
func TestApprovedWhileAVetoIsWritten(t *testing.T) {
	for _, k := range []string{"v", "a"} {
		e := enginetest.New(enginetest.Options{Rung: "S3", Undo: 600})
		e.AdvanceTo(92)
		src, clk := &still{state: pictureOf(t, e, wide)}, newClock()
		m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
		presses(m, k)
		clk.pass(decision.Guard)
		if s := text(m); !containsAll(s, "VETO S3?") &&
			!containsAll(s, "APPROVE S3?", "until then v", "withdraws it") {
			t.Errorf("before:\n%s", s)
		}
		e.Elsewhere(true, "li", "")
		m.Update(updateMsg{pictureOf(t, e, wide)})
		if k == "a" {
			presses(m, "tab")
		}
		want := map[string]string{"v": "S3 is approved by li, acts in", "a": "li has approved this"}[k]
		if !containsAll(text(m), want) {
			s := text(m)
			t.Errorf("%s:\n%s", k, s)
		}
		presses(m, "enter")
		if n := len(src.decides); n != map[string]int{"v": 1, "a": 0}[k] {
			t.Errorf("%s sent %v", k, src.decides)
		}
	}
}

// A freeze holds what is approved, and says so.
func TestFreezeHoldsAnApproval(t *testing.T) {
	e, _, _, m := approvedBy(t, enginetest.Options{Undo: 10}, "li")
	s := pictureOf(t, e, wide)
	s.Snap = proto.CloneOf(s.Snap)
	s.Snap.Policy.Frozen = true
	m.Update(updateMsg{s})
	if s := text(m); !containsAll(s, "approved by li, held while frozen, v withdraws it") {
		t.Errorf("frozen:\n%s", s)
	}
}

// The second approver is asked like the first, and is informed of it; the first
// one can only take it back.
func TestTheSecondApprover(t *testing.T) {
	_, src, clk, m := approvedBy(t, enginetest.Options{Two: true}, "li")
	if s := text(
		m,
	); !containsAll(s, "S3 approved by li, waits for a second approver", "a approve", "v veto") {
		t.Errorf("the bar:\n%s", s)
	}
	presses(m, "a")
	clk.pass(decision.Guard)
	m.screen.dirty = true
	if s := text(
		m,
	); !containsAll(s, "APPROVE S3?", "li has approved this: the link is worn; your approval is the second") {
		t.Errorf("the dialog:\n%s", s)
	}
	presses(m, "tab", "enter")
	if len(src.decides) != 1 || !src.decides[0].Approve {
		t.Errorf("sent: %v", src.decides)
	}

	_, src, _, m = approvedBy(t, enginetest.Options{Two: true}, "maria")
	presses(m, "a")
	if s := text(m); m.decisions.dialog != nil ||
		!containsAll(s, "you have approved S3 already; another person has to") {
		t.Errorf("the first again:\n%s", s)
	}
	presses(m, "v")
	if m.decisions.dialog == nil || len(src.decides) != 0 {
		t.Errorf("no veto is offered: %v", src.decides)
	}
}

// The dialogs of what somebody has approved.
func TestGoldenApprovalDialogs(t *testing.T) {
	drawsAlone(t)
	for _, x := range []pageScene{
		{
			"withdraw",
			key.Ladder,
			enginetest.Options{Rung: "S3", Undo: 10},
			92,
			approves("li"),
			0,
			[]string{"v"},
		},
		{
			"second",
			key.Ladder,
			enginetest.Options{Rung: "S3", Undo: 10, Two: true},
			54,
			approves("li"),
			0,
			[]string{"a"},
		},
		{"first", key.Ladder, enginetest.Options{Rung: "S3", Undo: 10, Two: true}, 54, nil, 0, []string{"a"}},
		{
			"undo",
			key.Ladder,
			enginetest.Options{},
			54,
			func(e *enginetest.Engine) { e.Elsewhere(true, "li", "") },
			12,
			[]string{"U"},
		},
	} {
		for _, s := range sizes[:2] {
			m := x.screen(t, s[0], s[1], colorprofile.TrueColor, "dark", false)
			golden(
				t,
				fmt.Sprintf("text/dialog-%s-%dx%d.txt", x.name, s[0], s[1]),
				trimRows(text(m)),
			)
		}
	}
}

// An approved fence that waits for a measurement says so, and can be withdrawn.
func TestApprovedFenceIsMeasuredFirst(t *testing.T) {
	_, src, clk, m := approvedBy(t, enginetest.Options{Undo: 600}, "li")
	s := *src.state
	s.Snap = proto.CloneOf(s.Snap)
	for _, a := range append(s.Snap.Ladder.Actions, s.Snap.Ladder.Proposal) {
		if a.GetState() == string(falcon.ActionApproved) {
			a.Phase = string(falcon.PhaseMeasuring)
			a.DeadlineUnixNs = 0
		}
	}
	m.Update(updateMsg{&s})
	if s := text(m); !containsAll(s, "approved by li, the ranks are measured once more first") {
		t.Errorf("approved:\n%s", s)
	}
	presses(m, "v")
	clk.pass(decision.Guard)
	presses(m, "n", "o", "enter")
	if len(src.decides) != 1 || src.decides[0].Approve {
		t.Errorf("decisions: %v", src.decides)
	}
}
