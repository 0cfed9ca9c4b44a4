package decision

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/page"
)

// Verb is a decision on a recovery, or a demand without one, as the engine takes it.
type Verb string

// The verbs.
const (
	VerbApprove Verb = "approve"
	VerbDeny    Verb = "deny"
	VerbAbort   Verb = "abort"
	VerbEnded   Verb = "ended"
	VerbFence   Verb = "fence"
	VerbRenew   Verb = "renew"
	VerbLift    Verb = "lift"
	VerbBar     Verb = "bar"
	VerbUnbar   Verb = "unbar"
)

// EndedWord is what is typed to state that a job's processes have ended.
const EndedWord = "ENDED"

// Recovery asks whether to approve, deny or abort a recovery, or for the statement that
// nothing of the job runs on the nodes that are given up.
type Recovery struct {
	general
	Verb     Verb
	Recovery *falconv1.Recovery // as it was shown
}

// Subject implements Question.
func (q *Recovery) Subject() string { return q.Recovery.Id }

// Stale implements Question.
func (q *Recovery) Stale(live *page.State) string {
	now := live.Recovering()
	switch {
	case now.GetId() != q.Recovery.Id:
		return q.Recovery.Id + " is no longer in progress; close and look again"
	case now.PlanHash != q.Recovery.PlanHash:
		return planChanged
	case q.Verb == VerbAbort && now.NoReturn:
		return "too late: the ranks were ordered to rejoin"
	case q.Verb == VerbEnded && !now.AwaitsProof:
		return "a proof has come, or it waits for none any more"
	case q.Verb != VerbAbort && now.State != q.Recovery.State:
		return "it is no longer proposed; close and look again"
	}
	return ""
}

// Entry implements Question.
func (q *Recovery) Entry() Entry {
	switch q.Verb {
	case VerbApprove:
		return Entry{}
	case VerbEnded:
		return Entry{
			Word:   EndedWord,
			What:   "the word " + EndedWord,
			Reason: MustReason,
		}
	default:
		return Entry{Reason: MayReason}
	}
}

// Request implements Question.
func (q *Recovery) Request(t Typed) Request {
	return Request{Recover: &falconv1.RecoverRequest{
		Verb:     string(q.Verb),
		Recovery: q.Recovery.Id,
		PlanHash: q.Recovery.PlanHash,
		Reason:   boundedReason(t.Reason),
	}}
}

// Demand asks whether to fence a node, to replace a rank's process or to lift a
// fence: no fault asks for it, so it needs a reason.
type Demand struct {
	general
	Verb  Verb
	Node  string
	Ranks []int32 // fence: what was on the node; renew: the rank

	Long   time.Duration // bar
	Anyway bool          // bar: also where no spare is left then
}

// newDemand is what a name means now, or why it means nothing.
func newDemand(live *page.State, verb Verb, name string) (*Demand, string) {
	q := &Demand{Verb: verb, Node: name}
	switch verb {
	case VerbRenew:
		n, err := strconv.Atoi(name)
		if err != nil || n < 0 || n >= live.Roster.World() {
			return nil, fmt.Sprintf("renew takes a rank from 0 to %d and the reason", live.Roster.World()-1)
		}
		q.Ranks, q.Node = []int32{int32(n)}, live.NodeOf(int32(n))
	case VerbFence:
		q.Ranks = live.RanksOn(name)
		if len(q.Ranks) == 0 {
			return nil, "no rank of the job is on node " + strconv.Quote(name)
		}
	case VerbApprove, VerbDeny, VerbAbort, VerbEnded, VerbLift, VerbBar, VerbUnbar:
	}
	return q, ""
}

// Subject implements Question.
func (q *Demand) Subject() string {
	return string(q.Verb) + " " + q.Node
}

// Stale implements Question: a node or rank is not what it was.
func (q *Demand) Stale(live *page.State) string {
	if len(q.Ranks) == 0 {
		return ""
	}
	rank := q.Ranks[0]
	if q.Verb == VerbRenew && (int(rank) >= live.Roster.World() || live.NodeOf(rank) != q.Node) ||
		q.Verb == VerbFence && !slices.Equal(live.RanksOn(q.Node), q.Ranks) {
		return "the ranks have changed places since this dialog opened; close and look again"
	}
	return ""
}

// Entry implements Question.
func (*Demand) Entry() Entry { return Entry{Reason: MustReason} }

// Request implements Question.
func (q *Demand) Request(t Typed) Request {
	r := &falconv1.RecoverRequest{
		Verb:   string(q.Verb),
		Reason: boundedReason(t.Reason),
		ForNs:  q.Long.Nanoseconds(),
		Anyway: q.Anyway,
	}
	if q.Verb == VerbRenew {
		r.Rank = q.Ranks[0]
	} else {
		r.Node = q.Node
	}
	return Request{Recover: r}
}
