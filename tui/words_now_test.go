package tui

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/statements"
	"github.com/failslow/falcon/tui/phrase"
)

// slowWith is a job that an open incident slows, with actions.
func slowWith(actions func(at time.Time) []*falconv1.Action) func(*falconv1.SnapshotReply, time.Time) {
	return func(s *falconv1.SnapshotReply, at time.Time) {
		s.Job.State = "slow"
		s.Job.IterationUnixNs = at.UnixNano()
		inc := &falconv1.Incident{
			Id:        "INC-0002",
			State:     "located",
			HealthyMs: 210,
			SlowMs:    400,
			Verdict:   &falconv1.Verdict{Cause: "gpu", Ranks: []int32{2}},
		}
		l := &falconv1.Ladder{Incident: inc.Id, Actions: actions(at)}
		for _, a := range l.Actions {
			if a.State == "proposed" {
				l.Proposal = a
			}
		}
		s.Incidents = []*falconv1.Incident{inc}
		s.Ladder = l
	}
}

// What a person has undone is said, not what lapsed by it.
func TestNowSaysWhatWasUndone(t *testing.T) {
	m := overviewOf(t, slowWith(func(at time.Time) []*falconv1.Action {
		return []*falconv1.Action{
			{
				Id:             "INC-0002/S2/1",
				Incident:       "INC-0002",
				Rung:           "S2",
				State:          "reverted",
				RevertReason:   "undone by root",
				ProposedUnixNs: at.Add(-time.Minute).UnixNano(),
				RevertedUnixNs: at.Add(-time.Second).UnixNano(),
			},
			{
				Id:             "INC-0002/S3/1",
				Incident:       "INC-0002",
				Rung:           "S3",
				State:          "expired",
				Reason:         "it was planned for the job before INC-0002/S2/1",
				ProposedUnixNs: at.Add(-10 * time.Second).UnixNano(),
			},
		}
	}))
	if s := text(m); !strings.Contains(s, "undone by root") || strings.Contains(s, "→ S3") {
		t.Errorf("\n%s", s)
	}
}

// What is in force stays on the first page while another rung is proposed, of every incident.
func TestNowSaysWhatIsInForceBesideAProposal(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		slowWith(func(time.Time) []*falconv1.Action {
			return []*falconv1.Action{
				{
					Id:          "INC-0002/S2/1",
					Incident:    "INC-0002",
					Rung:        "S2",
					State:       "kept",
					BeforeMs:    400,
					MeasuredMs:  300,
					PredictedMs: 300,
				},
				{
					Id:          "INC-0002/S3/1",
					Incident:    "INC-0002",
					Rung:        "S3",
					State:       "proposed",
					BeforeMs:    300,
					PredictedMs: 250,
				},
			}
		})(s, at)
		s.Incidents = append(s.Incidents, &falconv1.Incident{
			Id:        "INC-0001",
			State:     "located",
			HealthyMs: 210,
			SlowMs:    300,
		})
		s.Others = append(s.Others, &falconv1.Ladder{
			Incident: "INC-0001",
			Actions: []*falconv1.Action{{
				Id:       "INC-0001/S3/1",
				Incident: "INC-0001",
				Rung:     "S3",
				State:    "kept",
			}},
		})
	})
	if s := text(
		m,
	); !containsAll(
		s,
		"S3 for INC-0002 WAITS for an approver",
		"S2 for INC-0002 in force",
		"S3 for INC-0001 in force",
	) {
		t.Errorf("\n%s", s)
	}
}

