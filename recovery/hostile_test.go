package recovery

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// garbage draws words of a fleet in any order, sensible or not.
type garbage struct{ *rand.Rand }

func (g garbage) rank() falcon.Rank {
	return falcon.Rank(g.IntN(7) - 1)
}

func (g garbage) node() falcon.Node {
	return []falcon.Node{"n0", "n1", "n2", "n3", "n8", "n9", ""}[g.IntN(7)]
}

func (g garbage) generation() uint64 {
	return []uint64{0, 1, 2, 3, 4, math.MaxUint64}[g.IntN(6)]
}

func (g garbage) text() string {
	return []string{"", "x"}[g.IntN(2)]
}
func (g garbage) yes() bool { return g.IntN(2) == 0 }
func (g garbage) step() int64 {
	return []int64{-1, 0, 6, 7, 8, math.MaxInt64}[g.IntN(6)]
}

func (g garbage) device() falcon.Device {
	return []falcon.Device{"n0.g0", "n1.nic0", "", "n9", "n2.g"}[g.IntN(5)]
}

func (g garbage) hold() (h falcon.RankHold) {
	h.Steps = [2]int64{g.step(), g.step()}
	return h
}

func (g garbage) park() *Park {
	if g.IntN(3) == 0 {
		return nil
	}
	return &Park{
		Generation: g.generation(),
		Joining:    g.yes(),
		Tag:        g.step(),
		Hold:       g.hold(),
	}
}

func (g garbage) input() Input {
	switch g.IntN(14) {
	case 0:
		return Process{
			Rank:       g.rank(),
			Node:       g.node(),
			Pid:        g.IntN(4),
			Generation: g.generation(),
			Alive:      g.yes(),
			Normal:     g.yes(),
			Finished:   g.yes(),
			Exit:       g.text(),
			Park:       g.park(),
		}
	case 1, 2:
		return Process{
			Rank:       g.rank(),
			Node:       g.node(),
			Pid:        1,
			Generation: g.generation() % 8,
			Alive:      true,
			Park:       g.park(),
		}
	case 3:
		return Beat{
			Rank:         g.rank(),
			Pid:          1,
			Iteration:    g.step(),
			Tag:          g.step(),
			HookAgeMs:    float64(g.IntN(9000)),
			Calls:        uint64(g.IntN(9)),
			WaitingMs:    float64(g.IntN(9000)),
			WaitingKnown: g.yes(),
		}
	case 4:
		return Node{Node: g.node(), Alive: g.yes(), How: How(g.IntN(4))}
	case 5:
		return Device{
			Device: g.device(),
			Fatal:  g.yes(),
			Code:   g.IntN(100),
			Text:   g.text(),
		}
	case 6:
		return Pace{
			Iteration: g.step(),
			Ms:        float64(g.IntN(500)),
			Held:      g.yes(),
		}
	case 7, 8:
		return Suspended{
			Node:       g.node(),
			Generation: g.generation(),
			Late:       g.yes(),
			Refused:    []string{"", "", "", "x"}[g.IntN(4)],
		}
	case 9:
		return Launched{
			Node:       g.node(),
			Generation: g.generation(),
			Failed:     g.text(),
		}
	case 10:
		return Tabled{
			Node:       g.node(),
			Generation: g.generation(),
			Failed:     g.text(),
		}
	case 11:
		return Rejoined{
			Rank:       g.rank(),
			Generation: g.generation(),
			Status:     int32(g.IntN(3) - 1),
			Iteration:  g.step(),
		}
	}
	if g.IntN(4) == 0 {
		return Late{}
	}
	if g.yes() {
		return Decision{
			Recovery: "REC-0001",
			Verb:     []Verb{Approve, Deny, Abort, "x"}[g.IntN(4)],
			By:       "kim",
		}
	}
	return Demand{Node: g.node(), Rank: g.rank(), By: "kim"}
}

