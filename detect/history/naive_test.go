package history

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

// event is one call of a ledger.
type event struct {
	watch *Watched
	close *Entry
	lost  *struct {
		id string
		ms float64
	}
	at int64
}

// naive keeps all that has ever happened and counts it from scratch.
type naive struct{ events []event }

func (n *naive) entries() []Entry {
	var out []Entry
	for _, ev := range n.events {
		switch {
		case ev.close != nil &&
			!slices.ContainsFunc(out, func(e Entry) bool {
				return e.Incident == ev.close.Incident
			}):
			out = append(out, *ev.close)
		case ev.lost != nil:
			for i := range out {
				if out[i].Incident == ev.lost.id {
					out[i].LostMs, out[i].Counted = ev.lost.ms, true
				}
			}
		}
	}
	return out
}

// jobs are distinguished by where one begins: at another name or kind, or behind an end.
func (n *naive) jobs() []Job {
	var out []Job
	for _, ev := range n.events {
		w := ev.watch
		if w == nil {
			continue
		}
		fresh := len(out) == 0
		if !fresh {
			last := &out[len(out)-1]
			fresh = last.Over || last.Name != w.Name || last.Kind != w.Kind
		}
		if fresh {
			if len(out) > 0 {
				out[len(out)-1].Over = true
			}
			if w.Over && w.Iterations == 0 {
				continue
			}
			out = append(out, Job{
				Number:  uint64(len(out) + 1),
				Name:    w.Name,
				Kind:    w.Kind,
				FirstNs: ev.at - int64(w.Ms*1e6),
			})
		}
		j := &out[len(out)-1]
		j.LastNs, j.Over, j.World = ev.at, w.Over, max(j.World, w.World)
		j.Iterations += w.Iterations
		j.WatchedMs += w.Ms
	}
	for _, e := range n.entries() {
		for i := range out {
			if out[i].Number != e.Job {
				continue
			}
			out[i].Incidents, out[i].LostMs = out[i].Incidents+1, out[i].LostMs+e.LostMs
			out[i].Causes = append(append(out[i].Causes, e.Cause), e.Also...)
			slices.Sort(out[i].Causes)
			out[i].Causes = slices.Compact(out[i].Causes)
		}
	}
	return out
}

// quantile is the least value that at least a share p of all does not exceed.
func quantile(values []float64, p float64) float64 {
	slices.Sort(values)
	for i, v := range values {
		if float64(i+1)/float64(len(values)) >= p-1e-12 {
			return v
		}
	}
	return values[len(values)-1]
}

func (n *naive) category(j Job) Category {
	hardware := 0
	out := Other
	for cause, row := range map[falcon.Cause]Category{
		"gpu_degradation":    GPU,
		"cpu_contention":     CPU,
		"network_congestion": Network,
	} {
		if slices.Contains(j.Causes, cause) {
			hardware++
			out = row
		}
	}
	switch {
	case j.Incidents == 0:
		return None
	case hardware > 1:
		return Multiple
	}
	return out
}

// score of a culprit: day by day, by halving.
func score(ages []float64, half float64) float64 {
	sum := 0.0
	for _, age := range ages {
		sum += math.Pow(0.5, math.Max(0, age)/half)
	}
	return sum
}

var (
	near     = cmpopts.EquateApprox(1e-9, 1e-9)
	unlisted = gocmp.AllowUnexported(Ledger{})
)

func drawEntry(t *rapid.T, n int, job uint64, at int64) *Entry {
	causes := []falcon.Cause{
		falcon.CauseGPU, falcon.CauseCPU, falcon.CauseNetwork, falcon.CauseUnknown,
		falcon.CauseNotHardware,
	}
	e := &Entry{
		Incident:  fmt.Sprintf("INC-%04d", n),
		Job:       job,
		OnsetNs:   at - rapid.Int64Range(0, 1e14).Draw(t, "lasted"),
		EndNs:     at,
		HealthyMs: 100,
		SlowMs:    rapid.Float64Range(90, 400).Draw(t, "slow"),
		LostMs:    rapid.Float64Range(0, 1e6).Draw(t, "lost"),
		Cause:     rapid.SampledFrom(causes).Draw(t, "cause"),
	}
	if rapid.Bool().Draw(t, "also") {
		e.Also = []falcon.Cause{rapid.SampledFrom(causes).Draw(t, "second")}
	}
	node := func() falcon.Node {
		return falcon.Node(fmt.Sprint("n", rapid.IntRange(0, 2).Draw(t, "node")))
	}
	for range rapid.IntRange(0, 2).Draw(t, "devices") {
		e.Devices = append(e.Devices, falcon.NewDevice(node(), 0))
	}
	if rapid.Bool().Draw(t, "link") {
		e.Links = []falcon.Link{falcon.NewLink("n7", node())}
		e.NICs = []falcon.NIC{falcon.NIC(node() + ".nic0")}
	}
	return e
}

