package engine

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/restart"
)

// strange are frames about ranks, processes and generations that there are not.
func strange(j *fakeJob) []*falconv1.AgentFrame {
	claim := func(node string, rank int32, change func(*falconv1.RankState)) *falconv1.AgentFrame {
		f := j.rankState(node, 0)
		f.GetRank().Rank, f.GetRank().Pid = rank, 4242
		change(f.GetRank())
		return f
	}
	beat := func(b *falconv1.RankBeat) *falconv1.AgentFrame {
		return &falconv1.AgentFrame{
			Body: &falconv1.AgentFrame_Beat{Beat: &falconv1.Beat{Ranks: []*falconv1.RankBeat{b}}},
		}
	}
	return []*falconv1.AgentFrame{
		claim("n0", 99, func(s *falconv1.RankState) {
			s.World = 4
			s.Park = &falconv1.Park{Generation: 1, Joining: true}
		}),
		claim("n0", 2, func(s *falconv1.RankState) {
			s.Generation = 1
			s.Park = &falconv1.Park{Generation: 1, Joining: true}
		}),
		claim("n0", 3, func(s *falconv1.RankState) {
			s.Generation = 1 << 40
			s.Park = &falconv1.Park{Generation: 1 << 40}
		}),
		claim("n0", -1, func(s *falconv1.RankState) {
			s.Park = &falconv1.Park{Tag: -7, Steps: []int64{-3, 1 << 60, 5}}
		}),
		beat(&falconv1.RankBeat{Rank: 99, Iteration: 1 << 62}),
		beat(&falconv1.RankBeat{Rank: 0, Pid: 1, StepTag: -9}),
		beat(&falconv1.RankBeat{Rank: -5, Pid: -1, HookAgeMs: 1e300}),
		beat(&falconv1.RankBeat{
			Rank:         0,
			Pid:          4242,
			Calls:        1<<64 - 1,
			WaitingMs:    -1e300,
			WaitingKnown: true,
		}),
		{Body: &falconv1.AgentFrame_Beat{Beat: &falconv1.Beat{AtUnixNs: math.MaxInt64}}},
		{Body: &falconv1.AgentFrame_Beat{Beat: &falconv1.Beat{AtUnixNs: math.MinInt64}}},
		{Body: &falconv1.AgentFrame_Goodbye{Goodbye: &falconv1.Goodbye{Reason: "\x1b[2J"}}},
		// of another node
		{
			Body: &falconv1.AgentFrame_Device{
				Device: &falconv1.DeviceEvent{Device: "n1.g0", Fatal: true, Code: 79},
			},
		},
		{
			Body: &falconv1.AgentFrame_Result{
				Result: &falconv1.CommandResult{
					Id:    1,
					Ranks: []*falconv1.RankAck{{Rank: 2, Generation: 1, Iteration: 3}},
				},
			},
		},
	}
}

// What a node says of ranks, generations and nodes that are not its own changes
// nothing in a recovery.
func TestHostileWordsInARecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := outages()[0]
		b := suffer(t, o)
		strike := b.each
		b.each = func(b *bench) {
			strike(b)
			if b.job.iteration >= struckAt-2 &&
				b.job.iteration < struckAt+5 &&
				b.job.agents[0].stream != nil {
				for _, f := range strange(b.job) {
					b.job.agents[0].send(f)
				}
			}
		}
		b.playTo(60)
		list := b.recoveries()
		if len(list) != 1 ||
			list[0].State != falcon.RecoveryResumed ||
			list[0].Generation != 1 ||
			len(list[0].Fenced) != 0 {
			t.Fatalf("recoveries %+v", list)
		}
		b.inLoop(func() {
			rec := b.engine.state.job
			if rec.Processes[2] != "n1/1002/g1" || rec.Processes[3] != "n1/103" {
				t.Errorf("processes %v", rec.Processes)
			}
		})
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

func TestParkOfOtherGenerations(t *testing.T) {
	e := bareEngine(newJournalState())
	e.state.Generation = 4
	if p := e.describer.parkFrom(&falconv1.Park{
		Generation: 5,
		Steps:      []int64{3},
		Sums:       []uint64{9},
	}); p != nil {
		t.Errorf("of the future: %+v", p)
	}
	p := e.describer.parkFrom(&falconv1.Park{
		Generation: 4,
		Tag:        -1,
		Steps:      []int64{3, 4, 5},
		Sums:       []uint64{9, 8, 7},
	})
	if p == nil ||
		p.Hold.Steps != [2]int64{3, 4} ||
		p.Hold.Sums != [2]uint64{9, 8} ||
		p.Tag != -1 {
		t.Errorf("of now: %+v", p)
	}
	if p := e.describer.parkFrom(&falconv1.Park{
		Steps: []int64{3, 4},
		Sums:  []uint64{9},
	}); p.Hold.Steps != [2]int64{3, falcon.NoIteration} {
		t.Errorf("a step without a checksum: %+v", p)
	}
	if p := e.describer.parkFrom(&falconv1.Park{
		Joining: true,
		Steps:   []int64{3},
		Sums:    []uint64{9},
	}); p.Hold.Steps[0] != falcon.NoIteration {
		t.Errorf("a new process holds something: %+v", p)
	}
}

