package history

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// value is one that was added.
type value struct {
	at                    time.Time
	least, mean, greatest float64
}

// naive is the second implementation: it keeps all that was added.
type naive struct{ all []value }

// bucket is what lies in a stretch, by going through everything.
func (n *naive) bucket(from, to time.Time) (out Bucket) {
	for _, v := range n.all {
		if v.at.Before(from) || !v.at.Before(to) {
			continue
		}
		if out.N == 0 {
			out.Min, out.Max = v.least, v.greatest
		}
		out.Min = min(out.Min, v.least)
		out.Max = max(out.Max, v.greatest)
		out.Sum += v.mean
		out.N++
	}
	return out
}

func alike(a, b Bucket) bool {
	return a.N == b.N &&
		(a.N == 0 || a.Min == b.Min && a.Max == b.Max && math.Abs(a.Sum-b.Sum) <= 1e-9*(1+math.Abs(b.Sum)))
}

// Random runs: dense and sparse, with pauses, with values that come late.
func TestEveryBucketIsThatOfItsValues(t *testing.T) {
	for seed := range uint64(24) {
		rng := rand.New(rand.NewPCG(seed, 7))
		s := &Series{}
		all := &naive{}
		at := time.Unix(1_800_000_000+rng.Int64N(5000), rng.Int64N(1e9))
		step := time.Duration(1+rng.Int64N(30_000)) * time.Millisecond
		for range 200 + rng.IntN(2000) {
			switch rng.IntN(200) {
			case 0:
				at = at.Add(time.Duration(rng.Int64N(int64(2 * time.Hour))))
			default:
				at = at.Add(time.Duration(rng.Int64N(int64(step))))
			}
			v := value{at: at, least: 100 * rng.Float64()}
			if rng.IntN(50) == 0 {
				v.at = at.Add(-time.Duration(rng.Int64N(int64(10 * time.Second))))
			}
			v.mean = v.least + rng.Float64()
			v.greatest = v.mean + rng.Float64()
			all.all = append(all.all, v)
			s.AddSpread(v.at, v.least, v.mean, v.greatest)
		}
		for i := range s.levels {
			checkLevel(t, seed, &s.levels[i], all)
		}
		checkWhole(t, seed, s, all)
	}
}

func checkLevel(t *testing.T, seed uint64, l *level, all *naive) {
	t.Helper()
	if len(l.buckets) > Most {
		t.Fatalf("seed %d: %d buckets of %v", seed, len(l.buckets), l.width)
	}
	for i, b := range l.buckets {
		from := time.Unix(0, (l.first+int64(i))*int64(l.width))
		if want := all.bucket(from, from.Add(l.width)); !alike(b, want) {
			t.Fatalf("seed %d: bucket %d of %v is %+v instead of %+v", seed, i, l.width, b, want)
		}
	}
}

// checkWhole wants nothing of the run to be forgotten.
func checkWhole(t *testing.T, seed uint64, s *Series, all *naive) {
	t.Helper()
	from, to, ok := s.Span()
	if !ok {
		t.Fatalf("seed %d: empty", seed)
	}
	want := all.bucket(time.Unix(0, 0), to.Add(time.Hour))
	var sum Bucket
	for _, b := range s.levels[levels].buckets {
		sum.join(b)
	}
	if !alike(sum, want) || int(want.N) != len(all.all) {
		t.Fatalf("seed %d: all are %+v instead of %+v", seed, sum, want)
	}
	for _, n := range []int{1, 7, 160, 5000} {
		var seen Bucket
		for _, c := range s.Columns(from, to, n) {
			seen.join(c)
		}
		if seen.Min != want.Min || seen.Max != want.Max {
			t.Fatalf("seed %d: %d columns show %v to %v instead of %v to %v",
				seed, n, seen.Min, seen.Max, want.Min, want.Max)
		}
	}
}

// What is looked at closely and is recent is shown as finely as it was measured.
func TestRecentTimeIsFine(t *testing.T) {
	s := &Series{}
	begin := time.Unix(1_800_000_000, 0)
	const day = 24 * 60 * 60
	for i := range day {
		s.Add(begin.Add(time.Duration(i)*time.Second), float64(i))
	}
	end := begin.Add(day * time.Second)
	for i, b := range s.Columns(end.Add(-100*time.Second), end, 100) {
		want := float64(day - 100 + i)
		if b.N != 1 || b.Min != want || b.Max != want || b.Mean() != want {
			t.Fatalf("second %d of the last 100 is %+v, want %v", i, b, want)
		}
	}
	columns := s.Columns(begin, end, 100)
	for i, b := range columns {
		if b.N == 0 ||
			b.Min > float64((i+1)*day/100) ||
			b.Max < float64(i*day/100) {
			t.Errorf("column %d of the day is %+v", i, b)
		}
	}
	if got := s.levels[levels].width; got != 128*time.Second {
		t.Errorf("a day is held in buckets of %v", got)
	}
}

// Where nothing was measured nothing is shown.
func TestAPauseIsAGap(t *testing.T) {
	s := &Series{}
	begin := time.Unix(1_800_000_000, 0)
	s.Add(begin, 1)
	s.Add(begin.Add(9*time.Second), 2)
	got := s.Columns(begin, begin.Add(10*time.Second), 10)
	for i, b := range got {
		if (b.N == 0) != (i != 0 && i != 9) {
			t.Errorf("second %d: %+v", i, b)
		}
	}
	if _, _, ok := (&Series{}).Span(); ok {
		t.Error("an empty series has a span")
	}
}

func BenchmarkAdd(b *testing.B) {
	s := &Series{}
	at := time.Unix(1_800_000_000, 0)
	b.ReportAllocs()
	for b.Loop() {
		at = at.Add(time.Second)
		s.AddSpread(at, 1, 2, 3)
	}
}

func BenchmarkColumns(b *testing.B) {
	s := &Series{}
	at := time.Unix(1_800_000_000, 0)
	for range 100_000 {
		at = at.Add(time.Second)
		s.Add(at, 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Columns(at.Add(-24*time.Hour), at, 400)
	}
}
