package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/detect/history"
	"github.com/failslow/falcon/mitigate"
)

// pastOf folds what an engine would have written: a job, and one incident per device
// that lasts so long.
func pastOf(
	t *testing.T,
	m *journalState,
	from time.Time,
	lasted time.Duration,
	devices ...falcon.Device,
) time.Time {
	t.Helper()
	at := from
	put := func(kind journal.Kind, v any) {
		t.Helper()
		if err := m.apply(record(at, kind, v)); err != nil {
			t.Fatal(err)
		}
	}
	for i, d := range devices {
		put(kindWatched, history.Watched{
			Name:       "gpt",
			World:      8,
			Iterations: 1000,
			Ms:         100_000,
		})
		v := falcon.Incident{
			ID:                fmt.Sprintf("INC-%04d", m.NextIncident),
			State:             falcon.IncidentVerified,
			OnsetIteration:    int64(100 * i),
			DetectedIteration: int64(100*i + 10),
			RelievedIteration: falcon.NoIteration,
			HealthyMs:         100,
			SlowMs:            200,
			Verdict:           falcon.Verdict{Cause: falcon.CauseGPU, Devices: []falcon.Device{d}},
		}
		put(kindIncident, v)
		put(kindImpact, mitigate.Impact{Incident: v.ID, ImpactMs: 5_000})
		at = at.Add(lasted)
		v.State = falcon.IncidentRelieved
		v.RelievedIteration = v.OnsetIteration + 50
		put(kindIncident, v)
		at = at.Add(time.Minute) // its actions are undone
		v.State = falcon.IncidentClosed
		put(kindIncident, v)
		at = at.Add(time.Hour)
	}
	return at
}

// An incident enters the history when it closes, and ends there with its relief; its
// cost is the planner's, also what is counted later.
func TestHistoryOfRecords(t *testing.T) {
	m := newJournalState()
	at := pastOf(t, m, t0, 10*time.Minute, "n1.g0", "n1.g0", "n2.g0")
	r := historyReply(&m.past, history.Query{NowNs: at.UnixNano()}, 2)
	if len(r.Past) != 2 ||
		r.Incidents != 3 ||
		r.Past[0].Incident != "INC-0003" ||
		r.Past[1].Job != 1 {
		t.Fatalf("%v", r)
	}
	first := r.Past[1]
	d := time.Duration(first.EndUnixNs - first.OnsetUnixNs)
	if d != 10*time.Minute+2*time.Second || first.LostMs != 5000 || !first.Counted {
		t.Errorf("it lasted %s and cost %v ms", d, first.LostMs)
	}
	c := r.Culprits[0]
	if c.Device != "n1.g0" ||
		c.Times != 2 ||
		c.Last != "INC-0002" ||
		len(r.Culprits) != 2 {
		t.Errorf("culprits: %v", r.Culprits)
	}
	if j := r.Jobs[0]; j.LostMs != 15_000 || j.WatchedMs != 300_000 || j.Category != string(history.GPU) {
		t.Errorf("job: %v", j)
	}
	if err := m.apply(record(at, kindImpact, mitigate.Impact{
		Incident: "INC-0003",
		ImpactMs: 6_000,
	})); err != nil {
		t.Fatal(err)
	}
	if j := historyReply(&m.past, history.Query{NowNs: at.UnixNano()}, 1).Jobs[0]; j.LostMs != 16_000 {
		t.Errorf("what is counted after the end is left out: %v", j)
	}
}