// A fenced node that comes back is heard for viewing only: it is ordered to end
// what it runs, is no spare, and counts again once a person lifts the fence.
func TestFencedNodeThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := suffer(t, outages()[1])
		b.playTo(60)
		n1 := b.job.agents[1]
		n1.crew.gone = false
		n1.ranks = []int32{2, 3}
		b.attach(n1)
		b.turn()
		for _, r := range n1.ranks { // it believes that it trains
			n1.send(&falconv1.AgentFrame{
				Body: &falconv1.AgentFrame_Samples{
					Samples: &falconv1.Samples{
						Samples: []*falconv1.Sample{{
							Rank:      r,
							Iteration: 70,
							Ms:        1,
							EndUnixNs: -1,
						}},
					},
				},
			})
		}
		n1.ranks = nil
		for range 15 {
			b.turn()
		}
		if n1.crew.stops == 0 {
			t.Error("the node was not ordered to end what it runs")
		}
		b.inLoop(func() {
			checkSamples(b)
			m := b.engine.cluster.launchMeans()
			if len(m.spares) != 0 || !b.engine.cluster.connected("n1") {
				t.Errorf("spares %v, connected: %v", m.spares, b.engine.cluster.connected("n1"))
			}
			stops := 0
			for _, l := range b.engine.state.events {
				if strings.Contains(l.GetText(), "what node n1 says of the job is refused") {
					stops++
				}
			}
			if stops != 1 {
				t.Errorf("it was ordered %d times", stops)
			}
		})
		if _, err := b.engine.Recover(context.Background(), tester, &falconv1.RecoverRequest{
			Verb:   "lift",
			Node:   "n1",
			Rank:   -1,
			Reason: "looked at it",
		}); err != nil {
			t.Error(err)
		}
		b.turn()
		b.inLoop(func() {
			m := b.engine.cluster.launchMeans()
			if len(m.spares) != 0 ||
				!strings.Contains(strings.Join(m.barred, " "), "still runs on n1: end it") {
				t.Errorf("with its old processes: spares %v, barred %v", m.spares, m.barred)
			}
		})
		for _, r := range []int32{2, 3} {
			n1.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Rank{Rank: &falconv1.RankState{
				Rank: r,
				Pid:  b.job.pidOf("n1", r),
				Exit: "signal: killed",
			}}})
		}
		b.turn()
		b.inLoop(func() {
			m := b.engine.cluster.launchMeans()
			if !slices.Equal(m.spares, []falcon.Node{"n1"}) {
				t.Errorf("spares after the fence is lifted: %v", m.spares)
			}
		})
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

