package tui

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

// Two incidents are open, the newer INC-0002 is the present one, and both wait
// for a decision.
func severalOpen(t *testing.T) (*Model, *still, *clock) {
	t.Helper()
	src := &still{state: stateAt(
		t,
		enginetest.Options{Second: true},
		enginetest.SecondFrom+2,
		0,
		wide,
	)}
	clk := newClock()
	return quiet(t, src, Options{Theme: "dark", Now: clk.now}, 120, 40), src, clk
}

func rows(m *Model, n ...int) string {
	list := strings.Split(text(m), "\n")
	var out []string
	for _, i := range n {
		out = append(out, list[(i+len(list))%len(list)])
	}
	return strings.Join(out, "\n")
}

// What is shown is what is decided on, whatever comes to the front meanwhile.
func TestDecisionsGoToTheIncidentShown(t *testing.T) {
	m, src, clk := severalOpen(t)
	if s := rows(m, 1, -3); !containsAll(s, "INC-0002 +1 open", "INC-0002 S3 PROPOSED", "+1 waiting") {
		t.Fatalf("header and bar at first:\n%s", s)
	}
	send(m, "5")
	send(m, "[")
	if s := text(m); !containsAll(s, "LADDER INC-0001") || strings.Contains(s, "to read only") {
		t.Fatalf("the other open incident:\n%s", s)
	}
	send(m, "2") // also on a page that shows none
	if s := rows(m, 1, -3); !containsAll(s, "INC-0001 +1 open", "INC-0001 S2 PROPOSED", "+1 waiting") {
		t.Errorf("header and bar do not speak of what is shown:\n%s", s)
	}
	send(m, "a")
	if s := text(m); !containsAll(s, "INC-0001: APPROVE S2?", "S2 for INC-0001, plan 9f2c41d0:") {
		t.Fatalf("the dialog:\n%s", s)
	}
	m.Update(updateMsg{turned(src.state)})
	m.Update(updateMsg{src.state})
	if s := rows(m, 1, -3); !containsAll(s, "INC-0001 +1 open", "INC-0001 S2 PROPOSED") {
		t.Errorf("what stands around the dialog speaks of another incident:\n%s", s)
	}
	clk.pass(decision.Guard)
	send(m, "tab")
	send(m, "enter")
	n := len(src.decides)
	if n != 1 ||
		src.decides[0].Incident != "INC-0001" ||
		src.decides[0].Action != "INC-0001/S2/1" ||
		src.decides[0].PlanHash != "9f2c41d0" {
		t.Errorf("decided: %v", src.decides)
	}
}

// A dialog outlives neither its incident nor its proposal, however many others
// there are.
func TestADialogKeepsItsIncident(t *testing.T) {
	m, src, clk := severalOpen(t)
	send(m, "a")
	clk.pass(decision.Guard)
	gone := *src.state
	gone.Snap = proto.CloneOf(src.state.Snap)
	gone.Snap.Incidents = gone.Snap.Incidents[1:]
	gone.Snap.Ladder = gone.Snap.Others[0]
	gone.Snap.Others = nil
	m.Update(updateMsg{&gone})
	send(m, "tab")
	send(m, "enter")
	if s := text(m); len(src.decides) != 0 ||
		!containsAll(s, "INC-0002: APPROVE S3?", "this proposal is no longer open") {
		t.Errorf("%v:\n%s", src.decides, s)
	}
}

// i leads to what waits: from one incident to the next, and back.
func TestWhyGoesToTheNextThatWaits(t *testing.T) {
	m, _, _ := severalOpen(t)
	for i, want := range []string{"LADDER INC-0002", "LADDER INC-0001", "LADDER INC-0002"} {
		send(m, "i")
		if s := text(m); !containsAll(s, want) {
			t.Fatalf("press %d, want %s:\n%s", i+1, want, s)
		}
	}
}

// Where the newest incident waits for nothing, the screen turns to the one that does.
func TestTheScreenTurnsToTheIncidentThatWaits(t *testing.T) {
	m, src, _ := severalOpen(t)
	decided := *src.state
	decided.Snap = proto.CloneOf(src.state.Snap)
	decided.Snap.Ladder.Proposal = nil
	decided.Snap.Ladder.Actions[0].State = "vetoed"
	m.Update(updateMsg{&decided})
	if s := rows(m, -3); !containsAll(s, "INC-0001 S2 PROPOSED", "a approve") {
		t.Errorf("the bar:\n%s", s)
	}
	if s := text(m); !containsAll(s, "INC-0001 +1 open") {
		t.Errorf("the header:\n%s", s)
	}
	send(m, "v")
	if m.decisions.dialog == nil || m.decisions.dialog.incidentID() != "INC-0001" {
		t.Errorf("v: %v", m.decisions.dialog)
	}
}

// An engine that sends no ladders beside the first has the others read only.
func TestWithoutItsLadderAnIncidentIsToRead(t *testing.T) {
	m, src, _ := severalOpen(t)
	old := *src.state
	old.Snap = proto.CloneOf(src.state.Snap)
	old.Snap.Others = nil
	m.Update(updateMsg{&old})
	src.past = &falconv1.IncidentsReply{Incidents: old.Snap.Incidents[1:]}
	drive(m, "5")
	drive(m, "[")
	drive(m, "a")
	if m.decisions.dialog != nil || !containsAll(text(m), "INC-0001", "to read only") {
		t.Errorf("%v:\n%s", m.decisions.dialog, text(m))
	}
}

// A choice among one incident's rungs is none among another's.
func TestTheLaddersCursorIsOfOneIncident(t *testing.T) {
	m, _, _ := severalOpen(t)
	for _, k := range []string{"5", "j", "j", "[", "x"} {
		send(m, k)
	}
	if kindOf(m.decisions.dialog) != kindApprove || m.decisions.dialog.subjectName() != "INC-0001/S2/1" {
		t.Errorf("x took %+v", m.decisions.dialog)
	}
}