// The history outlives the incidents themselves, which memory bounds, and compaction.
func TestHistorySurvivesCompaction(t *testing.T) {
	m := newJournalState()
	devices := make([]falcon.Device, incidentsKept+100)
	for i := range devices {
		devices[i] = falcon.NewDevice("n1", i%8)
	}
	at := pastOf(t, m, t0, time.Minute, devices...)
	if len(m.incidents) > incidentsKept {
		t.Fatalf("%d incidents are kept", len(m.incidents))
	}
	q := history.Query{NowNs: at.UnixNano()}
	want := historyReply(&m.past, q, pastMost)
	copied := again(t, m)
	got := historyReply(&copied.past, q, pastMost)
	if !proto.Equal(want, got) || int(got.Incidents) != len(devices) {
		t.Errorf("the snapshot's history differs, or counts %d of %d incidents",
			got.GetIncidents(), len(devices))
	}
	if n := proto.Size(want); n > 1<<20 {
		t.Errorf("an answer has %d bytes", n)
	}
}

// A journal of before there was a history has one: of the incidents that it still holds.
func TestHistoryOfAnOldJournal(t *testing.T) {
	m := newJournalState()
	pastOf(t, m, t0, time.Minute, "n1.g0")
	m.past = history.Ledger{}
	at := m.opened["INC-0001"]
	at.overNs, at.job = 0, 0
	m.opened["INC-0001"] = at
	m.adoptPast()
	m.adoptPast()
	r := historyReply(&m.past, history.Query{NowNs: t0.UnixNano()}, 10)
	if len(r.Past) != 1 || r.Past[0].EndUnixNs-r.Past[0].OnsetUnixNs != int64(10*time.Second) {
		t.Errorf("%v", r)
	}
}

// An incident that is back leaves the history and enters it again when it closes, as one with a count,
// from its first onset to its newest end. If it was another fault after all, it is as it was.
func TestHistoryOfAnIncidentThatIsBack(t *testing.T) {
	m := newJournalState()
	at := pastOf(t, m, t0, time.Minute, "n1.g0")
	put := func(kind journal.Kind, v any) {
		t.Helper()
		if err := m.apply(record(at, kind, v)); err != nil {
			t.Fatal(err)
		}
	}
	first, _ := m.incident("INC-0001")
	was := m.incidentView(first)
	back := first
	back.State = falcon.IncidentLocated
	back.OnsetIteration = 900
	back.DetectedIteration = 905
	back.RelievedIteration = falcon.NoIteration
	back.Times = 2
	back.FirstOnset = first.OnsetIteration
	put(kindIncident, back)
	if r := historyReply(&m.past, history.Query{NowNs: at.UnixNano()}, 10); len(r.Past) != 0 ||
		len(m.lasting()) != 1 {
		t.Errorf("it lasts: %v", r)
	}
	v := m.incidentView(back)
	if v.Times != 2 ||
		v.FirstOnsetUnixNs != was.OnsetUnixNs ||
		v.OnsetUnixNs != at.Add(-time.Second).UnixNano() ||
		v.EndUnixNs != 0 {
		t.Errorf("%v, was %v", v, was)
	}
	o := m.opened["INC-0001"]
	encoded := opening{}
	if b, err := o.MarshalJSON(); err != nil || encoded.UnmarshalJSON(b) != nil || encoded != o {
		t.Errorf("a snapshot has %+v of %+v, %v", encoded, o, err)
	}
	if err := encoded.UnmarshalJSON([]byte("[5,6,7,8]")); err != nil ||
		encoded != (opening{occurrence: occurrence{5, 7}, epoch: 6, job: 8}) {
		t.Errorf("one of before: %+v, %v", encoded, err)
	}
	at = at.Add(time.Minute)
	over := back
	over.State = falcon.IncidentClosed
	over.RelievedIteration = 950
	put(kindIncident, over)
	r := historyReply(&m.past, history.Query{NowNs: at.UnixNano()}, 10)
	if len(r.Past) != 1 ||
		r.Past[0].OnsetUnixNs != was.OnsetUnixNs ||
		r.Past[0].EndUnixNs != at.UnixNano() ||
		m.past.Closed() != 1 {
		t.Errorf("%v", r)
	}
	at = at.Add(time.Minute)
	put(kindIncident, withTimes(back, 3))
	at = at.Add(time.Minute)
	put(kindIncident, over)
	again := historyReply(&m.past, history.Query{NowNs: at.UnixNano()}, 10)
	if !proto.Equal(again.Past[0], r.Past[0]) {
		t.Errorf("it was another one's: %v, was %v", again.Past[0], r.Past[0])
	}
	if v := m.incidentView(over); v.Times != 2 || v.EndUnixNs != r.Past[0].EndUnixNs {
		t.Errorf("it was another one's: %v", v)
	}
}

