package history

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/failslow/falcon"
)

const day = int64(24 * time.Hour)

// incident is one of the GPU, over after a minute.
func incident(n int, d falcon.Device, atNs int64) Entry {
	return Entry{
		Incident:  fmt.Sprintf("INC-%04d", n),
		OnsetNs:   atNs,
		EndNs:     atNs + int64(time.Minute),
		HealthyMs: 100,
		SlowMs:    150,
		LostMs:    20_000,
		Cause:     falcon.CauseGPU,
		Devices:   []falcon.Device{d},
	}
}

// Table 1 of the paper, from jobs like its own: 392 of one node of which four met CPU
// contention and two a slow GPU, 107 of four nodes with one and 42, and 27 large ones.
func TestTableOne(t *testing.T) {
	l := &Ledger{}
	at := int64(0)
	id := 0
	run := func(kind Kind, jobs int, causes ...falcon.Cause) {
		for range jobs {
			at += day / 24
			l.Watch(at, Watched{
				Name:       "probe",
				Kind:       kind,
				World:      4,
				Iterations: 100,
				Ms:         100_000,
			})
			for _, c := range causes {
				id++
				e := incident(id, "n0.g0", at)
				e.Job = l.Open()
				e.Cause = c
				l.Close(e)
			}
			l.Watch(at+1, Watched{Name: "probe", Kind: kind, Over: true})
		}
	}
	run(ProbeA, 386)
	run(ProbeA, 4, falcon.CauseCPU)
	run(ProbeA, 2, falcon.CauseGPU)
	run(ProbeB, 64)
	run(ProbeB, 1, falcon.CauseCPU)
	run(ProbeB, 42, falcon.CauseNetwork)
	run("", 11)
	run("", 13, falcon.CauseNetwork, falcon.CauseNetwork)
	run("", 3, falcon.CauseNetwork, falcon.CauseGPU)
	want := []TableRow{
		{
			Kind:     ProbeA,
			Jobs:     map[Category]int{None: 386, CPU: 4, GPU: 2},
			Total:    392,
			Slowed:   6,
			Slowdown: 0.25,
		},
		{
			Kind:     ProbeB,
			Jobs:     map[Category]int{None: 64, CPU: 1, Network: 42},
			Total:    107,
			Slowed:   43,
			Slowdown: 0.25,
		},
		{
			Kind:     "",
			Jobs:     map[Category]int{None: 11, Network: 13, Multiple: 3},
			Total:    27,
			Slowed:   16,
			Slowdown: 2.0 / 3,
		},
	}
	zeros := gocmp.FilterPath(func(p gocmp.Path) bool {
		return p.Last().String() == ".Jobs"
	}, gocmp.Transformer("zeros", func(m map[Category]int) [6]int {
		var out [6]int
		for i, c := range Categories {
			out[i] = m[c]
		}
		return out
	}))
	diff := gocmp.Diff(want, l.Report(Query{NowNs: at}).Table, zeros, near)
	if diff != "" {
		t.Error(diff)
	}
	if n := len(l.jobs); n != JobsMost {
		t.Errorf("%d jobs are kept, want %d: the table is to count folded ones", n, JobsMost)
	}
}

// However many incidents and culprits come, the ledger stays within 4 MiB, and its
// totals count all of them.
func TestBounds(t *testing.T) {
	l := &Ledger{}
	const incidents = 3000
	for i := range incidents {
		e := incident(i, "", int64(i)*day/100)
		e.Devices = nil
		for n := range 40 {
			node := falcon.Node(fmt.Sprintf("node-of-thirty-characters-%04d", i))
			e.Devices = append(e.Devices, falcon.NewDevice(node, n))
			e.NICs = append(e.NICs, falcon.NIC(fmt.Sprintf("%s.nic%d", node, n)))
			e.Links = append(e.Links, falcon.NewLink(
				node,
				falcon.Node(fmt.Sprintf("node-of-thirty-characters-%04d", 5000+n)),
			))
		}
		e = EntryOf(
			falcon.Incident{
				ID: e.Incident,
				Verdict: falcon.Verdict{
					Cause:   e.Cause,
					Devices: e.Devices,
					Links:   e.Links,
					NICs:    e.NICs,
				},
			},
			e.OnsetNs,
			e.EndNs,
		)
		if e.Unnamed != 3*(40-NamedMost) {
			t.Fatalf("%d culprits are left out", e.Unnamed)
		}
		l.Close(e)
		l.Watch(int64(i)*day/100, Watched{
			Name:       fmt.Sprint("job-", i),
			Iterations: 1,
			Ms:         100,
		})
	}
	if len(l.past) != EntriesMost ||
		len(l.jobs) != JobsMost ||
		len(l.named) > CulpritsMost {
		t.Errorf("%d entries, %d jobs, %d culprits are kept",
			len(l.past), len(l.jobs), len(l.named))
	}
	size := 0
	l.Parts(func(p Part) {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		size += len(b)
	})
	t.Logf("%d bytes", size)
	if size > 4<<20 {
		t.Errorf("the ledger takes %d bytes", size)
	}
	r := l.Report(Query{NowNs: incidents * day / 100})
	jobs := 0
	for _, row := range r.Table {
		jobs += row.Total
	}
	if r.Causes[0].Incidents != incidents ||
		jobs != incidents ||
		r.Folded+len(r.Past) != incidents {
		t.Errorf("%d incidents and %d jobs are counted, want %d: %d folded, %d kept",
			r.Causes[0].Incidents, jobs, incidents, r.Folded, len(r.Past))
	}
}