// A fault is said to have cleared only where it has: not where its part was taken out of the job.
func TestAPartThatLeftHasNotCleared(t *testing.T) {
	at := time.Unix(1e9, 0)
	inc := &falconv1.Incident{
		Id:        "INC-0001",
		State:     "relieved",
		Departed:  true,
		HealthyMs: 155,
		SlowMs:    387,
		EndUnixNs: at.UnixNano(),
		Verdict:   &falconv1.Verdict{Cause: "gpu", Devices: []string{"n6.g0"}},
	}
	last := statements.Statement{
		Kind:     statements.Last,
		Incident: inc,
		Since:    at,
	}
	for _, text := range []string{
		phrase.Incident(inc),
		phrase.IncidentLogged(inc),
		phrase.Statement(&last, at),
	} {
		if strings.Contains(text, "cleared") ||
			!strings.Contains(text, "left the job") ||
			!strings.Contains(text, "n6.g0") {
			t.Error(text)
		}
	}
	inc.Departed = false
	if text := phrase.Incident(inc); !strings.Contains(text, "the fault has cleared") {
		t.Error(text)
	}
}

// abortedJob is one that an abort has ended: two ranks were lost with a node, the others were ordered to end.
func abortedJob(s *falconv1.SnapshotReply, at time.Time) {
	s.Recovery = lostNode(at, "cancelled")
	s.Recovery.EndedJob = true
	s.Recovery.Reason = "aborted by maria"
	s.Job.State = "lost"
	s.Job.End = &falconv1.JobEnd{
		How:   "ended by falcon",
		By:    "REC-0002",
		Why:   "cancelled: aborted by maria",
		Ranks: 8,
	}
	for i := range s.Ranks {
		s.Ranks[i].Health = falconv1.RankHealth_RANK_HEALTH_LOST
		if s.Ranks[i].Rank >= 6 {
			s.Ranks[i].Health = falconv1.RankHealth_RANK_HEALTH_STALE
		}
	}
}

// After the end of a job those are lost whose loss ended it; the others have ended with it.
func TestRanksOfAJobThatWasEnded(t *testing.T) {
	m := overviewOf(t, abortedJob)
	if got := m.work.state.Tally(); got != "2 lost, 6 ended" {
		t.Errorf("ranks are %q\n%s", got, text(m))
	}
}

// Until it is told what becomes of them, the ranks of a node that is lost are lost, not stale.
func TestRanksOfALostNode(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		abortedJob(s, at)
		s.Recovery.State = "proposed"
		s.Job.State = "recovering"
		s.Job.End = nil
		for i := range s.Ranks[:6] {
			s.Ranks[i].Health = falconv1.RankHealth_RANK_HEALTH_OK
		}
	})
	if got := m.work.state.Tally(); got != "2 lost" {
		t.Errorf("ranks are %q\n%s", got, text(m))
	}
}

// The rank whose end is told is the one that keys open, and not that of an incident that is closed.
func TestKeysOpenTheRankWhoseEndIsTold(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Job.State = "lost"
		s.Job.End = &falconv1.JobEnd{
			How:   "failed",
			Why:   "rank 5 on n2 exit status 1: CUDA error: an illegal memory access",
			Ranks: 8,
			First: []int32{5},
		}
		s.Incidents[0].Verdict.Ranks = []int32{2}
	})
	if !strings.Contains(firstLines(m), "FAILED BY ITSELF: rank 5") {
		t.Fatalf("\n%s", text(m))
	}
	presses(m, "O")
	if m.output == nil || m.output.rank != 5 {
		t.Errorf("opened %+v", m.output)
	}
}

// In a hang, too, where an older incident has named another.
func TestOutputOfTheRankThatHoldsTheJobUp(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Hang = &falconv1.Hang{
			SinceUnixNs: at.Add(-8 * time.Second).UnixNano(),
			Waiting:     7,
			World:       8,
			Culprits:    []*falconv1.HangPart{{Ranks: []int32{5}}},
		}
	})
	presses(m, "O")
	if m.output == nil || m.output.rank != 5 {
		t.Errorf("opened %+v", m.output)
	}
}

