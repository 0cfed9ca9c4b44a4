package iterate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

// largeWindow is a rank whose iterations have thousands of calls on three
// communicators, 1 ms of computation before each.
func largeWindow(iterations, calls int, marked bool) Window {
	w := Window{
		First:        1,
		Last:         int64(iterations) - 2,
		MicroBatches: 10,
		BeginMs:      map[int64]float64{},
	}
	at := 0.0
	ordinals := [3]uint64{}
	for k := range int64(iterations) {
		if marked {
			w.BeginMs[k] = at
		}
		for i := range calls {
			at++
			c := call(k, at, 0.5)
			c.Comm = uint64(i % 3)
			c.Op = falcon.OpReduceScatter
			c.Ordinal = ordinals[i%3]
			ordinals[i%3]++
			w.Calls = append(w.Calls, c)
			at += 0.5
		}
	}
	return w
}

// Whatever is lost, and however many records of the rest, what is left is whole: no
// self time and no rate is below the true one.
func TestLostTimingsBiasNothing(t *testing.T) {
	const iterations, calls = 8, 500
	for _, marked := range []bool{true, false} {
		want := Summarize(largeWindow(iterations, calls, marked)).SelfMs
		for seed := range uint64(60) {
			rng := rand.New(rand.NewPCG(seed, 5))
			w := largeWindow(iterations, calls, marked)
			from := rng.IntN(len(w.Calls))
			burst := func(n int) (int, int) {
				return from, min(len(w.Calls), from+n)
			}
			switch seed % 4 {
			case 0: // a single one
				a, b := burst(1)
				w.Dropped, w.Calls = uint64(b-a), slices.Delete(w.Calls, a, b)
			case 1: // more than an iteration
				a, b := burst(2 * calls)
				w.Dropped, w.Calls = uint64(b-a), slices.Delete(w.Calls, a, b)
			case 2: // the records of some, over the end of an iteration: their iteration is not known
				a, b := burst(calls / 2)
				w.Dropped = uint64(b - a)
				for i := a; i < b; i++ {
					w.Calls[i].Iteration = UnknownIteration
				}
			default: // every tenth, of some iterations
				a, b := burst(calls)
				kept := w.Calls[:0]
				for i, c := range w.Calls {
					if i >= a && i < b && rng.IntN(10) == 0 {
						w.Dropped++
						continue
					}
					kept = append(kept, c)
				}
				w.Calls = kept
			}
			p := Summarize(w)
			if p.Dropped != w.Dropped {
				t.Fatalf("marked %t, seed %d: %d dropped of %d", marked, seed, p.Dropped, w.Dropped)
			}
			if p.Iterations == 0 {
				continue
			}
			rate := float64(len(p.Calls)) / float64(p.Iterations)
			if w.Dropped > 0 && rate != calls {
				t.Errorf("marked %t, seed %d: %g calls per iteration of %d, %d iterations",
					marked, seed, rate, calls, p.Iterations)
			}
			if math.Abs(p.SelfMs/want-1) > 0.01 {
				t.Errorf("marked %t, seed %d: self %.3f ms instead of %.3f", marked, seed, p.SelfMs, want)
			}
		}
	}
}
