package roster

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/failslow/falcon/backend/api/columns"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// wantAlike compares all that a roster tells with the same snapshot's, made anew
// from views.
func wantAlike(t interface{ Fatalf(string, ...any) }, got, want *Roster) {
	same := func(what string, a, b any) {
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("%s: %v, anew %v", what, a, b)
		}
	}
	for _, m := range append([]Metric{Auto}, Cycle...) {
		if a, b := got.Codes(m), want.Codes(m); !slices.Equal(a, b) {
			t.Fatalf("codes by %s: %v, anew %v", want.Name(m), a, b)
		}
		a, unit := got.Bounds(m)
		b, same := want.Bounds(m)
		if got.Name(m) != want.Name(m) || unit != same || !slices.Equal(a, b) {
			t.Fatalf("%s: bounds %v %s, anew %v %s", want.Name(m), a, unit, b, same)
		}
	}
	same("standings", got.standings, want.standings)
	same("anomalies", got.Anomalies, want.Anomalies)
	same("critical", got.Critical, want.Critical)
	same("count", got.Count, want.Count)
	same("worst, measured", []any{got.Worst, got.Measured}, []any{want.Worst, want.Measured})
	same("layout", []any{got.TP, got.DP, got.PP}, []any{want.TP, want.DP, want.PP})
	same("names of nodes", got.Hosts().Names, want.Hosts().Names)
	same("order by nodes", got.Hosts().Order, want.Hosts().Order)
	if len(got.Ranks) != len(want.Ranks) {
		t.Fatalf("%d ranks, anew %d", len(got.Ranks), len(want.Ranks))
	}
	for i, v := range want.Ranks {
		if !proto.Equal(got.Ranks[i], v) {
			t.Fatalf("rank %d: %v, anew %v", i, got.Ranks[i], v)
		}
	}
}

// history is a job whose snapshots follow each other.
type history struct {
	t       *rapid.T
	snap    *falconv1.SnapshotReply
	version uint64
	sent    *columns.Table // the engine's
	table   *columns.Table // the console's
	views   []*falconv1.RankView
	last    *Roster
}

// anew begins with other ranks.
func (h *history) anew() {
	h.snap = snapshot(rapid.IntRange(1, 2).Draw(h.t, "tp"), rapid.SampledFrom([]int{1, 5, 40, 97}).Draw(h.t, "dp"), rapid.IntRange(1, 2).Draw(h.t, "pp"))
	h.last = nil
}

func (h *history) some(name string, change func(*falconv1.RankView)) {
	for _, r := range rapid.SliceOfN(rapid.IntRange(0, len(h.snap.Ranks)-1), 0, 4).Draw(h.t, name) {
		v := proto.CloneOf(h.snap.Ranks[r])
		change(v)
		h.snap.Ranks[r] = v
	}
}

// first changes one of the ranks that recoveries fence.
func (h *history) first(name string, change func(*falconv1.RankView)) {
	r := rapid.IntRange(0, min(3, len(h.snap.Ranks)-1)).Draw(h.t, name)
	v := proto.CloneOf(h.snap.Ranks[r])
	change(v)
	h.snap.Ranks[r] = v
}

