package detect

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
)

// shadow is a simple second way to what the detector saw and kept: each series from the samples
// themselves, and each filter from what a decision says that it was fed.
type shadow struct {
	cfg    bocd.TrackerConfig
	job    map[int64]float64 // slowest rank of each iteration
	held   map[int64]bool    // a rank was held in it
	ranks  map[falcon.Rank]map[int64]float64
	seen   map[*Decision]bool
	by     map[Detector]int
	kinds  map[bocd.Kind]int
	filled int
}

func newShadow(m *Machine) *shadow {
	s := &shadow{
		cfg:   m.cfg.Tracker,
		seen:  map[*Decision]bool{},
		by:    map[Detector]int{},
		kinds: map[bocd.Kind]int{},
	}
	s.forget()
	return s
}

func (s *shadow) forget() {
	s.job = map[int64]float64{}
	s.held = map[int64]bool{}
	s.ranks = map[falcon.Rank]map[int64]float64{}
}

func (s *shadow) take(in Samples) {
	for _, x := range in.Samples {
		if s.ranks[x.Rank] == nil {
			s.ranks[x.Rank] = map[int64]float64{}
		}
		if ms := x.RunMs(); ms > 0 {
			s.job[x.Iteration] = max(s.job[x.Iteration], ms)
			if x.PausedMs == 0 {
				s.ranks[x.Rank][x.Iteration] = ms
			}
		}
		s.held[x.Iteration] = s.held[x.Iteration] || x.PausedMs > 0
	}
}

// again feeds a new filter what a decision says.
func (s *shadow) again(d *Decision) (bocd.State, int64) {
	from := s.ranks[d.Rank]
	if d.Rank < 0 {
		from = maps.Clone(s.job)
		maps.DeleteFunc(from, func(i int64, _ float64) bool {
			return s.held[i]
		})
	}
	at := slices.DeleteFunc(slices.Sorted(maps.Keys(from)), func(i int64) bool { return i > d.DecidedAt })
	at = at[max(0, len(at)-d.Filter.Seen):]
	f := bocd.New(s.cfg.Filter)
	for _, i := range at {
		ms := from[i]
		for _, r := range d.Filter.Removed {
			if r.Iteration == i {
				ms = r.As
			}
		}
		_, _ = f.Observe(ms/d.Filter.ScaleMs - d.Filter.CentreMs/d.Filter.ScaleMs)
	}
	out := bocd.State{
		Step:  f.Last(),
		Seen:  f.Seen(),
		Alarm: d.Filter.Alarm,
	}
	for r, p := range f.Runs {
		out.Runs = append(out.Runs, bocd.Run{Length: r, P: p})
	}
	return out, at[0]
}

// check compares the decisions that are new with what the shadow computes.
func (s *shadow) check(t *testing.T, m *Machine) {
	t.Helper()
	for _, d := range m.Decisions() {
		if s.seen[d] {
			continue
		}
		s.seen[d] = true
		s.by[d.By]++
		s.kinds[d.Kind]++
		if d.Filter == nil {
			if d.By == ByPosterior || d.By == ByReference || d.By == ByShift {
				t.Errorf("%+v has no filter", d)
			}
			continue
		}
		want, from := s.again(d)
		if !equalBits(d.Filter.State, want) ||
			m.samples.slowest.seen < m.cfg.History && from != d.Filter.From {
			t.Errorf("%s at %d of rank %d by %s: P %v of %d runs, fed from %d; again P %v of %d, from %d",
				d.Kind, d.Iteration, d.Rank, d.By, d.Filter.PRecent, len(d.Filter.Runs),
				d.Filter.From, want.PRecent, len(want.Runs), from)
		}
		s.filled += len(d.Filter.Removed)
		s.checkColumn(t, m, d)
	}
}

// checkColumn compares what page 4 draws for the moment of a decision with the decision.
func (s *shadow) checkColumn(t *testing.T, m *Machine, d *Decision) {
	t.Helper()
	if d.Rank >= 0 {
		return
	}
	want := make([]float64, 128)
	d.Filter.Binned(want)
	for _, c := range m.Series(0, m.cfg.History, len(want)) {
		if c.Iteration == d.DecidedAt &&
			(!slices.EqualFunc(c.Posterior, want, sameBits) ||
				c.MAP != d.Filter.MAP ||
				c.Alarm != d.Filter.Alarm) {
			t.Errorf("%s at %d: the column of iteration %d is not what decided",
				d.Kind, d.Iteration, d.DecidedAt)
		}
	}
}

func sameBits(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b)
}

func equalBits(a, b bocd.State) bool {
	return sameBits(a.PRecent, b.PRecent) &&
		sameBits(a.PMAP, b.PMAP) &&
		a.MAP == b.MAP &&
		a.Seen == b.Seen &&
		a.Alarm == b.Alarm &&
		slices.EqualFunc(a.Runs, b.Runs, func(x, y bocd.Run) bool {
			return x.Length == y.Length && sameBits(x.P, y.P)
		})
}

// At every alarm of every script the filter that is kept, and drawn, is the one that decided: to
// the last bit what a new filter makes of the samples, the scale and the removals that the decision
// states.
func TestDecisionsOfAllScripts(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txt")
	by := map[Detector]int{}
	kinds := map[bocd.Kind]int{}
	removed := 0
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			var s script
			var sh *shadow
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				f := fields(d)
				out := s.do(t, f)
				if f[0] == "job" {
					sh = newShadow(s.w.m)
					s.w.watch = func(in Input) {
						switch in := in.(type) {
						case Samples:
							sh.take(in)
						case Job:
							if in.Epoch != s.w.m.job.desc.Epoch {
								sh.check(t, s.w.m)
								sh.forget()
							}
						}
					}
					s.w.after = func() { sh.check(t, s.w.m) }
				}
				return out
			})
			for d, n := range sh.by {
				by[d] += n
			}
			for k, n := range sh.kinds {
				kinds[k] += n
			}
			removed += sh.filled
		})
	}
	t.Logf("%v, %v, %d iterations removed", by, kinds, removed)
	for _, d := range []Detector{ByPosterior, ByReference, ByShift, ByEarly, ByWindows} {
		if by[d] == 0 {
			t.Errorf("no script has a decision by %s", d)
		}
	}
	if removed == 0 || kinds[bocd.KindJitter] == 0 {
		t.Error("no script removes a burst")
	}
}

// What is kept is bounded, and an epoch forgets it.
func TestDecisionsAreBounded(t *testing.T) {
	var l decisionLog
	for i := range 3 * decisionsMost {
		l.add(&Decision{Iteration: int64(i)})
	}
	if len(l.list) != decisionsMost || l.list[decisionsMost-1].Iteration != 3*decisionsMost-1 {
		t.Errorf("%d decisions, the newest of %d", len(l.list), l.list[len(l.list)-1].Iteration)
	}
	alarms := make([]alarm, 100)
	for i := range alarms {
		alarms[i].why = &Decision{Rank: falcon.Rank(i)}
	}
	l = decisionLog{}
	l.noteOpened(alarms, 5)
	if len(l.list) != voicesMost || !l.list[0].Opened || l.list[0].Onset != 5 {
		t.Errorf("%d ranks' decisions are kept", len(l.list))
	}
	if l.startEpoch(); len(l.list) != 0 {
		t.Error("decisions of another epoch are kept")
	}
}
