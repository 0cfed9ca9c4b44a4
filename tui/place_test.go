package tui

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/link"
)

// past adds closed incidents to a state, and an answer about the first.
func withPast(src *still) {
	old := &falconv1.Incident{
		Id:                "INC-0007",
		State:             "closed",
		OnsetIteration:    3,
		RelievedIteration: 9,
		HealthyMs:         100,
		SlowMs:            150,
		Verdict:           &falconv1.Verdict{Cause: "network_congestion", Links: []string{"n5-n6"}},
	}
	src.state.Snap.Incidents = append(src.state.Snap.Incidents, old, &falconv1.Incident{
		Id:                "INC-0006",
		State:             "closed",
		RelievedIteration: 2,
	})
	src.past = &falconv1.IncidentsReply{
		Incidents: []*falconv1.Incident{old},
		Ladders: []*falconv1.Ladder{{
			Incident: "INC-0007",
			Rungs: []*falconv1.RungView{
				{Rung: "S1", Applicable: true},
				{Rung: "S3", Applicable: true, PlanHash: "old"},
			},
			Proposal: &falconv1.Action{
				Id:       "INC-0007/S3/1",
				Rung:     "S3",
				State:    "proposed",
				PlanHash: "old",
			},
			Actions: []*falconv1.Action{{
				Id:        "INC-0007/S3/1",
				Rung:      "S3",
				State:     "reverted",
				DecidedBy: "otto",
			}},
		}},
	}
}

func proposedWithPast(t *testing.T) (*Model, *still) {
	t.Helper()
	src := &still{state: stateAt(
		t,
		enginetest.Options{},
		enginetest.Proposed+2,
		0,
		wide,
	)}
	withPast(src)
	m := quiet(t, src, Options{Theme: "dark", Now: newClock().now}, 120, 40)
	return m, src
}

// drive sends a key and runs the command that it gives, which must not block.
func drive(m *Model, k string) {
	pass(m, personGap)
	_, cmd := m.Update(keyMsg(k))
	answer(m, cmd)
	behold(m)
	answer(m, stayQuiet(m))
}

func answer(m *Model, cmd tea.Cmd) {
	if cmd != nil {
		if msg := cmd(); msg != nil {
			m.Update(msg)
		}
	}
}

func TestOlderIncidentIsShownToRead(t *testing.T) {
	m, src := proposedWithPast(t)
	drive(m, "5")
	drive(m, "[")
	s := text(m)
	if !containsAll(s, "LADDER INC-0007", "n5-n6", "INC-0007 (2 of 3), to read only", "otto") {
		t.Fatalf("the older incident:\n%s", s)
	}
	if !containsAll(strings.Join(strings.Split(s, "\n")[:2], ""), "INC-0001") ||
		!containsAll(s, "S2 PROPOSED") {
		t.Errorf("header and bar must stay with the present incident:\n%s", s)
	}
	drive(m, "x")
	if m.decisions.dialog != nil || !containsAll(text(m), "INC-0007 is shown to read") {
		t.Errorf("a rung of a past incident can be taken:\n%s", text(m))
	}
	drive(m, "a")
	if m.decisions.dialog != nil || !containsAll(text(m), "INC-0007 is shown to read") {
		t.Errorf("what is not on screen can be approved: %v", m.decisions.dialog)
	}
	drive(m, "v") // the safe direction stays at hand
	if m.decisions.dialog == nil ||
		m.decisions.dialog.incidentID() != "INC-0001" ||
		!containsAll(text(m), "INC-0001: VETO S2?") {
		t.Errorf("v decides on %v", m.decisions.dialog)
	}
	drive(m, "esc")
	drive(m, "]")
	if s := text(m); !containsAll(s, "LADDER INC-0001") || strings.Contains(s, "to read only") {
		t.Errorf("back at the present one:\n%s", s)
	}
	if len(src.decides) != 0 {
		t.Error("something was decided")
	}
}

func TestEndsOfTheListAndUnknownIncidents(t *testing.T) {
	m, src := proposedWithPast(t)
	drive(m, "]")
	if !containsAll(text(m), "this is the present incident") {
		t.Errorf("past the newest:\n%s", text(m))
	}
	src.past = nil // no answer: what the list says is shown
	drive(m, "[")
	drive(m, "[")
	drive(m, "[")
	if m.work.look == nil ||
		m.work.look.id != "INC-0006" ||
		!containsAll(text(m), "INC-0006 is the oldest") {
		t.Errorf("past the oldest, at %+v:\n%s", m.work.look, text(m))
	}
	answer(m, m.work.openTyped("inc/99"))
	if m.work.look != nil || !containsAll(text(m), "no incident INC-0099") {
		t.Errorf("an unknown incident:\n%s", text(m))
	}
}

