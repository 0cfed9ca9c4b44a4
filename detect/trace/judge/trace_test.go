package judge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
	"github.com/failslow/falcon/detect/trace"
)

// timeline is a job of 4 replicas and 2 stages over 20 steps; ms returns each
// worker's computation time in a step.
func timeline(ms func(dp, pp, step int) float64) trace.Timeline {
	t := trace.Timeline{Layout: falcon.Layout{TP: 1, DP: 4, PP: 2}}
	for step := range 20 {
		t.Steps = append(t.Steps, int64(step))
	}
	for r := range 8 {
		at := t.Layout.Coord(falcon.Rank(r))
		w := trace.Worker{
			Name:  fmt.Sprintf("dp%d/pp%d", at.DP, at.PP),
			Rank:  falcon.Rank(r),
			Count: 20,
		}
		for step := range 20 {
			w.ComputeMs = append(w.ComputeMs, ms(at.DP, at.PP, step))
		}
		t.Workers = append(t.Workers, w)
	}
	return t
}

func TestTimelineVerdicts(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	noise := func() float64 { return 1 + 0.01*rng.NormFloat64() }
	for name, c := range map[string]struct {
		ms    func(dp, pp, step int) float64
		cause falcon.Cause
		ranks []falcon.Rank
		say   string
	}{
		"one slow worker": {func(dp, pp, _ int) float64 {
			if dp == 2 && pp == 1 {
				return 150 * noise()
			}
			return 100 * noise()
		}, falcon.CauseUnknown, []falcon.Rank{6}, "Rank 6 is worker dp2/pp1"},
		"steady": {
			func(int, int, int) float64 { return 100 * noise() },
			falcon.CauseUnknown,
			[]falcon.Rank{},
			"No rank or group stands out",
		},
		"long last stage": {
			func(_, pp, _ int) float64 {
				return 100 * (1 + 0.4*float64(pp)) * noise()
			},
			falcon.CauseNotHardware,
			[]falcon.Rank{},
			"the stage has more work",
		},
		"sequences": {func(dp, _, step int) float64 {
			if (step*7+step/4)%4 == dp {
				return 180 * noise()
			}
			return 100 * noise()
		}, falcon.CauseNotHardware, []falcon.Rank{}, "for example by sequence length"},
	} {
		r := Timeline(timeline(c.ms), peer.Rules{})
		if r.Cause != c.cause ||
			!slices.Equal(r.Ranks, c.ranks) ||
			!says(r, c.say) ||
			r.Confidence > 0.8 {
			t.Errorf("%s: %+v", name, r.Verdict)
		}
	}
}

// A fault in the last third of a trace does not change the medians.
func TestTimelineSeesAnOnsetInTheMiddle(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	line := trace.Timeline{Layout: falcon.Layout{TP: 1, DP: 4, PP: 1}}
	for r := range 4 {
		w := trace.Worker{
			Name:  fmt.Sprintf("dp%d/pp0", r),
			Rank:  falcon.Rank(r),
			Count: 60,
		}
		for step := range 60 {
			ms := 100 * (1 + 0.01*rng.NormFloat64())
			if r == 3 && step >= 42 || r == 1 && step >= 20 && step < 32 {
				ms *= 1.5
			}
			w.ComputeMs = append(w.ComputeMs, ms)
		}
		line.Workers = append(line.Workers, w)
	}
	for step := range 60 {
		line.Steps = append(line.Steps, int64(step))
	}
	r := Timeline(line, peer.Rules{})
	if !slices.Equal(r.Ranks, []falcon.Rank{3}) ||
		!says(r, "from step 42 on, until the end") ||
		!says(r, "Worker dp1/pp0 (rank 1)") {
		t.Errorf("%+v", r.Verdict)
	}
}

func says(r TraceReport, part string) bool {
	return slices.ContainsFunc(r.Evidence, func(e falcon.Evidence) bool {
		return strings.Contains(e.Text, part)
	})
}

func TestTimelineNamesTheSlowGroup(t *testing.T) {
	line := timeline(func(int, int, int) float64 { return 100 })
	for i := range line.Workers {
		w := &line.Workers[i]
		stage := line.Layout.Coord(w.Rank).PP
		for step := range 20 {
			ms := 20.0
			if stage == 1 {
				ms = 40
			}
			w.Calls = append(w.Calls, trace.Call{
				Step:       int64(step),
				StartMs:    float64(step) * 200,
				DurationMs: ms,
				Op:         falcon.OpAllReduce,
				Bytes:      1 << 20,
				Comm:       uint64(stage + 1),
				Dimension:  falcon.DimDP,
				Size:       4,
				From:       -1,
			})
		}
	}
	r := Timeline(line, peer.Rules{})
	if r.Cause != falcon.CauseNetwork ||
		!slices.Equal(r.Ranks, []falcon.Rank{4, 5, 6, 7}) ||
		r.Workers[4].TransferMs != 40 ||
		r.Workers[4].WaitMs != 0 {
		t.Errorf("%+v", r)
	}
}

