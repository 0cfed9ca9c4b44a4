package learn

import (
	"testing"

	"github.com/failslow/falcon"
)

// trained is a rank that trains in generation 2, of a world of two.
func trained(r int) Rank {
	return Rank{
		Node:       "n0",
		Rank:       falcon.Rank(r),
		World:      2,
		Generation: 2,
		Rejoined:   2,
		Alive:      true,
	}
}

func TestWhoHasARank(t *testing.T) {
	for name, c := range map[string]struct {
		claim              Rank
		goesOn             bool
		described, replace bool
	}{
		"trains":      {Rank{Generation: 2, Rejoined: 2, Alive: true}, true, true, false},
		"ended in it": {Rank{Generation: 2, Rejoined: 2}, true, true, false},
		"of the generation before": {
			Rank{Generation: 1, Rejoined: 1, Alive: true},
			false,
			false,
			true,
		},
		"its corpse": {Rank{Generation: 1, Rejoined: 1}, false, false, true},
		"ordered, and about to rejoin": {
			Rank{Generation: 2, Rejoined: 1, Alive: true},
			false,
			false,
			false,
		},
		"ordered, and given up on it":    {Rank{Generation: 2, Rejoined: 1, Alive: true}, true, false, true},
		"launched for the next":          {Rank{Generation: 3, Launch: 3, Alive: true}, false, true, false},
		"launched for it, joins no more": {Rank{Generation: 2, Launch: 2, Alive: true}, true, false, true},
		"launched for it, not in it yet": {Rank{Generation: 2, Launch: 2, Alive: true}, false, false, false},
		"suspended for the next by order": {
			Rank{Generation: 3, Rejoined: 2, Alive: true},
			false,
			true,
			false,
		},
	} {
		m := New(own())
		m.Rank(trained(1))
		c.claim.Node = "n1"
		c.claim.Rank = 0
		c.claim.World = 2
		m.Rank(c.claim)
		m.Beat("n0", 1, 40)
		if m.Beat("n0", 1, 41); c.goesOn { // one begins without the others
			m.Beat("n0", 1, 42)
		}
		if got := m.claims.isDescribed(0); got != c.described {
			t.Errorf("%s: described %t", name, got)
		}
		if got := m.Replaced(c.claim); got != c.replace {
			t.Errorf("%s: replaced %t", name, got)
		}
	}
}

func TestTheNewestLaunchThatLivesHasTheRank(t *testing.T) {
	m := New(own())
	old := Rank{Node: "n0", Alive: true, World: 2}
	launched := Rank{
		Node:       "n1",
		Alive:      true,
		World:      2,
		Generation: 1,
		Launch:     1,
	}
	m.Rank(old)
	m.Rank(launched)
	if !m.Replaced(old) || m.Replaced(launched) {
		t.Errorf("old replaced %t, launched replaced %t", m.Replaced(old), m.Replaced(launched))
	}
	m = New(own())
	launched.Alive = false // it came to nothing
	m.Rank(old)
	m.Rank(launched)
	if m.Replaced(old) {
		t.Error("what was launched has ended, and the old one lives")
	}
}

// A framework that can't rejoin is started again as a whole.
func TestACorpseOfBeforeAWholeRestart(t *testing.T) {
	m := New(own())
	for r := range falcon.Rank(3) {
		m.Rank(Rank{
			Node:       "n0",
			Rank:       r,
			World:      4,
			Generation: 5,
			Launch:     5,
			Alive:      true,
		})
	}
	old := Rank{
		Node:       "n1",
		Rank:       3,
		World:      4,
		Generation: 2,
		Launch:     2,
	}
	ended := Rank{
		Node:       "n2",
		Rank:       3,
		World:      4,
		Generation: 5,
		Launch:     5,
	}
	if m.Rank(old); m.claims.isDescribed(3) || !m.Replaced(old) {
		t.Error("it was started again since")
	}
	if m.Rank(ended); !m.claims.isDescribed(3) || m.Replaced(ended) {
		t.Error("the newest of the dead is the rank's")
	}
}

// A job may have finished without a process that was given up on the way, and lives.
func TestWhoWasGivenUpOutlivesTheJob(t *testing.T) {
	left := Rank{
		Node:       "n1",
		World:      2,
		Generation: 2,
		Rejoined:   1,
		Alive:      true,
	}
	for name, c := range map[string]struct {
		heir     Rank
		replaced bool
	}{
		"its heir had rejoined": {
			Rank{Node: "n2", World: 2, Generation: 2, Launch: 2, Rejoined: 2},
			true,
		},
		"its heir came to nothing": {Rank{Node: "n2", World: 2, Generation: 2, Launch: 2}, false},
		"its heir is of long before": {
			Rank{Node: "n2", World: 2, Generation: 1, Launch: 1, Rejoined: 1},
			false,
		},
	} {
		m := New(own())
		ended := trained(1)
		ended.Alive = false
		for _, r := range []Rank{ended, left, c.heir} {
			m.Rank(r)
		}
		if got := m.Replaced(left); got != c.replaced {
			t.Errorf("%s: replaced %t", name, got)
		}
		if got := m.claims.isDescribed(0); got != c.replaced {
			t.Errorf("%s: described %t", name, got)
		}
	}
}
