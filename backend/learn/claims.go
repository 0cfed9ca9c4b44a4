package learn

import (
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// Several processes may claim one rank: the one that has it, and those that it has replaced, whose
// end was not seen. Those that train in a generation have all rejoined it, or were launched after
// it. A process that was only ordered into that generation may be about to rejoin, or was given up on
// the way: it has the rank only if the others do not go on without it, and no other process of the
// rank was with them.

// claims is who claims which rank.
type claims struct {
	ranks  map[falcon.Rank][]Rank
	trains uint64                   // the newest generation that a process has rejoined
	living map[falcon.Device]uint64 // the newest launch on each device whose process lives
	begun  map[seat]int64
	goesOn bool // iterations begin

	restarted uint64 // the newest launch whose processes began by themselves, and not by joining others

	newest map[falcon.Rank]uint64 // the newest launch of each rank whose process lives
	whole  uint64                 // the lowest of them: nothing that lives is of an earlier launch
	fresh  bool                   // whole is of now
}

// seat is a rank on a node.
type seat struct {
	node falcon.Node
	rank falcon.Rank
}

const (
	// iterations that a rank must begin to show that the job trains: one begins without the others
	goesOnAfter = 2
	claimsMost  = 16 // of one rank; more than that were replaced long ago
)

func newClaims() claims {
	return claims{
		ranks:  map[falcon.Rank][]Rank{},
		living: map[falcon.Device]uint64{},
		begun:  map[seat]int64{},
		newest: map[falcon.Rank]uint64{},
	}
}

// add enters a process; it reports whether the rank was claimed before.
func (c *claims) add(r Rank) bool {
	was := c.ranks[r.Rank]
	if r.Rejoined < NumberMost {
		c.trains = max(c.trains, r.Rejoined)
	}
	if r.Launch > r.Rejoined && !r.Joins && r.Launch < NumberMost {
		c.restarted = max(c.restarted, r.Launch)
	}
	if r.Alive {
		c.living[r.Device] = max(c.living[r.Device], r.Launch)
		c.newest[r.Rank] = max(c.newest[r.Rank], r.Launch)
		c.fresh = false
	}
	same := slices.IndexFunc(was, func(x Rank) bool {
		return x.Node == r.Node && x.Process == r.Process
	})
	switch {
	case same >= 0:
		was[same] = r
	case len(was) < claimsMost:
		c.ranks[r.Rank] = append(was, r)
	}
	return len(was) > 0
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
	return slices.ContainsFunc(c.ranks[r], func(x Rank) bool {
		return !c.isDoubtful(x) && !c.isReplaced(x)
	})
}

// isDoubtful reports whether a process has not rejoined the generation that others train in, nor was
// launched after it.
func (c *claims) isDoubtful(r Rank) bool {
	return r.Rejoined < c.trains && r.Launch <= c.trains
}

func (c *claims) isReplaced(r Rank) bool {
	switch {
	case r.Generation < c.trains, c.isDoubtful(r) && (c.goesOn || c.hasRejoined(r.Rank)):
		// the others train without it
		return true
	case !r.Alive && c.isOutlived(r):
		return true
	}
	return slices.ContainsFunc(c.ranks[r.Rank], func(x Rank) bool {
		return r.Launch < x.Launch && (x.Alive || !r.Alive)
	})
}

// hasRejoined reports whether a process has the rank in the generation that others train in, or had it
// there until it ended.
func (c *claims) hasRejoined(r falcon.Rank) bool {
	return slices.ContainsFunc(c.ranks[r], func(x Rank) bool {
		return x.Rejoined == c.trains
	})
}

// isOutlived reports whether a later launch has the device of a process that has ended, or was of the
// whole job.
func (c *claims) isOutlived(r Rank) bool {
	if r.Device != "" && r.Generation < c.living[r.Device] {
		return true
	}
	return r.Generation < max(c.restarted, c.lowestLaunch())
}

// lowestLaunch is the launch that all living processes are of, or of a later one: the whole job was
// started again in it.
func (c *claims) lowestLaunch() uint64 {
	if c.fresh {
		return c.whole
	}
	c.whole = math.MaxUint64
	c.fresh = true
	for _, g := range c.newest {
		c.whole = min(c.whole, g)
	}
	if len(c.newest) == 0 {
		c.whole = 0
	}
	return c.whole
}

// Replaced reports whether a process has its rank no more, although it may live: another one was
// launched for the rank, or on its device, or the others train without it.
func (m *Machine) Replaced(r Rank) bool { return m.claims.isReplaced(r) }

// Trains is the newest generation that a process has rejoined.
func (m *Machine) Trains() uint64 { return m.claims.trains }

// Beat takes the iteration that a rank has begun.
func (m *Machine) Beat(n falcon.Node, r falcon.Rank, iteration int64) {
	if !m.over {
		m.claims.beat(seat{n, r}, iteration)
	}
}
