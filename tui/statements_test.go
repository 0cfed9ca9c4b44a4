package tui

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

// overviewOf is the first page of a picture of a job of eight ranks, at the smallest size.
func overviewOf(t *testing.T, change func(*falconv1.SnapshotReply, time.Time)) *Model {
	t.Helper()
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(225) // INC-0001 has come and gone
	s := pictureOf(t, e, feed.Want{Rank: -1, Columns: 80})
	change(s.Snap, time.Unix(0, s.Snap.GetAtUnixNs()))
	profile := colorprofile.TrueColor
	m, err := New(&still{state: s}, Options{Theme: "dark", Profile: &profile, Now: newClock().now})
	if err != nil {
		t.Fatal(err)
	}
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	return m
}

// firstLines are the header's situation and the first two lines of NOW.
func firstLines(m *Model) string {
	rows := strings.Split(text(m), "\n")
	return strings.Join([]string{rows[1], rows[3], rows[4]}, "\n")
}

func lostNode(at time.Time, state string) *falconv1.Recovery {
	return &falconv1.Recovery{
		Id: "REC-0002", State: state, StartedUnixNs: at.Add(-14 * time.Second).UnixNano(), BeforeIteration: 225, Reason: "policy asks for a person",
		Faults: []*falconv1.Fault{{Kind: "hang", Node: "n0"}, {Kind: "node", Node: "n3", Ranks: []int32{6, 7}}},
	}
}

// A closed incident does not hide that the job is dead and that a recovery waits.
func TestNowOfADeadJobAfterAnIncident(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Job.State, s.Job.IterationUnixNs = string(falcon.JobRecovering), at.Add(-14*time.Second).UnixNano()
		s.Recovery = lostNode(at, string(falcon.RecoveryProposed))
	})
	s := firstLines(m)
	if strings.Count(s, "REC-0002 WAITS for an approver") != 2 || !containsAll(s, "node n3 lost;", "no iteration for 14 s (usually 0.2") || strings.Contains(s, "INC-0001") || strings.Contains(s, "more") {
		t.Errorf("the first lines:\n%s", text(m))
	}
}

// Green is for a job of which iterations come.
func TestNowOfAJobThatStands(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Job.IterationUnixNs = at.Add(-4 * time.Second).UnixNano()
	})
	if s := text(m); strings.Contains(s, "steady") || strings.Contains(s, "running") || strings.Count(firstLines(m), "no iteration for 4.0 s (usually 0.2") != 2 {
		t.Errorf("\n%s", s)
	}
	m = overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Job.IterationUnixNs, s.Job.SlowerIterations, s.Job.IterationMs, s.Job.Slowdown = at.UnixNano(), 4, 315, 0.5
	})
	if s := firstLines(m); strings.Count(s, "slower for 4 iterations, checking: 315 ms") != 2 {
		t.Errorf("\n%s", text(m))
	}
}

// Who ended the job is not the job itself, and a job that was ended has not finished.
func TestNowOfAJobThatFalconEnded(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Job.State, s.Recovery = string(falcon.JobFinished), lostNode(at, string(falcon.RecoveryFailed))
		s.Recovery.Attempts, s.Recovery.Reason, s.Recovery.EndedUnixNs = 3, "three rejoins failed", at.UnixNano()
	})
	if s := text(m); strings.Contains(s, "● finished") || strings.Count(firstLines(m), "ENDED BY FALCON: REC-0002 failed: three rejoins failed") != 2 {
		t.Errorf("\n%s", s)
	}
}

// In a hang the keys open the rank that the sentence names.
func TestKeysOpenTheRankThatHoldsTheJobUp(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Hang = &falconv1.Hang{SinceUnixNs: at.Add(-8 * time.Second).UnixNano(), Waiting: 7, World: 8, Culprits: []*falconv1.HangPart{{Ranks: []int32{5}}}}
	})
	if got := m.work.state.Rank(); got != 5 || !strings.Contains(firstLines(m), "held up by rank 5") {
		t.Errorf("rank %d is opened\n%s", got, text(m))
	}
}
