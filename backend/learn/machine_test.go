package learn

import (
	"testing"
	"time"

	"github.com/failslow/falcon"
)

var (
	t0    = time.Unix(1000, 0)
	first = Engine{ID: "a", Start: 1}
	mine  = Engine{ID: "b", Start: 2}
)

// own is a journal of a job on n0 and n1, on which an engine has run once.
func own() Own {
	return Own{
		Numbers: Numbers{
			Epoch:      5,
			Command:    1023,
			Generation: 2,
			Order:      3,
		},
		Record:  90,
		Engine:  mine,
		Rejoins: 2,
		Before:  []Engine{first},
		Nodes:   []falcon.Node{"n0", "n1"},
	}
}

// same is what a node says that has had nothing since.
func same() Report {
	return Report{
		Numbers: Numbers{
			Epoch:      5,
			Command:    40,
			Generation: 2,
			Order:      3,
		},
		Seen: Seen{first, 88},
	}
}

func TestACurrentJournalIsWholeWithItsNodes(t *testing.T) {
	m := New(own())
	m.Attach(t0, "n0", same())
	m.Told("n0")
	m.Attach(t0, "n1", same())
	if m.Over(t0) {
		t.Error("a node has not told all it knows")
	}
	m.Told("n1")
	if !m.Over(t0) || len(m.Stale()) != 0 {
		t.Errorf("over %t, stale %v", m.Over(t0), m.Stale())
	}
}

func TestTheWaitIsOver(t *testing.T) {
	m := New(own())
	if m.Over(t0.Add(time.Hour)) {
		t.Error("nobody was heard")
	}
	m.Attach(t0, "n0", same())
	m.Told("n0")
	if m.Over(t0.Add(Wait - 1)) {
		t.Error("n1 may still come")
	}
	if !m.Over(t0.Add(Wait)) {
		t.Error("the wait has no end")
	}
}

// Each number by itself shows that the journal is older, and so does another engine.
func TestSignsOfAnOlderJournal(t *testing.T) {
	for kind, change := range map[Kind]func(*Report){
		ByEpoch:      func(r *Report) { r.Epoch = 6 },
		ByCommand:    func(r *Report) { r.Command = 1024 },
		ByRecord:     func(r *Report) { r.Record = 91 },
		ByGeneration: func(r *Report) { r.Generation = 3 },
		ByOrder:      func(r *Report) { r.Order = 4 },
		ByEngine: func(r *Report) {
			r.Engine = Engine{ID: "c", Start: 2}
		},
	} {
		m := New(own())
		r := same()
		change(&r)
		m.Attach(t0, "n0", r)
		if got := m.Stale(); len(got) != 1 || got[0].Kind != kind {
			t.Errorf("%s: %v", kind, got)
		}
		for _, n := range []falcon.Node{"n0", "n1"} {
			m.Attach(t0, n, r)
			m.Told(n)
		}
		for r := range falcon.Rank(3) {
			m.Rank(Rank{Node: "n0", Rank: r, World: 4})
		}
		if m.Over(t0.Add(Wait)) {
			t.Errorf("%s: rank 3 is not described", kind)
		}
		m.Rank(Rank{Node: "n1", Rank: 3, World: 4})
		if !m.Over(t0.Add(Wait)) {
			t.Errorf("%s: all is described", kind)
		}
	}
}

func TestAnEmptyJournalLearnsFromRanks(t *testing.T) {
	m := New(Own{Numbers: Numbers{Epoch: 1}, Engine: mine, Empty: true})
	m.Attach(t0, "n0", Report{})
	m.Told("n0")
	m.Rank(Rank{
		Node:       "n0",
		Rank:       0,
		World:      2,
		Generation: 7,
		Untold:     true,
	})
	if m.Over(t0) || m.Learnt().Generation != 7 {
		t.Errorf("over %t, learnt %+v", m.Over(t0), m.Learnt())
	}
	m.Rank(Rank{Node: "n0", Rank: 1, World: 2})
	if m.Over(t0.Add(Wait - 1)) {
		t.Error("others may claim the ranks")
	}
	if !m.Over(t0.Add(Wait)) {
		t.Error("both ranks are described")
	}
}

// What no engine can have given out is not believed.
func TestWildClaims(t *testing.T) {
	m := New(own())
	m.Attach(t0, "n0", Report{Numbers: Numbers{
		Epoch:      EpochMost,
		Generation: NumberMost,
		Order:      NumberMost,
	}})
	if len(m.Stale()) != 0 {
		t.Error(m.Stale())
	}
}

// One node of many that follows another engine ends none; most of them do.
func TestWhoIsLeftEnds(t *testing.T) {
	m := New(own())
	m.Attach(t0, "n0", same())
	m.Agree()
	m.Over(t0)
	other := Report{
		Numbers: Numbers{Epoch: 6},
		Seen:    Seen{Engine: Engine{ID: "c", Host: "h", Start: 3}},
	}
	m.Attach(t0, "n1", other)
	if _, beaten := m.Rival(3, nil); beaten || m.Follows("n1") || !m.Follows("n0") {
		t.Error("one of three nodes has left")
	}
	m.Refused(t0, "n0", other)
	if r, beaten := m.Rival(3, nil); !beaten || r.Engine.String() != "c on host h" {
		t.Errorf("%v, %t", r, beaten)
	}
	if _, beaten := m.Rival(40, []falcon.Node{"n0", "n1", "n2"}); !beaten {
		t.Error("most of the job's nodes have left, for many spares that have not")
	}
	m.Attach(t0, "n0", same())
	if _, beaten := m.Rival(3, []falcon.Node{"n1"}); beaten {
		t.Error("n0 is back")
	}
}