// step changes little: what a job does from one snapshot to the next.
func (h *history) step() {
	t := h.t
	h.snap = proto.CloneOf(h.snap)
	x := rapid.OneOf(rapid.SampledFrom([]float64{0, 1, 1.05, 1.1, 1.25, 1.5, 2, 20, 30, 80, 1e3, 1e6}), rapid.Float64Range(-1, 200))
	switch rapid.IntRange(0, 14).Draw(t, "step") {
	case 0: // a new iteration
		for _, v := range h.snap.Ranks {
			v.Iteration++
			v.Ms += rapid.SampledFrom([]float64{0, 0.01, 7}).Draw(t, "ms")
		}
	case 1:
		h.some("stale", func(v *falconv1.RankView) { v.Health = falconv1.RankHealth_RANK_HEALTH_STALE })
	case 2:
		h.some("health", func(v *falconv1.RankView) { v.Health = falconv1.RankHealth(rapid.IntRange(0, 6).Draw(t, "of")) })
	case 3:
		h.some("levels", func(v *falconv1.RankView) { v.Level = rapid.Int32Range(-1, 8).Draw(t, "level") })
	case 4:
		h.some("self", func(v *falconv1.RankView) { v.SelfRatio = x.Draw(t, "self") })
	case 5:
		h.some("wait", func(v *falconv1.RankView) { v.WaitMs, v.Ms = x.Draw(t, "wait"), x.Draw(t, "of ms") })
	case 6:
		h.some("temperature", func(v *falconv1.RankView) { v.TemperatureC = rapid.Uint32Range(0, 120).Draw(t, "°C") })
	case 7:
		h.some("clock", func(v *falconv1.RankView) {
			v.SmClockMhz = rapid.OneOf(rapid.Uint32Range(0, 9000), rapid.SampledFrom([]uint32{0, 990, 1287, 1782, 1980, 1 << 31})).Draw(t, "MHz")
		})
	case 8:
		h.some("cnp", func(v *falconv1.RankView) {
			v.CnpPerS = x.Draw(t, "cnp") * rapid.SampledFrom([]float64{1, 1e4}).Draw(t, "by")
		})
	case 9:
		h.first("device", func(v *falconv1.RankView) {
			v.Device = rapid.SampledFrom([]string{"", "n0.g0", "n1.g7", "n10.g1"}).Draw(t, "name")
		})
	case 10: // fenced nodes and ranks come and go
		h.snap.Recovery = nil
		if rapid.Bool().Draw(t, "recovers") {
			h.snap.Recovery = &falconv1.Recovery{
				Fenced: rapid.SliceOfN(rapid.SampledFrom([]string{"n0", "n1"}), 0, 2).Draw(t, "fenced"),
				Ranks:  []*falconv1.RankRecovery{{Rank: rapid.Int32Range(0, 3).Draw(t, "apart"), Stage: rapid.SampledFrom([]string{"fenced", "ready"}).Draw(t, "stage")}},
			}
		}
		for _, v := range h.snap.Ranks[:min(4, len(h.snap.Ranks))] {
			v.Health = falconv1.RankHealth_RANK_HEALTH_LOST
		}
	case 11: // an engine that says levels, of all or, as none does, of some
		for _, v := range h.snap.Ranks {
			v.WaitStep, v.TemperatureStep, v.ClockStep, v.CnpStep = 2, 3, 1, 8
		}
	case 12:
		step := rapid.Int32Range(-1, 10)
		if rapid.Bool().Draw(t, "known") {
			step = rapid.Int32Range(1, 8)
		}
		h.some("steps", func(v *falconv1.RankView) {
			v.WaitStep, v.TemperatureStep, v.ClockStep, v.CnpStep = step.Draw(t, "wait"), step.Draw(t, "°C"), step.Draw(t, "MHz"), step.Draw(t, "CNP")
		})
	case 13: // nothing of one kind, as a column that is not there
		for _, v := range h.snap.Ranks {
			v.TemperatureStep, v.ClockStep, v.Level = 0, 0, 0
		}
	case 14:
		h.snap.Job.State = rapid.SampledFrom([]string{"running", Finished}).Draw(t, "state")
	}
}

// pull is what a console receives: changes against what it holds, or all.
func (h *history) pull() *falconv1.SnapshotReply {
	h.version++
	now, ok := columns.From(h.version, h.snap.Ranks, h.sent)
	if !ok {
		h.t.Fatal("no columns")
	}
	base := h.sent
	if h.table == nil || rapid.IntRange(0, 9).Draw(h.t, "whole") == 0 {
		base, h.table = nil, nil
	}
	table, err := columns.Decode(h.version, h.table, columns.Encode(base, now))
	if err != nil {
		h.t.Fatal(err)
	}
	h.views = table.Views(h.table, h.views)
	h.sent, h.table = now, table
	out := proto.CloneOf(h.snap)
	out.Ranks = h.views
	return out
}

// Over any sequence of changes, tables that share with those before are what
// tables made anew from views are.
func TestSharedTablesAgainstAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{t: t}
		h.anew()
		for range rapid.IntRange(1, 12).Draw(t, "snapshots") {
			if rapid.IntRange(0, 7).Draw(t, "other job") == 0 {
				last := h.last
				h.anew()
				h.table, h.last = nil, last // nothing of another job may be taken over
			}
			for range rapid.IntRange(0, 3).Draw(t, "steps") {
				h.step()
			}
			snap := h.pull()
			switch rapid.IntRange(0, 5).Draw(t, "derived") {
			case 0: // nobody looked at this one
				continue
			case 1: // no columns came with it
				h.last = After(h.last, snap, nil)
			default:
				h.last = After(h.last, snap, h.table)
			}
			wantAlike(t, h.last, Make(snap))
		}
	})
}

