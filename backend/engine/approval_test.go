package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

var jon = Actor{Name: "jon", Role: "approver", From: "10.0.0.7"}

// proposed plays until S2 is proposed, and gives it.
func (b *bench) proposed() *falconv1.Action {
	b.t.Helper()
	for b.job.iteration < slowUntil {
		b.turn()
		if a := b.action(); a.GetState() == string(falcon.ActionProposed) {
			return a
		}
	}
	b.t.Fatal("nothing was proposed")
	return nil
}

// decideOn decides on an action.
func (b *bench) decideOn(
	who Actor,
	a *falconv1.Action,
	approve bool,
	reason string,
) (*falconv1.Action, error) {
	return b.engine.Decide(context.Background(), who, &falconv1.DecideRequest{
		Incident: a.GetIncident(),
		Action:   a.GetId(),
		PlanHash: a.GetPlanHash(),
		Approve:  approve,
		Reason:   reason,
		JobEpoch: a.GetJobEpoch(),
	})
}

// again kills the engine and starts it on its journal.
func (b *bench) again() {
	b.t.Helper()
	if err := b.halt(); err != nil {
		b.t.Fatal(err)
	}
	b.start()
	b.turn()
}

// auditLines are the audit lines about an action, oldest first.
func (b *bench) auditLines(a *falconv1.Action) string {
	var out []string
	b.inLoop(func() {
		for _, e := range b.engine.state.events {
			if d := e.GetAudit(); d.GetAbout() == a.GetId() {
				out = append(out, d.GetActor()+": "+d.GetVerb())
			}
		}
	})
	return strings.Join(out, ", ")
}

// An approval that can be undone is ordered when its time is over and not
// before, over restarts, and anybody who may decide takes it back until then.
func TestUndoOverARestart(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.policy.Rungs = map[falcon.Rung]falcon.RungPolicy{falcon.RungS2: {Undo: 600}}
		b.start()
		a, err := b.decideOn(tester, b.proposed(), true, "go")
		if err != nil ||
			a.GetState() != string(falcon.ActionApproved) ||
			a.GetDecidedBy() != "tester" ||
			len(a.GetApprovals()) != 1 {
			b.t.Fatalf("approved: %v, %v", a, err)
		}
		deadline := a.GetDeadlineUnixNs()
		left := time.Until(time.Unix(0, deadline))
		if left <= 9*time.Minute || left > 10*time.Minute {
			b.t.Errorf("%s are left", left)
		}
		if _, err := b.decideOn(jon, a, true, ""); !errors.Is(err, ErrStale) ||
			!strings.Contains(err.Error(), "was approved by tester") {
			b.t.Errorf("approved again: %v", err)
		}
		b.again()
		a = b.action()
		if a.GetState() != string(falcon.ActionApproved) ||
			a.GetDeadlineUnixNs() != deadline ||
			len(b.job.commits) != 0 {
			b.t.Errorf("after a restart: %v, commits %v", a, b.job.commits)
		}
		out, err := b.engine.Decide(context.Background(), jon, &falconv1.DecideRequest{
			Incident: a.GetIncident(),
			Reason:   "node is in use",
		})
		if err != nil ||
			out.GetState() != string(falcon.ActionVetoed) ||
			out.GetDecidedBy() != "jon" ||
			out.GetApprovals()[0].GetBy() != "tester" {
			b.t.Errorf("withdrawn: %v, %v", out, err)
		}
		if got := b.auditLines(a); got != "tester: approve, jon: withdraw" {
			b.t.Errorf("audit: %s", got)
		}
		time.Sleep(time.Hour)
		b.again()
		if got := b.action(); got.GetState() != string(falcon.ActionVetoed) {
			b.t.Errorf("at the end: %v", got)
		}
		_ = b.halt()
		rec := b.records()
		if len(rec[kindOrder]) != 0 || len(rec[kindDecision]) != 2 {
			b.t.Errorf("%d orders and %d decisions in the journal",
				len(rec[kindOrder]), len(rec[kindDecision]))
		}
	})
}

// What is not withdrawn goes out by itself, by the engine's clock.
func TestUndoEnds(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.policy.Rungs = map[falcon.Rung]falcon.RungPolicy{falcon.RungS2: {Undo: 600}}
		b.start()
		a, err := b.decideOn(tester, b.proposed(), true, "")
		if err != nil {
			b.t.Fatal(err)
		}
		time.Sleep(time.Until(time.Unix(0, a.GetDeadlineUnixNs())) - 2*time.Second)
		if got := b.action(); got.GetState() != string(falcon.ActionApproved) {
			b.t.Errorf("before its time: %v", got)
		}
		time.Sleep(5 * time.Second)
		if got := b.action(); got.GetState() != string(falcon.ActionDispatched) ||
			got.GetDeadlineUnixNs() != 0 {
			b.t.Errorf("after its time: %v", got)
		}
		if _, err := b.decideOn(jon, a, false, ""); !errors.Is(err, ErrStale) ||
			!strings.Contains(err.Error(), "dispatched now") {
			b.t.Errorf("withdrawn too late: %v", err)
		}
	})
}

// Two people, over a restart: the second can't be the first, and only then
// anything is ordered.
func TestSecondApproverOverARestart(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.policy.Rungs = map[falcon.Rung]falcon.RungPolicy{falcon.RungS2: {Second: true}}
		b.start()
		a, err := b.decideOn(tester, b.proposed(), true, "plain")
		if err != nil ||
			a.GetState() != string(falcon.ActionProposed) ||
			a.GetDecidedBy() != "" ||
			len(a.GetApprovals()) != 1 {
			b.t.Fatalf("the first: %v, %v", a, err)
		}
		first := a.GetApprovals()[0]
		if first.GetBy() != "tester" ||
			first.GetFrom() != "test" ||
			first.GetReason() != "plain" ||
			first.GetUnixNs() == 0 {
			b.t.Errorf("the first: %v", first)
		}
		b.again()
		if _, err := b.decideOn(tester, a, true, ""); !errors.Is(err, ErrStale) ||
			!strings.Contains(err.Error(), "somebody else has to approve it, too") {
			b.t.Errorf("the same person again: %v", err)
		}
		if got := b.action(); got.GetState() != string(falcon.ActionProposed) || len(b.job.commits) != 0 {
			b.t.Errorf("on one approval: %v", got)
		}
		a, err = b.decideOn(jon, b.action(), true, "agreed")
		if err != nil ||
			a.GetState() != string(falcon.ActionDispatched) ||
			a.GetDecidedBy() != "jon" ||
			len(a.GetApprovals()) != 2 {
			b.t.Errorf("the second: %v, %v", a, err)
		}
		if got := b.auditLines(a); got != "tester: approve (1 of 2), jon: approve (2 of 2)" {
			b.t.Errorf("audit: %s", got)
		}
	})
}
