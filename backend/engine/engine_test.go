package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/vote"
)

// approveIfProposed decides as an operator would; it says whether it did.
func approveIfProposed(b *bench) bool {
	a := b.action()
	if a == nil || a.GetState() != string(falcon.ActionProposed) {
		return false
	}
	_, err := b.engine.Decide(context.Background(), tester, &falconv1.DecideRequest{
		Incident: a.GetIncident(),
		Action:   a.GetId(),
		PlanHash: a.GetPlanHash(),
		Approve:  true,
		Reason:   "go",
	})
	return err == nil
}

func TestTheWholeLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		for b.job.iteration < 110 {
			b.turn()
			approveIfProposed(b)
			if b.dead() {
				t.Fatal("the engine died")
			}
		}
		r := b.incidents()
		if len(r.GetIncidents()) != 1 ||
			r.GetIncidents()[0].GetState() != string(falcon.IncidentClosed) {
			t.Fatalf("incidents %v", r.GetIncidents())
		}
		a := b.action()
		if a.GetState() != string(falcon.ActionReverted) ||
			a.GetDecidedBy() != "tester" ||
			a.GetAppliedIteration() <= slowFrom ||
			a.GetMeasuredMs() >= 192 {
			t.Errorf("action %v", a)
		}
		if !slices.Equal(b.job.micro, []int32{8, 8, 8, 8}) || len(b.job.commits) != 2 {
			t.Errorf("micro-batches %v after commits %v", b.job.micro, b.job.commits)
		}
		if len(b.det.acted) != 2 || !b.det.acted[1].Reverted {
			t.Errorf("the detector was sent %v", b.det.acted)
		}
		time.Sleep(3 * time.Second) // acknowledgements of samples wait for each other
		synctest.Wait()
		for _, a := range b.job.agents {
			if a.poll(b.job); len(a.spool) > 2 {
				t.Errorf("agent %s still keeps %d frames", a.node, len(a.spool))
			}
		}
		b.onceEach()
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		rec := b.records()
		if len(rec[kindDecision]) != 1 ||
			len(rec[kindOrder]) != 2 ||
			len(rec[kindOutcome]) != 2 {
			t.Errorf("records: %d decisions, %d orders, %d outcomes (kinds %v)",
				len(rec[kindDecision]), len(rec[kindOrder]), len(rec[kindOutcome]), kinds(rec))
		}
		body := string(rec[kindDecision][0].Body)
		if !strings.Contains(body, `"by":"tester"`) ||
			!strings.Contains(body, a.GetPlanHash()) ||
			!strings.Contains(body, `"from":"test"`) {
			t.Errorf("decision record %s", body)
		}
		var lines []string
		for _, x := range rec[kindEvent] {
			if strings.Contains(string(x.Body), `"kind":"audit"`) {
				lines = append(lines, string(x.Body))
			}
		}
		if len(lines) != 1 ||
			!strings.Contains(lines[0], `"actor":"tester"`) ||
			!strings.Contains(lines[0], `"from":"test","verb":"approve","about":"`+a.GetId()) ||
			!strings.Contains(lines[0], a.GetPlanHash()) {
			t.Errorf("audit lines %v", lines)
		}
	})
}

// An agent that was away when the order went out gets it when it comes back.
func TestOrderReachesAnAgentThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		approved := false
		for b.job.iteration < 60 && !approved {
			b.turn()
			a := b.action()
			if a != nil && a.GetState() == string(falcon.ActionProposed) {
				b.job.agents[1].stream.cancel()
				b.job.agents[1].stream = nil
				approved = approveIfProposed(b)
			}
		}
		for range 5 {
			b.turn()
		}
		if len(b.job.commits) != 0 || b.action().GetState() != string(falcon.ActionDispatched) {
			t.Fatalf("commits %v, action %s", b.job.commits, b.action().GetState())
		}
		b.attach(b.job.agents[1])
		for range 5 {
			b.turn()
		}
		if len(b.job.commits) != 1 || b.action().GetAppliedIteration() < 0 {
			t.Errorf("commits %v, action %v", b.job.commits, b.action())
		}
		b.onceEach()
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

