package schedule

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func lines(steps []Step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}

func TestFirstOfTwoStages(t *testing.T) {
	want := `forward 0
exchange out 0.0
forward 1
exchange out 0.1 grad_in 0.0
backward 0
forward 2
exchange out 0.2 grad_in 0.1
backward 1
exchange grad_in 0.2
backward 2
`
	if got := lines(OneFOneB(0, 2, 3)); got != want {
		t.Errorf("stage 0 of 2, 3 micro-batches:\n%s", got)
	}
}

func TestLastOfTwoStages(t *testing.T) {
	want := `exchange in 0.0
forward 0
backward 0
exchange in 0.1 grad_out 0.0
forward 1
backward 1
exchange grad_out 0.1
`
	if got := lines(OneFOneB(1, 2, 2)); got != want {
		t.Errorf("stage 1 of 2, 2 micro-batches:\n%s", got)
	}
}

func computed(steps []Step, k Kind) []int {
	var out []int
	for _, s := range steps {
		if s.Kind == k {
			out = append(out, s.Work.Micro)
		}
	}
	return out
}

func TestEveryMicroBatchOnceInOrderAndFewInFlight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.IntRange(1, 8).Draw(t, "stages")
		m := rapid.IntRange(1, 24).Draw(t, "microBatches")
		s := rapid.IntRange(0, p-1).Draw(t, "stage")
		steps := OneFOneB(s, p, m)
		all := make([]int, m)
		for i := range all {
			all[i] = i
		}
		if !slices.Equal(computed(steps, Forward), all) ||
			!slices.Equal(computed(steps, Backward), all) {
			t.Fatalf("not every micro-batch once and in order:\n%s", lines(steps))
		}
		inFlight, most := 0, 0
		for _, st := range steps {
			switch st.Kind {
			case Forward:
				inFlight++
			case Backward:
				inFlight--
			}
			most = max(most, inFlight)
		}
		if want := InFlightMax(s, p, m); most != want {
			t.Fatalf("%d in flight at most, want %d", most, want)
		}
	})
}

// With free transfers the iteration lasts (m + p − 1)·(f + b), the pipeline's
// fill and drain included, even when every send waits for its receive.
func TestRendezvousNeverDeadlocksAndTakesTheIdealTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.IntRange(1, 6).Draw(t, "stages")
		m := rapid.IntRange(1, 16).Draw(t, "microBatches")
		g := ringPlay{
			stages:   p,
			chunks:   1,
			forward:  5,
			backward: 10,
		}
		for s := range p {
			g.steps = append(g.steps, OneFOneB(s, p, m))
		}
		got := g.run()
		want := float64(m+p-1) * 15
		if g.mismatch != "" || got != want {
			t.Fatalf("p=%d m=%d: %v ms, want %v; %s", p, m, got, want, g.mismatch)
		}
	})
}
