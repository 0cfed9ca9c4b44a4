package plain

import (
	"testing"

	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

// approvedBy is a moment at which somebody has approved S3.
func approvedBy(t *testing.T, o enginetest.Options, by string) *enginetest.Engine {
	t.Helper()
	o.Rung = "S3"
	e := enginetest.New(o)
	e.AdvanceTo(enginetest.Proposed + 2)
	e.Elsewhere(true, by, "worn")
	return e
}

// What is approved can be withdrawn by number, and not approved again; a
// question that was open for the proposal is withdrawn and asked again.
func TestWithdrawingByNumber(t *testing.T) {
	e := enginetest.New(enginetest.Options{Rung: "S3", Undo: 600})
	e.AdvanceTo(enginetest.Proposed + 2)
	x := sitAt(t, picture(t, e))
	x.said("DECISION NEEDED: S3")
	x.types("1")
	x.said("it goes out 10 min later, and can be withdrawn until then", "type yes to approve")
	e.Elsewhere(true, "li", "")
	x.show(picture(t, e))
	x.said(
		"question withdrawn: INC-0001/S3/1 is approved by li, acts in",
		"S3 (change topology) for INC-0001, plan 77e1b0c3, is approved by li, acts in",
		"2) withdraw it  3) show evidence",
	)
	if r := x.types("yes"); r != nil {
		t.Errorf("the answer to the old question sent %v", r)
	}
	if r := x.types("1"); r != nil {
		t.Errorf("approved again: %v", r)
	}
	x.said("you can't approve that now")
	x.types("2")
	x.said("reason for the withdrawal?")
	r := x.types("in use")
	want := &falconv1.DecideRequest{
		Incident: "INC-0001",
		Action:   "INC-0001/S3/1",
		PlanHash: "77e1b0c3",
		JobEpoch: 1,
		Reason:   "in use",
	}
	if r == nil || !proto.Equal(r.Decide, want) {
		t.Errorf("sent %v", r)
	}
}

// The second approver answers as the first did; the first can only veto.
func TestSecondApproverByNumber(t *testing.T) {
	x := sitAt(t, picture(t, approvedBy(t, enginetest.Options{Two: true}, "li")))
	x.said("DECISION NEEDED: S3", "approved by li, waits for a second approver", "1) approve")
	x.types("1")
	if r := x.types("yes"); r == nil || !r.Decide.GetApprove() {
		t.Errorf("sent %v", r)
	}
	x = sitAt(t, picture(t, approvedBy(t, enginetest.Options{Two: true}, "maria")))
	x.said("is approved by maria, waits for a second approver",
		"another person has to approve it, too: 2) veto")
	for _, l := range []string{"1", "yes"} {
		if r := x.types(l); r != nil {
			t.Errorf("%q by the first approver sent %v", l, r)
		}
	}
	x.types("2")
	if r := x.types("-"); r == nil || r.Decide.GetApprove() {
		t.Errorf("the veto: %v", r)
	}
}

// The stream tells each approval once.
func TestApprovalsInTheStream(t *testing.T) {
	e := enginetest.New(enginetest.Options{Rung: "S3", Undo: 10, Two: true})
	e.AdvanceTo(enginetest.Proposed + 2)
	d := newDiff()
	d.linesOf(picture(t, e))
	tell := func() string {
		out := ""
		for _, l := range d.linesOf(picture(t, e)) {
			out += l + "\n"
		}
		return out
	}
	for _, c := range []struct {
		do   func()
		want string
	}{
		{
			func() { e.Elsewhere(true, "li", "") },
			"S3 (change topology) approved by li, waits for a second approver\n",
		},
		{
			func() { e.Elsewhere(true, "zoe", "") },
			"S3 (change topology) approved by li and zoe, acts at 14:00:25Z unless it is withdrawn\n",
		},
		{
			func() { e.Elsewhere(false, "li", "in use") },
			"S3 (change topology), approved by li and zoe, withdrawn by li: in use\n",
		},
	} {
		c.do()
		want := "[iteration 52] INC-0001: " + c.want
		got := tell()
		for i := range got {
			if got[i:] == want {
				got = want
				break
			}
		}
		if got != want {
			t.Errorf("printed %q, want %q", got, want)
		}
	}
}
