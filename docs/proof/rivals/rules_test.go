package rivals

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/failslow/falcon/docs/proof/evaltest"
)

func near(a, b float64) bool {
	return math.Abs(a-b) < 1e-9
}

// Twice as slow as the fastest rank is a relative score of 0.5, twice as slow as ever
// an individual score of 0.5 (NVRx's usage guide); of kernels the scores are weighted by
// the time spent, and NCCL's count nothing.
func TestNvrxScores(t *testing.T) {
	n := &Nvrx{}
	two := func(gemm, copied, nccl float64) KernelTimes {
		return KernelTimes{
			"gemm":                    {gemm, gemm, gemm},
			"copy":                    {copied},
			"ncclDevKernel_AllReduce": {nccl},
		}
	}
	s := n.Report([]KernelTimes{two(10, 6, 1), two(20, 6, 900)})
	want := (0.5*60 + 1*6) / 66
	if !near(s.Relative[0], 1) ||
		!near(s.Relative[1], want) ||
		!near(s.Individual[1], 1) {
		t.Errorf("first report: %+v, want relative 1 and %.4f", s, want)
	}
	s = n.Report([]KernelTimes{two(10, 6, 1), two(40, 12, 1)})
	if want := 0.5; !near(s.Individual[1], want) || !near(s.Individual[0], 1) {
		t.Errorf("second report: %+v, want individual 1 and %.1f", s, want)
	}
	only := KernelTimes{"gemm": {10}}
	if s := (&Nvrx{}).Report([]KernelTimes{only, {"gemm": {10}, "extra": {99}}}); !near(s.Relative[1], 1) {
		t.Errorf("a kernel that not all ranks run has a score: %+v", s)
	}
	if s := (&Nvrx{}).Report([]KernelTimes{{}, only}); !math.IsNaN(s.Relative[0]) ||
		len(s.Stragglers(1, true)) != 0 {
		t.Errorf("a rank without kernels is scored: %+v", s)
	}
	sections := &Nvrx{Sections: true}
	if s := sections.Report([]KernelTimes{
		{"load": {1}, "forward": {10}},
		{"load": {4}, "forward": {10}},
	}); !near(s.Relative[1], 0.25) {
		t.Errorf("sections are averaged: %+v", s)
	}
}

// On its own data NVRx names a GPU at 0.6, by its relative score from the start too,
// and none at 0.9 or where only waits differ, as its default says.
func TestNvrxOnKernels(t *testing.T) {
	for _, c := range KernelCases() {
		for seed := range uint64(3) {
			var want []string
			if c.Speed < NvrxThreshold {
				want = []string{fmt.Sprint(kernelSlow)}
			}
			if got := KernelNames(Method(nvrxName), NvrxThreshold, c.Tables(seed)); !slices.Equal(got, want) {
				t.Errorf("%s, seed %d: %v, want %v", c.Name, seed, got, want)
			}
		}
	}
}

// The lines of Megatron-LM's page have 296.02 and 297.32 TFLOPS: no rank is slow.
func TestMegatronLines(t *testing.T) {
	s := DefaultStraggler()
	for i, c := range []struct {
		line []float64
		want int
	}{
		{[]float64{296.02, 297, 296.5, 297.32}, -1},
		{[]float64{296, 200, 296, 297}, -1}, // once
		{[]float64{296, 210, 296, 297}, 1},
		{[]float64{190, 210, 296, 297}, -1}, // another rank
		{[]float64{190, 210, 296, 297}, 0},
		{[]float64{296, 296, 296, 297}, -1},
		{[]float64{190, 210, 296, 297}, -1},
		{nil, -1},
		{[]float64{1}, -1},
	} {
		if got := s.Line(c.line); got != c.want {
			t.Errorf("line %d, %v: %d, want %d", i, c.line, got, c.want)
		}
	}
}

// On its own data Minder names a machine that is at fault for eight minutes, and none for
// jitter or two minutes; of many at once it names none, as its paper has it.
func TestMinderOnStreams(t *testing.T) {
	for _, c := range StreamCases() {
		for seed := range uint64(2) {
			var want []string
			if c.Faulty == 1 && c.Seconds > 240 {
				want = []string{"0"}
			}
			if got := StreamNames(
				DefaultMinder(1),
				[]float64{3},
				c.Samples(seed),
			)[0]; !slices.Equal(got, want) {
				t.Errorf("%s, seed %d: %v, want %v", c.Name, seed, got, want)
			}
		}
	}
}

// Distances by all pairs one after the other.
func TestApartnessEqualsNaive(t *testing.T) {
	windows := [][]float64{{1, 2}, {1, 2.1}, {0.9, 2}, {1.05, 1.9}, {4, 6}}
	got := apartness(windows)
	var sums []float64
	for _, a := range windows {
		sum := 0.0
		for _, b := range windows {
			sum += math.Hypot(a[0]-b[0], a[1]-b[1])
		}
		sums = append(sums, sum)
	}
	sorted := slices.Sorted(slices.Values(sums))
	off := make([]float64, len(sums))
	for i := range sums {
		off[i] = math.Abs(sums[i] - sorted[2])
	}
	slices.Sort(off)
	for i := range got {
		if want := (sums[i] - sorted[2]) / (1.4826 * off[2]); !near(got[i], want) {
			t.Errorf("%d: %v, want %v", i, got[i], want)
		}
	}
}

