package roster

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/columns"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func snapshot(tp, dp, pp int) *falconv1.SnapshotReply {
	world := tp * dp * pp
	s := &falconv1.SnapshotReply{Job: &falconv1.Job{
		Tp:    int32(tp),
		Dp:    int32(dp),
		Pp:    int32(pp),
		World: int32(world),
	}}
	views := make([]falconv1.RankView, world)
	for r := range views {
		v := &views[r]
		v.Rank = int32(r)
		v.Device = fmt.Sprintf("n%d.g%d", r/8, r%8)
		v.Health = falconv1.RankHealth_RANK_HEALTH_OK
		v.Ms = 100
		v.SmClockMhz = 1980
		v.TemperatureC = 60
		v.SelfRatio = 1
		v.WaitMs = 10
		v.WaitStep = 2
		v.TemperatureStep = 2
		v.ClockStep = 2
		v.CnpStep = 2
		s.Ranks = append(s.Ranks, v)
	}
	return s
}

func TestLevelsOfEachMetric(t *testing.T) {
	s := snapshot(1, 40, 1)
	v := s.Ranks[3]
	v.Level = 3
	v.Slowdown = 0.22
	v.SelfRatio = 1.6
	v.WaitMs = 55
	v.TemperatureC = 88
	v.SmClockMhz = 1500
	v.CnpPerS = 2500
	v.WaitStep = 6
	v.TemperatureStep = 6
	v.ClockStep = 6
	v.CnpStep = 5
	r := Make(s, nil)
	for m, want := range map[Metric]int{Slowdown: 3, Self: 4, Wait: 4, Temperature: 4, Clock: 4, CNP: 3} {
		if got, ok := r.LevelOf(m, v); got != want || !ok {
			t.Errorf("%s: level %d, want %d", r.Name(m), got, want)
		}
		if got, ok := r.LevelOf(m, s.Ranks[0]); got != 0 || !ok {
			t.Errorf("%s: a healthy rank is at level %d", r.Name(m), got)
		}
		bounds, unit := r.Bounds(m)
		if len(bounds) != 6 || unit == "" {
			t.Errorf("%s: bounds %v %q", r.Name(m), bounds, unit)
		}
	}
	if _, unit := r.Bounds(Clock); unit != "% of 1980 MHz" {
		t.Errorf("clocks are told against %q", unit)
	}
}

// What was not measured is a state of its own by each metric.
func TestUnmeasuredIsNoLevel(t *testing.T) {
	s := snapshot(1, 2, 1)
	*s.Ranks[1] = falconv1.RankView{
		Rank:    1,
		Health:  falconv1.RankHealth_RANK_HEALTH_OK,
		CnpPerS: -1,
	}
	r := Make(s, nil)
	for _, m := range Cycle {
		if got := r.Codes(m)[1]; got != Unmeasured {
			t.Errorf("%s: code %d", r.Name(m), got)
		}
		if got := r.Codes(m)[0]; got != Level0 {
			t.Errorf("%s: the measured rank has code %d", r.Name(m), got)
		}
	}
}

func TestStandings(t *testing.T) {
	s := snapshot(1, 24, 1)
	for i, h := range []falconv1.RankHealth{0, 1, 2, 3, 4, 5} {
		s.Ranks[i].Health = h
	}
	s.Ranks[9].Health, s.Ranks[20].Health = 5, 5
	s.Ranks[7] = nil
	s.Recovery = &falconv1.Recovery{
		Fenced: []string{"n1"},
		Ranks: []*falconv1.RankRecovery{{Rank: 20, Stage: "fenced"}, {
			Rank:  2,
			Stage: "fenced",
		}},
	}
	r := Make(s, nil)
	for rank, want := range map[int32]Standing{
		0:  Unknown,
		1:  OK,
		2:  Slow,
		3:  Culprit,
		4:  Stale,
		5:  Lost,
		7:  Unknown,
		9:  Fenced,
		20: Fenced,
		10: OK,
		99: Unknown,
		-1: Unknown,
	} {
		if got := r.Standing(rank); got != want {
			t.Errorf("rank %d stands at %d, want %d", rank, got, want)
		}
	}
	if fmt.Sprint(r.Anomalies) != "[2 3 4 5 9 20]" ||
		fmt.Sprint(r.Critical) != "[3 5]" ||
		r.Worst != 3 {
		t.Errorf("anomalies %v, critical %v, worst %d", r.Anomalies, r.Critical, r.Worst)
	}
	s.Job.State = string(falcon.JobFinished)
	if r := Make(s, nil); r.Standing(5) != Ended || r.Standing(3) != Culprit {
		t.Error("who is gone after the job's end is no loss")
	}
}

