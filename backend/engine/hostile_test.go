package engine

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/backend/vote"
	"github.com/failslow/falcon/mitigate"
)

// Numbers that no machine can mean stop at the door: beyond it they would
// spoil sums, and what is not a number can't even be written down.
func TestNumbersThatNobodyCanMean(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e300} {
		if plausible(&falconv1.Sample{Ms: v}) ||
			plausible(&falconv1.Sample{Ms: 10, PausedMs: v}) {
			t.Errorf("a sample of %v ms was taken", v)
		}
		if plausibleProfile(&falconv1.RankProfile{SelfMs: v}) {
			t.Errorf("a self time of %v ms was taken", v)
		}
		h := hostFrom("n0", &falconv1.Host{StealShare: v, LoadPerCpu: v})
		p := profileFrom(1, &falconv1.RankProfile{
			QueueMs: v,
			Calls:   []*falconv1.CallTiming{{DurationMs: v, StartMs: v, QueueMs: v}},
		})
		for _, got := range []float64{
			h.StealShare,
			h.LoadPerCPU,
			p.QueueMs,
			p.Calls[0].DurationMs,
			p.Calls[0].StartMs,
			p.Calls[0].QueueMs,
		} {
			if !(got >= 0 && got <= msMost) {
				t.Errorf("%v became %v", v, got)
			}
		}
	}
	for _, ns := range []int64{-1, math.MinInt64, math.MaxInt64} {
		p := profileFrom(1, &falconv1.RankProfile{Columns: &falconv1.CallColumns{
			Classes:    []*falconv1.CallClass{{Bytes: ns}},
			Class:      []uint32{0, 0},
			Ordinal:    []int64{ns, ns},
			StartNs:    []int64{ns, ns},
			DurationNs: []int64{ns, ns},
			QueueNs:    []int64{ns, ns},
		}})
		for _, c := range p.Calls {
			if !(c.StartMs >= 0 &&
				c.DurationMs >= 0 &&
				c.QueueMs >= 0 &&
				c.Bytes >= 0 &&
				max(c.StartMs, c.DurationMs, c.QueueMs) <= msMost) {
				t.Errorf("%d ns became %+v", ns, c)
			}
		}
	}
	if plausibleProfile(&falconv1.RankProfile{Columns: &falconv1.CallColumns{Class: []uint32{0}}}) {
		t.Error("a profile whose columns do not fit together was taken")
	}
	if plausible(&falconv1.Sample{Ms: 10, Iteration: 1 << 50}) ||
		plausible(&falconv1.Sample{Ms: 10, Iteration: -1}) {
		t.Error("an iteration that no job reaches was taken")
	}
	if plausibleProfile(&falconv1.RankProfile{MicroBatches: math.MaxInt32}) {
		t.Error("a profile of 2 billion micro-batches was taken")
	}
}

// A rank that claims to be far ahead must not make all others look old.
func TestRankFarAheadIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		for b.job.iteration < 110 {
			b.turn()
			if b.job.iteration > 2 {
				b.job.agents[1].send(&falconv1.AgentFrame{
					Body: &falconv1.AgentFrame_Samples{Samples: &falconv1.Samples{
						Samples: []*falconv1.Sample{{
							Rank:      3,
							Iteration: 1 << 39,
							Ms:        1,
						}},
					}},
				})
			}
			approveIfProposed(b)
		}
		if a := b.action(); a.GetState() != string(falcon.ActionReverted) {
			t.Errorf("action %v", a)
		}
		if b.det.newest >= 1<<39 {
			t.Error("the detector was sent them")
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

// A flood of claims leaves a bounded trace in the journal.
func TestFloodOfLinesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.turn()
		for range 5 * linesBurst {
			b.job.agents[1].send(b.job.rankState("n1", 0))
		}
		time.Sleep(linesPeriod)
		b.turn()
		b.job.agents[1].send(b.job.rankState("n1", 0))
		b.turn()
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		events := b.records()[kindEvent]
		if n := len(events); n > 2*linesBurst {
			t.Errorf("%d lines in the journal", n)
		}
		if !slices.ContainsFunc(events, func(r journal.Record) bool {
			return strings.Contains(string(r.Body), "were left out")
		}) {
			t.Error("no line says how many were left out")
		}
	})
}