// What a process says of its end stands beside the end.
func TestTheFaultSaysWhatTheProcessSaid(t *testing.T) {
	f := &falconv1.Fault{
		Kind:   "exit",
		Node:   "n1",
		Device: "n1.g0",
		Ranks:  []int32{2},
		Words:  "RuntimeError: CUDA error: out of memory",
	}
	r := &falconv1.Recovery{
		Id:     "REC-0001",
		State:  "proposed",
		Faults: []*falconv1.Fault{f},
	}
	x := statements.Statement{
		Kind:     statements.Recovery,
		Recovery: r,
		Who:      statements.Approver,
	}
	s := phrase.Statement(&x, time.Unix(1, 0))
	if !strings.Contains(s, "process ended on n1.g0 (rank 2): RuntimeError: CUDA error: out of memory") {
		t.Error(s)
	}
}

// A node that was fenced on purpose is not lost.
func TestANodeFencedOnPurposeIsNotLost(t *testing.T) {
	for want, f := range map[string]*falconv1.Fault{
		"node n1 fenced for INC-0001/S4/1": {
			Kind:    "node",
			Node:    "n1",
			Action:  "INC-0001/S4/1",
			AskedBy: "policy",
		},
		"node n1 fenced by maria": {Kind: "node", Node: "n1", AskedBy: "maria"},
		"node n1 lost":            {Kind: "node", Node: "n1"},
	} {
		if got := phrase.Fault(f); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// stoppedJob is one of which all ranks ended within moments of each other.
func stoppedJob(why falcon.EndsTogether, words string) func(*falconv1.SnapshotReply, time.Time) {
	return func(s *falconv1.SnapshotReply, at time.Time) {
		r := &falconv1.Recovery{
			Id:            "REC-0001",
			State:         "proposed",
			Together:      string(why),
			StartedUnixNs: at.Add(-3 * time.Second).UnixNano(),
			Reason:        "all ranks were ended",
		}
		for rank := range int32(8) {
			r.Faults = append(r.Faults, &falconv1.Fault{
				Kind:  "exit",
				Node:  "n0",
				Ranks: []int32{rank},
			})
		}
		r.Faults[3].Words = words
		s.Recovery, s.Job.State = r, "recovering"
		// the recovery knows more
		s.Job.End = &falconv1.JobEnd{
			How:   "gone",
			Why:   "rank 4 on n2 ended, nobody knows how",
			Ranks: 8,
			First: []int32{4},
		}
	}
}

// A job that somebody has stopped is asked about as that, and not as a loss of processes.
func TestAStopIsNoLoss(t *testing.T) {
	for why, want := range map[falcon.EndsTogether]string{
		falcon.EndsStopped: "STOPPED BY SOMEBODY: all 8 ranks ended by SIGTERM or SIGINT, agents alive",
		falcon.EndsAtOnce:  "STOPPED, OR FAILED ALIKE: all 8 ranks ended at once, agents alive",
		falcon.EndsAlike:   "FAILED BY ITSELF: all 8 ranks ended with one error, agents alive",
		falcon.EndsUnbegun: "FAILED BY ITSELF: all 8 ranks ended before the first iteration, agents alive",
	} {
		m := overviewOf(t, stoppedJob(why, ""))
		s := text(m)
		if strings.Count(firstLines(m), want[:40]) != 2 ||
			!containsAll(s, "START AGAIN?  REC-0001", "a start again  v leave it",
				"WAITS for an approver, 3 s so far: start the job again") ||
			strings.Contains(s, "process ended on") {
			t.Errorf("%s:\n%s", why, s)
		}
	}
	m := overviewOf(t, stoppedJob(falcon.EndsAlike, "ValueError at train.py:41: bad shape"))
	m.Update(tea.WindowSizeMsg{Width: 120, Height: 40})
	if s := text(m); !strings.Contains(s, "agents alive: rank 3: ValueError at train.py:41: bad shape") ||
		m.work.state.Rank() != 3 {
		t.Errorf("rank %d:\n%s", m.work.state.Rank(), s)
	}
}

// While nothing trains no figure of before stands in the header, least of all in green; that nothing
// is measured is no old picture; who waits in a recovery is parked; and the bar says for whom it waits.
func TestAStandstillHasNoFigures(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		s.Job.State = "recovering"
		s.Job.IterationUnixNs = at.Add(-28 * time.Second).UnixNano()
		s.Job.DataAgeMs = 28000
		s.Recovery = lostNode(at, "suspend")
		s.Recovery.DeadlineUnixNs = at.Add(9 * time.Minute).UnixNano()
		s.Recovery.Wait = &falconv1.RecoveryWait{
			Nodes:       []string{"n3"},
			Spare:       true,
			Then:        "fail",
			UntilUnixNs: at.Add(9 * time.Minute).UnixNano(),
		}
		for i, r := range s.Ranks {
			r.Health = falconv1.RankHealth_RANK_HEALTH_STALE
			stage := "parked"
			if i >= 6 {
				stage = "gone"
			}
			s.Recovery.Ranks = append(s.Recovery.Ranks, &falconv1.RankRecovery{
				Rank:  r.Rank,
				Stage: stage,
			})
		}
	})
	s := text(m)
	rows := strings.Split(s, "\n")
	if strings.Contains(rows[0], " ms") ||
		strings.Contains(rows[0], "%") ||
		strings.Contains(s, " old") {
		t.Errorf("figures of before, or an old picture:\n%s", s)
	}
	if got := m.work.state.Tally(); got != "2 lost, 6 parked" {
		t.Errorf("ranks are %q", got)
	}
	bar := rows[len(rows)-3]
	if !strings.Contains(bar, "REC-0002 waits 9 min more for n3 to come back or a spare") {
		t.Errorf("the bar: %s", bar)
	}
}

