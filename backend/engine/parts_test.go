package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/mitigate"
)

var t0 = time.Unix(1_700_000_000, 0)

func sampleOf(r falcon.Rank, i int64, ms float64) falcon.Sample {
	return falcon.Sample{Rank: r, Iteration: i, Ms: ms}
}

// allHeard is for tests in which no rank is silent.
func allHeard(map[falcon.Rank]struct{}) []falcon.Node { return nil }

// An iteration that is given out without a silent node says so; a rank whose
// samples are only late is not silent.
func TestPaceNamesTheUnheard(t *testing.T) {
	j := &job{ranks: map[falcon.Rank]*process{}}
	for r, age := range []time.Duration{0, unheardFor, unheardFor, unheardFor - 1, unheardFor} {
		j.ranks[falcon.Rank(r)] = &process{
			node:     falcon.Node(fmt.Sprint("n", r/2)),
			state:    &falconv1.RankState{Alive: r != 4},
			lastSeen: t0.Add(-age),
		}
	}
	p := newIterationCollector()
	p.addSample(sampleOf(0, 3, 10), t0.Add(-laggardWait))
	got := p.takeComplete(4, t0, func(heard map[falcon.Rank]struct{}) []falcon.Node {
		return j.unheard(heard, t0)
	})
	want := []mitigate.Iteration{{
		Index:   3,
		Ms:      10,
		Unheard: []falcon.Node{"n0", "n1"},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPaceWaitsForAllButNotForever(t *testing.T) {
	p := newIterationCollector()
	p.addSample(sampleOf(0, 3, 10), t0)
	if got := p.takeComplete(2, t0, allHeard); got != nil {
		t.Fatalf("given out before rank 1 reported: %v", got)
	}
	p.addSample(falcon.Sample{Rank: 1, Iteration: 3, Ms: 30, PausedMs: 10}, t0)
	if got := p.takeComplete(
		2,
		t0,
		allHeard,
	); !reflect.DeepEqual(got, []mitigate.Iteration{{Index: 3, Ms: 20}}) {
		t.Fatalf("got %v, want iteration 3 at 20 ms", got)
	}
	p.addSample(sampleOf(1, 3, 99), t0) // again, after a reconnect
	p.addSample(sampleOf(0, 4, 11), t0)
	if got := p.takeComplete(2, t0.Add(laggardWait-1), allHeard); got != nil {
		t.Fatalf("given out early: %v", got)
	}
	if got := p.takeComplete(
		2,
		t0.Add(laggardWait),
		allHeard,
	); !reflect.DeepEqual(got, []mitigate.Iteration{{Index: 4, Ms: 11}}) {
		t.Fatalf("after the wait: %v", got)
	}
	for i := int64(5); i < 5+laggardIterations+1; i++ {
		p.addSample(sampleOf(0, i, 12), t0)
	}
	if got := p.takeComplete(
		2,
		t0,
		allHeard,
	); !reflect.DeepEqual(got, []mitigate.Iteration{{Index: 5, Ms: 12}}) {
		t.Fatalf("a silent rank held back more than %d iterations: %v", laggardIterations, got)
	}
}

// In any order of arrival every iteration comes out once, in order, with the
// slowest rank's time: compared with sorting everything at the end.
func TestPaceAgainstSorting(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		const ranks, iterations = 5, 40
		next := make([]int64, ranks)
		want := make([]float64, iterations)
		var got []mitigate.Iteration
		p := newIterationCollector()
		p.next, p.newest = 0, 0
		for len(got) < iterations {
			r := rng.IntN(ranks)
			slowest := slices.Min(next)
			if next[r] == iterations || next[r] > slowest+laggardIterations-2 {
				continue
			}
			ms := rng.Float64() * 100
			want[next[r]] = max(want[next[r]], ms)
			p.addSample(sampleOf(falcon.Rank(r), next[r], ms), t0)
			next[r]++
			got = append(got, p.takeComplete(ranks, t0, allHeard)...)
		}
		for i, it := range got {
			if it.Index != int64(i) || it.Ms != want[i] {
				t.Fatalf("seed %d, place %d: %v, want %v ms", seed, i, it, want[i])
			}
		}
	}
}

// What a rank shows by each measurement rises at once and holds through what the
// measurement varies by; what is not measured shows no level, and forgets it.
func TestStepsHoldByEachMeasurement(t *testing.T) {
	var was shown
	look := func(temperature, clock uint32, wait, cnp float64) *falconv1.RankView {
		v := &falconv1.RankView{
			TemperatureC: temperature,
			SmClockMhz:   clock,
			Ms:           100,
			WaitMs:       wait,
			SelfRatio:    1,
			CnpPerS:      cnp,
		}
		was.enterSteps(v, 2000)
		return v
	}
	for i, c := range []struct {
		view *falconv1.RankView
		want [4]int32
	}{
		{look(69, 1980, 19, 9), [4]int32{2, 2, 2, 2}},
		{look(75, 1870, 31, 120), [4]int32{4, 4, 4, 4}},
		{look(73, 1890, 28, 60), [4]int32{4, 4, 4, 4}},
		{look(0, 0, -1, -1), [4]int32{1, 1, 1, 1}},
		{look(73, 1890, 28, 60), [4]int32{3, 3, 3, 3}},
		{look(60, 2000, 1, 0), [4]int32{2, 2, 2, 2}},
	} {
		v := c.view
		got := [4]int32{v.TemperatureStep, v.ClockStep, v.WaitStep, v.CnpStep}
		if got != c.want {
			t.Errorf("look %d: steps %v, want %v", i, got, c.want)
		}
	}
}

func TestWorstOfThreeWays(t *testing.T) {
	for _, c := range []struct{ slowdown, ms, stage, ratio, want float64 }{
		{-0.2, 100, 100, 0, 0},
		{0.3, 100, 100, 0, 0.3},
		{0, 150, 100, 0, 0.5},
		{0, 100, 100, 2, 1},
		{0.1, 0, 100, 0.5, 0.1},
	} {
		if got := worst(c.slowdown, c.ms, c.stage, c.ratio); got != c.want {
			t.Errorf("worst(%v, %v, %v, %v) = %v, want %v",
				c.slowdown, c.ms, c.stage, c.ratio, got, c.want)
		}
	}
}

func TestCommunicatorsAreNamedByTheirRanks(t *testing.T) {
	l := falcon.Layout{TP: 2, DP: 3, PP: 2}
	for _, d := range []falcon.Dimension{falcon.DimTP, falcon.DimDP, falcon.DimPP} {
		for _, g := range l.Groups(d) {
			if got := dimensionOf(l, g.Ranks); got != d {
				t.Errorf("ranks %v: %q, want %q", g.Ranks, got, d)
			}
		}
	}
	all := l.Groups(falcon.DimWorld)[0].Ranks
	if got := dimensionOf(l, all); got != falcon.DimWorld {
		t.Errorf("all ranks: %q", got)
	}
	for _, odd := range [][]falcon.Rank{{0, 3}, {0, 2}, {1}, {0, 1, 2}, {0, 11}} {
		if got := dimensionOf(l, odd); got != "" {
			t.Errorf("ranks %v: %q, want none", odd, got)
		}
	}
	dp := falcon.Layout{TP: 1, DP: 4, PP: 1}
	if got := named("world", dimensionOf(dp, []falcon.Rank{0, 1, 2, 3}), dp); got != falcon.DimWorld {
		t.Errorf("a world communicator of a pure DP job: %q", got)
	}
}

// What one rank reports out of range, and the end of an earlier process, change
// nothing.
func TestReportsThatAreNotTaken(t *testing.T) {
	j := newJob()
	for r := range int32(4) {
		j.setState("n0", &falconv1.RankState{
			Rank:         r,
			Pid:          10 + r,
			Alive:        true,
			World:        4,
			Tp:           1,
			Dp:           4,
			Pp:           4,
			MicroBatches: 2,
		})
	}
	if !j.complete() {
		t.Fatal("four of four ranks are here")
	}
	for _, r := range []int32{-1, RanksMax} {
		if j.setState("n0", &falconv1.RankState{Rank: r, Pid: 10 + r, Alive: true, World: 4}) {
			t.Errorf("rank %d was taken", r)
		}
	}
	j.setState("n0", &falconv1.RankState{Rank: 2, Pid: 999})
	if !j.complete() {
		t.Error("the end of an unknown earlier process counted as the rank's")
	}
	j.setState("n0", &falconv1.RankState{
		Rank: 2,
		Pid:  12,
		Exit: "exited normally",
	})
	if j.complete() || j.alive != 3 || j.ranks[2].state.GetDp() != 4 {
		t.Errorf("after an end: alive %d, state %v", j.alive, j.ranks[2].state)
	}
}

func TestCleanLeavesNoControlCharacter(t *testing.T) {
	if got := clean("a\x1b[31mb\u009bc\nd\x00é\xff"); got != "a[31mbcdé" {
		t.Errorf("clean = %q", got)
	}
	if got := clean(
		string(make([]rune, 0)) + string(slices.Repeat([]rune{'é'}, 400)),
	); len(got) > textBytesMax {
		t.Errorf("%d bytes", len(got))
	}
}

// benchEngine is an engine with the real machines and a job of n ranks, 8 a
// node, whose loop does not run.
func benchEngine(b *testing.B, n int) *Engine {
	b.Helper()
	j, err := journal.Open(filepath.Join(b.TempDir(), "j.db"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = j.Close() })
	e, err := New(Config{Journal: j, Now: func() time.Time { return t0 }})
	if err != nil {
		b.Fatal(err)
	}
	for r := range n {
		node := fmt.Sprint("n", r/8)
		if r%8 == 0 {
			e.onAttach(fleet.NewSession(context.Background(), &falconv1.Hello{Agent: node, Node: node}), t0)
		}
		e.job.setState(falcon.Node(node), &falconv1.RankState{
			Rank:         int32(r),
			Device:       fmt.Sprintf("%s.g%d", node, r%8),
			Pid:          int32(1 + r),
			Alive:        true,
			Tp:           8,
			Dp:           int32(n / 32),
			Pp:           4,
			World:        int32(n),
			MicroBatches: 8,
		})
	}
	e.describe(t0)
	if err := e.settleMachines(t0); err != nil {
		b.Fatal(err)
	}
	return e
}

func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{1024, 10240, 100_000} {
		b.Run(fmt.Sprint(n, "ranks"), func(b *testing.B) {
			e := benchEngine(b, n)
			b.ReportAllocs()
			for b.Loop() {
				e.views.build(t0)
			}
			if got := len(e.views.snapshot.Load().Ranks.Views()); got != n {
				b.Fatalf("%d ranks in the picture", got)
			}
		})
	}
}

func BenchmarkDescribe(b *testing.B) {
	e := benchEngine(b, 10240)
	for b.Loop() {
		e.describe(t0)
	}
}