// What was lost does not shrink when the engine starts again, and its policy
// holds from the first moment on.
func TestRestartKeepsLossAndPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.policy = falcon.Policy{Mode: falcon.ModeObserve}
		b.start()
		for b.job.iteration < 50 {
			b.turn()
		}
		before := b.incidents().GetLadders()[0].GetLostGpuHours()
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.turn()
		after := b.incidents().GetLadders()[0]
		if before <= 0 || after.GetLostGpuHours() < before {
			t.Errorf("lost %.6f GPU-h before the restart and %.6f after", before, after.GetLostGpuHours())
		}
		if len(after.GetActions()) != 0 {
			t.Errorf("proposed in observe mode: %v", after.GetActions())
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

// The ranks agree on an order after it was given up on: it is in force, and so
// it is undone when the fault clears.
func TestOrderThatWasGivenUpOnAndTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		for b.job.iteration < 60 && !approveIfProposed(b) {
			b.turn()
		}
		for _, a := range b.job.agents { // the orders arrive, the job does not go on
			a.poll(b.job)
		}
		time.Sleep(OrderLife + vote.Wait + time.Second)
		synctest.Wait()
		if a := b.action(); a.GetState() != string(falcon.ActionFailed) {
			t.Fatalf("action %v", a)
		}
		for b.job.iteration < 110 {
			b.turn()
		}
		if a := b.action(); a.GetState() != string(falcon.ActionReverted) ||
			!slices.Equal(b.job.micro, []int32{8, 8, 8, 8}) {
			t.Errorf("action %v, job %v", a, b.job.micro)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

// Naming the rung that is proposed decides on the proposal.
func TestNamingTheProposedRungDecidesOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		for b.action() == nil {
			b.turn()
		}
		q := &falconv1.DecideRequest{
			Incident: "INC-0001",
			Rung:     "S2",
			Approve:  true,
			PlanHash: "beef",
		}
		if _, err := b.engine.Decide(context.Background(), tester, q); err == nil ||
			!strings.Contains(err.Error(), "look again") {
			t.Errorf("another plan: %v", err)
		}
		q.PlanHash = ""
		a, err := b.engine.Decide(context.Background(), tester, q)
		if err != nil ||
			a.GetDecidedBy() != "tester" ||
			len(a.GetMicroBatches()) != 4 ||
			a.GetPlanHash() == "" {
			t.Errorf("decided %v, %v", a, err)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMemoryOfIncidentsIsBounded(t *testing.T) {
	m := newJournalState()
	for i := range 3 * incidentsKept {
		id := fmt.Sprintf("INC-%04d", i+1)
		m.setIncident(falcon.Incident{ID: id, State: falcon.IncidentClosed}, 0)
		m.setAction(falcon.Action{ID: id + "/S2/1", Incident: id}, 1)
		m.decisions[id+"/S2/1"] = DecisionRecord{}
		m.decidedNs[id+"/S2/1"] = 1
		m.impacts[id] = mitigate.Impact{Incident: id}
	}
	if len(m.incidents) > incidentsKept ||
		len(m.actions) > incidentsKept ||
		len(m.decisions) > incidentsKept ||
		len(m.impacts) > incidentsKept {
		t.Errorf("%d incidents, %d actions, %d decisions, %d costs",
			len(m.incidents), len(m.actions), len(m.decisions), len(m.impacts))
	}
	if m.NextIncident != 3*incidentsKept+1 {
		t.Errorf("the next incident would be number %d", m.NextIncident)
	}
}

// One rank that is wrong about the size of the world does not hide the job.
func TestOneWrongClaimAboutTheWorld(t *testing.T) {
	j := newJob()
	for r := range int32(4) {
		j.setState("n0", &falconv1.RankState{
			Rank:  r,
			Pid:   10 + r,
			Alive: true,
			World: 4,
		})
	}
	j.setState("n0", &falconv1.RankState{
		Rank:  3,
		Pid:   13,
		Alive: true,
		World: 1,
	})
	if j.world() != 4 {
		t.Errorf("world %d after one wrong claim", j.world())
	}
	for r := range int32(4) { // a smaller job follows
		j.setState("n0", &falconv1.RankState{Rank: r, Pid: 10 + r, World: 4})
	}
	for r := range int32(2) {
		j.setState("n0", &falconv1.RankState{
			Rank:  r,
			Pid:   30 + r,
			Alive: true,
			World: 2,
		})
	}
	if j.world() != 2 || !j.complete() {
		t.Errorf("world %d, complete %v", j.world(), j.complete())
	}
}

// A process that is gone counts as lost once its agent says how it ended, or
// has had the time to find out: the end of a job is no loss.
func TestUnknownEndIsNotYetALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.turn()
		b.turn()
		state := func() string {
			s, err := b.engine.Latest(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			return s.Reply.GetJob().GetState()
		}
		b.job.agents[1].send(&falconv1.AgentFrame{
			Body: &falconv1.AgentFrame_Rank{Rank: &falconv1.RankState{
				Rank: 3,
				Pid:  b.job.pid + 3,
			}},
		})
		b.turn()
		if got := state(); got == "lost" {
			t.Error("lost before anybody can know how it ended")
		}
		time.Sleep(exitWait + time.Second)
		if got := state(); got != "lost" {
			t.Errorf("state %q although it is not known how rank 3 ended", got)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}
