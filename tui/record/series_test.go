package record

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// printed is a probability as the posterior's page prints it.
func printed(p float32) string {
	switch {
	case p > 0 && p < 0.001:
		return fmt.Sprintf("%.0e", p)
	case p > 0.999 && p < 1:
		return fmt.Sprintf("%.5f", p)
	}
	return fmt.Sprintf("%.3f", min(p, 1))
}

// A probability that went through a recording prints as it did, and goes
// through again as it is.
func TestChancesPrintAsTheyWere(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200_000 {
		p := float32(math.Pow(10, -9*rng.Float64()))
		if rng.IntN(3) == 0 {
			p = 1 - p
		}
		got := chanceOf(chanceLevel(p))
		if r := float64(got / p); p > 0 && p < 1e-6 && (r < 0.6 || r > 1.6) {
			t.Fatalf("%g is played as %g", p, got)
		}
		if p >= 1e-6 && (printed(p) != printed(got) || math.Abs(float64(got/p-1)) > 0.026) {
			t.Fatalf("%g prints as %s, played as %s", p, printed(p), printed(got))
		}
	}
	for _, p := range []float32{0, 1, 1e-30, -1, float32(math.NaN()), float32(math.Inf(1))} {
		got := chanceOf(chanceLevel(p))
		if got < 0 || got > 1 || p == 0 && got != 0 || p == 1 && got != 1 {
			t.Errorf("%g is played as %g", p, got)
		}
	}
	for n := range chanceLevel(1) + 1 {
		if got := chanceLevel(chanceOf(n)); got != n {
			t.Fatalf("level %d comes back as %d", n, got)
		}
	}
}

// redrawn are pictures of two ranks that take turns at being the worst; the
// chances of all iterations move a little with each picture, as the engine's
// do while its idea of the noise moves.
func redrawn(n int) []*falconv1.Series {
	var out []*falconv1.Series
	const rows = 64
	for i := range n {
		s := &falconv1.Series{
			Rank:           int32(i / 3 % 2),
			FirstIteration: int64(max(0, i-200)),
			RunLengths:     rows,
		}
		drift := 1 + 0.01*math.Sin(float64(i))
		for c := int(s.FirstIteration); c <= i; c++ {
			s.Ms = append(s.Ms, float32(100+c*7919%13+int(s.Rank)))
			s.Probability = append(s.Probability, float32(0.003*drift))
			s.MapRunLength = append(s.MapRunLength, int32(min(c, rows-1)))
			for r := range rows {
				s.Posterior = append(s.Posterior, float32(math.Exp(-math.Abs(float64(r-c%rows)))*drift/3))
			}
		}
		out = append(out, s)
	}
	return out
}

func TestSeriesOfChangingRanksAreChanges(t *testing.T) {
	w := newScene()
	r := newScene()
	size := 0
	full := 0
	for i, s := range redrawn(300) {
		d := w.diffSeries(s)
		w.series = s
		size, full = size+proto.Size(d), full+proto.Size(s)
		if err := r.applySeries(d); err != nil {
			t.Fatal(err)
		}
		got := r.series
		if got.Rank != s.Rank ||
			got.FirstIteration != s.FirstIteration ||
			fmt.Sprint(got.Ms, got.MapRunLength) != fmt.Sprint(s.Ms, s.MapRunLength) {
			t.Fatalf("picture %d: the series is another", i)
		}
		if fmt.Sprint(levelsOf(got)) != fmt.Sprint(levelsOf(s)) {
			t.Fatalf("picture %d: the chances are others", i)
		}
	}
	if size*5 > full {
		t.Errorf("%d bytes of %d are kept", size, full)
	}
}

// What isn't a matrix, as broken engines send it, is kept as it is.
func TestSeriesWithHoles(t *testing.T) {
	w := newScene()
	r := newScene()
	for i, s := range []*falconv1.Series{
		{Ms: []float32{1, 2}},
		{Ms: []float32{1, 2, 3}, Probability: []float32{0.5}, RunLengths: 3},
		{Rank: 4},
		nil,
		{RunLengths: -1},
		redrawn(1)[0],
		nil,
	} {
		d := w.diffSeries(s)
		w.series = s
		if err := r.applySeries(d); err != nil {
			t.Fatal(err)
		}
		if s == nil && r.series != nil ||
			s != nil && fmt.Sprint(r.series.Ms) != fmt.Sprint(s.Ms) {
			t.Errorf("series %d is played as %v", i, r.series)
		}
	}
}

// A writer says why it records no more.
func TestStoppedSaysWhy(t *testing.T) {
	w, err := Create(filepath.Join(t.TempDir(), "r"), Options{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if why := w.Stopped(); why != "" {
		t.Errorf("stopped before the first picture: %s", why)
	}
	w.Record(newJob(4).next(start))
	if err := w.Close(); err != nil || w.Stopped() != "it is at its limit of 1 bytes" {
		t.Errorf("%v, %q", err, w.Stopped())
	}
	broken, err := Create(filepath.Join(t.TempDir(), "r"), Options{flushEach: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = broken.file.Close()
	broken.Record(newJob(4).next(start))
	if err := broken.Close(); err == nil || broken.Stopped() != "its file cannot be written" {
		t.Errorf("%v, %q", err, broken.Stopped())
	}
}

// A replay has the decisions of each picture as they came, to the last bit; a frame repeats none.
func TestDecisionsOfAReplay(t *testing.T) {
	series := redrawn(40)
	var was, read *falconv1.Series
	repeated := 0
	for i, s := range series {
		for k := range i / 10 {
			s.Decisions = append(s.Decisions, &falconv1.ChangeDecision{
				By:        "bocd",
				Kind:      "onset",
				Rank:      -1,
				Iteration: int64(k),
				BeforeMs:  1 / float64(3+k),
				AfterMs:   1e9 / 7,
				Filter: &falconv1.FilterState{
					Probability: 0.1 + 0.2,
					RunLengths:  []int32{3, 1, 0},
					Chances:     []float64{1. / 3, 2. / 7, 1e-300},
				},
			})
		}
		d := packSeries(was, s)
		if len(was.GetDecisions()) == len(s.Decisions) && len(d.Series.Decisions) > 0 {
			repeated++
		}
		got, err := unpackSeries(read, d)
		if err != nil ||
			!proto.Equal(
				&falconv1.Series{Decisions: got.Decisions},
				&falconv1.Series{Decisions: s.Decisions},
			) {
			t.Fatalf("picture %d: %v, %v", i, got.GetDecisions(), err)
		}
		was, read = s, got
	}
	if repeated > 0 {
		t.Errorf("%d frames repeat decisions", repeated)
	}
	if out, err := unpackSeries(nil, &falconv1.RecordSeries{
		DecisionsKept: true,
		Series:        &falconv1.Series{},
		Chances:       &falconv1.RecordChances{},
	}); err != nil ||
		out.Decisions != nil {
		t.Errorf("%v, %v", out, err)
	}
}
