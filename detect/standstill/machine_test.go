package standstill

import (
	"fmt"
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

const oneStays = "0: w8 w8\n1: w8 w8\n2: w8 own\n3: w8 w8"

// script plays words at seconds, and notes what the machine wants.
type script struct {
	t    *testing.T
	s    *scene
	m    *Machine
	said []string
}

func newScript(t *testing.T, text string) *script {
	t.Helper()
	s := newScene(text)
	return &script{t: t, s: s, m: standing(s)}
}

// until ticks every 100 ms, and has all agents answer.
func (x *script) until(from, to float64) *script {
	for t := from; t < to; t += 0.1 {
		x.m.Tick(at(t))
		r := x.m.Ready()
		if r.Empty() {
			continue
		}
		if r.Changed {
			text := fmt.Sprintf("%.0f: %v", t, r.Hang.Named())
			if r.Hang == nil {
				text = fmt.Sprintf("%.0f: over after %.0f, taken up: %t", t, r.Lasted.Seconds(), r.TakenUp)
			}
			x.said = append(x.said, text)
		}
		if r.Ask != 0 {
			x.said = append(x.said, fmt.Sprintf("%.0f: ask", t))
			x.m.Step(at(t), x.s.job)
		}
		x.m.Advance(at(t))
		for n, a := range x.s.nodes {
			if r.Ask != 0 && !x.s.silent[n] {
				x.m.Step(at(t), Answer{Ask: r.Ask, Node: n, Ranks: a.Ranks})
			}
		}
	}
	return x
}

func (x *script) want(want ...string) {
	x.t.Helper()
	if !slices.Equal(x.said, want) {
		x.t.Errorf("got  %q\nwant %q", x.said, want)
	}
}

// A standstill is reported once, asked about ever more seldom, and over with the first call.
func TestAStandstillIsToldOnce(t *testing.T) {
	x := newScript(t, oneStays).until(0, 45)
	x.m.Step(at(45), Sign{Rank: 2, Pid: 102, Calls: 9})
	x.until(45, 48).want("4: ask", "4: [2]", "9: ask", "19: ask", "39: ask",
		"45: over after 45, taken up: false")
}

func TestNothingIsAskedForWithoutNeed(t *testing.T) {
	x := newScript(t, oneStays)
	for s := 1.0; s < 20; s++ { // calls go on
		x.until(s-1, s).m.Step(at(s), Sign{
			Rank:  1,
			Pid:   101,
			Calls: 10 + uint64(s),
		})
	}
	x.m.Step(at(20), Pace{Known: true, Held: true})
	for s := 20.0; s < 60; s++ { // it is held
		x.m.Step(at(s), Pace{Known: true, Held: true})
		x.until(s, s+1)
	}
	x.m.Step(at(60), Pace{Known: true})
	x.until(60, 63).want()
}

// While a job's pace is not known it may load or compile.
func TestUnknownPace(t *testing.T) {
	x := newScript(t, oneStays)
	x.m.Step(at(0), Pace{})
	x.until(0, 32).want("30: ask", "30: [2]")
}

// A job that is silent for some seconds in every iteration stands still later.
func TestUsualGaps(t *testing.T) {
	x := newScript(t, oneStays)
	for s := 6.0; s <= 18; s += 6 {
		x.m.Step(at(s), Sign{Rank: 1, Pid: 101, Calls: 10 + uint64(s)})
	}
	for n, a := range x.s.nodes {
		for i := range a.Ranks {
			x.s.nodes[n].Ranks[i].Sign.Calls = 0
		}
	}
	x.until(18, 28).want("26: ask", "26: [2]")
}

// A recovery that takes the standstill up ends what is shown.
func TestTakenUp(t *testing.T) {
	x := newScript(t, oneStays).until(0, 6)
	x.m.Step(at(6), Pace{Known: true, Held: true})
	x.until(6, 7).want("4: ask", "4: [2]", "6: over after 6, taken up: true")
}

// Who moves while it is asked is not judged.
func TestMovesWhileAsked(t *testing.T) {
	x := newScript(t, oneStays)
	x.s.nodes["n1"].Ranks[0].Sign.Calls = 99
	x.until(0, 6).want("4: ask")
}

// Answers of another ask, of a node that does not hold the rank, of another process
// and of ranks that are not there count for nothing.
func TestWrongAnswers(t *testing.T) {
	x := newScript(t, oneStays)
	x.m.Tick(at(5))
	x.m.Step(at(5), x.s.job)
	ask := x.m.Ready().Ask
	x.m.Advance(at(5))
	rogue := x.s.nodes["n1"].Ranks[0]
	x.m.Step(at(5), Answer{Ask: ask - 1, Node: "n1", Ranks: []Calls{rogue}})
	x.m.Step(at(5), Answer{
		Ask:  ask,
		Node: "n0",
		Ranks: []Calls{rogue, {Sign: Sign{Rank: -1}}, {Sign: Sign{Rank: 9}}, {Sign: Sign{
			Rank: 0,
			Pid:  1,
		}}},
	})
	if len(x.m.calls) != 0 {
		t.Errorf("%v", x.m.calls)
	}
}

// Whatever is answered, nothing breaks.
func TestHostileAnswers(t *testing.T) {
	s := newScene(oneStays)
	a := s.nodes["n0"]
	a.Ranks[0].Comms = append(a.Ranks[0].Comms,
		CommCalls{Comm: 1, Known: true, Collectives: 1 << 47},
		CommCalls{Comm: 4711, Inside: 3},
	)
	a.Ranks[0].Calls = append(a.Ranks[0].Calls,
		Call{Comm: -1},
		Call{Comm: 77},
		Call{
			Comm:   5,
			Op:     falcon.OpSend,
			Peer:   1 << 30,
			Number: 3,
		},
		Call{Comm: 3, Op: falcon.OpSend, Peer: 0, Number: 1},
		Call{Comm: 3, Op: falcon.OpRecv, Peer: 0, Number: 1},
		Call{Op: 250, Number: 1},
		Call{Number: 1 << 47, Dtype: 255},
	)
	s.job.Groups = append(s.job.Groups, Group{
		ID:     9,
		Places: []falcon.Rank{-1, 700, 0, 0},
	})
	s.judged(standing(s))
}
