package tui

import (
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/keyguard"
)

// A restart of the whole job is taken only by typing the job's name and its
// number of ranks, with a reason.
func TestRestartWantsTheJobTyped(t *testing.T) {
	src := &still{state: stateAt(
		t,
		enginetest.Options{},
		enginetest.Proposed+2,
		0,
		wide,
	)}
	clk := newClock()
	m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
	presses(m, "5", "j", "j", "x") // from the proposed S2 over S3 to S4 restart
	if s := text(
		m,
	); !containsAll(
		s,
		"TAKE S4 restart NOW?",
		"type gpt-lab 8:",
		"reason:",
		"All processes of the job end",
		"▸ Cancel",
	) {
		t.Fatalf("the dialog:\n%s", s)
	}
	restart(t, src, clk, m)
	r := src.decides[0]
	if r.Rung != "S4" ||
		r.Variant != "restart" ||
		r.PlanHash != "51d7aa02" ||
		r.Incident != "INC-0001" ||
		r.Action != "" ||
		!r.Approve ||
		r.JobEpoch != 1 ||
		r.Reason != "dead node" {
		t.Errorf("asked for %v", r)
	}
}

// Approving a proposed restart asks for the same.
func TestProposedRestartWantsTheJobTyped(t *testing.T) {
	src := &still{state: stateAt(
		t,
		enginetest.Options{Rung: "S4"},
		enginetest.Proposed+2,
		0,
		wide,
	)}
	clk := newClock()
	m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
	send(m, "a")
	if s := text(m); !containsAll(s, "APPROVE S4?", "type gpt-lab 8:", "reason:") {
		t.Fatalf("the dialog:\n%s", s)
	}
	restart(t, src, clk, m)
	r := src.decides[0]
	if r.Action != "INC-0001/S4/1" || r.Reason != "dead node" || !r.Approve {
		t.Errorf("asked for %v", r)
	}
}

// restart tries the ways around the open dialog's typed confirmation, then the
// only way.
func restart(t *testing.T, src *still, clk *clock, m *Model) {
	t.Helper()
	clk.pass(decision.Guard)
	presses(m, "tab", "tab", "tab", "enter")
	if !containsAll(text(m), "type the job's name") {
		t.Fatalf("the dialog does not say what is missing:\n%s", text(m))
	}
	presses(m, "tab", "tab") // to the word
	m.Update(tea.PasteMsg{Content: "gpt-lab 8"})
	presses(m, "tab", "tab", "enter")
	types(m, "gpt-lab 9") // begins the word, from whichever button
	presses(m, "tab", "tab", "enter")
	presses(m, "left", "left", "backspace")
	types(m, "8")
	presses(m, "enter", "enter", "enter") // through the fields to the button; there is no reason yet
	if len(src.decides) != 0 || !containsAll(text(m), "say why") {
		t.Fatalf("taken without the reason: %v\n%s", src.decides, text(m))
	}
	presses(m, "left")
	m.Update(tea.PasteMsg{Content: "dead node"})
	pass(m, keyguard.Pause)
	presses(m, "enter")
	if len(src.decides) != 0 {
		t.Fatal("enter in a field took it")
	}
	presses(m, "enter")
	if len(src.decides) != 1 {
		t.Fatalf("not taken:\n%s", text(m))
	}
}

func presses(m *Model, keys ...string) {
	for _, k := range keys {
		send(m, k)
	}
}

func types(m *Model, s string) {
	for _, r := range s {
		if r == ' ' {
			send(m, "space")
			continue
		}
		send(m, string(r))
	}
}

func TestTakeOpensTheProposalAndRefusesTheRest(t *testing.T) {
	src := &still{state: stateAt(
		t,
		enginetest.Options{},
		enginetest.Proposed+2,
		0,
		wide,
	)}
	m := quiet(t, src, Options{Theme: "dark", Now: newClock().now}, 80, 24)
	send(m, "5")
	send(m, "x")
	if kindOf(m.decisions.dialog) != kindApprove {
		t.Fatal("x on the proposed rung opens no approval")
	}
	send(m, "esc")
	send(m, "j")
	send(m, "x")
	if m.decisions.dialog != nil || !containsAll(text(m), "S3 can't be taken") {
		t.Errorf("S3, which can't help:\n%s", text(m))
	}
}

// A plan that changes while the dialog is open can't be taken there.
func TestChangedRungBlocksTaking(t *testing.T) {
	src := &still{state: stateAt(
		t,
		enginetest.Options{},
		enginetest.Proposed+2,
		0,
		wide,
	)}
	clk := newClock()
	m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
	for _, k := range []string{"5", "j", "j", "x"} {
		send(m, k)
	}
	clk.pass(decision.Guard)
	changed := stateAt(t, enginetest.Options{}, enginetest.Proposed+3, 0, wide)
	for _, g := range changed.Snap.Ladder.Rungs {
		g.PlanHash = "other"
	}
	m.Update(updateMsg{changed})
	types(m, "gpt-lab 8")
	presses(m, "tab", "x", "tab", "enter")
	if len(src.decides) != 0 || !containsAll(text(m), "the plan has changed") {
		t.Errorf("%v\n%s", src.decides, text(m))
	}
}
