package decision

import (
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// Take asks whether to take a rung now, whatever policy would propose.
type Take struct {
	Rung    *falconv1.RungView // as it was shown
	Verdict *falconv1.Verdict
	Opened  time.Time // when it was asked
	about   string    // incident
	epoch   uint64
	word    string
}

// Subject implements Question.
func (q *Take) Subject() string {
	return q.about + "/" + phrase.RungName(q.Rung)
}

// Incident implements Question.
func (q *Take) Incident() string { return q.about }

// Now is the rung as the newest state has it, or nil.
func (q *Take) Now(live *page.State) *falconv1.RungView {
	for _, g := range live.LadderOf(q.about).GetRungs() {
		if g.Rung == q.Rung.Rung && g.Variant == q.Rung.Variant {
			return g
		}
	}
	return nil
}

// Stale implements Question.
func (q *Take) Stale(live *page.State) string {
	if _, open := live.About(q.about); !open {
		return q.about + " is no longer open; close and look again"
	}
	if why := otherEpoch(live, q.epoch); why != "" {
		return why
	}
	g := q.Now(live)
	switch {
	case g == nil:
		return "the rung is gone; close and look again"
	case g.Current:
		return q.takenByOther(live) + "it is in force now"
	case !g.Applicable:
		return "it can't be taken any more: " + g.Reason
	case g.PlanHash != q.Rung.PlanHash:
		return planChanged
	}
	return ""
}

// takenByOther names who took the rung since the question was asked.
func (q *Take) takenByOther(live *page.State) string {
	for _, a := range live.LadderOf(q.about).GetActions() {
		if a.Rung == q.Rung.Rung &&
			a.Variant == q.Rung.Variant &&
			a.DecidedUnixNs > q.Opened.UnixNano() {
			return decidedText(a) + "; "
		}
	}
	return ""
}

// Entry implements Question.
func (q *Take) Entry() Entry { return restartEntry(q.word) }

// Request implements Question.
func (q *Take) Request(t Typed) Request {
	return Request{Decide: &falconv1.DecideRequest{
		Incident: q.about,
		Rung:     q.Rung.Rung,
		Variant:  q.Rung.Variant,
		PlanHash: q.Rung.PlanHash,
		Approve:  true,
		JobEpoch: q.epoch,
		Reason:   boundedReason(t.Reason),
	}}
}
