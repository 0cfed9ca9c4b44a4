package learn

import "github.com/failslow/falcon"

// Several processes may claim one rank: the one that has it, and those that it has replaced, whose
// end nobody has seen. Those that train in a generation have all rejoined it, or were launched after
// it. A process that was only ordered into that generation may be about to rejoin, or was given up on
// the way: it has the rank only if the others do not go on without it.

// claims is who claims which rank.
type claims struct {
	ranks  map[falcon.Rank]claim
	trains uint64 // the newest generation that a process has rejoined
	begun  map[seat]int64
	goesOn bool // iterations begin
}

// claim is the most that was seen of a rank's processes.
type claim struct{ generation, launch, rejoined, alive uint64 } // alive: launch of the newest that lives

// seat is a rank on a node.
type seat struct {
	node falcon.Node
	rank falcon.Rank
}

// goesOnAfter is how many iterations a rank must begin to show that the job trains: one begins
// without the others.
const goesOnAfter = 2

func newClaims() claims { return claims{ranks: map[falcon.Rank]claim{}, begun: map[seat]int64{}} }

// add enters a process; it reports whether the rank was claimed before.
func (c *claims) add(r Rank) bool {
	was, known := c.ranks[r.Rank]
	was.generation, was.launch, was.rejoined = max(was.generation, r.Generation), max(was.launch, r.Launch), max(was.rejoined, r.Rejoined)
	if r.Alive {
		was.alive = max(was.alive, r.Launch)
	}
	c.ranks[r.Rank] = was
	if r.Rejoined < NumberMost {
		c.trains = max(c.trains, r.Rejoined)
	}
	return known
}

// beat enters the iteration that a rank has begun.
func (c *claims) beat(s seat, iteration int64) {
	first, known := c.begun[s]
	if !known {
		c.begun[s] = iteration
	}
	c.goesOn = c.goesOn || known && iteration >= first+goesOnAfter
}

// isDescribed reports whether the process that has a rank was described, beyond doubt.
func (c *claims) isDescribed(r falcon.Rank) bool {
	x, known := c.ranks[r]
	return known && (x.rejoined >= c.trains || x.launch > c.trains)
}

// Replaced reports whether a process has its rank no more, although it may live.
func (m *Machine) Replaced(r Rank) bool {
	c := &m.claims
	doubtful := r.Rejoined < c.trains && r.Launch <= c.trains
	return r.Generation < c.trains || doubtful && c.goesOn || r.Launch < c.ranks[r.Rank].alive
}

// Trains is the newest generation that a process has rejoined.
func (m *Machine) Trains() uint64 { return m.claims.trains }

// Beat takes the iteration that a rank has begun.
func (m *Machine) Beat(n falcon.Node, r falcon.Rank, iteration int64) {
	if !m.over {
		m.claims.beat(seat{n, r}, iteration)
	}
}