// Columns of other ranks than the snapshot's are not believed.
func TestColumnsThatDoNotFit(t *testing.T) {
	s := snapshot(1, 24, 1)
	few, _ := columns.From(1, s.Ranks[:9], nil)
	wantAlike(t, After(nil, s, few), Make(s))
	all, _ := columns.From(1, s.Ranks, nil)
	s.Job.World = 30
	wantAlike(t, After(nil, s, all), Make(s))
	none, _ := columns.From(1, nil, nil)
	wantAlike(t, After(nil, &falconv1.SnapshotReply{}, none), Make(&falconv1.SnapshotReply{}))
}

// What the engine says holds, whatever was measured: it alone sees each sample.
func TestTheEnginesLevelsAreShown(t *testing.T) {
	s := snapshot(1, 40, 1)
	v := s.Ranks[3]
	v.TemperatureC, v.SmClockMhz, v.WaitMs, v.CnpPerS = 69, 1930, 19, -1
	v.TemperatureStep, v.ClockStep, v.WaitStep, v.CnpStep = 3, 3, 3, 1
	r := Make(s)
	for m, want := range map[Metric]Code{Temperature: Level1, Clock: Level1, Wait: Level1, CNP: Unmeasured} {
		if got := r.Codes(m)[3]; got != want || r.Code(m, v) != want {
			t.Errorf("%s: code %d, want %d", r.Name(m), got, want)
		}
		if got, ok := r.LevelOf(m, v); Level(got) != want && ok {
			t.Errorf("%s: level %d", r.Name(m), got)
		}
	}
}

// large are the columns of a snapshot.
func large(version uint64, s *falconv1.SnapshotReply, base *columns.Table) *columns.Table {
	table, _ := columns.From(version, s.Ranks, base)
	return table
}

// What is not there anew costs no room: a snapshot in which nothing changed that
// tables show makes none.
func TestWhatStaysIsShared(t *testing.T) {
	s := snapshot(8, 16, 2)
	one := large(1, s, nil)
	first := After(nil, s, one)
	for _, v := range s.Ranks {
		v.Iteration++
	}
	s.Ranks[7].TemperatureC = 91
	then := After(first, s, large(2, s, one))
	for _, m := range Cycle {
		if shared := &first.Codes(m)[0] == &then.Codes(m)[0]; shared != (m != Temperature) {
			t.Errorf("%s: shared is %v", then.Name(m), shared)
		}
	}
	if first.Hosts() != then.Hosts() {
		t.Error("nodes are laid out anew")
	}
}

// The tables of a snapshot that follows another, by what has changed; anew is
// without a snapshot before.
func BenchmarkAfter100k(b *testing.B) {
	const world = 8 * 1250 * 10
	every := func(n int, change func(v *falconv1.RankView)) func([]*falconv1.RankView) {
		return func(ranks []*falconv1.RankView) {
			for i := 0; i < len(ranks); i += n {
				change(ranks[i])
			}
		}
	}
	iteration := func(v *falconv1.RankView) { v.Iteration, v.Ms, v.WaitMs = v.Iteration+1, v.Ms+1, v.WaitMs+1 }
	for _, c := range []struct {
		name   string
		change func([]*falconv1.RankView)
	}{
		{"nothing", every(world, func(*falconv1.RankView) {})},
		{"60 ranks", every(world/60, func(v *falconv1.RankView) {
			v.Level, v.Health, v.Slowdown = 2, falconv1.RankHealth_RANK_HEALTH_SLOW, 0.2
		})},
		{"an iteration of all", every(1, iteration)},
		{"clocks of all", every(1, func(v *falconv1.RankView) {
			v.SmClockMhz, v.TemperatureC = v.SmClockMhz-v.SmClockMhz%7, v.TemperatureC+1
		})},
		{"all columns", every(1, func(v *falconv1.RankView) {
			iteration(v)
			v.SelfRatio, v.SmClockMhz, v.TemperatureC, v.CnpPerS, v.Level = v.SelfRatio+0.01, v.SmClockMhz-15, v.TemperatureC+1, v.CnpPerS+1, 1
			if v.Rank%1000 == 0 {
				v.Health = falconv1.RankHealth_RANK_HEALTH_STALE
			}
		})},
	} {
		s := snapshot(8, 1250, 10)
		one := large(1, s, nil)
		first := After(nil, s, one)
		c.change(s.Ranks)
		two := large(2, s, one)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				After(first, s, two)
			}
		})
	}
	b.Run("anew", func(b *testing.B) {
		s := snapshot(8, 1250, 10)
		one := large(1, s, nil)
		b.ReportAllocs()
		for b.Loop() {
			After(nil, s, one)
		}
	})
}
