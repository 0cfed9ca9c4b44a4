package tui

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
)

// The keys of a situation begin with what is needed in it, are five at most, and stand in the help first.
func TestFiveKeysForTheSituation(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*falconv1.SnapshotReply, time.Time)
		keys   string
	}{
		"all is well": {func(s *falconv1.SnapshotReply, at time.Time) {
			s.Job.IterationUnixNs = at.UnixNano()
		}, "2 4 8 : R"},
		"a recovery waits": {func(s *falconv1.SnapshotReply, at time.Time) {
			s.Job.State, s.Recovery = string(falcon.JobRecovering), lostNode(at, "proposed")
		}, "a v 7 O R"},
		"a recovery is at work": {func(s *falconv1.SnapshotReply, at time.Time) {
			s.Job.State, s.Recovery = string(falcon.JobRecovering), lostNode(at, "suspend")
		}, "7 O R F 8"},
		"a hang": {func(s *falconv1.SnapshotReply, at time.Time) {
			s.Hang = &falconv1.Hang{
				SinceUnixNs: at.UnixNano(),
				Culprits:    []*falconv1.HangPart{{Ranks: []int32{5}}},
			}
		}, "O 7 R 2 8"},
		"it failed": {func(s *falconv1.SnapshotReply, at time.Time) {
			s.Job.State = "lost"
			s.Job.End = &falconv1.JobEnd{How: "failed", First: []int32{5}}
		}, "O 7 8 R e"},
		"it was stopped": {stoppedJob(falcon.EndsStopped, ""), "a v 7 O R"},
		"an action waits": {slowWith(func(time.Time) []*falconv1.Action {
			return []*falconv1.Action{{
				Id:          "INC-0002/S2/1",
				Incident:    "INC-0002",
				Rung:        "S2",
				State:       "proposed",
				BeforeMs:    300,
				PredictedMs: 250,
			}}
		}), "a v i R F"},
		"an action counts down": {slowWith(func(at time.Time) []*falconv1.Action {
			return []*falconv1.Action{{
				Id:             "INC-0002/S2/1",
				Incident:       "INC-0002",
				Rung:           "S2",
				State:          "proposed",
				BeforeMs:       300,
				PredictedMs:    250,
				DeadlineUnixNs: at.Add(time.Minute).UnixNano(),
			}}
		}), "v F a i R"},
		"an incident": {slowWith(func(time.Time) []*falconv1.Action { return nil }), "i R x A S"},
	} {
		m := overviewOf(t, c.change)
		var got []string
		for _, b := range page.Situation(m.work.live, key.Overview) {
			got = append(got, b.Help().Key)
		}
		list := strings.Join(got, " ")
		if list != c.keys || len(got) > page.SituationMost {
			t.Errorf("%s: %s, want %s\n%s", name, list, c.keys, text(m))
		}
		presses(m, "?")
		s := text(m)
		if !strings.Contains(s, "now: ") ||
			strings.Index(s, "now: ") > strings.Index(s, "overview") && strings.Contains(s, "│ overview") {
			t.Errorf("%s: the help begins with\n%s", name, s)
		}
	}
}

// From 120×40 on the keys stand beside the list.
func TestTheKeysStandBesideTheList(t *testing.T) {
	for _, size := range [][2]int{{120, 40}, {200, 60}} {
		m := overviewAt(t, size[0], size[1], func(s *falconv1.SnapshotReply, at time.Time) {
			s.Job.State, s.Recovery = string(falcon.JobRecovering), lostNode(at, "proposed")
		})
		if s := text(m); !containsAll(s, "KEYS NOW", "Approve what is proposed") {
			t.Errorf("%v:\n%s", size, s)
		}
	}
}

// What other consoles and schedulers call a command finds it.
func TestThePaletteKnowsOtherWords(t *testing.T) {
	m := overviewOf(t, func(*falconv1.SnapshotReply, time.Time) {})
	for typed, want := range map[string]string{
		"unfence": "lift NODE WHY", "back": "lift NODE WHY", "drain": "fence NODE WHY",
		"uncordon": "lift NODE WHY", "ack": "ack", "mute": "mute", "silence": "snooze",
		"kill": "fence NODE WHY",
		"logs": "show output", "rollback": "undo", "unfreeze": "freeze",
		"reject": "veto", "audit": "events", "exit": "quit",
	} {
		p := newPalette(m.keys, m.keyScopes(true), typed, 80)
		list, _ := p.list.Window(6)
		found := false
		for _, e := range list {
			found = found || e.Name == want
		}
		if !found {
			t.Errorf("%q does not find %s: %v", typed, want, list)
		}
	}
}

// Unfreezing takes three keys, lifting the fence of the one node that is fenced four.
func TestKeysOfATask(t *testing.T) {
	frozen := func(s *falconv1.SnapshotReply, _ time.Time) {
		s.Policy = &falconv1.Policy{Mode: "approve", Frozen: true}
	}
	fenced := func(s *falconv1.SnapshotReply, _ time.Time) {
		s.Fenced = []string{"n1"}
	}
	for _, c := range []struct {
		change func(*falconv1.SnapshotReply, time.Time)
		keys   []string
		done   func(*still) bool
	}{
		{
			frozen,
			[]string{"F", "tab", "enter"},
			func(s *still) bool {
				return len(s.policies) == 1 && !s.policies[0].GetFrozen()
			},
		},
		{fenced, []string{"7", "u", "tab", "enter"}, func(s *still) bool {
			return len(s.words) == 1 &&
				s.words[0].GetVerb() == "lift" &&
				s.words[0].GetNode() == "n1" &&
				s.words[0].GetReason() != ""
		}},
	} {
		e := enginetest.New(enginetest.Options{})
		e.AdvanceTo(30)
		s := pictureOf(t, e, feed.Want{Rank: -1, Columns: 80})
		c.change(s.Snap, time.Unix(0, s.Snap.GetAtUnixNs()))
		src := &still{state: s}
		clk := newClock()
		m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
		for _, k := range c.keys {
			presses(m, k)
			clk.pass(time.Second)
		}
		if !c.done(src) {
			t.Errorf("%v: %v %v\n%s", c.keys, src.policies, src.words, text(m))
		}
	}
}

// The clock of who sits at the terminal stands beside the other where they differ.
func TestLocalTimeBesideUTC(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(30)
	for _, c := range []struct {
		local, shown *time.Location
		want         bool
	}{
		{time.FixedZone("CEST", 7200), nil, true},
		{time.UTC, nil, false},
		{nil, nil, false},
		{time.FixedZone("CEST", 7200), time.FixedZone("CEST", 7200), false},
	} {
		m := quiet(
			t,
			&still{state: pictureOf(t, e, wide)},
			Options{
				Theme: "dark",
				Now:   newClock().now,
				Local: c.local,
				Zone:  c.shown,
			},
			120,
			40,
		)
		m.Update(tea.WindowSizeMsg{Width: 120, Height: 40})
		row := strings.Split(text(m), "\n")[1]
		if strings.Contains(row, " = 16:00 CEST") != c.want {
			t.Errorf("%v beside %v: %s", c.local, c.shown, row)
		}
	}
}