// The released program reports a step once, where it is, and drops what its checks drop.
func TestReleased(t *testing.T) {
	d := DefaultReleased(ShortBeast(), 20)
	series := noisySteps(1, 1, 100, 150)
	series[90] *= 40 // a stall: dropped by the three sigmas
	got := d.Reports(d.Runs(series, 1))
	if len(got) != 1 ||
		max(got[0].At-60, 60-got[0].At) > 2 ||
		got[0].Seen < 60 ||
		got[0].Seen > 100 {
		t.Errorf("a step of 50 %%: %v", got)
	}
	if got := d.Reports(d.Runs(noisySteps(1, 1, 100, 115), 1)); len(got) != 0 {
		t.Errorf("a step of 15 %% is over no 20 %%: %v", got)
	}
	for i, c := range []struct {
		breaks []Break
		want   int
	}{
		{[]Break{{60, 0.9}}, 1},
		{[]Break{{60, 0.8}}, 0},             // not over
		{[]Break{{9, 1}}, 0},                // too early
		{[]Break{{60, 0.9}, {65, 0.99}}, 1}, // too near to the one before
		{[]Break{{30, 0.9}}, 0},             // no change there up to the next
	} {
		run := Run{Seen: 119, breaks: c.breaks}
		run.kept, run.values = d.withoutFar(noisySteps(1, 1, 100, 150))
		if c.breaks[0].At == 30 {
			run.values = run.values[:50]
		}
		if got := d.check(run); len(got) != c.want {
			t.Errorf("%d: %v of %v, want %d", i, got, c.breaks, c.want)
		}
	}
}

// The best setting judges slow and healthy jobs rightly, however few are slow; then it
// reports least elsewhere, then it is the least.
func TestBest(t *testing.T) {
	s := Scores{}
	add := func(setting float64, slow, healthy, stray int) {
		s.Add(Scores{setting: {}})
		*s[setting] = evaltest.Score{
			TruePositive:  slow,
			FalseNegative: 2 - slow,
			TrueNegative:  healthy,
			FalsePositive: 20 - healthy,
			Stray:         stray,
		}
	}
	add(1, 0, 20, 0) // judges most jobs rightly, and finds nothing
	add(3, 2, 16, 7)
	add(2, 2, 16, 7)
	add(4, 2, 16, 9)
	if got := s.Best(); got != 2 {
		t.Error(got)
	}
}

// A story comes out the same each time, and each kind of outcome is counted once.
func TestStories(t *testing.T) {
	s := NewStory(SlowGPU, 1, 5)
	s.To = s.From + 320
	methods := RankMethods()
	first, second := s.PlayTo(methods), s.PlayTo(methods)
	if fmt.Sprint(first) != fmt.Sprint(second) {
		t.Error("two plays differ")
	}
	named := s.Falcon(false)
	if len(s.Faults) != 1 ||
		len(named) != 1 ||
		!s.Faults[0][named[0].Name] ||
		named[0].At < s.From {
		t.Errorf("fault %v from %d, Falcon names %v", s.Faults, s.From, named)
	}
	for m := range methods {
		if got := first[m][0]; len(got) != 1 || !s.Faults[0][got[0].Name] {
			t.Errorf("%s names %v, want one of %v", methods[m].Name, got, s.Faults)
		}
	}
	s.Faults = []map[string]bool{{"a": true}, {"b": true}}
	var o Outcome
	o.Take(s, []Named{{s.From + 3, "a"}})
	o.Take(s, []Named{{s.From + 3, "a"}, {s.From + 9, "b"}})
	o.Take(s, []Named{{s.From, "a"}, {s.From, "c"}})
	o.Take(s, nil)
	o.Take(s, []Named{{s.From - 1, "a"}})
	s.Faults = nil
	o.Take(s, nil)
	o.Take(s, []Named{{7, "a"}, {7, "b"}, {9, "a"}})
	want := Outcome{
		Stories:    5,
		Right:      2,
		Complete:   1,
		Wrong:      1,
		Missed:     2,
		Clean:      2,
		CleanRight: 1,
		False:      3,
		Iterations: 5*s.From + 2*s.To,
		Delays:     []int{3, 3},
	}
	if fmt.Sprint(o) != fmt.Sprint(want) {
		t.Errorf("%+v\nwant %+v", o, want)
	}
}

// A value that is no number names no one, and breaks nothing.
func TestNoNumberNamesNoOne(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0} {
		set := Minder{
			Window:    4,
			Threshold: 3,
			Lasting:   1,
			Pulled:    16,
		}
		d, w := NewDistances(set, 1, 4), NewWatcher(set, 1)
		for range 20 {
			if got := w.Name(d.Observe([][]float64{{1, 1, bad, 1}})); got >= 0 && bad != 0 {
				t.Errorf("%v: Minder names %d", bad, got)
			}
		}
		s := DefaultStraggler()
		for range 3 {
			if got := s.Line([]float64{1, 1, bad, 1}); got >= 0 && got != 2 {
				t.Errorf("%v: Megatron's rule names %d", bad, got)
			}
		}
		one := func(ms float64) KernelTimes { return KernelTimes{"gemm": {ms, ms}} }
		scores := (&Nvrx{}).Report([]KernelTimes{one(5), one(bad), one(5)})
		if got := scores.Stragglers(NvrxThreshold, true); slices.Contains(got, 0) || slices.Contains(got, 2) {
			t.Errorf("%v: NVRx names %v", bad, got)
		}
		released := DefaultReleased(ShortBeast(), 20)
		series := noisySteps(1, 1, 100)
		series[30] = bad
		if got := released.Reports(released.Runs(series, 1)); len(got) != 0 {
			t.Errorf("%v: the released program reports %v", bad, got)
		}
	}
}
