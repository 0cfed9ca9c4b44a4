package pace

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.Unix(1_700_000_000, 0)

func iteration(i int64, ms float64, epoch uint64) Iteration {
	return Iteration{
		Index: i,
		Ms:    ms,
		AtNs:  t0.Add(time.Duration(i) * time.Second).UnixNano(),
		Epoch: epoch,
	}
}

// What a journal keeps is what was measured, to 0.1 % where a point is one iteration, and its
// mean where it is several.
func TestJournalledPast(t *testing.T) {
	var r Recorder
	var b Book
	for i := range int64(40) {
		r.Add(iteration(i, 100+float64(i), 1))
	}
	for i := int64(30); i < 200; i++ { // from a checkpoint, in a new epoch
		r.Add(iteration(i, 200, 2))
	}
	for _, s := range r.Due(t0) {
		if err := b.Apply(s); err != nil {
			t.Fatal(err)
		}
	}
	if again := r.Due(t0.Add(Every)); again != nil {
		t.Errorf("%v are recorded twice", again)
	}
	var empty Recorder
	got := empty.Before(math.MaxInt64, 1000, &b)
	if len(got) != 200 || got[0].Index != 0 || got[199].Index != 199 {
		t.Fatalf("%d iterations, %v to %v", len(got), got[0], got[len(got)-1])
	}
	for i, it := range got {
		want := iteration(int64(i), 200, 2)
		if i < 30 {
			want = iteration(int64(i), 100+float64(i), 1)
		}
		if math.Abs(it.Ms/want.Ms-1) > 0.03 ||
			it.Epoch != want.Epoch ||
			!it.Old ||
			it.AtNs/1e9 != want.AtNs/1e9 {
			t.Fatalf("iteration %d: %+v, was %+v", i, it, want)
		}
	}
	r.Add(iteration(200, 50, 2))
	if got := r.Before(201, 2, &b); len(got) != 2 || got[0].Ms != 200 || got[1].Ms != 50 || got[0].Old {
		t.Errorf("%+v", got)
	}
}

// However fast the job is, what is journalled a day has a bound.
func TestBytesADay(t *testing.T) {
	var r Recorder
	total, records := 0, 0
	for i := range int64(200_000) { // 1 ms each, an epoch every 500
		at := t0.Add(time.Duration(i) * time.Millisecond)
		r.Add(Iteration{
			Index: i,
			Ms:    1 + float64(i%7),
			AtNs:  at.UnixNano(),
			Epoch: uint64(1 + i/500),
		})
		if due := r.Due(at); due != nil {
			body, err := json.Marshal(due)
			if err != nil {
				t.Fatal(err)
			}
			total += len(body)
			records++
		}
	}
	const day = 24 * time.Hour
	if most := int(200 * time.Second / Every); records > most+1 {
		t.Fatalf("%d records in 200 s", records)
	}
	if perDay := total / records * int(day/Every); perDay > 3<<20 {
		t.Errorf("%d bytes a day", perDay)
	}
}

// A recorder and a book agree with a list of everything: each index once, the newest value, in
// order, and never more than was asked for.
func TestAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Recorder
		var b Book
		truth := map[int64]float64{}
		now := t0
		at := int64(0)
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			switch rapid.IntRange(0, 19).Draw(t, "what") {
			case 0:
				at = max(0, at-int64(rapid.IntRange(1, 30).Draw(t, "back")))
			case 1:
				at += int64(rapid.IntRange(1, 30).Draw(t, "gap"))
			case 2:
				now = now.Add(Every)
			}
			for i := range truth {
				if i >= at {
					delete(truth, i)
				}
			}
			truth[at] = rapid.Float64Range(1, 1e6).Draw(t, "ms")
			r.Add(Iteration{
				Index: at,
				Ms:    truth[at],
				AtNs:  now.UnixNano(),
				Epoch: 1,
			})
			at++
			for _, s := range r.Due(now) {
				if err := b.Apply(s); err != nil {
					t.Fatal(err)
				}
			}
		}
		n := rapid.IntRange(1, 300).Draw(t, "n")
		got := r.Before(math.MaxInt64, n, &b)
		var want []int64
		for i := range truth {
			want = append(want, i)
		}
		slices.Sort(want)
		want = want[max(0, len(want)-n):]
		if len(got) != len(want) {
			t.Fatalf("%d of %d iterations", len(got), len(want))
		}
		for i, it := range got {
			if it.Index != want[i] || it.Ms != truth[it.Index] {
				t.Fatalf("place %d: %+v, want iteration %d with %v", i, it, want[i], truth[want[i]])
			}
		}
	})
}

// A damaged journal has no power over memory.
func FuzzApply(f *testing.F) {
	f.Add(
		[]byte(`{"first":3,"n":3,"per":2,"begin_unix_ns":1,"end_unix_ns":9,"points":"AQIDBA=="}`),
		[]byte(`{"first":4,"n":1,"per":1,"points":"AQI="}`),
	)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var b Book
		for _, body := range [][]byte{first, second} {
			var s Stretch
			if json.Unmarshal(body, &s) == nil {
				_ = b.Apply(s)
			}
		}
		var r Recorder
		last := int64(-1)
		for _, it := range r.Before(math.MaxInt64, 2*Most, &b) {
			if it.Index <= last || !(it.Ms > 0) {
				t.Fatalf("%+v after %d", it, last)
			}
			last = it.Index
		}
	})
}
