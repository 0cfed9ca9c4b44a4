package statements

import (
	"testing"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

var now = time.Unix(1_800_000_000, 0)

func ago(d time.Duration) int64 {
	return now.Add(-d).UnixNano()
}

func in(d time.Duration) int64 {
	return now.Add(d).UnixNano()
}

// steady is a job that trains at 140 ms an iteration; the newest was reported idle ago.
func steady(idle time.Duration) *falconv1.SnapshotReply {
	return &falconv1.SnapshotReply{
		AtUnixNs: now.UnixNano(),
		Policy:   &falconv1.Policy{Mode: "auto", Cap: "S4"},
		Job: &falconv1.Job{
			State:           "steady",
			World:           8,
			Iteration:       100,
			IterationMs:     140,
			BaselineMs:      142,
			IterationUnixNs: ago(idle),
		},
	}
}

func with(s *falconv1.SnapshotReply, change func(*falconv1.SnapshotReply)) *falconv1.SnapshotReply {
	change(s)
	return s
}

func closedIncident(id string) *falconv1.Incident {
	return &falconv1.Incident{
		Id:        id,
		State:     "closed",
		HealthyMs: 142,
		SlowMs:    370,
		EndUnixNs: ago(time.Minute),
	}
}

func openIncident(id string) *falconv1.Incident {
	return &falconv1.Incident{
		Id:          id,
		State:       "located",
		HealthyMs:   142,
		SlowMs:      370,
		OnsetUnixNs: ago(time.Minute),
		Verdict:     &falconv1.Verdict{Ranks: []int32{3}},
	}
}

func action(incident, rung, state string, deadline int64) *falconv1.Action {
	return &falconv1.Action{
		Id:             incident + "/" + rung + "/1",
		Incident:       incident,
		Rung:           rung,
		State:          state,
		DeadlineUnixNs: deadline,
		ProposedUnixNs: ago(40 * time.Second),
	}
}

func ladder(a *falconv1.Action) *falconv1.Ladder {
	return &falconv1.Ladder{
		Incident: a.GetIncident(),
		Actions:  []*falconv1.Action{a},
	}
}

func said(list []Statement) (out []Kind) {
	for _, s := range list {
		out = append(out, s.Kind)
	}
	return out
}

func begins(t *testing.T, s *falconv1.SnapshotReply, want ...Kind) []Statement {
	t.Helper()
	list := Of(Picture{Snap: s, Now: now})
	for i, k := range want {
		if i >= len(list) || list[i].Kind != k {
			t.Fatalf("said is %v, want it to begin with %v", said(list), want)
		}
	}
	return list
}

// Defect 1: a closed incident is one line at the end, whatever else there is.
func TestAClosedIncidentIsTheLastLine(t *testing.T) {
	closed := func(s *falconv1.SnapshotReply) {
		s.Incidents = append(s.Incidents, closedIncident("INC-0001"))
		s.Ladder = ladder(action("INC-0001", "S4", "kept", 0))
	}
	lost := with(steady(14*time.Second), closed)
	lost.Job.State = "recovering"
	lost.Recovery = &falconv1.Recovery{
		Id:            "REC-0002",
		State:         "proposed",
		StartedUnixNs: ago(9 * time.Second),
		Faults: []*falconv1.Fault{{
			Kind:  "node",
			Node:  "n3",
			Ranks: []int32{6, 7},
		}},
	}
	list := begins(t, lost, Recovery, Resuming)
	x := list[0]
	if x.Who != Approver ||
		x.For(now) != 9*time.Second ||
		x.Severity != Urgent ||
		len(x.Ranks) != 2 {
		t.Errorf("%+v", x)
	}
	open := with(steady(0), closed)
	open.Job.State = "slow"
	open.Incidents = append([]*falconv1.Incident{openIncident("INC-0048")}, open.Incidents...)
	list = begins(t, open, Incident)
	if list[0].Incident.GetId() != "INC-0048" || list[len(list)-1].Kind != Last {
		t.Errorf("%v", said(list))
	}
	begins(t, with(steady(0), closed), Running)
}

// An epoch of which no iteration was heard is not said to run, whatever else is known of the job.
func TestAJobWithoutAnIterationIsAwaited(t *testing.T) {
	s := steady(9 * time.Second)
	s.Job.State = "learning"
	s.Job.Iteration = -1
	s.Job.IterationMs = 0
	s.Job.BaselineMs = 0
	if list := begins(t, s, Waiting); list[0].Severity == Good || list[0].Severity >= Warn {
		t.Errorf("%+v", list[0])
	}
	s.Job.UsualMs = 957
	begins(t, s, Standing)
	s.Job.Iteration, s.Job.UsualMs = 0, 0
	begins(t, s, Learning)
}

// Defect 2: what ends all processes comes above the actions of every other incident, with its time.
func TestTheMostDangerousPendingActionIsFirst(t *testing.T) {
	s := steady(0)
	s.Job.State = "slow"
	s.Incidents = []*falconv1.Incident{openIncident("INC-0002"), openIncident("INC-0001")}
	s.Ladder = ladder(action("INC-0002", "S2", "proposed", in(2*time.Second)))
	s.Others = []*falconv1.Ladder{ladder(action("INC-0001", "S4", "proposed", in(20*time.Second)))}
	list := begins(t, s, Pending, Pending, Incident, Incident)
	left, ok := list[0].Left(now)
	if list[0].IncidentID() != "INC-0001" ||
		list[0].Ends != EndsAll ||
		!ok ||
		left != 20*time.Second {
		t.Errorf("%+v", list[0])
	}
	s.Others[0].Actions[0].Variant = string(falcon.VariantFence)
	if list = begins(t, s, Pending); list[0].Ends != EndsNode {
		t.Errorf("a fence ends a node's processes: %+v", list[0])
	}
	s.Others[0].Actions[0].Variant = ""
	s.Others[0].Actions[0].State = "dispatched"
	s.Others[0].Actions[0].DeadlineUnixNs = 0
	s.Job.State = "restarting"
	begins(t, s, Acting, Moving, Pending)
	s.Job.State, s.Others[0].Actions[0].State, s.Others[0].Actions[0].DeadlineUnixNs = "slow", "proposed", 0
	begins(t, s, Pending, Decision, Incident) // of what waits for a person nothing happens by itself
}

// While a recovery carries an action out, another fault's that waits for a person comes before it.
func TestWhatARecoveryCarriesOutComesLate(t *testing.T) {
	s := steady(0)
	s.Job.State = "recovering"
	s.Incidents = []*falconv1.Incident{openIncident("INC-0002"), openIncident("INC-0001")}
	s.Ladder = ladder(action("INC-0002", "S4", "dispatched", 0))
	s.Others = []*falconv1.Ladder{ladder(action("INC-0001", "S4", "proposed", 0))}
	s.Recovery = &falconv1.Recovery{
		Id:     "REC-0001",
		State:  "suspend",
		Faults: []*falconv1.Fault{{Action: s.Ladder.Actions[0].Id}},
	}
	list := begins(t, s, Recovery, Decision, Resuming)
	if list[1].IncidentID() != "INC-0001" {
		t.Errorf("%+v", list[1])
	}
	s.Recovery.State = "resumed"
	s.Job.State = "slow"
	begins(t, s, Acting, Decision)
}

// A countdown that policy does not let run out is no countdown.
func TestFrozenCountdownsWaitForAPerson(t *testing.T) {
	for _, state := range []string{"proposed", "approved"} {
		s := steady(0)
		s.Incidents = []*falconv1.Incident{openIncident("INC-0001")}
		s.Ladder = ladder(action("INC-0001", "S4", state, in(time.Minute)))
		s.Policy.Frozen = true
		list := begins(t, s, Decision)
		if _, counts := list[0].Left(now); counts || list[0].Who != Approver {
			t.Errorf("%s: %+v", state, list[0])
		}
	}
}

// Defect 3: no good news of a job that stands or that has become slower.
func TestNoGoodNewsOfAJobThatStands(t *testing.T) {
	for _, c := range []struct {
		idle     time.Duration
		kind     Kind
		severity Severity
	}{
		{100 * time.Millisecond, Running, Good},
		{1400 * time.Millisecond, Running, Good}, // three iterations and Sampling
		{1430 * time.Millisecond, Standing, Warn},
		{11 * time.Second, Standing, Bad},
	} {
		list := begins(t, steady(c.idle), c.kind)
		if list[0].Severity != c.severity || list[0].Usual != 140*time.Millisecond {
			t.Errorf("after %v: %+v", c.idle, list[0])
		}
	}
	long := steady(50 * time.Second)
	long.Job.IterationMs = 20_000
	begins(t, long, Running)
	unheard := steady(0)
	unheard.Job.IterationUnixNs, unheard.Job.DataAgeMs = 0, -1
	// an engine that has just begun has heard of no iteration
	if list := begins(t, unheard, Waiting); list[0].Severity == Good {
		t.Errorf("%+v", list[0])
	}
	older := steady(0)
	older.Job.IterationUnixNs, older.Job.DataAgeMs = 0, 5000
	begins(t, older, Standing) // an engine that does not say when knows the age of its data
	slower := steady(0)
	slower.Job.IterationMs = 234
	slower.Job.Slowdown = 0.53
	slower.Job.SlowerIterations = 3
	if list := begins(t, slower, Slower); list[0].Severity != Warn {
		t.Errorf("%+v", list[0])
	}
	away := steady(0)
	away.Nodes = []*falconv1.NodeView{{Node: "n2"}}
	if list := begins(t, away, Running); list[0].Severity == Good {
		t.Error("not all ranks are watched, and all is well")
	}
	hang := steady(4 * time.Second)
	hang.Hang = &falconv1.Hang{
		SinceUnixNs: ago(4 * time.Second),
		Culprits:    []*falconv1.HangPart{{Ranks: []int32{5}}},
	}
	if list := begins(t, hang, Standing); len(list[0].Ranks) != 1 || list[0].Ranks[0] != 5 {
		t.Errorf("keys open %v", list[0].Ranks) // defect 8
	}
}

// Defects 4 and 6: how a job ended is not confused.
func TestHowAJobEnded(t *testing.T) {
	failed := &falconv1.Recovery{
		Id:              "REC-0001",
		State:           "failed",
		Attempts:        3,
		BeforeIteration: 100,
		Reason:          "three rejoins failed",
	}
	for name, c := range map[string]struct {
		change func(*falconv1.SnapshotReply)
		want   Kind
	}{
		"by itself, with success": {func(s *falconv1.SnapshotReply) { s.Job.State = "finished" }, Finished},
		"the same, as the engine has": {func(s *falconv1.SnapshotReply) {
			s.Job.State = "finished"
			s.Job.End = &falconv1.JobEnd{How: "finished"}
		}, Finished},
		"by a recovery": {func(s *falconv1.SnapshotReply) {
			s.Job.State, s.Recovery = "finished", failed
		}, Ended},
		"by a recovery, as the engine has": {func(s *falconv1.SnapshotReply) {
			s.Job.State = "lost"
			s.Job.End = &falconv1.JobEnd{How: "ended by falcon", By: "REC-0001"}
		}, Ended},
		"by SIGTERM, asked about": {func(s *falconv1.SnapshotReply) {
			s.Job.State, s.Recovery = "recovering", together("stopped")
		}, Stopped},
		"at once, asked about": {func(s *falconv1.SnapshotReply) {
			s.Job.State, s.Recovery = "recovering", together("at once")
		}, Gone},
		"by one error, asked about": {func(s *falconv1.SnapshotReply) {
			s.Job.State, s.Recovery = "recovering", together("alike")
		}, Failed},
		"by what no console knows yet": {func(s *falconv1.SnapshotReply) {
			s.Job.State = "lost"
			s.Job.End = &falconv1.JobEnd{How: "evaporated"}
		}, Failed},
	} {
		list := begins(t, with(steady(time.Minute), c.change), c.want)
		if good := list[0].Severity == Good; good != (c.want == Finished) {
			t.Errorf("%s: %v is good news: %v", name, c.want, good)
		}
	}
}

// Of ranks of which nothing was heard it is not known whether they ended with success.
func TestFinishedInPartIsNoGoodNews(t *testing.T) {
	for ranks, want := range map[int32]Severity{0: Good, 6: Warn, 12: Good} {
		s := steady(time.Minute)
		s.Job.State, s.Job.World = "finished", 12
		s.Job.End = &falconv1.JobEnd{How: "finished", Ranks: ranks}
		if list := begins(t, s, Finished); list[0].Severity != want {
			t.Errorf("%d of 12 ranks: %v, want %v", ranks, list[0].Severity, want)
		}
	}
}

func together(why string) *falconv1.Recovery {
	return &falconv1.Recovery{
		Id:            "REC-0001",
		State:         "proposed",
		Together:      why,
		StartedUnixNs: ago(9 * time.Second),
		Faults:        []*falconv1.Fault{{Kind: "exit"}},
	}
}

// Defect 5: a recovery that waits for somebody says so, from when on, and what follows.
func TestARecoveryThatWaitsSaysForWhom(t *testing.T) {
	s := steady(40 * time.Second)
	s.Job.State = "recovering"
	s.Recovery = &falconv1.Recovery{
		Id:             "REC-0001",
		State:          "suspend",
		StartedUnixNs:  ago(40 * time.Second),
		DeadlineUnixNs: in(594 * time.Second),
		Wait: &falconv1.RecoveryWait{
			Spare:       true,
			UntilUnixNs: in(594 * time.Second),
			Then:        "fail",
		},
		Faults: []*falconv1.Fault{
			{Kind: "hang", Node: "n0", Ranks: []int32{0}},
			{Kind: "node", Node: "n2", Ranks: []int32{4, 5}},
		},
	}
	x := begins(t, s, Recovery)[0]
	left, ok := x.Left(now)
	if x.Who != Approver ||
		x.Severity != Urgent ||
		x.For(now) != 40*time.Second ||
		!ok ||
		left != 594*time.Second {
		t.Errorf("%+v", x)
	}
	if len(x.Ranks) != 2 || x.Ranks[0] != 4 { // those that wait are a symptom
		t.Errorf("keys open %v", x.Ranks)
	}
	s.Recovery.Wait = nil
	if x := begins(t, s, Recovery)[0]; x.Who != Nobody || x.Severity != Bad {
		t.Errorf("%+v", x)
	}
}

// An engine that does not answer has all else said of its last picture, and nothing of it is good.
func TestWithoutAnEngineNothingIsGood(t *testing.T) {
	list := Of(Picture{
		Snap: steady(0),
		Now:  now.Add(time.Hour),
		Lost: true,
	})
	if list[0].Kind != Unseen ||
		list[1].Kind != Running ||
		list[1].Severity == Good {
		t.Errorf("%+v", list)
	}
}

// Nothing makes it fail: a picture may have been sent by any engine.
func TestOfNothing(t *testing.T) {
	for _, s := range []*falconv1.SnapshotReply{
		nil,
		{},
		{Job: &falconv1.Job{}},
		{Ladder: &falconv1.Ladder{}, Others: []*falconv1.Ladder{nil}, Incidents: []*falconv1.Incident{nil}},
	} {
		list := Of(Picture{Snap: s})
		if len(list) == 0 || list[0].Kind != Unknown {
			t.Errorf("%v: %v", s, said(list))
		}
	}
}
