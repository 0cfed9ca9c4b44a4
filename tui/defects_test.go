package tui

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/keyguard"
)

// A dialog whose question is answered elsewhere offers nothing to decide; an enter that was
// meant for the button decides nothing and leaves the reason to be read.
func TestASpentDialogOnlyCloses(t *testing.T) {
	for _, keys := range [][]string{{"enter"}, {"tab", "enter", "enter"}, {"esc"}} {
		e, src, _, m := opened(t, enginetest.Options{}, 80, 24)
		e.Elsewhere(true, "li", "")
		m.Update(updateMsg{pictureOf(t, e, wide)})
		if s := text(m); strings.Contains(s, "Approve  ") ||
			!containsAll(s, "▸ Close", "li has approved this") {
			t.Errorf("a spent dialog offers:\n%s", s)
		}
		presses(m, keys...)
		if m.decisions.dialog != nil || len(src.decides) != 0 {
			t.Errorf("%v: open %v, decided %v", keys, m.decisions.dialog != nil, src.decides)
		}
	}
}

// emptyJob is a console of an engine to which no rank has attached.
func emptyJob(t *testing.T, job *falconv1.Job) *Model {
	t.Helper()
	profile := colorprofile.TrueColor
	at := newClock().now()
	snap := &falconv1.SnapshotReply{
		Role:      "approver",
		Job:       job,
		Policy:    &falconv1.Policy{Mode: "approve"},
		Listening: "10.0.0.5:7440",
	}
	m, err := New(&still{state: &feed.State{Snap: snap, Conn: feed.Live, Since: at, Received: at}}, Options{
		Theme:   "dark",
		Profile: &profile,
		Now:     newClock().now,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Update(tea.WindowSizeMsg{Width: 100, Height: 30})
	return m
}

// Without ranks there is nothing to test, and no dialog says "all 0 ranks".
func TestNoTestWithoutRanks(t *testing.T) {
	m := emptyJob(t, &falconv1.Job{Name: "j", State: "waiting for agents"})
	presses(m, "6", "x")
	if s := text(m); m.decisions.dialog != nil || strings.Contains(s, "all 0") {
		t.Errorf("a test of nothing is offered:\n%s", s)
	}
}

// A job that is lost does not train, and NOW says so.
func TestNowSaysThatNothingTrains(t *testing.T) {
	m := emptyJob(t, &falconv1.Job{
		Name:  "j",
		State: "lost",
		World: 2,
		Dp:    2,
	})
	if s := text(m); !strings.Contains(s, "nothing trains") {
		t.Errorf("NOW of a lost job:\n%s", s)
	}
}

// The chart is about the rank that NOW names, also where another was worst before.
func TestTheChartFollowsWhatNowNames(t *testing.T) {
	m := screen(
		t,
		moment{"second", 54, 0, enginetest.Options{Second: true}},
		key.Overview,
		120,
		40,
		"dark",
		colorprofile.TrueColor,
		false,
	)
	inc := m.work.state.Incident()
	want := inc.GetVerdict().GetRanks()[0]
	if m.work.state.Rank() != want || m.work.wantedData("").Rank != want {
		t.Errorf("the chart is about rank %d, asked for is %d; %s names %d",
			m.work.state.Rank(), m.work.wantedData("").Rank, inc.Id, want)
	}
}

// A message in the footer goes as soon as a picture shows the job otherwise; until then the
// picture may still be the one from before the answer.
func TestNoMessageOutlastsTheTruth(t *testing.T) {
	engine := enginetest.New(enginetest.Options{})
	engine.AdvanceTo(enginetest.Proposed)
	pic := func(mode string) *feed.State {
		s := pictureOf(t, engine, wide)
		s.Snap.Policy = &falconv1.Policy{Mode: mode}
		return s
	}
	src := &still{state: pic("approve")}
	m := quiet(t, src, Options{Theme: "dark", Now: newClock().now}, 80, 24)
	m.Update(policyAnswer(&falconv1.Policy{Mode: "observe"}, nil))
	m.Update(updateMsg{pic("approve")})
	if s := text(m); !strings.Contains(s, "mode is now OBSERVE") {
		t.Errorf("the picture from before the answer took it away:\n%s", s)
	}
	m.Update(updateMsg{pic("observe")})
	if s := text(m); !strings.Contains(s, "mode is now OBSERVE") {
		t.Errorf("it is true and gone:\n%s", s)
	}
	m.Update(updateMsg{pic("approve")})
	if s := text(m); strings.Contains(s, "mode is now") {
		t.Errorf("it outlasts the truth:\n%s", s)
	}
}

// Freezing asks; the dialog is open on its button, and one that failed says so and is tried again.
func TestFreezeAsks(t *testing.T) {
	engine := enginetest.New(enginetest.Options{})
	engine.AdvanceTo(enginetest.Proposed)
	src := &still{state: pictureOf(t, engine, wide)}
	m := quiet(t, src, Options{Theme: "dark", Now: newClock().now}, 80, 24)
	send(m, "F")
	if s := text(m); src.freezes != 0 || !containsAll(s, "FREEZE?", "for everybody", "▸ Freeze") {
		t.Fatalf("%d freezes by one key:\n%s", src.freezes, s)
	}
	pass(m, keyguard.Look)
	src.err = feed.ErrUnreachable
	send(m, "enter")
	if s := text(m); src.freezes != 1 || !containsAll(s, "FREEZE?", "mode not changed") {
		t.Fatalf("%d freezes:\n%s", src.freezes, s)
	}
	src.err = nil
	send(m, "enter")
	if src.freezes != 2 || m.decisions.dialog != nil {
		t.Errorf("%d freezes:\n%s", src.freezes, text(m))
	}
}

// The bar is green for a job that runs as it should alone.
func TestTheBarIsGreenForGoodNewsAlone(t *testing.T) {
	hang := &falconv1.Hang{
		Culprits: []*falconv1.HangPart{{Ranks: []int32{2}}},
		Waiting:  7,
		World:    8,
	}
	for _, c := range []struct {
		state string
		hang  *falconv1.Hang
		want  string
	}{
		{"steady", nil, "● running"},
		{"finished", nil, "● finished"},
		{"learning", nil, "○ learning"},
		{"waiting for agents", nil, "○ waiting for agents"},
		{"slow", nil, "▲ running"},
		{"lost", nil, "✖ nothing trains, ranks are lost"},
		{"steady", hang, "✖ stands still"},
	} {
		m := emptyJob(t, &falconv1.Job{
			Name:  "j",
			State: c.state,
			World: 2,
			Dp:    2,
		})
		m.work.live.Snap().Hang, m.work.live.Snap().AtUnixNs = c.hang, newClock().now().UnixNano()
		m.screen.dirty = true
		s := text(m)
		if !strings.Contains(s, " "+c.want) ||
			strings.Contains(s, "● ") != strings.HasPrefix(c.want, "● ") {
			t.Errorf("%s: want %q in\n%s", c.state, c.want, s)
		}
	}
}