// The worst of several ranks is the maximum of their codes; a straightforward
// second look at the same ranks must agree that nothing graver is hidden.
func TestCodesAreOrderedByWhatMustBeSeen(t *testing.T) {
	order := []Code{
		None,
		Excluded,
		Unmeasured,
		Level(0),
		Level(1),
		StaleCode,
		Level(2),
		Level(3),
		Level(4),
		Level(5),
		Level(6),
		LostCode,
		CulpritCode,
	}
	if !slices.IsSorted(order) || Level(-3) != Level0 || Level(99) != Level6 {
		t.Error(order)
	}
}

// simpleLevel and simpleCode are the plain second way to what a rank shows.
func simpleLevel(m Metric, x float64) int {
	n := 0
	for i, b := range scales[m].From {
		if m == Clock && x < b || m != Clock && x >= b {
			n = i + 1
		}
	}
	return n
}

func simpleCode(r *Roster, m Metric, v *falconv1.RankView) Code {
	switch r.StandingOf(v) {
	case Culprit:
		return CulpritCode
	case Lost:
		return LostCode
	case Stale, Unknown:
		return StaleCode
	case Fenced:
		return Excluded
	case Ended:
		return Level0
	}
	x, ok := r.Value(m, v)
	steps := map[Metric]int32{
		Wait:        v.WaitStep,
		Temperature: v.TemperatureStep,
		Clock:       v.ClockStep,
		CNP:         v.CnpStep,
	}
	switch step, said := steps[r.Resolve(m)]; {
	case said && step >= 2 && step <= 8:
		return Level(int(step) - 2)
	case said || !ok:
		return Unmeasured
	case r.Resolve(m) == Slowdown:
		return Level(int(v.Level))
	}
	return Level(simpleLevel(r.Resolve(m), x))
}

// simpleWorst compares one after the other what a weight packs.
func simpleWorst(r *Roster) int32 {
	best := int32(0)
	key := [4]int{}
	for i, v := range r.Views() {
		if v == nil {
			continue
		}
		k := [4]int{1, Gravity(r.StandingOf(v)), simpleLevel(Self, v.SelfRatio), max(0, int(v.Level))}
		if slices.Compare(k[:], key[:]) > 0 {
			best, key = i, k
		}
	}
	return best
}

func TestTablesAgainstThePlainWay(t *testing.T) {
	odd := []float64{0, -1, 1, 1.05, 1.1, 2, 20, 97, 1e6, math.Inf(1), math.NaN()}
	rapid.Check(t, func(t *rapid.T) {
		value := func(name string) float64 {
			return rapid.OneOf(
				rapid.SampledFrom(odd),
				rapid.Float64Range(0, 3),
				rapid.Float64Range(0, 1e4),
			).Draw(t, name)
		}
		s := snapshot(2, rapid.IntRange(1, 6).Draw(t, "dp"), 2)
		if rapid.Bool().Draw(t, "over") {
			s.Job.State = string(falcon.JobFinished)
		}
		s.Recovery = &falconv1.Recovery{Fenced: []string{"n1"}}
		for i, v := range s.Ranks {
			v.Health = falconv1.RankHealth(rapid.IntRange(0, 5).Draw(t, "health"))
			v.Level = rapid.Int32Range(-1, 8).Draw(t, "level")
			v.SelfRatio, v.CnpPerS, v.Ms, v.WaitMs = value("self"), value("cnp"), value("ms"), value("wait")
			v.SmClockMhz = rapid.Uint32Range(0, 9000).Draw(t, "clock")
			v.TemperatureC = rapid.Uint32Range(0, 120).Draw(t, "temperature")
			if rapid.Bool().Draw(t, "says") {
				v.WaitStep = rapid.Int32Range(-1, 9).Draw(t, "wait step")
				v.TemperatureStep = rapid.Int32Range(0, 8).Draw(t, "heat step")
				v.ClockStep = rapid.Int32Range(0, 8).Draw(t, "clock step")
				v.CnpStep = rapid.Int32Range(0, 8).Draw(t, "cnp step")
			}
			switch rapid.IntRange(0, 9).Draw(t, "place") {
			case 0:
				s.Ranks[i] = nil
			case 1:
				v.Rank = rapid.Int32Range(-1, int32(len(s.Ranks))).Draw(t, "rank")
			}
		}
		r := Make(s, nil)
		for _, m := range append([]Metric{Auto}, Cycle...) {
			for i, got := range r.Codes(m) {
				want := simpleCode(r, m, r.View(int32(i)))
				if got != want || r.Code(m, r.View(int32(i))) != want {
					t.Fatalf("%s of rank %d: code %d, want %d: %v",
						r.Name(m), i, got, want, r.View(int32(i)))
				}
			}
		}
		var count [Standings]int
		for i, v := range r.Views() {
			if count[r.StandingOf(v)]++; r.Standing(i) != r.StandingOf(v) {
				t.Fatalf("rank %d stands at %d", i, r.Standing(i))
			}
		}
		if want := simpleWorst(r); r.Worst != want || r.Count != count {
			t.Fatalf("worst is %d, want %d; count %v, want %v", r.Worst, want, r.Count, count)
		}
	})
}

