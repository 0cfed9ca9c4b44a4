package tui

import (
	"testing"

	"github.com/failslow/falcon/tui/internal/fakeengine"
)

// A restart of the whole job is taken only by typing the incident's id.
func TestRestartWantsTheIncidentTyped(t *testing.T) {
	src := &still{state: stateAt(t, fakeengine.Options{}, fakeengine.Proposed+2, 0, wide)}
	clk := newClock()
	m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
	keys := func(list ...string) {
		for _, k := range list {
			send(m, k)
		}
	}
	keys("5", "j", "j", "x") // from the proposed S2 over S3 to S4 restart
	if s := text(m); !containsAll(s, "TAKE S4 restart NOW?", "type INC-0001:", "All processes of the job end") {
		t.Fatalf("the dialog:\n%s", s)
	}
	clk.pass(guard)
	keys("tab", "enter")
	if len(src.decides) != 0 {
		t.Fatalf("taken without the word: %v", src.decides)
	}
	keys("I", "N", "C", "-", "0", "0", "0", "1", "enter")
	if len(src.decides) != 1 {
		t.Fatalf("not taken:\n%s", text(m))
	}
	if r := src.decides[0]; r.Rung != "S4" || r.Variant != "restart" || r.PlanHash != "51d7aa02" || r.Incident != "INC-0001" || r.Action != "" || !r.Approve || r.JobEpoch != 1 {
		t.Errorf("asked for %v", r)
	}
}

func TestTakeOpensTheProposalAndRefusesTheRest(t *testing.T) {
	src := &still{state: stateAt(t, fakeengine.Options{}, fakeengine.Proposed+2, 0, wide)}
	m := quiet(t, src, Options{Theme: "dark", Now: newClock().now}, 80, 24)
	send(m, "5")
	send(m, "x")
	if m.dialog == nil || m.dialog.kind != kindApprove {
		t.Fatal("x on the proposed rung opens no approval")
	}
	send(m, "esc")
	send(m, "j")
	send(m, "x")
	if m.dialog != nil || !containsAll(text(m), "S3 can't be taken") {
		t.Errorf("S3, which can't help:\n%s", text(m))
	}
}

// A plan that changes while the dialog is open can't be taken there.
func TestChangedRungBlocksTaking(t *testing.T) {
	src := &still{state: stateAt(t, fakeengine.Options{}, fakeengine.Proposed+2, 0, wide)}
	clk := newClock()
	m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
	for _, k := range []string{"5", "j", "j", "x"} {
		send(m, k)
	}
	clk.pass(guard)
	changed := stateAt(t, fakeengine.Options{}, fakeengine.Proposed+3, 0, wide)
	for _, g := range changed.Snap.Ladder.Rungs {
		g.PlanHash = "other"
	}
	m.Update(updateMsg{changed})
	for _, k := range []string{"tab", "I", "N", "C", "-", "0", "0", "0", "1", "enter"} {
		send(m, k)
	}
	if len(src.decides) != 0 || !containsAll(text(m), "the plan has changed") {
		t.Errorf("%v\n%s", src.decides, text(m))
	}
}

// Changing the mode keeps what else the policy says.
func TestModesKeepThePolicy(t *testing.T) {
	p := stateAt(t, fakeengine.Options{}, fakeengine.Proposed, 0, wide).Snap.Policy
	p.Owner, p.Hours, p.AllowDrop, p.Variants = "ml-oncall", "22:00-06:00", true, []string{"replace"}
	for _, o := range modes(p) {
		if o.Owner != p.Owner || o.Hours != p.Hours || !o.AllowDrop || len(o.Variants) != 1 || o.Version != p.Version {
			t.Errorf("%v drops parts of %v", o, p)
		}
	}
}