// Of two starts on copies of one journal, one goes before the other: never both, never none.
func TestEqualEpochs(t *testing.T) {
	a := Engine{ID: "x", Start: 2}
	b := Engine{ID: "y", Start: 2}
	beaten := func(self, other Engine) bool {
		o := own()
		o.Engine = self
		m := New(o)
		m.Agree()
		m.Over(t0)
		m.Attach(t0, "n0", Report{
			Numbers: Numbers{Epoch: 5},
			Seen:    Seen{Engine: other},
		})
		_, is := m.Rival(1, nil)
		return is
	}
	if beaten(a, b) == beaten(b, a) {
		t.Errorf("x is beaten: %t, y is: %t", beaten(a, b), beaten(b, a))
	}
	if beaten(mine, first) {
		t.Error("an engine is beaten by its own predecessor")
	}
}

// A recovery went on since the copy, under the generation that the journal has it in.
func TestARejoinThatTheJournalHasNotOrdered(t *testing.T) {
	o := own()
	o.Rejoins = 1
	m := New(o)
	m.Attach(t0, "n0", same())
	m.Rank(Rank{
		Node:       "n0",
		Rank:       0,
		World:      2,
		Generation: 2,
		Rejoined:   2,
	})
	if got := m.Stale(); len(got) != 1 || got[0].Kind != ByRejoin {
		t.Errorf("%v", got)
	}
}

// With most nodes away nothing can be done for the job: it is worth a longer wait.
func TestMostNodesAreWaitedForLonger(t *testing.T) {
	o := own()
	o.Nodes = []falcon.Node{"n0", "n1", "n2"}
	m := New(o)
	m.Attach(t0, "n0", same())
	m.Told("n0")
	if m.Over(t0.Add(Wait)) {
		t.Error("two of three may still come")
	}
	m.Attach(t0.Add(Wait), "n1", same())
	m.Told("n1")
	if !m.Over(t0.Add(Wait)) {
		t.Error("one of three is missing")
	}
}

// A journal that was brought back has grown since, by the records of later starts: its numbers alone
// do not show that others were written under them.
func TestAJournalThatGrewAgain(t *testing.T) {
	a := Engine{ID: "a", Start: 1, First: 1}
	b := Engine{ID: "b", Start: 2, First: 50}
	own := Own{
		Numbers: Numbers{Epoch: 5},
		Record:  90,
		Engine:  Engine{ID: "c", Start: 3, First: 91},
		Before:  []Engine{a, b},
	}
	for _, c := range []struct {
		seen, before Seen
		stale        bool
	}{
		{seen: Seen{b, 90}, before: Seen{a, 49}},
		{seen: Seen{b, 90}, before: Seen{a, 50}, stale: true},
		{seen: Seen{a, 50}, stale: true},
		{seen: Seen{b, 91}, stale: true},
		{seen: Seen{own.Engine, 95}, before: Seen{b, 90}},
		{seen: Seen{own.Engine, 95}, before: Seen{b, 91}, stale: true},
	} {
		m := New(own)
		m.Attach(t0, "n0", Report{
			Numbers: Numbers{Epoch: 5},
			Seen:    c.seen,
			Before:  c.before,
		})
		if got := m.Stale(); (len(got) > 0) != c.stale {
			t.Errorf("%v, before %v: %v", c.seen, c.before, got)
		}
	}
}

// A node that follows an engine which has left it is led again, by nobody's hurry, and one that lies
// has no more of the engine than once a minute.
func TestTheNodeThatNobodyLeads(t *testing.T) {
	m := New(own())
	m.Attach(t0, "n0", same())
	m.Agree()
	m.Over(t0)
	other := Report{
		Numbers: Numbers{Epoch: 6},
		Seen:    Seen{Engine: Engine{ID: "c", Start: 3}},
	}
	m.Attach(t0, "n1", other)
	here := func(falcon.Node) bool { return true }
	for at, want := range map[time.Duration]bool{RivalMost - 1: false, RivalMost: true} {
		n, r, found := m.Abandoned(t0.Add(at), here)
		if found != want || found && (n != "n1" || r.Epoch != 6) {
			t.Errorf("after %s: %s, %+v, %t", at, n, r, found)
		}
	}
	if _, _, found := m.Abandoned(t0.Add(time.Hour), func(falcon.Node) bool { return false }); found {
		t.Error("n1 is not connected")
	}
	m.Raised(Numbers{Epoch: 7})
	m.GoneAbove(t0)
	if !m.Follows("n1") {
		t.Error("n1 follows")
	}
	m.Attach(t0, "n1", Report{Numbers: Numbers{Epoch: 8}, Seen: other.Seen})
	if _, _, found := m.Abandoned(t0.Add(RivalAgain-1), here); found {
		t.Error("twice within a minute")
	}
	if _, _, found := m.Abandoned(t0.Add(RivalAgain), here); !found {
		t.Error("never again")
	}
}
