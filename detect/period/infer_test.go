package period

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// dumbPeriod tries every lag with agreement as written down, averaged over
// classes that come at least twice.
func dumbPeriod(calls []Call, least float64) int {
	count := make(map[Class]int)
	for _, c := range calls {
		count[c.classOf()]++
	}
	for lag := 1; lag <= longestLag(len(calls)); lag++ {
		sum, classes := 0.0, 0
		for class, n := range count {
			if n < eligibleCount {
				continue
			}
			hit, head, tail := 0, 0, 0
			for i, c := range calls {
				if c.classOf() != class {
					continue
				}
				if i+lag < len(calls) {
					head++
					if calls[i+lag].classOf() == class {
						hit++
					}
				}
				if i >= lag {
					tail++
				}
			}
			classes++
			if m := max(head, tail); m > 0 {
				sum += float64(hit) / float64(m)
			}
		}
		if classes > 1 && sum/float64(classes) >= least {
			return lag
		}
	}
	return 0
}

// randomJob is a random iteration of micro-batches and rarer calls, repeated.
func randomJob(rng *rand.Rand) (calls []Call, period int) {
	var one []Call
	for range 1 + rng.IntN(8) {
		for i := range 1 + rng.IntN(4) {
			one = append(one, Call{Op: uint32(1 + i), Comm: 1, Bytes: 1 << 10})
		}
	}
	for range 1 + rng.IntN(3) {
		one = append(one, Call{
			Op:    uint32(10 + rng.IntN(3)),
			Comm:  2,
			Bytes: 1 << 20,
		})
	}
	rng.Shuffle(len(one), func(i, j int) {
		one[i], one[j] = one[j], one[i]
	})
	at := int64(0)
	for range 4 + rng.IntN(6) {
		for _, c := range one {
			at += 1 + rng.Int64N(1000)
			c.TimeNs = at
			calls = append(calls, c)
		}
	}
	return calls, len(one)
}

func TestInferEqualsTryingEveryLag(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	found := 0
	for trial := range 2000 {
		calls, period := randomJob(rng)
		want := dumbPeriod(calls, DefaultAgreement)
		got, err := Infer(calls)
		if want == 0 {
			continue // the dumb one knows no coarser classes and no times
		}
		found++
		if err != nil || got.Period != want || period%got.Period != 0 {
			t.Fatalf("trial %d: %d of %d, want %d: %v", trial, got.Period, period, want, err)
		}
	}
	if found < 1500 {
		t.Errorf("only %d of 2000 had a period", found)
	}
}

func TestInferFindsLongPeriods(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	one := make([]Call, 7919)
	for i := range one {
		one[i] = Call{
			Op:    uint32(1 + rng.IntN(5)),
			Comm:  uint64(rng.IntN(4)),
			Bytes: 1 << rng.IntN(20),
		}
	}
	one[4000].Comm = 99
	var calls []Call
	for range 4 {
		calls = append(calls, one...)
	}
	r, err := Infer(calls)
	if err != nil || r.Period != len(one) {
		t.Fatalf("period %d, %v", r.Period, err)
	}
}

func TestInferSaysWhyNot(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	noise := make([]Call, 2000)
	even := make([]Call, 500)
	at := int64(0)
	for i := range noise {
		at += 1 + rng.Int64N(1e6)
		noise[i] = Call{Op: uint32(rng.IntN(6)), TimeNs: at}
	}
	for i := range even {
		even[i] = Call{Op: 1, TimeNs: int64(i) * 1e6}
	}
	single := slices.Clone(noise)
	for i := range single {
		single[i].Op = 1
	}
	var ordinal uint64
	var t0 int64
	for name, calls := range map[string][]Call{
		"nothing":      nil,
		"few":          noise[:5],
		"noise":        noise,
		"even":         even,
		"single noise": single,
		"two repeats":  megatron(2, 8, &ordinal, &t0),
	} {
		r, err := Infer(calls)
		if !errors.Is(err, ErrNone) {
			t.Errorf("%s: period %d, %v", name, r.Period, err)
		}
	}
}

// TestInferSkipsTheStart: initial broadcasts that never come again.
func TestInferSkipsTheStart(t *testing.T) {
	var ordinal uint64
	var at int64
	start := make([]Call, 60)
	for i := range start {
		start[i] = Call{Op: 5, Comm: 1, Bytes: 1 << (i % 7)}
	}
	r, err := Infer(append(start, megatron(12, 4, &ordinal, &at)...))
	if err != nil || r.Period != 22 {
		t.Fatalf("period %d, %v", r.Period, err)
	}
}

func FuzzInfer(f *testing.F) {
	f.Add([]byte{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		data = data[:min(len(data), 2000)]
		calls := make([]Call, len(data))
		cfg := Config{Window: 300, Op: LiveOp}
		tr := NewTracker(cfg)
		for i, b := range data {
			calls[i] = Call{
				Op:      uint32(b & 3),
				Comm:    uint64(b >> 6),
				Bytes:   int64(b),
				TimeNs:  int64(i) * int64(b),
				Ordinal: uint64(b),
			}
			tr.Observe(calls[i])
		}
		r, err := cfg.Infer(calls)
		if err == nil &&
			(r.Period < 1 ||
				r.Period > longestLag(len(calls)) ||
				!(r.Agreement >= 0 && r.Agreement <= 1.001)) {
			t.Fatalf("%+v of %d calls", r, len(calls))
		}
	})
}