// The tables cost no allocation a rank.
func TestTablesAllocateNothingPerRank(t *testing.T) {
	s := snapshot(8, 16, 2)
	n := testing.AllocsPerRun(20, func() {
		r := Make(s, nil)
		for _, m := range Cycle {
			r.Codes(m)
		}
	})
	if n > 20 {
		t.Errorf("%v allocations for %d ranks", n, len(s.Ranks))
	}
}

func TestTheClockOfFastGPUs(t *testing.T) {
	for name, x := range map[string]struct {
		set  func(r int) uint32
		want float64
	}{
		"alike": {func(int) uint32 { return 1700 }, 1700},
		"one boosts": {func(r int) uint32 {
			return 1700 + uint32(r/99*280)
		}, 1700},
		"half throttles": {func(r int) uint32 {
			return 1000 + uint32(r%2*980)
		}, 1980},
		"none":     {func(int) uint32 { return 0 }, 0},
		"nonsense": {func(int) uint32 { return math.MaxUint32 }, 0},
	} {
		s := snapshot(1, 100, 1)
		for i, v := range s.Ranks {
			v.SmClockMhz = x.set(i)
		}
		if got := Make(s, nil).fastClock(); got != x.want {
			t.Errorf("%s: %g MHz, want %g", name, got, x.want)
		}
	}
}

func TestHostsAreSortedAndStay(t *testing.T) {
	s := snapshot(1, 24, 1)
	for i, v := range s.Ranks { // 12 nodes, ranks dealt out in turn
		v.Device = fmt.Sprintf("n%d.g%d", i%12, i/12)
	}
	s.Ranks[5].Device = ""
	h := Make(s, nil).Hosts()
	if fmt.Sprint(h.Names) != "[n0 n1 n2 n3 n4 n5 n6 n7 n8 n9 n10 n11 ~0]" ||
		fmt.Sprint(h.Order[:6]) != "[0 12 1 13 2 14]" ||
		h.Order[23] != 5 {
		t.Errorf("nodes %v, order %v", h.Names, h.Order)
	}
	for i, r := range h.Order {
		if h.Place[r] != int32(i) {
			t.Fatalf("rank %d is at %d and %d", r, i, h.Place[r])
		}
	}
	if Make(s, nil).Hosts() != h {
		t.Error("the same placement makes a new table")
	}
	s.Ranks[5].Device = "n5.g0"
	if Make(s, nil).Hosts() == h {
		t.Error("another placement is not seen")
	}
}