func withTimes(v falcon.Incident, times int) falcon.Incident {
	v.Times = times
	return v
}

// The engine watches its job, over its own restart, and a culprit is in every picture
// from the verdict on.
func TestHistoryOfAnEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		play := func(iteration int64) {
			for b.job.iteration < iteration {
				b.turn()
			}
		}
		ask := func(q *falconv1.HistoryRequest) *falconv1.HistoryReply {
			t.Helper()
			r, err := History(context.Background(), b.engine, q)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		for _, bad := range []*falconv1.HistoryRequest{
			{Limit: pastMost + 1},
			{Limit: -1},
			{SinceUnixNs: -1},
			{HalfLifeNs: -1},
		} {
			_, err := History(context.Background(), b.engine, bad)
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%v: %v", bad, err)
			}
		}
		play(slowFrom + 20)
		if c := ask(&falconv1.HistoryRequest{}).GetCulprits(); len(c) != 1 ||
			c[0].Device != "n1.g0" ||
			c[0].Last != "INC-0001" ||
			!c[0].Lasts {
			t.Errorf("while it lasts: %v", c)
		}
		play(slowUntil + 20)
		before := ask(&falconv1.HistoryRequest{})
		if c := before.GetCulprits(); len(c) != 1 || c[0].Lasts {
			t.Errorf("after its relief: %v", c)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		b.start()
		play(slowUntil + 60)
		j := ask(&falconv1.HistoryRequest{}).GetJobs()
		if len(before.GetJobs()) != 1 ||
			len(j) != 1 ||
			j[0].Name != "test" ||
			j[0].World != fakeRanks ||
			j[0].Iterations == 0 {
			t.Errorf("jobs before the restart: %v, behind it: %v", before.GetJobs(), j)
		}
		s, err := b.engine.Latest(context.Background())
		if err != nil || len(s.For(Actor{}, nil).GetCulprits()) != 1 {
			t.Errorf("the picture lacks the culprit: %v", err)
		}
	})
}

// fold takes in what waits to be written.
func fold(t *testing.T, s *shared) {
	t.Helper()
	list, _ := s.batch.take()
	for _, r := range list {
		if err := s.state.apply(r.Record); err != nil {
			t.Fatal(err)
		}
	}
}

// A job's first iterations and an incident may come in one batch: the incident is of the
// job that the journal has then, before and after a restart.
func TestHistoryIsFoldedInOrder(t *testing.T) {
	s := newShared(
		Config{
			JobName:  "gpt",
			Detector: &fakeDetector{},
			Now:      func() time.Time { return t0 },
		},
		newJournalState(),
	)
	h := &jobHistory{
		shared:    s,
		status:    &jobStatus{shared: s, intake: &sampleIntake{shared: s}},
		unwritten: history.Watched{Iterations: 1, Ms: 100},
	}
	s.batch.addRecords(record(t0, kindIncident, falcon.Incident{
		ID:    "INC-0001",
		State: falcon.IncidentVerified,
	}))
	h.write(t0)
	list, _ := s.batch.take()
	replayed := newJournalState()
	for _, r := range list {
		if !r.applied {
			if err := s.state.apply(r.Record); err != nil {
				t.Fatal(err)
			}
		}
		if err := replayed.apply(r.Record); err != nil {
			t.Fatal(err)
		}
	}
	if diff := sameMemory(s.state, replayed); diff != "" {
		t.Errorf("a restart remembers something else: %s", diff)
	}
}