// A recovery that failed leaves its fences: after a start of the engine too, what
// a fenced node says of its processes, and how they end, leads to nothing.
func TestFencedNodeAfterARecoveryThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := suffer(t, outages()[1])
		b.recovery = recovery.Config{SpareWait: 2 * time.Second}
		b.job.agents[2].crew.refuse = map[string]string{launchKind: "no container"}
		b.start()
		for range 200 {
			b.turn()
			b.each(b)
		}
		if list := b.recoveries(); len(list) != 1 ||
			list[0].State != falcon.RecoveryFailed ||
			!slices.Contains(list[0].Fenced, "n1") {
			t.Fatalf("recoveries %+v", list)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		b.start()
		n1 := b.job.agents[1]
		n1.crew.gone = false
		n1.ranks = []int32{2, 3}
		b.attach(n1)
		for range 100 { // they seem to train
			b.job.iteration++
			b.turn()
		}
		n1.crash(2, b.job, "killed by signal 9")
		for range 100 {
			b.turn()
		}
		if list := b.recoveries(); len(list) != 1 {
			t.Errorf("another recovery: %+v", list[1])
		}
		b.inLoop(func() {
			e := b.engine
			if e.job.ranks[2] != nil ||
				e.job.ranks[3] != nil ||
				e.cluster.recoveryJob().CanLaunch["n1"] {
				t.Errorf("ranks of the fenced node count: %+v, job %+v", e.job.ranks, e.cluster.recoveryJob())
			}
		})
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

// An operator's decisions: who decides is kept, the second one gets what the
// first one said, and what can't be is refused.
func TestRecoveriesThatWaitForAPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := suffer(t, outages()[0])
		b.policy.Recovery.Approval = falcon.ApprovalPerson
		b.start()
		for range struckAt + 5 {
			b.turn()
			b.each(b)
		}
		list := b.recoveries()
		if len(list) != 1 || list[0].State != falcon.RecoveryProposed {
			t.Fatalf("recoveries %+v", list)
		}
		if v, err := b.engine.Recoveries(context.Background(), "REC-0001", false); err != nil ||
			slices.ContainsFunc(v.Recoveries[0].Ranks, func(r *falconv1.RankRecovery) bool {
				return r.Stage == "training"
			}) {
			t.Errorf("a rank trains beside a lost one: %v, %v", v, err)
		}
		say := func(q *falconv1.RecoverRequest) (*falconv1.Recovery, error) {
			v, err := b.engine.Recover(context.Background(), tester, q)
			synctest.Wait()
			return v, err
		}
		for want, q := range map[string]*falconv1.RecoverRequest{
			"no recovery":             {Recovery: "REC-0009", Verb: "approve"},
			"look again":              {Recovery: "REC-0001", Verb: "approve", PlanHash: "other"},
			"no decision":             {Recovery: "REC-0001", Verb: "shout"},
			"say how you know":        {Recovery: "REC-0001", Verb: "ended"},
			"does not wait for":       {Recovery: "REC-0001", Verb: "ended", Reason: "x"},
			"say why":                 {Verb: "fence", Node: "n0"},
			"holds no rank":           {Verb: "fence", Node: "n7", Reason: "x"},
			"no rank 9":               {Verb: "renew", Rank: 9, Reason: "x"},
			`node "n0" is not fenced`: {Verb: "lift", Node: "n0", Reason: "x"},
		} {
			if _, err := say(q); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %q", q, err, want)
			}
		}
		v, err := say(&falconv1.RecoverRequest{
			Recovery: "REC-0001",
			Verb:     "approve",
			PlanHash: list[0].PlanHash,
			Reason:   "go",
		})
		if err != nil ||
			v.GetDecidedBy() != "tester" ||
			v.GetState() == string(falcon.RecoveryProposed) {
			t.Errorf("approved: %v, %v", v, err)
		}
		if _, err := say(&falconv1.RecoverRequest{
			Recovery: "REC-0001",
			Verb:     "deny",
		}); !errors.Is(err, ErrStale) {
			t.Errorf("the second decision: %v", err)
		}
		for b.job.iteration < 40 {
			b.turn()
		}
		if v, err := say(&falconv1.RecoverRequest{Verb: "renew", Rank: 1, Reason: "leaks"}); err != nil ||
			v.GetId() != "REC-0002" {
			t.Fatalf("renewed: %v, %v", v, err)
		}
		for range 100 {
			b.turn()
		}
		list = b.recoveries()
		if len(list) != 2 ||
			list[1].State != falcon.RecoveryResumed ||
			list[1].Replaced[1] != "n0.g1" ||
			list[1].DecidedBy != "tester" {
			t.Errorf("by hand: %+v", list[1])
		}
		if err := b.halt(); err != nil {
			t.Error(err)
		}
		if n := len(b.records()[kindDecision]); n != 2 {
			t.Errorf("%d decisions in the journal", n)
		}
	})
}

// A process without an adapter can't park: the whole job is restarted, once
// a person has agreed to begin without a known checkpoint.
func TestRestartWhereSurvivorsCanNotBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := suffer(t, outages()[0])
		for _, a := range b.job.agents {
			a.crew.refuse = map[string]string{suspendKind: "rank 0 has no adapter"}
			a.crew.blunt = true
		}
		b.start()
		approved := false
		for range 300 {
			b.turn()
			b.each(b)
			list := b.recoveries()
			if !approved && len(list) == 1 && list[0].State == falcon.RecoveryProposed {
				if _, err := b.engine.Recover(context.Background(), tester, &falconv1.RecoverRequest{
					Recovery: "REC-0001",
					Verb:     string(recovery.Approve),
				}); err != nil {
					t.Fatal(err)
				}
				approved = true
			}
		}
		list := b.recoveries()
		if !approved ||
			len(list) != 1 ||
			list[0].State != falcon.RecoveryResumed ||
			!list[0].Whole {
			t.Fatalf("recoveries %+v", list)
		}
		b.inLoop(func() {
			e := b.engine
			if e.state.job.Epoch != 2 ||
				e.state.job.Generation != list[0].Generation ||
				e.status.current(time.Now()) == "recovering" ||
				e.state.restart.Phase != restart.Over {
				t.Errorf("job epoch %d of launch %d, state %s, restart %s",
					e.state.job.Epoch, e.state.job.Generation, e.status.current(time.Now()),
					e.state.restart.Phase)
			}
		})
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}