func TestNaturalOrderIsAnOrder(t *testing.T) {
	name := rapid.StringMatching(`[ab]{0,2}[0-9]{0,3}[.]?[0-9]{0,2}`)
	rapid.Check(t, func(t *rapid.T) {
		a := name.Draw(t, "a")
		b := name.Draw(t, "b")
		c := name.Draw(t, "c")
		if Natural(a, b) != -Natural(b, a) || (Natural(a, b) == 0) != (a == b) {
			t.Fatalf("%q and %q", a, b)
		}
		if Natural(a, b) <= 0 && Natural(b, c) <= 0 && Natural(a, c) > 0 {
			t.Fatalf("%q, %q, %q", a, b, c)
		}
	})
	if Natural("n2", "n10") >= 0 {
		t.Error("n10 before n2")
	}
}

// What many consoles ask of one roster at once is made once.
func TestTablesAreMadeOnce(t *testing.T) {
	r := Make(snapshot(8, 16, 2), nil)
	var wg sync.WaitGroup
	first := make([]*Code, 8)
	for i := range first {
		wg.Go(func() { first[i] = &r.Codes(Wait)[0] })
	}
	wg.Wait()
	if slices.ContainsFunc(first, func(c *Code) bool {
		return c != first[0]
	}) {
		t.Error("made twice")
	}
	if n := testing.AllocsPerRun(100, func() { r.Codes(Wait) }); n > 0 {
		t.Errorf("%v allocations to find them again", n)
	}
}

func BenchmarkMake100k(b *testing.B) {
	s := snapshot(8, 781, 16)
	b.ReportAllocs()
	for b.Loop() {
		Make(s, nil).Codes(Slowdown)
	}
}

func BenchmarkHosts100k(b *testing.B) {
	s := snapshot(8, 781, 16)
	b.ReportAllocs()
	for b.Loop() {
		Make(s, nil).Hosts()
	}
}

// One metric of all ranks; "plain" is the second implementation.
func BenchmarkCodes100k(b *testing.B) {
	s := snapshot(8, 1250, 10)
	b.ReportAllocs()
	b.Run("table", func(b *testing.B) {
		for b.Loop() {
			Make(s, nil).Codes(Clock)
		}
	})
	b.Run("plain", func(b *testing.B) {
		r := Make(s, nil)
		out := make([]Code, 0, r.World())
		for b.Loop() {
			out = out[:0]
			for _, v := range r.Views() {
				out = append(out, simpleCode(r, Self, v))
			}
		}
	})
}

// What the engine says holds, whatever was measured: it alone sees each sample.
func TestTheEnginesLevelsAreShown(t *testing.T) {
	s := snapshot(1, 40, 1)
	v := s.Ranks[3]
	v.TemperatureC = 69
	v.SmClockMhz = 1930
	v.WaitMs = 19
	v.CnpPerS = -1
	v.TemperatureStep = 3
	v.ClockStep = 3
	v.WaitStep = 3
	v.CnpStep = 1
	r := Make(s, nil)
	for m, want := range map[Metric]Code{Temperature: Level1, Clock: Level1, Wait: Level1, CNP: Unmeasured} {
		if got := r.Codes(m)[3]; got != want || r.Code(m, v) != want {
			t.Errorf("%s: code %d, want %d", r.Name(m), got, want)
		}
		if got, ok := r.LevelOf(m, v); Level(got) != want && ok {
			t.Errorf("%s: level %d", r.Name(m), got)
		}
	}
}

// A table of other ranks than the snapshot's is not used.
func TestTablesThatDoNotFit(t *testing.T) {
	s := snapshot(1, 24, 1)
	r := Make(s, columns.Of(9, s.Ranks[:9]))
	if r.World() != 24 || r.Count[OK] != 24 || len(r.Codes(Self)) != 24 {
		t.Errorf("%d ranks, count %v", r.World(), r.Count)
	}
	s.Job.World = 30
	r = Make(s, columns.Of(24, s.Ranks))
	if r.World() != 30 || r.Count[Unknown] != 6 || r.View(29) != nil {
		t.Errorf("%d ranks, count %v", r.World(), r.Count)
	}
	r = Make(&falconv1.SnapshotReply{}, columns.Of(0, nil))
	if r.World() != 0 || r.Worst != 0 || r.Measured {
		t.Errorf("of nothing: %+v", r)
	}
}

// Level is the code of a level, 0 to 6.
func Level(n int) Code {
	return ofLevel[max(0, min(n, 6))]
}