// What is watched is the time in which iterations went on: not that of a standstill, and
// not the step to iterations that are numbered from 0 again.
func TestWatchedTime(t *testing.T) {
	s := newShared(
		Config{
			JobName:  "gpt",
			Detector: &fakeDetector{},
			Now:      func() time.Time { return t0 },
		},
		newJournalState(),
	)
	det := &fakeDetector{}
	s.det = det
	h := &jobHistory{
		shared: s,
		status: &jobStatus{shared: s, intake: &sampleIntake{shared: s}},
	}
	for _, look := range []struct {
		after     time.Duration
		iteration int64
	}{{0, 10}, {time.Second, 12}, {time.Second, 14}, {time.Hour, 16}, {time.Second, 3}, {time.Second, 5}} {
		det.newest = look.iteration
		now := s.cfg.Now().Add(look.after)
		s.cfg.Now = func() time.Time { return now }
		h.tick(now)
		fold(t, s)
	}
	h.writeRest(s.cfg.Now())
	fold(t, s)
	j := s.state.past.Report(history.Query{}).Jobs
	want := float64((time.Second + time.Second + staleAfter + time.Second).Milliseconds())
	if len(j) != 1 ||
		j[0].Iterations != 8 ||
		j[0].WatchedMs != want ||
		j[0].Name != "gpt" {
		t.Errorf("%+v, want 8 iterations in %v ms", j, want)
	}
}

// What stopped the job is counted from the recoveries, and how steady paths are from the link tests, from
// the asked time on.
func TestHistoryCountsFailStopsAndPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		at := b.engine.cfg.Now().UnixNano()
		b.inLoop(func() {
			for i, f := range []falcon.Fault{
				{Kind: falcon.FaultNode, Node: "n1", Ranks: []falcon.Rank{2, 3}, FirstNs: at - 9e9},
				{Kind: falcon.FaultExit, Node: "n0", Ranks: []falcon.Rank{1}, FirstNs: at - 5e9},
				{Kind: falcon.FaultNode, Node: "n1", FirstNs: at - 4e9, AskedBy: "maria"},
			} {
				v := falcon.Recovery{
					ID:     fmt.Sprintf("REC-%04d", i+1),
					State:  falcon.RecoveryResumed,
					Faults: []falcon.Fault{f},
				}
				v.EndedNs = f.FirstNs + 2e9
				b.engine.state.setRecovery(v)
			}
		})
		b.inLoop(func() {
			v := falcon.Validation{
				ID:    "VAL-0001",
				State: falcon.ValidationDone,
				AtNs:  at - 5e9,
			}
			for _, ms := range []float64{1, 3} {
				v.Links = append(v.Links, falcon.LinkResult{
					Class:      falcon.LinkSameRail,
					FromDevice: "n0.g0",
					ToDevice:   "n1.g0",
					Bytes:      1e6,
					Ms:         ms,
				})
			}
			b.engine.state.setValidation(validationRecord{Validation: v})
		})
		for since, tests := range map[int64]int32{0: 2, at: 0} {
			r, err := History(context.Background(), b.engine, &falconv1.HistoryRequest{SinceUnixNs: since})
			if err != nil {
				t.Fatal(err)
			}
			p := r.GetPaths()
			if tests == 0 && p != nil ||
				tests > 0 &&
					(len(p) != 1 || p[0].GetTests() != tests || math.Abs(p[0].GetCov()-math.Sqrt2/2) > 1e-9) {
				t.Errorf("since %d: %v", since, p)
			}
		}
		for since, want := range map[int64]string{
			0:        "exit 1 1 2000, node 1 2 2000",
			at - 6e9: "exit 1 1 2000",
			at:       "",
		} {
			r, err := History(context.Background(), b.engine, &falconv1.HistoryRequest{SinceUnixNs: since})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range r.GetFailStops() {
				got = append(got, fmt.Sprintf("%s %d %d %.0f",
					f.GetKind(), f.GetFaults(), f.GetRanks(), f.GetDownMs()))
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("since %d: %v, want %s", since, got, want)
			}
		}
	})
}
