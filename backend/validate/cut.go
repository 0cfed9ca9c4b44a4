package validate

import (
	"fmt"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// holdPlan is a consistent boundary: where every rank stops.
type holdPlan struct {
	boundary int64
	waitMs   float64 // until the last rank is there, at its present pace
	cuts     []*falconv1.RankCut
}

// planCuts finds the boundary `margin` iterations after the newest one and counts
// for every rank and communicator the calls before it. The answer is a reason
// instead where the counts of the ranks do not fit together: a rank that is
// missing or unsteady, a communicator whose members call it unequally often, a
// message that is sent and not received.
func planCuts(members []Member, survey map[falcon.Rank]*falconv1.RankPause, margin int64) (holdPlan, string) {
	plan := holdPlan{boundary: -1}
	exact := true
	for r := range members {
		p := survey[falcon.Rank(r)]
		if why := checkRank(r, p); why != "" {
			return plan, why
		}
		plan.boundary = max(plan.boundary, p.GetNewest()+margin)
		exact = exact && p.GetExact()
	}
	if why := checkSpread(members, survey); why != "" {
		return plan, why
	}
	t := callTable{
		members:  members,
		survey:   survey,
		boundary: plan.boundary,
		exact:    exact,
		counts:   map[commSeat]*falconv1.CommCount{},
	}
	if why := t.seatRanks(); why != "" {
		return plan, why
	}
	if why := t.checkComms(); why != "" {
		return plan, why
	}
	for r := range members {
		p := survey[falcon.Rank(r)]
		if why := t.checkReach(r, p); why != "" {
			return plan, why
		}
		plan.cuts = append(plan.cuts, t.rankCut(r, p))
		plan.waitMs = max(plan.waitMs, float64(plan.boundary-p.GetNewest())*p.GetIterationMs())
	}
	return plan, ""
}

// checkRank is why a rank alone can't be held, empty when it can.
func checkRank(r int, p *falconv1.RankPause) string {
	switch {
	case p == nil:
		return fmt.Sprintf("rank %d is missing in its node's answer", r)
	case p.GetState() != falconv1.PauseState_PAUSE_STATE_RUNNING:
		reason := p.GetReason()
		if reason == "" {
			reason = "it is held already"
		}
		return fmt.Sprintf("rank %d: %s", r, reason)
	case p.GetBoundary() < 0 || p.GetNewest() < p.GetBoundary():
		return fmt.Sprintf("rank %d has not begun an iteration that can be counted", r)
	}
	for _, c := range p.GetCounts() {
		if !c.GetSteady() {
			return fmt.Sprintf(
				"rank %d calls communicator %016x unequally often over its last three iterations",
				r, c.GetComm(),
			)
		}
	}
	return ""
}

// checkSpread requires all ranks to be near one iteration, as synchronous training
// keeps them: one wrong report would put the boundary where no rank arrives.
func checkSpread(members []Member, survey map[falcon.Rank]*falconv1.RankPause) string {
	first, last := 0, 0
	at := func(r int) int64 { return survey[falcon.Rank(r)].GetNewest() }
	for r := range members {
		if at(r) < at(first) {
			first = r
		}
		if at(r) > at(last) {
			last = r
		}
	}
	if at(last)-at(first) > apartMost {
		return fmt.Sprintf("rank %d reports iteration %d and rank %d iteration %d",
			first, at(first), last, at(last))
	}
	return ""
}

// checkReach refuses a cut that is more calls ahead than a gate's counter can
// distinguish.
func (t *callTable) checkReach(r int, p *falconv1.RankPause) string {
	for _, c := range p.GetCounts() {
		if n := c.GetPerIteration() * t.iterationsAhead(r); n > aheadMost {
			return fmt.Sprintf(
				"the cut of rank %d on communicator %016x is %d calls ahead of what it counted, at most %d can be expressed",
				r, c.GetComm(), n, aheadMost,
			)
		}
	}
	return ""
}

// commSeat is one member of a communicator.
type commSeat struct {
	comm uint64
	seat int
}

// group is a communicator with the ranks in its seats.
type group struct {
	size  int
	ranks map[int]int // seat to rank
}

// callTable is the survey by communicator and seat.
type callTable struct {
	members  []Member
	survey   map[falcon.Rank]*falconv1.RankPause
	boundary int64
	exact    bool
	groups   map[uint64]*group
	ids      []uint64 // in the order in which ranks name them
	counts   map[commSeat]*falconv1.CommCount
}

// seatRanks puts the ranks into their seats; a communicator that counts calls and that no agent has
// described can't be checked.
func (t *callTable) seatRanks() string {
	t.groups = map[uint64]*group{}
	for r, m := range t.members {
		seats := map[uint64]int{}
		for _, c := range m.Comms {
			t.addMember(r, c)
			seats[c.ID] = c.RankInComm
		}
		for _, c := range t.survey[falcon.Rank(r)].GetCounts() {
			seat, known := seats[c.GetComm()]
			if !known {
				return fmt.Sprintf("rank %d has a communicator (%016x) that its agent has not described yet",
					r, c.GetComm())
			}
			t.counts[commSeat{c.GetComm(), seat}] = c
		}
	}
	return ""
}

func (t *callTable) addMember(r int, c falcon.Comm) {
	g := t.groups[c.ID]
	if g == nil {
		g = &group{size: c.Size, ranks: map[int]int{}}
		t.groups[c.ID] = g
		t.ids = append(t.ids, c.ID)
	}
	if g.size != c.Size {
		g.size = 0 // its members disagree: no number of seats is right
	}
	g.ranks[c.RankInComm] = r
}

// checkComms compares all members of every communicator.
func (t *callTable) checkComms() string {
	for _, id := range t.ids {
		g := t.groups[id]
		if why := t.checkSeats(id, g); why != "" {
			return why
		}
		for seat := range g.size {
			if why := t.compareCollectives(id, g, seat); why != "" {
				return why
			}
			if why := t.compareMessages(id, g, seat); why != "" {
				return why
			}
		}
	}
	return ""
}

// checkSeats requires every seat to be taken: a member that is not a rank of this
// job, or that is described wrongly, can't be checked.
func (t *callTable) checkSeats(id uint64, g *group) string {
	if g.size < len(g.ranks) {
		return fmt.Sprintf("the members of communicator %016x disagree about its size", id)
	}
	for seat := range g.size {
		if _, known := g.ranks[seat]; !known {
			return fmt.Sprintf("member %d of communicator %016x is no rank of this job", seat, id)
		}
	}
	return ""
}

// compareCollectives compares a seat with seat 0: as many collectives in an
// iteration, and where all calls were seen, as many up to the boundary. Ranks
// whose boundaries are inferred may mean different points of the iteration by
// them, and only equal counts from the start prove that they don't.
func (t *callTable) compareCollectives(id uint64, g *group, seat int) string {
	a := t.counts[commSeat{id, 0}]
	b := t.counts[commSeat{id, seat}]
	ra, rb := g.ranks[0], g.ranks[seat]
	if x, y := a.GetCollectivesPerIteration(), b.GetCollectivesPerIteration(); x != y {
		return fmt.Sprintf(
			"rank %d does %d collectives an iteration on communicator %016x and rank %d does %d",
			ra, x, id, rb, y,
		)
	}
	if !a.GetWhole() || !b.GetWhole() {
		if why := t.requireWhole(id, g, seat, b); why != "" {
			return why
		}
		return t.requireWhole(id, g, 0, a)
	}
	x := t.countAtBoundary(ra, a.GetCollectives(), a.GetCollectivesPerIteration())
	y := t.countAtBoundary(rb, b.GetCollectives(), b.GetCollectivesPerIteration())
	if x != y {
		return fmt.Sprintf(
			"at iteration %d rank %d will have done %d collectives on communicator %016x and rank %d %d",
			t.boundary, ra, x, id, rb, y,
		)
	}
	return ""
}

// requireWhole refuses a member whose boundary is inferred and whose calls were not
// all seen; with exact marks on all ranks iterations alone are proof enough.
func (t *callTable) requireWhole(id uint64, g *group, seat int, c *falconv1.CommCount) string {
	if t.exact || c.GetWhole() || c.GetPerIteration() == 0 {
		return ""
	}
	return fmt.Sprintf(
		"rank %d marks no steps, and its calls on communicator %016x were not seen from the start",
		g.ranks[seat], id,
	)
}

// compareMessages compares what a seat sends with what its peers receive from it, and
// the other way.
func (t *callTable) compareMessages(id uint64, g *group, seat int) string {
	c := t.counts[commSeat{id, seat}]
	for _, p := range c.GetPeers() {
		peer := int(p.GetPeer())
		if peer < 0 || peer >= g.size {
			return fmt.Sprintf("rank %d names member %d of communicator %016x, which has %d",
				g.ranks[seat], peer, id, g.size)
		}
		other := t.counts[commSeat{id, peer}]
		back := peerOf(other, seat)
		from, to := g.ranks[seat], g.ranks[peer]
		if why := t.compareFlow(
			from,
			to,
			c,
			other,
			p.GetSendsPerIteration(),
			back.GetRecvsPerIteration(),
			p.GetSends(),
			back.GetRecvs(),
		); why != "" {
			return why
		}
		if why := t.compareFlow(
			to,
			from,
			other,
			c,
			back.GetSendsPerIteration(),
			p.GetRecvsPerIteration(),
			back.GetSends(),
			p.GetRecvs(),
		); why != "" {
			return why
		}
	}
	return ""
}

// compareFlow compares one direction: sends of one rank and receives of the other.
func (t *callTable) compareFlow(
	from, to int,
	out, in *falconv1.CommCount,
	sends, recvs, sent, received uint64,
) string {
	if sends != recvs {
		return fmt.Sprintf("rank %d sends %d messages an iteration to rank %d, which receives %d",
			from, sends, to, recvs)
	}
	if !out.GetWhole() || !in.GetWhole() {
		return ""
	}
	if x, y := t.countAtBoundary(from, sent, sends), t.countAtBoundary(to, received, recvs); x != y {
		return fmt.Sprintf(
			"at iteration %d rank %d will have sent %d messages to rank %d, which will have received %d",
			t.boundary, from, x, to, y,
		)
	}
	return ""
}

func peerOf(c *falconv1.CommCount, seat int) *falconv1.PeerCount {
	for _, p := range c.GetPeers() {
		if int(p.GetPeer()) == seat {
			return p
		}
	}
	return nil
}

// countAtBoundary is a count carried on from the rank's own boundary to the common one.
func (t *callTable) countAtBoundary(r int, count, perIteration uint64) uint64 {
	return count + perIteration*t.iterationsAhead(r)
}

func (t *callTable) iterationsAhead(r int) uint64 {
	return uint64(t.boundary - t.survey[falcon.Rank(r)].GetBoundary())
}

func (t *callTable) rankCut(r int, p *falconv1.RankPause) *falconv1.RankCut {
	out := &falconv1.RankCut{Rank: int32(r), Iteration: t.boundary}
	for _, c := range p.GetCounts() {
		out.Limits = append(out.Limits, &falconv1.CommLimit{
			Comm:  c.GetComm(),
			Calls: t.countAtBoundary(r, c.GetCalls(), c.GetPerIteration()),
		})
	}
	return out
}