// The first line is about what the header names: another open incident comes behind it.
func TestNowBeginsWithTheIncidentInFront(t *testing.T) {
	m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
		slowWith(func(time.Time) []*falconv1.Action {
			return []*falconv1.Action{{
				Id:          "INC-0002/S2/1",
				Incident:    "INC-0002",
				Rung:        "S2",
				State:       "kept",
				BeforeMs:    400,
				MeasuredMs:  300,
				PredictedMs: 300,
			}}
		})(s, at)
		s.Incidents = append(s.Incidents, &falconv1.Incident{
			Id:        "INC-0001",
			State:     "located",
			HealthyMs: 210,
			SlowMs:    300,
		})
	})
	s := text(m)
	rows := strings.Split(s, "\n")
	if !strings.Contains(rows[1], "INC-0002") ||
		!strings.HasPrefix(rows[3], "INC-0002 located") ||
		strings.Index(s, "INC-0001 located") < strings.Index(s, "→ S2 for INC-0002 in force") {
		t.Errorf("\n%s", s)
	}
}

// The bar says what an action is at, and a standstill before what was done.
func TestTheBarKeepsUp(t *testing.T) {
	bar := func(phase falcon.ActionPhase, idle time.Duration) string {
		m := overviewOf(t, func(s *falconv1.SnapshotReply, at time.Time) {
			slowWith(func(time.Time) []*falconv1.Action {
				return []*falconv1.Action{{
					Id:        "INC-0002/S4/1",
					Incident:  "INC-0002",
					Rung:      "S4",
					State:     "dispatched",
					Phase:     string(phase),
					DecidedBy: "policy",
				}}
			})(s, at)
			s.Job.IterationUnixNs = at.Add(-idle).UnixNano()
		})
		rows := strings.Split(text(m), "\n")
		return rows[len(rows)-3]
	}
	if s := bar(falcon.PhaseLeaving, 0); !strings.Contains(s, "the checkpoint is writ") {
		t.Error(s)
	}
	if s := bar(falcon.PhaseLeaving, 9*time.Second); !strings.Contains(s, "ENDS ALL processes") &&
		!strings.Contains(s, "no iteration for 9.0 s") {
		t.Error(s)
	}
}
