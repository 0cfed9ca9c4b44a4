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
	return overviewAt(t, 80, 24, change)
}

func overviewAt(t *testing.T, w, h int, change func(*falconv1.SnapshotReply, time.Time)) *Model {
	t.Helper()
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(225) // INC-0001 has come and gone
	s := pictureOf(t, e, feed.Want{Rank: -1, Columns: 80})
	change(s.Snap, time.Unix(0, s.Snap.GetAtUnixNs()))
	profile := colorprofile.TrueColor
	m, err := New(&still{state: s}, Options{
		Theme:   "dark",
		Profile: &profile,
		Now:     newClock().now,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Update(tea.WindowSizeMsg{Width: w, Height: h})
	return m
}

// firstLines are the header's situation and the first two lines of NOW.
func firstLines(m *Model) string {
	rows := strings.Split(text(m), "\n")
	return strings.Join([]string{rows[1], rows[3], rows[4]}, "\n")
}

func lostNode(at time.Time, state string) *falconv1.Recovery {
	return &falconv1.Recovery{
		Id:              "REC-0002",
		State:           state,
		StartedUnixNs:   at.Add(-14 * time.Second).UnixNano(),
		BeforeIteration: 225,
		Reason:          "policy asks for a person",
		Faults: []*falconv1.Fault{
			{Kind: "hang", Node: "n0"},
			{Kind: "node", Node: "n3", Ranks: []int32{6, 7}},
		},
	}
}

// A closed incident does not hide that the job is dead and that a recovery waits.
func TestNowOfADeadJobAfterAnIncident(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Job.State = string(falcon.JobRecovering)
		s.Job.IterationUnixNs = at.Add(-14 * time.Second).UnixNano()
		s.Recovery = lostNode(at, string(falcon.RecoveryProposed))
	})
	s := firstLines(m)
	if strings.Count(s, "REC-0002 WAITS for an approver") != 2 ||
		!containsAll(s, "node n3 lost;", "no iteration for 14 s (usually 0.2") ||
		strings.Contains(s, "INC-0001") ||
		strings.Contains(s, "more") {
		t.Errorf("the first lines:\n%s", text(m))
	}
}

// Green is for a job of which iterations come.
func TestNowOfAJobThatStands(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Job.IterationUnixNs = at.Add(-4 * time.Second).UnixNano()
	})
	if s := text(m); strings.Contains(s, "steady") ||
		strings.Contains(s, "running") ||
		strings.Count(firstLines(m), "no iteration for 4.0 s (usually 0.2") != 2 {
		t.Errorf("\n%s", s)
	}
	m = overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Job.IterationUnixNs = at.UnixNano()
		s.Job.SlowerIterations = 4
		s.Job.IterationMs = 315
		s.Job.Slowdown = 0.5
	})
	if s := firstLines(m); strings.Count(s, "slower for 4 iterations, checking: 315 ms") != 2 {
		t.Errorf("\n%s", text(m))
	}
}

// Who ended the job is not the job itself, and a job that was ended has not finished.
func TestNowOfAJobThatFalconEnded(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Job.State, s.Recovery = string(falcon.JobFinished), lostNode(at, string(falcon.RecoveryFailed))
		s.Recovery.Attempts = 3
		s.Recovery.Reason = "three rejoins failed"
		s.Recovery.EndedUnixNs = at.UnixNano()
	})
	if s := text(m); strings.Contains(s, "● finished") ||
		strings.Count(firstLines(m), "ENDED BY FALCON: REC-0002 failed: three rejoins failed") != 2 {
		t.Errorf("\n%s", s)
	}
}

// In a hang the keys open the rank that the sentence names.
func TestKeysOpenTheRankThatHoldsTheJobUp(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Hang = &falconv1.Hang{
			SinceUnixNs: at.Add(-8 * time.Second).UnixNano(),
			Waiting:     7,
			World:       8,
			Culprits:    []*falconv1.HangPart{{Ranks: []int32{5}}},
		}
	})
	got := m.work.state.Rank()
	if got != 5 || !strings.Contains(firstLines(m), "held up by rank 5") {
		t.Errorf("rank %d is opened\n%s", got, text(m))
	}
}

// The header says who lets recoveries begin where the mode does not, and the dialog of the mode too.
func TestTheHeaderSaysThatRecoveriesActAlone(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, _ time.Time) {
		s.Policy = &falconv1.Policy{
			Mode:     "approve",
			Recovery: &falconv1.RecoveryPolicy{Approval: "auto"},
		}
	})
	if s := text(m); !strings.Contains(s, "APPROVE, REC AUTO") {
		t.Errorf("\n%s", s)
	}
	presses(m, "c")
	if s := text(m); !strings.Contains(s, "begin WITHOUT a person") {
		t.Errorf("the dialog:\n%s", s)
	}
}