// A ledger within its bounds reports what counting everything from scratch gives, and
// one that was taken apart, encoded and put together is the same.
func TestLedgerAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &Ledger{}
		n := &naive{}
		at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixNano()
		for i := range rapid.IntRange(0, 40).Draw(t, "events") {
			at += rapid.Int64Range(0, 3e14).Draw(t, "later")
			ev := event{at: at}
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				ev.watch = &Watched{
					Name:       rapid.SampledFrom([]string{"gpt", "moe"}).Draw(t, "name"),
					Kind:       rapid.SampledFrom([]Kind{"", ProbeA}).Draw(t, "kind"),
					World:      8,
					Iterations: rapid.Int64Range(0, 100).Draw(t, "iterations"),
					Ms:         rapid.Float64Range(0, 1e7).Draw(t, "ms"),
					Over:       rapid.IntRange(0, 4).Draw(t, "over") == 0,
				}
				l.Watch(at, *ev.watch)
			case 2:
				ev.close = drawEntry(
					t,
					rapid.IntRange(max(0, i-3), i).Draw(t, "id"),
					l.Open(),
					at,
				)
				l.Close(*ev.close)
			case 3:
				ev.lost = &struct {
					id string
					ms float64
				}{
					fmt.Sprintf("INC-%04d", rapid.IntRange(0, i).Draw(t, "of")),
					rapid.Float64Range(0, 1e6).Draw(t, "counted"),
				}
				l.SetLost(ev.lost.id, ev.lost.ms)
			}
			n.events = append(n.events, ev)
		}
		if diff := gocmp.Diff(l, again(t, l), unlisted, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("parts put together are another ledger:\n%s", diff)
		}
		q := Query{
			NowNs:    at,
			HalfLife: time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "half-life")),
		}
		if rapid.Bool().Draw(t, "since") {
			q.SinceNs = at - rapid.Int64Range(0, 1e15).Draw(t, "back")
		}
		compare(t, l.Report(q), n, q)
	})
}

func compare(t *rapid.T, got Report, n *naive, q Query) {
	past := slices.DeleteFunc(n.entries(), func(e Entry) bool {
		return e.OnsetNs < q.SinceNs
	})
	jobs := slices.DeleteFunc(n.jobs(), func(j Job) bool {
		return j.LastNs < q.SinceNs
	})
	slices.Reverse(jobs)
	if diff := gocmp.Diff(jobs, got.Jobs, near, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("jobs:\n%s", diff)
	}
	for _, row := range got.Table {
		for _, c := range Categories {
			want := 0
			for _, j := range jobs {
				if j.Kind == row.Kind && n.category(j) == c {
					want++
				}
			}
			if row.Jobs[c] != want {
				t.Fatalf("%d jobs of kind %q are in row %s, want %d", row.Jobs[c], row.Kind, c, want)
			}
		}
	}
	var lasted []float64
	byCause := map[falcon.Cause]int{}
	for _, e := range past {
		byCause[e.Cause]++
		if e.EndNs > e.OnsetNs {
			lasted = append(lasted, float64(e.EndNs-e.OnsetNs)/1e9)
		}
	}
	for _, row := range got.Causes {
		if row.Incidents != byCause[row.Cause] ||
			math.Abs(row.Share-float64(row.Incidents)/float64(len(past))) > 1e-12 {
			t.Fatalf("cause %s: %+v of %d, want %d", row.Cause, row, len(past), byCause[row.Cause])
		}
		delete(byCause, row.Cause)
	}
	if len(byCause) > 0 {
		t.Fatalf("causes left out: %v", byCause)
	}
	if got.Durations.N != len(lasted) {
		t.Fatalf("%d durations, want %d", got.Durations.N, len(lasted))
	}
	for i, v := range got.Durations.Quantiles {
		if want := quantile(lasted, float64(i)/20); v != want {
			t.Fatalf("quantile %d: %v, want %v", 5*i, v, want)
		}
	}
	compareCulprits(t, got.Culprits, past, q)
}

func compareCulprits(t *rapid.T, got []Culprit, past []Entry, q Query) {
	ages := map[string][]float64{}
	jobs := map[string]map[uint64]bool{}
	for _, e := range past {
		names := map[string]bool{}
		for _, list := range []any{e.Devices, e.Links, e.NICs} {
			for _, name := range strings.Fields(strings.Trim(fmt.Sprint(list), "[]")) {
				names[name] = true
			}
		}
		for name := range names {
			ages[name] = append(ages[name], float64(q.NowNs-e.OnsetNs))
			if jobs[name] == nil {
				jobs[name] = map[uint64]bool{}
			}
			jobs[name][e.Job] = true
		}
	}
	half := float64(cmp.Or(q.HalfLife, 7*24*time.Hour))
	if len(got) != len(ages) {
		t.Fatalf("%d culprits, want %d", len(got), len(ages))
	}
	for i, c := range got {
		name := c.Name.String()
		want := score(ages[name], half)
		if c.Times != len(ages[name]) ||
			c.Jobs != len(jobs[name]) ||
			math.Abs(c.Score-want) > 1e-9 {
			t.Fatalf("%s: %+v, want %d times, %d jobs, score %v",
				name, c, len(ages[name]), len(jobs[name]), want)
		}
		if i > 0 && c.Score > got[i-1].Score {
			t.Fatalf("%s is below %s of a lower score", name, got[i-1].Name)
		}
	}
}

// again is a ledger by way of its encoded parts.
func again(t interface{ Fatal(...any) }, l *Ledger) *Ledger {
	out := &Ledger{}
	l.Parts(func(p Part) {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var q Part
		if err := json.Unmarshal(b, &q); err != nil {
			t.Fatal(err)
		}
		if err := out.Take(q); err != nil {
			t.Fatal(err)
		}
	})
	return out
}
