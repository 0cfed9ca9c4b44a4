package flow

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"
)

// programme is the deliberately simple second implementation: one linear
// programme for the greatest rate that all open flows can have, then one for each
// open flow that asks whether it could have more; what could not is settled.
func programme(t *testing.T, capacity []float64, flows [][]Use) []float64 {
	t.Helper()
	n := len(flows)
	fixed := make([]float64, n)
	for i := range fixed {
		fixed[i] = -1
	}
	for open := n; open > 0; {
		level := most(t, capacity, flows, fixed, 0, -1)
		for i := range fixed {
			if fixed[i] < 0 && most(t, capacity, flows, fixed, level, i) <= level*(1+1e-7) {
				fixed[i] = level
				open--
			}
		}
	}
	return fixed
}

// most maximises one flow's rate (or that of all open ones alike, i < 0) while
// settled flows keep theirs and other open ones have at least the level.
func most(t *testing.T, capacity []float64, flows [][]Use, fixed []float64, level float64, i int) float64 {
	t.Helper()
	left, weight := make([]float64, len(capacity)), make([]float64, len(capacity))
	copy(left, capacity)
	for f, uses := range flows {
		for _, u := range uses {
			switch {
			case fixed[f] >= 0:
				left[u.Link] -= fixed[f] * u.Times
			case f == i || i < 0:
				weight[u.Link] += u.Times
			default:
				left[u.Link] -= level * u.Times
			}
		}
	}
	rows := len(capacity)
	a := mat.NewDense(rows, 1+rows, nil)
	for l := range rows {
		a.Set(l, 0, weight[l])
		a.Set(l, 1+l, 1)
		left[l] = max(0, left[l])
	}
	c := make([]float64, 1+rows)
	c[0] = -1
	v, _, err := lp.Simplex(c, a, left, 1e-12, nil)
	if err != nil {
		t.Fatal(err)
	}
	return -v
}

func randomFlows(rng *rand.Rand) (capacity []float64, flows [][]Use) {
	for range 1 + rng.IntN(6) {
		capacity = append(capacity, 1+9*rng.Float64())
	}
	for range 1 + rng.IntN(8) {
		var uses []Use
		for l := range capacity {
			if rng.IntN(2) == 0 {
				uses = append(uses, Use{l, float64(1 + rng.IntN(2))})
			}
		}
		if len(uses) == 0 {
			uses = []Use{{0, 1}}
		}
		flows = append(flows, uses)
	}
	return capacity, flows
}

func TestRatesAgainstProgramme(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		capacity, flows := randomFlows(rng)
		got, want := Rates(capacity, flows), programme(t, capacity, flows)
		for i := range got {
			if math.Abs(got[i]-want[i]) > 1e-6*want[i] {
				t.Fatalf("capacities %v, flows %v: rates %v, by linear programmes %v",
					capacity, flows, got, want)
			}
		}
	}
}

// The definition itself: every flow crosses a full link on which none has more.
func TestRatesHaveBottlenecks(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		capacity, flows := randomFlows(rng)
		rates := Rates(capacity, flows)
		used, top := make([]float64, len(capacity)), make([]float64, len(capacity))
		for i, uses := range flows {
			for _, u := range uses {
				used[u.Link] += rates[i] * u.Times
				top[u.Link] = max(top[u.Link], rates[i])
			}
		}
		for l := range used {
			if used[l] > capacity[l]*(1+1e-9) {
				t.Fatalf("link %d of %v carries %v", l, capacity, used[l])
			}
		}
		for i, uses := range flows {
			held := false
			for _, u := range uses {
				held = held ||
					used[u.Link] > capacity[u.Link]*(1-1e-9) && rates[i] >= top[u.Link]*(1-1e-9)
			}
			if !held {
				t.Fatalf("%v, %v: flow %d of %v has no bottleneck", capacity, flows, i, rates)
			}
		}
	}
}

// The textbook's parking lot: a long flow over all links, one short one on each.
func TestParkingLot(t *testing.T) {
	got := Rates(
		[]float64{1, 1, 1},
		[][]Use{{{0, 1}, {1, 1}, {2, 1}}, {{0, 1}}, {{1, 1}}, {{2, 1}}},
	)
	for i, v := range got {
		if math.Abs(v-0.5) > 1e-12 {
			t.Errorf("flow %d has %v, want 0.5", i, v)
		}
	}
	got = Rates([]float64{1, 2}, [][]Use{{{0, 1}, {1, 1}}, {{0, 1}}, {{1, 1}}})
	for i, want := range []float64{0.5, 0.5, 1.5} {
		if math.Abs(got[i]-want) > 1e-12 {
			t.Errorf("links of 1 and 2: flow %d has %v, want %v", i, got[i], want)
		}
	}
	if v := Rates([]float64{Unbounded}, [][]Use{{{0, 1}}, {}}); !math.IsInf(v[0], 1) || !math.IsInf(v[1], 1) {
		t.Errorf("nothing limits flows, and they have %v", v)
	}
}