// An order that no rank takes ends as failed, and says so.
func TestOrderThatNobodyTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		for b.job.iteration < 60 && !approveIfProposed(b) {
			b.turn()
		}
		for _, a := range b.job.agents {
			a.stream.cancel()
			a.stream = nil
		}
		time.Sleep(OrderLife + vote.Wait + time.Second)
		synctest.Wait()
		if a := b.action(); a.GetState() != string(falcon.ActionFailed) ||
			!strings.Contains(a.GetReason(), "deadline") {
			t.Errorf("action %v", a)
		}
		for _, a := range b.job.agents {
			b.attach(a)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

// New processes are a new job epoch; an order of the old one is void.
func TestRestartedJobIsANewEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		for b.job.iteration < 60 && !approveIfProposed(b) {
			b.turn()
		}
		for _, a := range b.job.agents {
			a.stream.cancel()
			a.stream = nil
		}
		b.job.pid = 500
		for _, a := range b.job.agents {
			b.attach(a)
		}
		b.turn()
		b.turn()
		s, err := b.engine.Latest(context.Background())
		if err != nil || s.Reply.GetJob().GetEpoch() != 2 {
			t.Fatalf("job %v, %v", s.Reply.GetJob(), err)
		}
		if a := b.action(); a.GetState() != string(falcon.ActionFailed) ||
			!strings.Contains(a.GetReason(), "epoch") {
			t.Errorf("action %v", a)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDecisionsOnStaleOrDecidedPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		var a *falconv1.Action
		for a = b.action(); a == nil && b.job.iteration < 60; a = b.action() {
			b.turn()
		}
		ctx := context.Background()
		ask := func(q *falconv1.DecideRequest) error {
			_, err := b.engine.Decide(ctx, tester, q)
			return err
		}
		for name, c := range map[string]struct {
			q    *falconv1.DecideRequest
			want error
			say  string
		}{
			"other plan": {
				&falconv1.DecideRequest{Incident: "INC-0001", Action: a.GetId(), PlanHash: "beef"},
				ErrStale,
				a.GetPlanHash(),
			},
			"no plan": {&falconv1.DecideRequest{Action: a.GetId()}, ErrStale, a.GetPlanHash()},
			"other job epoch": {
				&falconv1.DecideRequest{Incident: "INC-0001", JobEpoch: 9},
				ErrStale,
				"epoch 1 now",
			},
			"unknown incident": {
				&falconv1.DecideRequest{Incident: "INC-0007\x1b[31m"},
				ErrNotFound,
				`"INC-0007[31m"`,
			},
			"unknown action": {&falconv1.DecideRequest{Action: "x"}, ErrNotFound, "no action"},
		} {
			err := ask(c.q)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.say)
			}
		}
		veto := &falconv1.DecideRequest{
			Incident: "INC-0001",
			Action:   a.GetId(),
			PlanHash: a.GetPlanHash(),
			JobEpoch: 1,
			Reason:   "not now",
		}
		if err := ask(veto); err != nil {
			t.Fatalf("veto: %v", err)
		}
		second := &falconv1.DecideRequest{
			Incident: "INC-0001",
			Action:   a.GetId(),
			PlanHash: a.GetPlanHash(),
			Approve:  true,
		}
		if err := ask(second); !errors.Is(err, ErrStale) ||
			!strings.Contains(err.Error(), "vetoed by tester") {
			t.Errorf("second decision: %v", err)
		}
		if err := ask(&falconv1.DecideRequest{
			Incident: "INC-0001",
			Approve:  true,
		}); !errors.Is(err, ErrStale) {
			t.Errorf("decision without a proposal: %v", err)
		}
		for range 20 {
			b.turn()
		}
		if len(b.job.commits) != 0 {
			t.Errorf("a vetoed plan was applied: %v", b.job.commits)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		if n := len(b.records()[kindDecision]); n != 1 {
			t.Errorf("%d decisions in the journal, want the veto alone", n)
		}
	})
}

func TestPolicyIsVersionedGuardedAndKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		ctx := context.Background()
		set := func(loosen bool, p *falconv1.Policy) error {
			_, err := b.engine.SetPolicy(ctx, tester, loosen, p)
			return err
		}
		if err := set(true, &falconv1.Policy{
			Mode:    "auto",
			Cap:     "S2",
			Version: 7,
		}); !errors.Is(err, ErrStale) {
			t.Errorf("stale version: %v", err)
		}
		if err := set(true, &falconv1.Policy{Mode: "wild", Version: 1}); !errors.Is(err, ErrInvalid) {
			t.Errorf("unknown mode: %v", err)
		}
		if err := set(false, &falconv1.Policy{
			Mode:    "auto",
			Cap:     "S2",
			Version: 1,
		}); !errors.Is(err, ErrDenied) {
			t.Errorf("operator loosens: %v", err)
		}
		if err := set(false, &falconv1.Policy{Mode: "approve", Frozen: true, Version: 1}); err != nil {
			t.Errorf("operator freezes: %v", err)
		}
		if err := set(false, &falconv1.Policy{Mode: "approve", Version: 2}); !errors.Is(err, ErrDenied) {
			t.Errorf("operator unfreezes: %v", err)
		}
		if err := set(true, &falconv1.Policy{
			Mode:    "auto",
			Cap:     "S2",
			Version: 2,
			Owner:   "ops\x07",
		}); err != nil {
			t.Errorf("approver loosens: %v", err)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		b.start()
		s, err := b.engine.Latest(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if p := s.Reply.GetPolicy(); p.GetMode() != "auto" ||
			p.GetCap() != "S2" ||
			p.GetVersion() != 3 ||
			p.GetOwner() != "ops" ||
			p.GetFrozen() {
			t.Errorf("policy after a restart: %v", p)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

// A watcher that does not read loses lines and is notified; the engine goes on.
func TestStalledWatcherIsToldToResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.turn()
		w, err := b.engine.Watch(0)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		line, resync, err := w.Next(context.Background())
		if err != nil || resync || line.GetSeq() != 1 {
			t.Fatalf("first line %v, %v, %v", line, resync, err)
		}
		for i := range watchQueue + 10 {
			b.engine.hub.publish(&falconv1.EventLine{Seq: uint64(1000 + i)})
		}
		if _, resync, err = w.Next(context.Background()); err != nil || !resync {
			t.Fatalf("after the overflow: resync %v, %v", resync, err)
		}
		b.engine.hub.publish(&falconv1.EventLine{Seq: 5000})
		line, _, err = w.Next(context.Background())
		if err != nil || line.GetSeq() != 5000 {
			t.Fatalf("after the resync: %v, %v", line, err)
		}
		late, err := b.engine.Watch(99999)
		if err != nil {
			t.Fatal(err)
		}
		defer late.Close()
		if _, resync, err = late.Next(context.Background()); err != nil || !resync {
			t.Errorf("a number from another engine's life: resync %v, %v", resync, err)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		if _, _, err = w.Next(context.Background()); !errors.Is(err, ErrStopped) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestSnapshotShowsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		ctx := context.Background()
		s, err := b.engine.Latest(ctx)
		if err != nil || s.Reply.GetJob().GetState() != "waiting for agents" {
			t.Fatalf("before agents: %v, %v", s.Reply.GetJob(), err)
		}
		for b.job.iteration < 25 {
			b.turn()
		}
		if s, err = b.engine.Latest(ctx); err != nil {
			t.Fatal(err)
		}
		j := s.Reply.GetJob()
		if j.GetState() != "slow" ||
			j.GetDp() != 4 ||
			j.GetWorld() != 4 ||
			!j.GetExact() ||
			len(s.Ranks.Views()) != 4 ||
			len(s.Reply.GetNodes()) != 2 {
			t.Errorf("snapshot %v", s.Reply)
		}
		if s.Worst != slowRank ||
			s.Ranks.Views()[slowRank].GetHealth() != falconv1.RankHealth_RANK_HEALTH_CULPRIT {
			t.Errorf("worst rank %d, views %v", s.Worst, s.Ranks.Views())
		}
		c, err := b.engine.Series(ctx, slowRank, 8, 5)
		if err != nil ||
			len(c.GetMs()) != 8 ||
			len(c.GetPosterior()) != 40 ||
			c.GetFirstIteration() != 17 {
			t.Errorf("series %v, %v", c, err)
		}
		if c, err = b.engine.Series(ctx, 99, 8, 5); err != nil || c != nil {
			t.Errorf("series of no rank: %v, %v", c, err)
		}
		newest, err := RecentOf(ctx, b.engine, 1000)
		if err != nil ||
			newest.GetColumns() != RecentMax ||
			newest.GetLastIteration() != j.GetIteration() ||
			len(newest.GetMs()) != 4*RecentMax ||
			newest.GetPids()[3] != b.job.pid+3 {
			t.Errorf("recent %v, %v", newest, err)
		}
		own := newest.GetMs()[3*RecentMax:]
		from := RecentMax - int(newest.GetLastIteration()) - 1
		if own[from-1] != 0 || own[from+1] == 0 || own[RecentMax-1] == 0 {
			t.Errorf("%d iterations of rank 3 are shown as %v", newest.GetLastIteration()+1, own)
		}
		b.job.agents[1].send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Rank{Rank: &falconv1.RankState{
			Rank: 3,
			Pid:  b.job.pid + 3,
			Exit: "exited normally",
		}}})
		b.turn()
		s, err = b.engine.Latest(ctx)
		if err != nil || s.Reply.GetJob().GetState() != "slow" {
			t.Errorf("a rank that ended well: %v, %v", s.Reply.GetJob(), err)
		}
		b.job.agents[0].send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Rank{Rank: &falconv1.RankState{
			Rank: 1,
			Pid:  b.job.pid + 1,
			Exit: "signal: killed",
		}}})
		b.turn()
		s, err = b.engine.Latest(ctx)
		if err != nil ||
			s.Reply.GetJob().GetState() != "lost" ||
			s.Ranks.Views()[1].GetHealth() != falconv1.RankHealth_RANK_HEALTH_LOST {
			t.Errorf("after a death: %v %v, %v", s.Reply.GetJob(), s.Ranks.Views()[1], err)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

// An operator may step up the ladder before the ski-rental clock says so.
func TestStepUpWithoutAProposal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.plan.OverheadsMs = map[falcon.Rung]float64{falcon.RungS2: 1e9} // never proposed by itself
		b.start()
		ctx := context.Background()
		step := &falconv1.DecideRequest{
			Incident: "INC-0001",
			Rung:     "S2",
			Approve:  true,
		}
		for b.job.iteration < 5 {
			b.turn()
		}
		if _, err := b.engine.Decide(ctx, tester, step); !errors.Is(err, ErrNotFound) {
			t.Errorf("before the incident: %v", err)
		}
		for len(b.incidents().GetIncidents()) == 0 ||
			b.incidents().GetIncidents()[0].GetState() != string(falcon.IncidentLocated) {
			b.turn()
		}
		if _, err := b.engine.Decide(ctx, tester, &falconv1.DecideRequest{
			Incident: "INC-0001",
			Rung:     "S3",
			Approve:  true,
		}); !errors.Is(err, ErrStale) {
			t.Errorf("a rung that can't be taken: %v", err)
		}
		a, err := b.engine.Decide(ctx, tester, step)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			b.turn()
		}
		if len(b.job.commits) != 1 {
			t.Errorf("commits %v", b.job.commits)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		rec := b.records()[kindDecision]
		if len(rec) != 1 || !strings.Contains(string(rec[0].Body), a.GetPlanHash()) {
			t.Errorf("decision records %v", rec)
		}
	})
}

// An agent that is away makes the picture doubtful; only when the job stops
// still as well is a node lost. A rank can't be claimed by another node.
func TestAwayAgentLostNodeAndStolenRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.turn()
		b.turn()
		b.job.agents[1].send(b.job.rankState("n1", 0))
		b.turn()
		view := func() *State {
			s, err := b.engine.Latest(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		v := view()
		if v.Ranks.Devices()[0] != "n0.g0" || v.Reply.GetJob().GetEpoch() != 1 {
			t.Errorf("a stolen rank: %v", v.Ranks.Views()[0])
		}
		b.job.agents[1].stream.cancel()
		b.job.agents[1].stream = nil
		for range 70 {
			b.turn()
		}
		if j := view().Reply.GetJob(); !strings.Contains(j.GetAlarm(), "node n1 is gone") ||
			j.GetState() == "lost" {
			t.Errorf("with one agent away: %v", j)
		}
		b.job.agents[0].stream.cancel()
		b.job.agents[0].stream = nil
		time.Sleep(10 * time.Second)
		if j := view().Reply.GetJob(); j.GetState() != "lost" {
			t.Errorf("with all still: %v", j)
		}
	})
}
