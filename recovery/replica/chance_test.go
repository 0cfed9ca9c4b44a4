package replica

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/failslow/falcon"
)

// enumerated adds up all outcomes of racks and nodes.
func enumerated(q Query, h Hazard) float64 {
	index := q.nodeIndex()
	nodes := make([]falcon.Node, len(index))
	for n, i := range index {
		nodes[i] = n
	}
	var racks []string
	at := map[string]int{}
	for _, n := range nodes {
		if r := q.Domains[n]; r != "" {
			if _, ok := at[r]; !ok {
				at[r] = len(racks)
				racks = append(racks, r)
			}
		}
	}
	total := 0.0
	for mask := range 1 << (len(nodes) + len(racks)) {
		chance := 1.0
		for i := range len(nodes) + len(racks) {
			p := h.Node
			if i >= len(nodes) {
				p = h.Domain
			}
			if mask>>i&1 == 0 {
				p = 1 - p
			}
			chance *= p
		}
		var gone []falcon.Node
		for i, n := range nodes {
			k, inRack := at[q.Domains[n]]
			if mask>>i&1 == 1 || inRack && mask>>(len(nodes)+k)&1 == 1 {
				gone = append(gone, n)
			}
		}
		if len(bruteLost(q, gone)) > 0 {
			total += chance
		}
	}
	return total
}

func TestExactAgainstEnumeration(t *testing.T) {
	done := 0
	for seed := uint64(0); done < 120; seed++ {
		rng := rand.New(rand.NewPCG(seed, 5))
		q := random(rng)
		if len(q.nodeIndex()) > 7 {
			continue
		}
		done++
		// Spread at random, so that shards share nodes in odd ways.
		rng.Shuffle(len(q.Placement), func(i, j int) { q.Placement[i], q.Placement[j] = q.Placement[j], q.Placement[i] })
		p := rng.Float64() / 2
		got, err := Exact(q, p)
		if want := enumerated(q, Hazard{Node: p}); err != nil || math.Abs(got-want) > 1e-12+1e-9*want {
			t.Fatalf("seed %d: %v, %v; want %v\n%+v", seed, got, err, want, q)
		}
	}
}

func TestSampledAgainstEnumeration(t *testing.T) {
	done, sure := 0, 0
	for seed := uint64(0); done < 30; seed++ {
		rng := rand.New(rand.NewPCG(seed, 6))
		q := random(rng)
		if len(q.nodeIndex()) > 6 || len(q.Holds) == 0 {
			continue
		}
		done++
		h := Hazard{Node: rng.Float64() / 4, Domain: rng.Float64() / 4}
		got, err := Sampled(q, h, 20000, seed)
		want := enumerated(q, h)
		if err != nil || math.Abs(got.Chance-want) > 5*math.Sqrt(want*(1-want)/20000)+1e-12 {
			t.Fatalf("seed %d: %+v, %v; want %v", seed, got, err, want)
		}
		again, err := Sampled(q, h, 20000, seed)
		if err != nil || again != got {
			t.Fatalf("seed %d has two answers: %+v, %+v", seed, got, again)
		}
		if want > 0.01 && want < 0.99 {
			sure++
		}
	}
	if sure == 0 {
		t.Error("every chance was 0 or 1")
	}
}

// Four replicas on nodes of their own: the paper's 0.001⁴, for every shard.
func TestIndependentReplicas(t *testing.T) {
	q := Query{Layout: falcon.Layout{TP: 2, DP: 4, PP: 2}}
	for r := range q.Layout.World() {
		q.Placement = append(q.Placement, falcon.NewDevice(falcon.Node("n"+string(rune('a'+r/2))), r%2))
	}
	got, err := Exact(q, 0.001)
	if want := 2e-12; err != nil || math.Abs(got/want-1) > 1e-6 {
		t.Errorf("%v, %v; want %v: two stages' shards, each on four nodes", got, err, want)
	}
	e, err := Sampled(q, Hazard{Node: 0.001}, 1000, 1)
	if err != nil || e.Losses != 0 || e.AtMost < 3e-3 || e.AtMost > 5e-3 {
		t.Errorf("%+v, %v: nothing seen in 1,000 trials is at most about 0.4 %%", e, err)
	}
}

func TestChanceOfBadQueries(t *testing.T) {
	q := dp(2, 0, nil)
	q.Placement = falcon.Placement{"a.g0", "b.g0"}
	for name, err := range map[string]error{
		"no placement": second(Exact(dp(2, 0, nil), 0.1)), "sure failure": second(Exact(q, 1)), "not a number": second(Exact(q, math.NaN())),
		"no trials": second(Sampled(q, Hazard{}, 0, 1)), "too many": second(Sampled(q, Hazard{}, TrialsMost+1, 1)), "negative": second(Sampled(q, Hazard{Domain: -1}, 1, 1)),
	} {
		if !errors.Is(err, ErrQuery) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Replicas strewn over many nodes have no exact chance in bounded time.
func TestInterwovenIsTooLarge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	q := Query{Layout: falcon.Layout{TP: 8, DP: 8, PP: 16}}
	for r := range q.Layout.World() {
		q.Placement = append(q.Placement, falcon.NewDevice(falcon.Node("n"+string(rune('a'+r/8))), r%8))
	}
	rng.Shuffle(len(q.Placement), func(i, j int) { q.Placement[i], q.Placement[j] = q.Placement[j], q.Placement[i] })
	if _, err := Exact(q, 0.1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
	if e, err := Sampled(q, Hazard{Node: 0.3}, 2000, 1); err != nil || e.Losses == 0 {
		t.Errorf("%+v, %v", e, err)
	}
}

// A switch that all replicas hang on takes them along.
func TestSharedSwitch(t *testing.T) {
	q := dp(4, 0, nil)
	q.Placement = falcon.Placement{"a.g0", "b.g0", "c.g0", "d.g0"}
	sw := Domain{Kind: KindSwitch, Name: "s", Nodes: []falcon.Node{"a", "b", "c", "d", "elsewhere"}}
	e, err := Sampled(q, Hazard{Node: 0.001, Domain: 0.01}, 100000, 1, sw)
	if err != nil || e.Chance < 0.009 || e.Chance > 0.011 {
		t.Errorf("%+v, %v; the switch alone fails once in 100", e, err)
	}
}