// An automatic S4 of one incident holds the bar with its countdown while another incident is the newest.
func TestTheBarBelongsToWhatEndsAllProcesses(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Policy = &falconv1.Policy{Mode: "auto", Cap: "S4"}
		s.Job.State = string(falcon.JobSlow)
		s.Job.IterationUnixNs = at.UnixNano()
		of := func(id, rung string, left time.Duration) (*falconv1.Incident, *falconv1.Ladder) {
			a := &falconv1.Action{
				Id:             id + "/" + rung + "/1",
				Incident:       id,
				Rung:           rung,
				State:          "proposed",
				BeforeMs:       400,
				PredictedMs:    210,
				DeadlineUnixNs: at.Add(left).UnixNano(),
			}
			return &falconv1.Incident{
					Id:        id,
					State:     "located",
					HealthyMs: 210,
					SlowMs:    400,
					Verdict:   &falconv1.Verdict{},
				},
				&falconv1.Ladder{
					Incident: id,
					Proposal: a,
					Actions:  []*falconv1.Action{a},
					Rungs:    []*falconv1.RungView{{Rung: rung}},
				}
		}
		one, s4 := of("INC-0001", "S4", 20*time.Second)
		two, s2 := of("INC-0002", "S2", 3*time.Second)
		s.Incidents = []*falconv1.Incident{two, one}
		s.Ladder = s2
		s.Others = []*falconv1.Ladder{s4}
	})
	rows := strings.Split(text(m), "\n")
	bar := rows[len(rows)-3]
	if !containsAll(bar, "INC-0001 S4 PROPOSED  acts in 20 s, ENDS ALL", "v veto") ||
		!strings.Contains(rows[3], "S4 for INC-0001 ACTS IN 20 s, ENDS ALL processes") {
		t.Errorf("\n%s", text(m))
	}
	presses(m, "v")
	if d := m.decisions.dialog; d == nil || d.incidentID() != "INC-0001" {
		t.Errorf("v asks about %v", d)
	}
}

// After an abort that ended the job nothing is said of survivors, nor of what could still be lost.
func TestAfterAnAbortNothingSurvives(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Recovery = lostNode(at, string(falcon.RecoveryCancelled))
		s.Recovery.EndedJob = true
		s.Recovery.Survivors = []int32{0, 1, 2, 3, 4, 5}
		s.Recovery.Attempts = 1
		s.Recovery.Reason = "aborted by maria"
		s.Job.State = string(falcon.JobLost)
		s.Job.End = &falconv1.JobEnd{
			How:   "ended by falcon",
			By:    "REC-0002",
			Why:   "cancelled: aborted by maria",
			Ranks: 8,
		}
	})
	if s := firstLines(m); strings.Count(s, "ENDED BY FALCON: REC-0002: cancelled: aborted by maria") != 2 {
		t.Errorf("\n%s", text(m))
	}
	presses(m, "7")
	if s := text(m); strings.Contains(s, "have kept their process") ||
		strings.Contains(s, "at most one step") {
		t.Errorf("\n%s", s)
	}
}

// While no iteration comes, the health of ranks is said to be of before, and what is not known has no
// place in the header.
func TestNowOfRanksThatAreNotHeard(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Job.IterationUnixNs = at.Add(-4 * time.Second).UnixNano()
	})
	if s := text(m); !strings.Contains(s, "when last heard 1 stale") {
		t.Errorf("\n%s", s)
	}
	m = overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Job.Iteration = -1
		s.Job.IterationMs = 0
		s.Job.State = "learning"
		s.Job.IterationUnixNs = at.UnixNano()
	})
	if s := strings.Split(text(m), "\n")[0]; strings.Contains(s, "—") ||
		strings.Contains(s, "base") ||
		!strings.Contains(s, "8 ranks") {
		t.Errorf("\n%s", s)
	}
}

// What acts by itself does not wait for a decision.
func TestAnotherIncidentsCountdownIsNoDecision(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Policy = &falconv1.Policy{Mode: "auto", Cap: "S4"}
		s.Job.State = string(falcon.JobSlow)
		s.Job.IterationUnixNs = at.UnixNano()
		ladder := func(id, state string) *falconv1.Ladder {
			a := &falconv1.Action{
				Id:             id + "/S4/1",
				Incident:       id,
				Rung:           "S4",
				State:          state,
				DeadlineUnixNs: at.UnixNano(),
			}
			l := &falconv1.Ladder{
				Incident: id,
				Actions:  []*falconv1.Action{a},
				Rungs:    []*falconv1.RungView{{Rung: "S4"}},
			}
			if state == string(falcon.ActionProposed) {
				l.Proposal = a
			}
			return l
		}
		s.Incidents = []*falconv1.Incident{{Id: "INC-0001", State: "located", Verdict: &falconv1.Verdict{}}, {
			Id:      "INC-0002",
			State:   "located",
			Verdict: &falconv1.Verdict{},
		}}
		s.Ladder = ladder("INC-0001", "dispatched")
		s.Others = []*falconv1.Ladder{ladder("INC-0002", "proposed")}
	})
	rows := strings.Split(text(m), "\n")
	if bar := rows[len(rows)-3]; !strings.Contains(bar, "INC-0002 has an action pending") {
		t.Errorf("\n%s", text(m))
	}
}