// A state that is drawn in place of another must leave that one alone.
func TestShowingSharesNothingThatIsChanged(t *testing.T) {
	m, src := proposedWithPast(t)
	shown := m.work.state.Showing(src.past)
	if shown.Proposal() != nil || src.past.Ladders[0].Proposal == nil {
		t.Error("the proposal of a past incident is offered, or the answer was changed")
	}
	if m.work.state.Proposal() == nil ||
		m.work.state.Incident().Id != "INC-0001" ||
		shown.Incident().Id != "INC-0007" {
		t.Error("the present state was changed")
	}
}

func TestOpenGoesThereOnceThereIsData(t *testing.T) {
	full := stateAt(t, enginetest.Options{}, enginetest.Proposed+2, 0, wide)
	for text, ok := range map[string]func(*Model) bool{
		"inc/INC-0001": func(m *Model) bool {
			return m.work.current == key.Ladder && m.work.look == nil
		},
		"rank/5": func(m *Model) bool {
			return m.work.current == key.Ranks && m.work.state.Rank() == 5
		},
		"rank/5?view=grid": func(m *Model) bool {
			return m.work.current == key.Grid && m.work.state.Rank() == 5
		},
		"events?filter=S2": func(m *Model) bool {
			return m.work.current == key.Events && m.work.state.Filter == "S2"
		},
		"ranks?sel=1,3": func(m *Model) bool {
			return len(m.work.state.Picks()) == 2
		},
		"rec/REC-0001": func(m *Model) bool { return m.work.current == key.Recovery },
		"link/n1-n3": func(m *Model) bool {
			return m.work.current == key.Validate && len(m.work.state.Picks()) == 4
		},
		"rank/99999": func(m *Model) bool {
			return containsAll(m.notes.text, "there is no rank 99999")
		},
		"rank/2?view=posterior&at=41": func(m *Model) bool {
			return m.work.current == key.Posterior &&
				strings.Contains(m.work.linkToHere().String(), "at=41")
		},
	} {
		to, err := link.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		src := &still{state: &feed.State{Snap: &falconv1.SnapshotReply{}}}
		m := quiet(
			t,
			src,
			Options{Theme: "dark", Now: newClock().now, Open: &to},
			120,
			40,
		)
		m.Update(tickMsg{})
		if m.work.pending == nil {
			t.Fatalf("%s was opened before there was data", text)
		}
		m.Update(updateMsg{full})
		if !ok(m) || m.work.pending != nil {
			t.Errorf("%s: page %s, rank %d, toast %q",
				text, m.work.current, m.work.state.Rank(), m.notes.text)
		}
		m.View()
	}
}

// What the console says of the place where it stands leads there.
func TestHereLeadsBack(t *testing.T) {
	full := stateAt(t, enginetest.Options{}, enginetest.Proposed+2, 0, wide)
	for _, keys := range [][]string{
		{},
		{"2", "l", "+"},
		{"3", "j"},
		{"4", "h", "h"},
		{"5"},
		{"6", "space", "l", "space"},
		{"8"},
	} {
		a := quiet(
			t,
			&still{state: full},
			Options{Theme: "dark", Now: newClock().now},
			120,
			40,
		)
		for _, k := range keys {
			send(a, k)
		}
		to := a.work.linkToHere()
		b := quiet(
			t,
			&still{state: full},
			Options{Theme: "dark", Now: newClock().now, Open: &to},
			120,
			40,
		)
		b.Update(updateMsg{full})
		if got := b.work.linkToHere(); got.String() != to.String() {
			t.Errorf("%v: %s leads to %s", keys, to, got)
		}
	}
}

func TestOpenCommand(t *testing.T) {
	m, _ := proposedWithPast(t)
	answer(m, m.runCommand([]string{"open", "INC-0007"}))
	if m.work.current != key.Ladder || !containsAll(text(m), "LADDER INC-0007") {
		t.Errorf("open INC-0007:\n%s", text(m))
	}
	answer(m, m.runCommand([]string{"open", "foo/bar"}))
	if !containsAll(m.notes.text, "not a link") {
		t.Errorf("toast %q", m.notes.text)
	}
}

// An incident that is still open is renewed while it is looked at.
func TestOpenIncidentIsRenewed(t *testing.T) {
	m, src := proposedWithPast(t)
	clk := newClock()
	m.now, m.work.now = clk.now, clk.now
	src.state.Snap.Incidents[1].State = "located"
	answer(m, m.work.openIncident("INC-0007"))
	if m.work.fetchAgain() != nil {
		t.Error("asked again at once")
	}
	clk.pass(renewPeriod + time.Millisecond)
	if m.work.fetchAgain() == nil {
		t.Error("not asked again")
	}
	if !containsAll(text(m), "+1 open") {
		t.Errorf("the header counts no second open incident:\n%s", text(m))
	}
}
