package decision

import (
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/page"
)

// Freeze asks whether nothing new is to be dispatched, for everybody.
type Freeze struct{ ofPolicy }

// Stale implements Question.
func (*Freeze) Stale(live *page.State) string {
	if live.Snap().GetPolicy().GetFrozen() {
		return "actions are frozen already"
	}
	return ""
}

// Request implements Question.
func (*Freeze) Request(Typed) Request { return Request{Freeze: true} }

// EndTest asks whether to end a validation that holds the job.
type EndTest struct {
	general
	ID string
}

// Stale implements Question. The engine may have answered with a test that is in no snapshot yet.
func (q *EndTest) Stale(live *page.State) string {
	v := live.Snap().GetValidation()
	if v.GetId() == q.ID && !page.Underway(v) {
		return q.ID + " has ended"
	}
	return ""
}

// Request implements Question.
func (q *EndTest) Request(Typed) Request {
	return Request{Validate: &falconv1.ValidateRequest{Cancel: q.ID}}
}
