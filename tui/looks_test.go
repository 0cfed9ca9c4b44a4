package tui

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/colorprofile"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/phrase"
)

// No label of a page moves when another page is shown.
func TestTabsStayWhereTheyAre(t *testing.T) {
	for _, w := range []int{80, 120, 200} {
		at := map[string]int{}
		for _, p := range key.Pages {
			m := screen(
				t,
				moments[1],
				p,
				w,
				40,
				"dark",
				colorprofile.TrueColor,
				false,
			)
			rows := strings.Split(text(m), "\n")
			row := rows[len(rows)-2]
			for _, label := range []string{"1 overview", "2 ranks", "5 ladder", "8 events"} {
				x := strings.Index(row, label)
				if x < 0 || at[label] > 0 && at[label] != x {
					t.Errorf("%d columns, page %s: %q at %d, was %d: %s", w, p, label, x, at[label], row)
				}
				at[label] = x
			}
		}
	}
}

// At the smallest size the figure of the header is whole.
func TestTheIterationTimeIsNeverCut(t *testing.T) {
	for _, w := range []int{60, 64, 70, 80} {
		m := overviewAt(t, w, 16, func(s *falconv1.SnapshotReply, at time.Time) {
			s.Job.Iteration = 1234567
			s.Job.IterationMs = 1234
			s.Job.Emulated = true
			s.Job.Name = "llama-3-70b-long"
			s.Job.IterationUnixNs = at.UnixNano()
			s.Policy = &falconv1.Policy{
				Mode:     "approve",
				Recovery: &falconv1.RecoveryPolicy{Approval: "auto"},
			}
		})
		row := strings.Split(text(m), "\n")[0]
		if !strings.Contains(row, "1234 ms") {
			t.Errorf("%d columns: %s", w, row)
		}
	}
}

// The cursor behind a cell is no sign of a link.
func TestTheCursorIsNoArrow(t *testing.T) {
	m := screen(
		t,
		moments[1],
		key.Overview,
		80,
		24,
		"dark",
		colorprofile.TrueColor,
		false,
	)
	if s := text(m); strings.Contains(s, "←") || !strings.Contains(s, "◂") {
		t.Errorf("\n%s", s)
	}
}

// The ways of S4 are distinguished at every size.
func TestRungsHaveTheirVariants(t *testing.T) {
	for _, w := range []int{60, 80, 200} {
		m := screen(
			t,
			moments[1],
			key.Ladder,
			w,
			40,
			"dark",
			colorprofile.TrueColor,
			false,
		)
		if s := text(m); !containsAll(s, "S4 restart", "S4 replace") {
			t.Errorf("%d columns:\n%s", w, s)
		}
	}
}

// What is there is not beside what contradicts it.
func TestWordsThatAnOperatorCanUse(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Job = &falconv1.Job{Name: "j", State: string(falcon.JobWaiting)}
		s.Incidents, s.Ladder = nil, nil
	})
	if s := text(m); strings.Contains(s, "waiting for agents") ||
		!containsAll(s, "waiting for the job: 4 agents connected", "4 of 4 agents connected") {
		t.Errorf("\n%s", s)
	}
	unknown := &falconv1.Incident{
		Id:    "INC-0001",
		State: "located",
		Verdict: &falconv1.Verdict{
			Cause: "unknown",
			Evidence: []*falconv1.Evidence{
				{Kind: "timing", Text: "said once"}, {Kind: "timing", Text: "said once"},
			},
		},
	}
	if s := phrase.IncidentLogged(unknown); strings.Contains(s, "0%") {
		t.Error(s)
	}
	m = overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Incidents = []*falconv1.Incident{unknown}
		s.Job.State = "slow"
		s.Job.IterationUnixNs = at.UnixNano()
		s.Ladder = &falconv1.Ladder{Incident: unknown.Id, ImpactMs: 9971}
	})
	if s := text(m); strings.Contains(s, "confidence 0%") ||
		strings.Count(s, "said once") != 1 ||
		!strings.Contains(s, "lost 10.0 s") &&
			!strings.Contains(s, "lost 9.97 s") &&
			!strings.Contains(s, "lost 10 s") {
		t.Errorf("\n%s", s)
	}
	now := time.Unix(1e9, 0)
	for woke, want := range map[string]string{
		"over":  "its snooze has ended: the incident is over",
		"worse": "its snooze has ended: the incident is worse",
		"":      "its snooze has ended",
	} {
		got := phrase.Triage(
			&falconv1.Triage{
				SnoozedUntilUnixNs: now.Add(time.Hour).UnixNano(),
				Woke:               woke,
			},
			now,
			nil,
		)
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := phrase.Plural(1, "incident"); got != "1 incident" {
		t.Error(got)
	}
}

// The age of data is never below zero, whatever the clocks say.
func TestDataIsNotFromTheFuture(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(54)
	s := pictureOf(t, e, wide)
	s.Received = s.Received.Add(time.Minute)
	m := quiet(
		t,
		&still{state: s},
		Options{Theme: "dark", Now: newClock().now},
		80,
		24,
	)
	row := strings.Split(text(m), "\n")[0]
	if regexp.MustCompile(`data -`).MatchString(row) {
		t.Error(row)
	}
}

// Who loses the last spare reads it on the first page.
func TestTheLastSpareIsMissed(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Job.NoSpare = "n8"
		s.Job.IterationUnixNs = at.UnixNano()
	})
	if s := text(
		m,
	); !strings.Contains(s, "no spare is left (n8): a node that is lost now can't be replaced") {
		t.Errorf("\n%s", s)
	}
}
