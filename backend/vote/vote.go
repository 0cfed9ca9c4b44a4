// Package vote decides what has become of an order on which the ranks vote at an
// iteration boundary.
//
// It guarantees that an order holds once any rank has taken it, as the vote is the
// commit: what is missing then are acknowledgements, never agreement. An order of
// another job epoch never holds, and one that no rank has taken ends as soon as a
// node refuses to deliver it, a rank is gone, or its time is up. What most ranks
// name counts, so that one rank that is wrong about itself changes nothing.
//
// A vote is a value: time and what is seen of the job are arguments; there is no I/O
// and no goroutine. It must not decide who may vote: reports of processes that do
// not count are its owner's to leave out, and texts and times from agents its
// owner's to clean.
package vote

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Wait is how long after its deadline an order's vote is waited for at least: it
// comes at the next iteration boundary.
const Wait = 30 * time.Second

// placedWait is how long the acknowledgements of a placement may be missing
// after every process has announced its new rank: they carry the steps' times.
const placedWait = 3 * time.Second

// First is what the first rank has reported of its vote, as journals keep it: the
// order holds, whatever else of the vote gets lost.
type First struct {
	Order     uint64      `json:"order"`
	Rank      falcon.Rank `json:"rank"`
	Iteration int64       `json:"iteration"`
	Status    int32       `json:"status,omitempty"`
	Resume    int64       `json:"resume_iteration,omitempty"`
}

// Outcome ends an order, as journals keep it.
type Outcome struct {
	Order     uint64 `json:"order"`
	Iteration int64  `json:"iteration"`
	Status    int32  `json:"status"`
	Failed    string `json:"failed,omitempty"` // why it can't take effect any more

	Kind   falcon.OrderKind `json:"kind,omitempty"`
	Swap   *falcon.Swap     `json:"swap,omitempty"`             // placements
	Resume int64            `json:"resume_iteration,omitempty"` // checkpoints
}

// Vote is what is known of one order's vote.
type Vote struct {
	order       falcon.Order
	recorded    bool // the first vote is in the journal
	acks        map[falcon.Rank]*falconv1.RankAck
	announced   map[falcon.Rank]*falconv1.RankAck // what processes report of themselves; see Announce
	announcedAt time.Time                         // newest of them
	refused     map[falcon.Node]string            // nodes that will not deliver it, and why
}

// New begins the vote on an order; first is what a journal has of it, nil = nothing.
func New(o falcon.Order, first *First) *Vote {
	v := &Vote{
		order:     o,
		recorded:  first != nil,
		acks:      map[falcon.Rank]*falconv1.RankAck{},
		announced: map[falcon.Rank]*falconv1.RankAck{},
		refused:   map[falcon.Node]string{},
	}
	if first != nil {
		v.announced[first.Rank] = &falconv1.RankAck{
			Rank:            int32(first.Rank),
			NowRank:         int32(first.Rank),
			Order:           first.Order,
			Iteration:       first.Iteration,
			Status:          first.Status,
			ResumeIteration: first.Resume,
		}
	}
	return v
}

// Answer takes a node's answer to the order.
func (v *Vote) Answer(node falcon.Node, in *falconv1.CommandResult) {
	for _, a := range in.GetRanks() {
		if a.GetOrder() == v.order.ID {
			v.acks[falcon.Rank(a.GetRank())] = a
		}
	}
	switch in.GetStatus() {
	case falconv1.CommandStatus_COMMAND_STATUS_REFUSED, falconv1.CommandStatus_COMMAND_STATUS_EXPIRED:
		v.refused[node] = in.GetDetail()
	case falconv1.CommandStatus_COMMAND_STATUS_DONE, falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED:
		delete(v.refused, node)
	}
}

// Announce takes what a process's own state says of its vote, of a placement the
// new rank. An acknowledgement has more and is preferred; but it can be lost with
// the agent, and the state can't.
func (v *Vote) Announce(now time.Time, r falcon.Rank, state, next *falconv1.RankState) {
	if v.announced[r] != nil {
		return
	}
	ack := &falconv1.RankAck{Rank: int32(r), Order: v.order.ID}
	if v.order.Kind == falcon.OrderPlacement {
		if next == nil || next.GetPlacementOrder() != v.order.ID {
			return
		}
		ack.Iteration = next.GetPlacementIteration()
		ack.NowRank = next.GetRank()
	} else {
		c := state.GetCommitted()
		if c.GetOrder() != v.order.ID {
			return
		}
		ack.Iteration = c.GetIteration()
		ack.Status = c.GetStatus()
		ack.NowRank = int32(r)
		ack.ResumeIteration = c.GetResumeIteration()
	}
	v.announced[r], v.announcedAt = ack, now
}