// A culprit of long ago counts less than one of today, and one that is folded is still
// listed, with its times.
func TestDecay(t *testing.T) {
	l := &Ledger{}
	l.Close(incident(1, "n1.g0", 0))
	l.Close(incident(2, "n1.g0", 7*day))
	l.Close(incident(3, "n2.g0", 14*day))
	q := Query{NowNs: 14 * day}
	for _, tt := range []struct {
		half time.Duration
		want map[string]float64
	}{
		{0, map[string]float64{"n1.g0": 0.75, "n2.g0": 1}},
		{14 * 24 * time.Hour, map[string]float64{"n1.g0": 0.5 + math.Sqrt2/2, "n2.g0": 1}},
	} {
		q.HalfLife = tt.half
		for _, c := range l.Report(q).Culprits {
			if math.Abs(c.Score-tt.want[c.Name.String()]) > 1e-12 {
				t.Errorf("half-life %s: %s has score %v, want %v",
					tt.half, c.Name, c.Score, tt.want[c.Name.String()])
			}
		}
	}
	for i := range EntriesMost {
		l.Close(incident(10+i, "n3.g0", 15*day))
	}
	for _, c := range l.Report(Query{NowNs: 15 * day}).Culprits {
		if c.Name.Device == "n1.g0" &&
			(c.Times != 2 || c.Score != 0 || c.Last != "INC-0002" || c.FirstNs != 0 || c.LastNs != 7*day) {
			t.Errorf("folded: %+v", c)
		}
	}
}

// What lasts counts for culprits, and for nothing else.
func TestLastingIncident(t *testing.T) {
	open := incident(1, "n1.g0", day)
	open.EndNs = 0
	r := (&Ledger{}).Report(Query{NowNs: day, Lasting: []Entry{open}})
	if len(r.Culprits) != 1 ||
		!r.Culprits[0].Lasts ||
		r.Culprits[0].Last != "INC-0001" ||
		len(r.Past) != 0 ||
		len(r.Causes) != 0 {
		t.Errorf("%+v", r)
	}
}

// EntryOf puts the onset before the verification by what the iterations took, and counts
// what they lost; iterations that are of another numbering move nothing.
func TestEntryOf(t *testing.T) {
	v := falcon.Incident{
		ID:                "INC-0001",
		OnsetIteration:    100,
		DetectedIteration: 110,
		RelievedIteration: 200,
		HealthyMs:         100,
		SlowMs:            200,
		Verdict: falcon.Verdict{
			Cause: falcon.CauseNetwork,
			Links: []falcon.Link{falcon.NewLink("n0", "n1")},
			NICs:  []falcon.NIC{"n1.nic0"},
		},
	}
	e := EntryOf(v, 5e9, 60e9)
	if e.OnsetNs != 3e9 ||
		e.EndNs != 60e9 ||
		e.LostMs != 10_000 ||
		e.Slowdown() != 1 ||
		len(namesOf(&e)) != 2 {
		t.Errorf("%+v", e)
	}
	if e := EntryOf(v, 5e9, 1e9); e.EndNs != e.OnsetNs {
		t.Errorf("ended before its onset: %+v", e)
	}
	v.DetectedIteration = 1 << 40
	v.RelievedIteration = falcon.NoIteration
	if e := EntryOf(v, 5e9, 60e9); e.OnsetNs != 5e9 || e.LostMs != 0 {
		t.Errorf("%+v", e)
	}
	if (&Entry{SlowMs: 7}).Slowdown() != 0 || (&Ledger{}).Take(Part{}) == nil {
		t.Error("an unknown slowdown, or an empty part, is taken for something")
	}
}

// A job that ends and begins again is another one; a stretch of nothing begins none.
func TestJobs(t *testing.T) {
	l := &Ledger{}
	l.Watch(1, Watched{Name: "gpt", Over: true})
	l.Watch(2, Watched{
		Name:       "gpt",
		Iterations: 5,
		Ms:         50,
		World:      8,
	})
	l.Watch(3, Watched{
		Name:       "gpt",
		Iterations: 5,
		Ms:         50,
		Over:       true,
	})
	l.Watch(4, Watched{Name: "gpt", Over: true})
	l.Watch(5, Watched{Name: "gpt", Iterations: 1, Ms: 10})
	l.Watch(6, Watched{Name: "moe", Iterations: 1, Ms: 10})
	r := l.Report(Query{NowNs: 6})
	if len(r.Jobs) != 3 ||
		r.Jobs[2].Iterations != 10 ||
		!r.Jobs[1].Over ||
		r.Jobs[0].Over ||
		l.Open() != 3 {
		t.Errorf("%+v", r.Jobs)
	}
}
