package decision

import (
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/page"
)

// Test asks whether to hold the job and test GPUs or links.
type Test struct {
	general
	Test *falconv1.ValidateRequest
}

// Stale implements Question: one test holds the job at a time.
func (*Test) Stale(live *page.State) string {
	if v := live.Snap().GetValidation(); page.Underway(v) {
		return v.Id + " is in progress"
	}
	return ""
}

// Request implements Question.
func (q *Test) Request(Typed) Request { return Request{Validate: q.Test} }