// TakeFirst is the first vote known, where it is in no journal yet; nil otherwise.
func (v *Vote) TakeFirst() *First {
	if v.recorded || v.Taken() == 0 {
		return nil
	}
	known := v.known()
	r := slices.Min(slices.Collect(maps.Keys(known)))
	a := known[r]
	v.recorded = true
	return &First{
		Order:     v.order.ID,
		Rank:      r,
		Iteration: a.GetIteration(),
		Status:    a.GetStatus(),
		Resume:    a.GetResumeIteration(),
	}
}

// Taken counts the ranks that have taken the order, by their acknowledgement or by
// what they announce.
func (v *Vote) Taken() int {
	n := len(v.acks)
	for r := range v.announced {
		if v.acks[r] == nil {
			n++
		}
	}
	return n
}

// known are the votes of all of them.
func (v *Vote) known() map[falcon.Rank]*falconv1.RankAck {
	out := make(map[falcon.Rank]*falconv1.RankAck, v.Taken())
	maps.Copy(out, v.announced)
	maps.Copy(out, v.acks)
	return out
}

// Situation is what is seen of the job while a vote is waited for.
type Situation struct {
	JobEpoch uint64
	World    int       // ranks
	Deadline time.Time // of the order's delivery
	Quiet    time.Time // until then no rank may have answered yet: the engine has just started
	Patience time.Duration
	Gone     string // a rank that has ended before any took the order, "" = none
	Left     bool   // no process is left that could acknowledge it
}

// Outcome judges the order; false while its vote is waited for.
func (v *Vote) Outcome(now time.Time, at Situation) (Outcome, bool) {
	wait := max(Wait, at.Patience)
	late := now.After(at.Deadline.Add(wait)) && now.After(at.Quiet)
	taken := v.Taken()
	switch {
	case v.order.Epoch != at.JobEpoch:
		return v.Failed(fmt.Sprintf("it was made for job epoch %d and this is epoch %d",
			v.order.Epoch, at.JobEpoch)), true
	case at.World > 0 && len(v.acks) >= at.World:
		return v.Agreed(), true
	case at.World > 0 && taken >= at.World && now.Sub(v.announcedAt) >= placedWait:
		return v.Agreed(), true // all announce what the order leads to
	case taken > 0 && (late || at.Left):
		return v.Agreed(), true // all have voted; some agents are gone with the acknowledgements
	case taken > 0:
	case len(v.refused) > 0:
		first := slices.Min(slices.Collect(maps.Keys(v.refused)))
		return v.Failed(fmt.Sprintf("node %s does not deliver it: %s", first, v.refused[first])), true
	case at.Gone != "":
		return v.Failed(at.Gone), true
	case late:
		return v.Failed(fmt.Sprintf("no rank had taken it %s after its deadline", wait)), true
	}
	return v.Failed(""), false
}

// Failed is the outcome of an order that can't take effect.
func (v *Vote) Failed(why string) Outcome {
	return Outcome{
		Order:     v.order.ID,
		Kind:      v.order.Kind,
		Iteration: falcon.NoIteration,
		Failed:    why,
	}
}

// Agreed is what most ranks name: all of them voted for one iteration and one
// status, so a rank that names another one is wrong about itself.
func (v *Vote) Agreed() Outcome {
	out := v.Failed("")
	iterations := map[int64]int{}
	statuses := map[int32]int{}
	resumes := map[int64]int{}
	known := v.known()
	for _, a := range known {
		iterations[a.GetIteration()]++
		statuses[a.GetStatus()]++
		resumes[a.GetResumeIteration()]++
	}
	out.Iteration = mostCommon(iterations, falcon.NoIteration)
	out.Status = mostCommon(statuses, 0)
	out.Resume = mostCommon(resumes, 0)
	keys := slices.Sorted(maps.Keys(iterations))
	if len(known) > 0 && 2*iterations[out.Iteration] <= len(known) {
		out.Failed = fmt.Sprintf(
			"the ranks disagree: it holds from iteration %d on one and from %d on another",
			keys[0], keys[len(keys)-1],
		)
	}
	if v.order.Kind == falcon.OrderPlacement && out.Status == 0 && out.Failed == "" {
		out.Swap = v.swap()
	}
	return out
}

// mostCommon is the key with the largest count, the smallest of several.
func mostCommon[K cmp.Ordered](count map[K]int, none K) K {
	best := none
	for _, k := range slices.Sorted(maps.Keys(count)) {
		if count[k] > count[best] {
			best = k
		}
	}
	return best
}

// swap sums a placement up: the steps of the slowest rank, the bytes of all.
func (v *Vote) swap() *falcon.Swap {
	out := &falcon.Swap{}
	slowest := -1.0
	for _, r := range slices.Sorted(maps.Keys(v.acks)) {
		a := v.acks[r]
		out.MovedMB += float64(a.GetMovedBytes()) / 1e6
		var steps [4]float64
		total := 0.0
		for i := range copy(steps[:], a.GetStepMs()) {
			total += steps[i]
		}
		if total > slowest {
			out.StepMs, slowest = steps, total
		}
	}
	return out
}