// sense is what a healthy fleet would answer to the present state.
func sense(c falcon.Recovery) []Input {
	var out []Input
	hold := falcon.RankHold{Steps: [2]int64{7, 6}}
	for r, d := range c.Placement {
		g, made := c.Launched[falcon.Rank(r)]
		p := Process{
			Rank:       falcon.Rank(r),
			Node:       d.Node(),
			Pid:        100 + r + int(g),
			Generation: g,
			Alive:      true,
			Park:       &Park{Generation: c.Generation, Tag: 7, Hold: hold},
		}
		if made {
			p.Park = &Park{
				Generation: c.Generation,
				Joining:    true,
				Tag:        -1,
				Hold:       falcon.RankHold{Steps: [2]int64{-1, -1}},
			}
		}
		out = append(out,
			Node{Node: d.Node(), Alive: true},
			p,
			Suspended{Node: d.Node(), Generation: c.Generation},
			Tabled{Node: d.Node(), Generation: c.Generation},
		)
		if c.State == falcon.RecoveryRejoin {
			out = append(out, Rejoined{
				Rank:       falcon.Rank(r),
				Generation: c.Generation,
				Iteration:  c.Resume,
			})
		}
	}
	return out
}

// Whatever comes in whatever order, every rank keeps a device of its own, and
// no generation is used for two orders of a kind.
func TestAnyWordsLeaveTheJobWhole(t *testing.T) {
	resumed := 0
	for seed := range uint64(400) {
		g := garbage{rand.New(rand.NewPCG(seed, 9))}
		m := New(Config{})
		now := time.Unix(1000, 0)
		j := Job{
			Epoch:      1,
			Layout:     falcon.Layout{TP: 1, DP: 2, PP: 2},
			Parks:      g.IntN(8) > 0,
			Checkpoint: int64(g.IntN(2)) - 1,
			Spares:     []falcon.Node{"n8", "n9"},
			CanLaunch:  map[falcon.Node]bool{},
		}
		for _, n := range []falcon.Node{"n0", "n1", "n2", "n3", "n8", "n9"} {
			j.CanLaunch[n] = true
		}
		j.Placement = falcon.Placement{"n0.g0", "n1.g0", "n2.g0", "n3.g0"}
		m.Step(now, j)
		rejoins := map[uint64]bool{}
		for range 150 {
			now = now.Add(time.Duration(g.IntN(1500)) * time.Millisecond)
			words := []Input{g.input()}
			if c, ok := m.Current(); ok && g.yes() {
				words = sense(c)
			}
			for _, in := range words {
				m.Step(now, in)
			}
			m.Tick(now)
			r := m.Ready()
			m.Advance()
			for _, c := range r.Commands {
				if c, ok := c.(Rejoin); ok {
					if rejoins[c.Generation] {
						t.Fatalf("seed %d: generation %d rejoins twice", seed, c.Generation)
					}
					rejoins[c.Generation] = true
				}
			}
			for _, c := range r.Recoveries {
				wholePlacement(t, seed, c)
				if c.State == falcon.RecoveryRejoin {
					resumed++
				}
			}
		}
	}
	if resumed == 0 {
		t.Error("no story came as far as to rejoin")
	}
}

func wholePlacement(t *testing.T, seed uint64, c falcon.Recovery) {
	t.Helper()
	seen := map[falcon.Device]bool{}
	for _, d := range c.Placement {
		if seen[d] || d == "" {
			t.Fatalf("seed %d: %s places %v", seed, c.ID, c.Placement)
		}
		seen[d] = true
	}
	if len(c.Placement) != 4 {
		t.Fatalf("seed %d: %s places %v", seed, c.ID, c.Placement)
	}
}

func TestValidatePolicy(t *testing.T) {
	for _, p := range []falcon.RecoveryPolicy{
		{},
		{Approval: "auto", Countdown: 5},
		{Approval: "person", InPlace: -1, PerHour: -1},
	} {
		if err := ValidatePolicy(p); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, p := range []falcon.RecoveryPolicy{
		{Approval: "never"},
		{Countdown: -1},
		{Countdown: math.NaN()},
		{Countdown: 1e9},
		{InPlace: -2},
		{PerHour: 1e6},
	} {
		if err := ValidatePolicy(p); !errors.Is(err, ErrBadPolicy) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