// flightDumps are dumps of four ranks in one group; edit changes one entry or
// drops it.
func flightDumps(edit func(rank int, e *trace.Entry) bool) []trace.Dump {
	var out []trace.Dump
	for rank := range 4 {
		d := trace.Dump{
			Rank: rank,
			Groups: map[string]trace.DumpGroup{"0": {
				Desc:  "default_pg",
				Ranks: []int{0, 1, 2, 3},
			}},
		}
		for seq := range 6 {
			e := trace.Entry{
				Group:      "0",
				Seq:        int64(seq),
				Op:         falcon.OpAllReduce,
				Name:       "nccl:all_reduce",
				State:      trace.EntryCompleted,
				DurationMs: 4,
				Elements:   64,
				Dtype:      "Float",
			}
			if edit(rank, &e) {
				d.Entries = append(d.Entries, e)
			}
		}
		out = append(out, d)
	}
	return out
}

func TestDumpsVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(rank int, e *trace.Entry) bool
		cause falcon.Cause
		ranks []falcon.Rank
		say   string
	}{
		"steady": {
			func(int, *trace.Entry) bool { return true },
			falcon.CauseUnknown,
			[]falcon.Rank{},
			"no member waits",
		},
		"waited for": {func(rank int, e *trace.Entry) bool {
			if rank != 2 {
				e.DurationMs = 15
			}
			return true
		}, falcon.CauseUnknown, []falcon.Rank{2}, "the others wait for [2]"},
		"late": {
			func(rank int, e *trace.Entry) bool {
				if e.Seq == 5 {
					e.State = trace.EntryStarted
					e.DurationMs = 0
				}
				return rank != 1 || e.Seq < 5
			},
			falcon.CauseUnknown,
			[]falcon.Rank{1},
			"ranks 0, 2, 3 are in it, rank 1 never called it, last call 4",
		},
		"mismatch": {func(rank int, e *trace.Entry) bool {
			if e.Seq == 5 && rank == 3 {
				e.Elements = 65
			}
			return true
		}, falcon.CauseNotHardware, []falcon.Rank{3}, "rank 3 calls allreduce of 65 Float"},
		"all in it": {func(_ int, e *trace.Entry) bool {
			if e.Seq == 5 {
				e.State = trace.EntryStarted
				e.DurationMs = 0
			}
			return true
		}, falcon.CauseUnknown, []falcon.Rank{}, "none has finished. A network"},
		"overwritten": {func(rank int, e *trace.Entry) bool {
			return rank != 1 || e.Seq > 2
		}, falcon.CauseUnknown, []falcon.Rank{}, "no member waits"},
		"no timing": {func(_ int, e *trace.Entry) bool {
			e.DurationMs = 0
			return true
		}, falcon.CauseUnknown, []falcon.Rank{}, "TORCH_NCCL_ENABLE_TIMING"},
		"watchdog only": {func(rank int, e *trace.Entry) bool {
			e.DurationMs, e.StartedNs = 0, 1e9
			e.EndedNs = e.StartedNs + 2e8
			if rank != 0 {
				e.EndedNs = e.StartedNs + 9e8
			}
			return true
		}, falcon.CauseUnknown, []falcon.Rank{0}, "from the watchdog, which polls"},
	} {
		r := Dumps(flightDumps(c.edit), peer.Rules{})
		if r.Cause != c.cause ||
			!slices.Equal(r.Ranks, c.ranks) ||
			!says(r, c.say) ||
			len(r.Workers) != 4 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A rank that waits in a collective of another group is not at fault.
func TestDumpsFindTheOrigin(t *testing.T) {
	groups := map[string]trace.DumpGroup{
		"a": {Ranks: []int{0, 1}},
		"b": {Ranks: []int{1, 2}},
	}
	entry := func(g string, seq int64, s trace.EntryState) trace.Entry {
		return trace.Entry{
			Group: g,
			Seq:   seq,
			Op:    falcon.OpAllReduce,
			Name:  "nccl:all_reduce",
			State: s,
		}
	}
	r := Dumps([]trace.Dump{
		{
			Rank:    0,
			Groups:  groups,
			Entries: []trace.Entry{entry("a", 1, trace.EntryCompleted), entry("a", 2, trace.EntryStarted)},
		},
		{
			Rank:   1,
			Groups: groups,
			Entries: []trace.Entry{
				entry("a", 1, trace.EntryCompleted),
				entry("b", 1, trace.EntryCompleted),
				entry("b", 2, trace.EntryStarted),
			},
		},
		{Rank: 2, Groups: groups, Entries: []trace.Entry{entry("b", 1, trace.EntryCompleted)}},
	}, peer.Rules{})
	if !slices.Equal(r.Ranks, []falcon.Rank{2}) || len(r.Stuck) != 2 {
		t.Errorf("%+v", r)
	}
	r = Dumps(
		[]trace.Dump{{
			Rank:    0,
			Groups:  groups,
			Entries: []trace.Entry{entry("a", 1, trace.EntryStarted)},
		}},
		peer.Rules{},
	)
	if !slices.Equal(r.Missing, []falcon.Rank{1}) || len(r.Ranks) != 0 {
		t.Errorf("%+v", r)
	}
}

// A rank with a complete dump and no call of a group never called it.
func TestDumpsNameARankThatNeverCalled(t *testing.T) {
	groups := map[string]trace.DumpGroup{"a": {Ranks: []int{0, 1}}}
	waiting := trace.Entry{
		Group: "a",
		Seq:   1,
		Op:    falcon.OpAllReduce,
		Name:  "nccl:all_reduce",
		State: trace.EntryScheduled,
	}
	other := trace.Entry{
		Group: "b",
		Seq:   9,
		Op:    falcon.OpAllReduce,
		State: trace.EntryCompleted,
	}
	overwritten := other
	overwritten.Record = 5000
	for want, entries := range map[int][]trace.Entry{1: {other}, 0: {overwritten}} {
		r := Dumps(
			[]trace.Dump{
				{Rank: 0, Groups: groups, Entries: []trace.Entry{waiting}},
				{Rank: 1, Groups: groups, Entries: entries},
			},
			peer.Rules{},
		)
		if len(r.Ranks) != want || want == 1 && r.Ranks[0] != 1 {
			t.Errorf("%v: %+v", entries, r)
		}
	}
}

// TestWaitsAgreeWithTheDefinition checks random dumps against the definition
// of a member's wait: its duration minus the shortest.
func TestWaitsAgreeWithTheDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	for range 200 {
		var want [4]float64
		ms := [6][4]float64{}
		for seq := range ms {
			for rank := range ms[seq] {
				ms[seq][rank] = 1 + 9*rng.Float64()
			}
			for rank := range ms[seq] {
				want[rank] += ms[seq][rank] - min(ms[seq][0], ms[seq][1], ms[seq][2], ms[seq][3])
			}
		}
		r := Dumps(flightDumps(func(rank int, e *trace.Entry) bool {
			e.DurationMs = ms[e.Seq][rank]
			return true
		}), peer.Rules{})
		for rank, w := range r.Workers {
			if d := w.WaitMs - want[rank]; d > 1e-9 || d < -1e-9 {
				t.Fatalf("rank %d waits %g, want %g", rank, w.WaitMs, want[rank])
			}
		}
	}
}

