package engine

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/pace"
	"github.com/failslow/falcon/detect"
)

// A chart has its past after a restart of the engine, marked, with times by the clock; also
// after a second restart, for which the journal was compacted.
func TestChartKeepsItsPastOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.job.step()
		for range 40 {
			b.turn()
		}
		time.Sleep(pace.Every + time.Second)
		synctest.Wait()
		before := b.chart()
		was := map[int64]float64{}
		b.inLoop(func() {
			for _, it := range b.engine.paces.recorder.Before(math.MaxInt64, 200, &pace.Book{}) {
				was[it.Index] = it.Ms
			}
		})
		b.again()
		after := b.chart()
		first := after.FirstIteration
		last := after.FirstIteration + int64(len(after.Ms)) - 1
		if first != before.FirstIteration || last <= before.FirstIteration+int64(len(before.Ms))-1 {
			t.Fatalf("iterations %d to %d; before the restart %d were shown from %d on",
				first, last, len(before.Ms), before.FirstIteration)
		}
		for i, ms := range after.Ms {
			i := first + int64(i)
			if ms != 0 && was[i] != 0 && math.Abs(float64(ms)/was[i]-1) > 0.001 {
				t.Fatalf("iteration %d took %g ms, was %g", i, ms, was[i])
			}
		}
		n := len(after.Ms) -
			len(slices.DeleteFunc(slices.Clone(after.Ms), func(ms float32) bool { return ms == 0 }))
		if n > 2 {
			t.Errorf("%d of %d iterations are not known", n, len(after.Ms))
		}
		if got := markedAs(after, "engine"); len(got) != 1 || got[0] <= first || got[0] > last {
			t.Errorf("restarts of the engine are marked at %v", got)
		}
		if len(after.Moments) < 2 ||
			!slices.IsSortedFunc(after.Moments, func(a, b *falconv1.Moment) int {
				return int(a.UnixNs - b.UnixNs)
			}) {
			t.Errorf("times: %v", after.Moments)
		}
		b.inLoop(func() {
			if err := b.engine.cfg.Journal.Compact(
				1,
				b.engine.state.snapshot(),
				b.engine.cfg.Retention.auditKept(b.engine.cfg.Now()),
			); err != nil {
				t.Error(err)
			}
		})
		b.again()
		if got := b.chart(); got.FirstIteration != first {
			t.Errorf("after a snapshot the chart begins at %d, before at %d", got.FirstIteration, first)
		}
	})
}

func (b *bench) chart() *falconv1.Series {
	b.t.Helper()
	c, err := b.engine.Series(context.Background(), 0, 200, 4)
	if err != nil || len(c.GetMs()) == 0 {
		b.t.Fatalf("%v, %v", c, err)
	}
	return c
}

func markedAs(s *falconv1.Series, kind string) []int64 {
	var out []int64
	for _, m := range s.GetMarks() {
		if m.Kind == kind {
			out = append(out, m.Iteration)
		}
	}
	return out
}

// Iterations that are missing, as after a test that held the job, end no chart: their places
// have no time, all parts stay aligned, and it is never wider than was asked for.
func TestChartWithGaps(t *testing.T) {
	past := []pace.Iteration{
		{Index: 2, Ms: 100, AtNs: 2, Epoch: 1, Old: true},
		{Index: 3, Ms: 100, AtNs: 3, Epoch: 1, Old: true},
		{Index: 6, Ms: 90, AtNs: 6, Epoch: 2},
	}
	cols := []detect.Column{
		{Iteration: 8, Ms: 200, Posterior: []float64{1, 0}},
		{Iteration: 9, Ms: 210, Posterior: []float64{1, 0}},
	}
	draw := func(most int) *falconv1.Series {
		c := chart{
			out:      &falconv1.Series{},
			most:     most,
			rows:     2,
			recorder: &pace.Recorder{},
		}
		c.draw(slices.Clone(past), slices.Clone(cols), 3)
		return c.out
	}
	s := draw(100)
	want := []float32{100, 100, 0, 0, 90, 0, 200, 210}
	if s.FirstIteration != 2 || !slices.Equal(s.Ms, want) {
		t.Errorf("from %d on %v", s.FirstIteration, s.Ms)
	}
	if len(s.Probability) != 8 ||
		len(s.MapRunLength) != 8 ||
		len(s.Posterior) != 16 {
		t.Errorf("%v", s)
	}
	if got := markedAs(s, "epoch"); !slices.Equal(got, []int64{6, 8}) {
		t.Errorf("epochs at %v", got)
	}
	if s := draw(3); s.FirstIteration != 8 || len(s.Ms) != 2 {
		t.Errorf("three columns: from %d on %v", s.FirstIteration, s.Ms)
	}
	if s := draw(4); s.FirstIteration != 6 || len(s.Ms) != 4 {
		t.Errorf("four columns: from %d on %v", s.FirstIteration, s.Ms)
	}
}
