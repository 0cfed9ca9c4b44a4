package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// What is in force is taken back by hand, with who and why in the audit, over a restart of the
// engine; the decision that brought it into force stays on record.
func TestUndoByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		a := b.proposed()
		undo := func(q *falconv1.DecideRequest) (*falconv1.Action, error) {
			q.Undo = true
			q.Incident = a.GetIncident()
			return b.engine.Decide(context.Background(), jon, q)
		}
		if _, err := undo(&falconv1.DecideRequest{}); !errors.Is(err, ErrStale) ||
			!strings.Contains(err.Error(), "nothing is in force") {
			t.Fatalf("undone before it was in force: %v", err)
		}
		if _, err := b.decideOn(jon, a, true, "go on"); err != nil {
			t.Fatal(err)
		}
		for b.action().GetState() != string(falcon.ActionKept) && b.job.iteration < slowUntil {
			b.turn()
		}
		if _, err := undo(&falconv1.DecideRequest{Rung: "S3"}); !errors.Is(err, ErrStale) {
			t.Errorf("S3 is undone: %v", err)
		}
		if _, err := undo(&falconv1.DecideRequest{JobEpoch: 99}); !errors.Is(err, ErrStale) {
			t.Errorf("undone in another job epoch: %v", err)
		}
		got, err := undo(&falconv1.DecideRequest{
			Action:   a.GetId(),
			PlanHash: a.GetPlanHash(),
			Reason:   "fan\x1b[31m repaired",
		})
		if err != nil {
			t.Fatal(err)
		}
		if got.GetState() != string(falcon.ActionReverting) ||
			got.GetRevertReason() != "undone by jon: fan[31m repaired" {
			t.Errorf("%v", got)
		}
		b.again()
		for b.action().GetState() != string(falcon.ActionReverted) && b.job.iteration < slowUntil {
			b.turn()
		}
		last := b.action()
		if last.GetId() != a.GetId() ||
			last.GetState() != string(falcon.ActionReverted) ||
			last.GetDecidedBy() != "jon" ||
			last.GetRevertedUnixNs() <= last.GetAppliedUnixNs() ||
			last.GetAppliedUnixNs() <= last.GetProposedUnixNs() {
			t.Errorf("%v", last)
		}
		if text := b.auditLines(a); !strings.Contains(text, "undo") {
			t.Errorf("the audit has %s", text)
		}
		b.inLoop(func() {
			d := b.engine.state.decisions[a.GetId()]
			if !d.Approve || d.Verb != "" {
				t.Errorf("the decision on record is %+v", d)
			}
		})
		if _, err := undo(&falconv1.DecideRequest{}); !errors.Is(err, ErrStale) {
			t.Errorf("undone twice: %v", err)
		}
		b.onceEach()
	})
}
