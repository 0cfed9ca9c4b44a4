package rpc

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/mitigate"
)

// waiting is the shipped planner with one rung proposed: a link of four nodes
// is slow, and a spare stands by. The engine is informed of the action as of any
// other; the detector knows nothing of the fault.
func waiting(t *testing.T, r falcon.Rung) (*mitigate.Planner, falcon.Action) {
	t.Helper()
	p := mitigate.New(mitigate.Config{
		OverheadsMs: map[falcon.Rung]float64{falcon.RungS3: 400, falcon.RungS4: 400},
	})
	never := falcon.RungPolicy{Approval: falcon.ApprovalNever}
	rungs := map[falcon.Rung]falcon.RungPolicy{
		falcon.RungS2: never,
		falcon.RungS3: never,
		falcon.RungS4: never,
	}
	delete(rungs, r)
	now := time.Now()
	step := func(in mitigate.Input) { p.Step(now, in) }
	step(mitigate.Job{
		Epoch:        1,
		Layout:       falcon.Layout{TP: 1, DP: 2, PP: 2},
		MicroBatches: []int32{8, 8},
		GPUs:         4,
		Placement:    falcon.Placement{"n0.g0", "n1.g0", "n2.g0", "n3.g0"},
		Spares:       []falcon.Node{"n8"},
		CanLaunch:    true,
		Can: falcon.Can{
			Declared:   true,
			Park:       true,
			Split:      true,
			Place:      true,
			Checkpoint: true,
		},
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
		ID:                "INC-0001",
		State:             falcon.IncidentLocated,
		OnsetIteration:    40,
		RelievedIteration: falcon.NoIteration,
		HealthyMs:         110,
		SlowMs:            180,
		Verdict: falcon.Verdict{
			Cause: falcon.CauseNetwork,
			Links: []falcon.Link{falcon.NewLink("n0", "n1")},
		},
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
	out := falcon.JobProfile{
		SelfMs: []float64{10, 10, 10, 10},
		Links:  []falcon.LinkSpeed{{Link: falcon.NewLink("n0", "n1"), Ratio: 8}},
	}
	ring := func(ms float64, ranks ...falcon.Rank) {
		out.Groups = append(out.Groups, falcon.GroupTransfer{
			Dimension:  falcon.DimDP,
			Ranks:      ranks,
			Op:         falcon.OpAllReduce,
			Calls:      1,
			Bytes:      100e6,
			TransferMs: ms,
		})
	}
	ring(80, 0, 1)
	ring(10, 2, 3)
	for _, pair := range [][]falcon.Rank{{0, 2}, {1, 3}} {
		out.Groups = append(out.Groups, falcon.GroupTransfer{
			Dimension:  falcon.DimPP,
			Ranks:      pair,
			Op:         falcon.OpSend,
			Calls:      16,
			Bytes:      16e6,
			TransferMs: 1.6,
		})
	}
	return out
}

// on is a decision on an action as it was seen.
func on(a falcon.Action, approve bool, reason string) *falconv1.DecideRequest {
	return &falconv1.DecideRequest{
		Incident: a.Incident,
		Action:   a.ID,
		PlanHash: a.PlanHash,
		Approve:  approve,
		Reason:   reason,
	}
}

// known waits until the engine has taken the planner's first word.
func known(ctx context.Context, t *testing.T, c falconv1.ConsoleClient, a falcon.Action) {
	t.Helper()
	for {
		_, err := c.Decide(ctx, &falconv1.DecideRequest{
			Incident: a.Incident,
			Action:   a.ID,
			PlanHash: "none",
			Approve:  true,
		})
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
		_, err := c.Decide(ctx, on(a, true, reason))
		if status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), "approve it again with a reason") {
			t.Errorf("reason %q: %v", reason, err)
		}
	}
	r, err := c.Decide(ctx, on(a, true, "the node is worn out"))
	// No rank is there: on a busy machine the order has failed, with its own reason,
	// before the answer is made.
	state := falcon.ActionState(r.GetAction().GetState())
	if err != nil ||
		r.GetAction().GetDecidedBy() == "" ||
		state != falcon.ActionDispatched && state != falcon.ActionFailed {
		t.Errorf("with a reason: %v, %v", r, err)
	}
	if state == falcon.ActionDispatched && r.GetAction().GetReason() != "the node is worn out" {
		t.Errorf("its reason: %v", r)
	}
}

