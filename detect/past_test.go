package detect

import (
	"slices"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// A chart keeps the iterations before a recovery, and shows those that ran again once.
func TestSeriesKeepsItsPastAcrossEpochs(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	m := New(Config{History: 64})
	begin := func(epoch uint64) {
		m.Step(at, Job{Epoch: epoch, Layout: falcon.Layout{TP: 1, DP: 2, PP: 1}})
		m.Advance()
	}
	run := func(from, to int64, ms float64) {
		for i := from; i < to; i++ {
			at = at.Add(time.Second)
			m.Step(at, Samples{Samples: []falcon.Sample{{Rank: 0, Iteration: i, Ms: ms}, {Rank: 1, Iteration: i, Ms: ms + 1}}})
			m.Advance()
		}
	}
	begin(1)
	run(0, 30, 100)
	begin(2)
	shown := func(most int) (iterations []int64, past int) {
		for _, c := range m.Series(0, most, 4) {
			iterations = append(iterations, c.Iteration)
			if c.Past {
				past++
			}
			if len(c.Posterior) != 4 {
				t.Fatalf("iteration %d has %d rows", c.Iteration, len(c.Posterior))
			}
		}
		return iterations, past
	}
	if got, past := shown(100); len(got) < 20 || past != len(got) {
		t.Fatalf("before the first iteration of an epoch %v are shown, %d of them past", got, past)
	}
	run(20, 40, 200) // from a checkpoint
	got, past := shown(100)
	if want := sequence(0, 40); !slices.Equal(got, want) || past != 20 {
		t.Errorf("shown are %v, %d of them past", got, past)
	}
	if got, past := shown(25); !slices.Equal(got, sequence(15, 40)) || past != 5 {
		t.Errorf("of 25 columns %v are shown, %d of them past", got, past)
	}
	begin(3)
	run(40, 90, 100)
	begin(4)
	run(90, 100, 100)
	if got, past := shown(1000); !slices.Equal(got, sequence(26, 100)) || past != 64 {
		t.Errorf("%v are shown, %d of them past, where 64 are kept", got, past)
	}
}

func sequence(from, to int64) []int64 {
	var out []int64
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}