// FuzzTrace judges all input that decodes.
func FuzzTrace(f *testing.F) {
	f.Add(
		`[{"ph":"X","name":"forward","pid":0,"tid":0,"ts":1,"dur":5,"args":{"step":1}},{"ph":"X","name":"forward-recv","pid":0,"tid":1,"ts":1,"dur":5},{"ph":"X","name":"forward","pid":0,"tid":1,"ts":1,"dur":5,"args":{"step":1}}]`,
		`[]`,
	)
	f.Add(
		`{"pg_config":{"0":{"ranks":"[0, 1]"}},"entries":[{"process_group":["0",""],"collective_seq_id":1,"profiling_name":"nccl:all_reduce","duration_ms":5,"state":"completed"}]}`,
		`{"pg_config":{"0":{"ranks":"[0, 1]"}},"entries":[{"process_group":["0",""],"collective_seq_id":1,"profiling_name":"nccl:all_reduce","state":"started"}]}`,
	)
	f.Fuzz(func(t *testing.T, first, second string) {
		var rec trace.Records
		if rec.Add("rank0.json", strings.NewReader(first)) != nil ||
			rec.Add("rank1.json", strings.NewReader(second)) != nil {
			return
		}
		checkNumbers(t, func() (any, error) {
			return Dumps(rec.Dumps(), peer.Rules{}), nil
		})
		line, ok, err := rec.Timeline(trace.Shape{})
		if ok && err == nil && line.Layout.World() < 4096 {
			checkNumbers(t, func() (any, error) {
				return Timeline(line, peer.Rules{}), nil
			})
		}
	})
}