// twoDoors are two people who may decide, at the socket and over the network,
// and an S3 that waits for them.
func twoDoors(
	t *testing.T,
	s3 falcon.RungPolicy,
) (context.Context, falcon.Action, [2]falconv1.ConsoleClient) {
	t.Helper()
	plan, a := waiting(t, falcon.RungS3)
	s := newSiteUnder(t, plan, map[falcon.Rung]falcon.RungPolicy{falcon.RungS3: s3})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	doors := [2]falconv1.ConsoleClient{
		falconv1.NewConsoleClient(s.dialSocket()),
		falconv1.NewConsoleClient(s.dial(s.issue(auth.RoleApprover, "li"))),
	}
	known(ctx, t, doors[0], a)
	return ctx, a, doors
}

// The second approver is another person; until the order goes out either of
// them takes it back.
func TestSecondApproverAndUndoAtTwoDoors(t *testing.T) {
	ctx, a, doors := twoDoors(t, falcon.RungPolicy{Second: true, Undo: 3600})
	r, err := doors[0].Decide(ctx, on(a, true, ""))
	if err != nil ||
		r.GetAction().GetState() != string(falcon.ActionProposed) ||
		len(r.GetAction().GetApprovals()) != 1 {
		t.Fatalf("the first: %v, %v", r, err)
	}
	if _, err := doors[0].Decide(ctx, on(a, true, "")); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "S3 takes two people") {
		t.Errorf("the same person again: %v", err)
	}
	r, err = doors[1].Decide(ctx, on(a, true, ""))
	got := r.GetAction()
	if err != nil ||
		got.GetState() != string(falcon.ActionApproved) ||
		got.GetDecidedBy() != "li" ||
		len(got.GetApprovals()) != 2 ||
		got.GetDeadlineUnixNs() == 0 {
		t.Errorf("the second: %v, %v", got, err)
	}
	if _, err := doors[0].Decide(ctx, on(a, true, "")); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "was approved by li") {
		t.Errorf("approved already: %v", err)
	}
	r, err = doors[0].Decide(ctx, on(a, false, "not tonight"))
	if err != nil ||
		r.GetAction().GetState() != string(falcon.ActionVetoed) ||
		len(r.GetAction().GetApprovals()) != 2 {
		t.Errorf("withdrawn: %v, %v", r, err)
	}
	if _, err := doors[1].Decide(ctx, on(a, false, "")); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "was vetoed by") {
		t.Errorf("withdrawn twice: %v", err)
	}
}

// race has both doors decide at the same moment.
func race(ctx context.Context, doors [2]falconv1.ConsoleClient, words [2]*falconv1.DecideRequest) [2]error {
	var errs [2]error
	start := make(chan struct{})
	var both sync.WaitGroup
	for n, c := range doors {
		both.Go(func() {
			<-start
			_, errs[n] = c.Decide(ctx, words[n])
		})
	}
	close(start)
	both.Wait()
	return errs
}

// Two people who approve at once are two approvals; one who approves and one
// who vetoes come to one end, whoever is first: it is off.
func TestRacingForTheSecondApprovalAndTheUndo(t *testing.T) {
	t.Run("both approve", func(t *testing.T) {
		ctx, a, doors := twoDoors(t, falcon.RungPolicy{Second: true, Undo: 3600})
		errs := race(ctx, doors, [2]*falconv1.DecideRequest{on(a, true, ""), on(a, true, "")})
		if errs[0] != nil || errs[1] != nil {
			t.Fatal(errs)
		}
		_, err := doors[0].Decide(ctx, on(a, true, ""))
		if err == nil || !strings.Contains(err.Error(), "it is approved now") {
			t.Error(err)
		}
	})
	t.Run("one vetoes", func(t *testing.T) {
		ctx, a, doors := twoDoors(t, falcon.RungPolicy{Undo: 3600})
		errs := race(ctx, doors, [2]*falconv1.DecideRequest{on(a, true, ""), on(a, false, "")})
		if errs[1] != nil || errs[0] != nil && !strings.Contains(errs[0].Error(), "vetoed") {
			t.Fatal(errs)
		}
		_, err := doors[0].Decide(ctx, on(a, true, ""))
		if err == nil || !strings.Contains(err.Error(), "it is vetoed now") {
			t.Error(err)
		}
	})
}
