package rpc

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/mitigate"
)

// waiting is the shipped planner with one rung proposed: a link of four nodes
// is slow, and a spare stands by. The engine is told of the action as of any
// other; the detector knows nothing of the fault.
func waiting(t *testing.T, r falcon.Rung) (*mitigate.Planner, falcon.Action) {
	t.Helper()
	p := mitigate.New(mitigate.Config{OverheadsMs: map[falcon.Rung]float64{falcon.RungS3: 400, falcon.RungS4: 400}})
	never := falcon.RungPolicy{Approval: falcon.ApprovalNever}
	rungs := map[falcon.Rung]falcon.RungPolicy{falcon.RungS2: never, falcon.RungS3: never, falcon.RungS4: never}
	delete(rungs, r)
	now := time.Now()
	step := func(in mitigate.Input) { p.Step(now, in) }
	step(mitigate.Job{
		Epoch: 1, Layout: falcon.Layout{TP: 1, DP: 2, PP: 2}, MicroBatches: []int32{8, 8}, GPUs: 4,
		Placement: falcon.Placement{"n0.g0", "n1.g0", "n2.g0", "n3.g0"}, Spares: []falcon.Node{"n8"}, CanLaunch: true, Adapter: true,
	})
	step(mitigate.SetPolicy{Policy: falcon.Policy{Mode: falcon.ModeApprove, Rungs: rungs}})
	for i := range int64(20) {
		ms := 110.0
		if i >= 10 {
			ms = 180
		}
		step(mitigate.Iteration{Index: 30 + i, Ms: ms})
	}
	step(mitigate.Incident{Incident: falcon.Incident{
		ID: "INC-0001", State: falcon.IncidentLocated, OnsetIteration: 40, RelievedIteration: falcon.NoIteration, HealthyMs: 110, SlowMs: 180,
		Verdict: falcon.Verdict{Cause: falcon.CauseNetwork, Links: []falcon.Link{falcon.NewLink("n0", "n1")}},
	}})
	step(mitigate.Speeds{Incident: "INC-0001", Profile: slowLink()})
	l, _ := p.Ladder("INC-0001")
	if l.Proposal == nil || l.Proposal.Rung != r {
		t.Fatalf("no %s is proposed: %+v", r, l)
	}
	return p, *l.Proposal
}

// slowLink is a profile of two replicas on four nodes: n0-n1 is eight times as
// slow as the others.
func slowLink() falcon.JobProfile {
	out := falcon.JobProfile{SelfMs: []float64{10, 10, 10, 10}, Links: []falcon.LinkSpeed{{Link: falcon.NewLink("n0", "n1"), Ratio: 8}}}
	ring := func(ms float64, ranks ...falcon.Rank) {
		out.Groups = append(out.Groups, falcon.GroupTransfer{Dimension: falcon.DimDP, Ranks: ranks, Op: falcon.OpAllReduce, Calls: 1, Bytes: 100e6, TransferMs: ms})
	}
	ring(80, 0, 1)
	ring(10, 2, 3)
	for _, pair := range [][]falcon.Rank{{0, 2}, {1, 3}} {
		out.Groups = append(out.Groups, falcon.GroupTransfer{Dimension: falcon.DimPP, Ranks: pair, Op: falcon.OpSend, Calls: 16, Bytes: 16e6, TransferMs: 1.6})
	}
	return out
}

// on is a decision on an action as it was seen.
func on(a falcon.Action, approve bool, reason string) *falconv1.DecideRequest {
	return &falconv1.DecideRequest{Incident: a.Incident, Action: a.ID, PlanHash: a.PlanHash, Approve: approve, Reason: reason}
}

// known waits until the engine has taken the planner's first word.
func known(ctx context.Context, t *testing.T, c falconv1.ConsoleClient, a falcon.Action) {
	t.Helper()
	for {
		_, err := c.Decide(ctx, &falconv1.DecideRequest{Incident: a.Incident, Action: a.ID, PlanHash: "none", Approve: true})
		if status.Code(err) == codes.FailedPrecondition {
			return
		}
		if status.Code(err) != codes.NotFound || ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// Whoever asks, by whatever door: a restart is not approved without a reason,
// and a veto needs none.
func TestRestartNeedsAReason(t *testing.T) {
	plan, a := waiting(t, falcon.RungS4)
	s := newSiteWith(t, plan)
	c := falconv1.NewConsoleClient(s.dialSocket())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	known(ctx, t, c, a)
	for _, reason := range []string{"", "  \t ", "\x1b"} {
		if _, err := c.Decide(ctx, on(a, true, reason)); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "approve it again with a reason") {
			t.Errorf("reason %q: %v", reason, err)
		}
	}
	r, err := c.Decide(ctx, on(a, true, "the node is worn out"))
	if err != nil || r.GetAction().GetState() != string(falcon.ActionDispatched) || r.GetAction().GetReason() != "the node is worn out" {
		t.Errorf("with a reason: %v, %v", r, err)
	}
}
