package engine

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/bars"
	"github.com/failslow/falcon/backend/clock"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/backend/learn"
	"github.com/failslow/falcon/backend/pace"
	"github.com/failslow/falcon/backend/triage"
	"github.com/failslow/falcon/detect/history"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery/restart"
)

// sameMemory compares every field of two memories, those that are added later
// included.
func sameMemory(a, b *journalState) string {
	return cmp.Diff(
		a,
		b,
		cmp.Exporter(func(reflect.Type) bool { return true }),
		cmpopts.EquateEmpty(),
		protocmp.Transform(),
	)
}

// again folds a memory's snapshot.
func again(t testing.TB, m *journalState) *journalState {
	t.Helper()
	out := newJournalState()
	for i, body := range m.snapshot() {
		if len(body) > journal.BodyBytesMax {
			t.Fatalf("part %d has %d bytes", i, len(body))
		}
		if err := out.apply(journal.Record{Kind: journal.KindPart, Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// randomRecords makes random records, as an engine would write them, and folds them.
type randomRecords struct {
	t     *rapid.T
	m     *journalState
	w     written
	seq   uint64
	whole bool // other adds all that it has
}

func (h *randomRecords) add(r journal.Record) {
	h.seq++
	r.Seq = h.seq
	r.AtNs = t0.UnixNano() + int64(h.seq)
	r.Hash = journal.Hash{byte(h.seq), 1}
	if err := h.m.apply(r); err != nil {
		h.t.Fatal(err)
	}
}

func (h *randomRecords) number(name string, most int) int {
	return rapid.IntRange(0, most).Draw(h.t, name)
}

func (h *randomRecords) placement(name string) falcon.Placement {
	out := falcon.Placement{}
	for r := range 4 {
		out = append(out, falcon.NewDevice(falcon.Node(fmt.Sprint("n", h.number(name, 3))), r))
	}
	return out
}

func (h *randomRecords) job() {
	v := jobRecord{
		Epoch:        uint64(1 + h.number("epoch", 3)),
		Layout:       falcon.Layout{TP: 1, DP: 4, PP: 1},
		Placement:    h.placement("job"),
		MicroBatches: []int32{8, 8, 8, int32(h.number("micro", 9))},
		Generation:   uint64(h.number("generation", 2)),
	}
	for r := range 4 {
		v.Processes = append(v.Processes, fmt.Sprintf("n%d/%d", r/2, 100+h.number("pid", 5)))
	}
	if h.number("placed", 1) == 1 {
		v.Before, v.PlacementOrder = h.placement("before"), uint64(h.number("order", 9))
	}
	h.add(record(t0, kindJob, jobDelta(h.m.job, v)))
	diff := cmp.Diff(v, h.m.job, cmpopts.EquateComparable(falcon.Mesh{}))
	if diff != "" {
		h.t.Fatalf("the job came back as another: %s", diff)
	}
}

func (h *randomRecords) recovery() {
	v := falcon.Recovery{
		ID: fmt.Sprintf("REC-%04d", 1+h.number("recovery", 2)),
		State: falcon.RecoveryState([]string{
			"suspend",
			"resumed",
			"proposed",
		}[h.number("state", 2)]),
		JobEpoch: 1,
		Faults: []falcon.Fault{{
			Kind:  falcon.FaultExit,
			Node:  "n1",
			Ranks: []falcon.Rank{2},
		}},
		RecoveryExecution: falcon.RecoveryExecution{Generation: uint64(h.number("generation", 9))},
		RecoveryPlan:      falcon.RecoveryPlan{Placement: h.placement("recovery")},
		RecoveryOutcome: falcon.RecoveryOutcome{
			Reason:  fmt.Sprint(h.number("reason", 2)),
			PhaseMs: map[string]float64{"detect": float64(h.number("ms", 9))},
		},
	}
	for r := range falcon.Rank(4) {
		if h.number("survives", 1) == 1 {
			v.Survivors = append(v.Survivors, r)
		} else if v.Replaced == nil {
			v.Replaced = map[falcon.Rank]falcon.Device{r: "n2.g0"}
		}
	}
	h.add(h.w.recoveryRecord(t0, h.m.job, v))
	if got, _ := h.m.recovery(v.ID); !cmp.Equal(v, got) {
		h.t.Fatalf("the recovery came back as another: %s", cmp.Diff(v, got))
	}
}

func (h *randomRecords) sent() {
	v := sentRecord{
		Generation: uint64(h.number("generation", 9)),
		Kind:       rejoinKind,
		Hash:       fmt.Sprint(h.number("hash", 9)),
		First:      uint64(h.number("first", 99)),
	}
	for n := range 4 {
		if h.number("node", 2) > 0 {
			v.Nodes = append(v.Nodes, falcon.Node(fmt.Sprint("n", n)))
		}
	}
	for r := range falcon.Rank(4) {
		if pid, known := pidOf(h.m.job, r); h.number("pid", 1) == 1 {
			v.Pids = mapOf(
				v.Pids,
				r,
				map[bool]int32{true: pid, false: 7}[known && h.number("same", 3) > 0],
			)
		}
	}
	h.add(h.m.sentRecord(t0, v))
	if n := len(h.m.sent); n > 0 && h.m.sent[n-1].Hash == v.Hash && !cmp.Equal(v, h.m.sent[n-1]) {
		h.t.Fatalf("what was sent came back as something else: %s", cmp.Diff(v, h.m.sent[n-1]))
	}
}

func mapOf(m map[falcon.Rank]int32, r falcon.Rank, pid int32) map[falcon.Rank]int32 {
	if m == nil {
		m = map[falcon.Rank]int32{}
	}
	m[r] = pid
	return m
}

func (h *randomRecords) incident() {
	id := fmt.Sprintf("INC-%04d", 1+h.number("incident", 4))
	state := []falcon.IncidentState{
		falcon.IncidentVerified,
		falcon.IncidentLocated,
		falcon.IncidentClosed,
	}[h.number("state", 2)]
	if h.whole {
		state = falcon.IncidentLocated // only such one has speeds
	}
	h.add(record(t0, kindIncident, falcon.Incident{
		ID:                id,
		State:             state,
		RelievedIteration: falcon.NoIteration,
		Verdict: falcon.Verdict{
			Devices: []falcon.Device{"n1.g0"},
			Links:   []falcon.Link{falcon.NewLink("n0", "n1")},
		},
	}))
	h.add(record(t0, kindAction, falcon.Action{
		ID:       id + "/S2",
		Incident: id,
		Rung:     falcon.RungS2,
		Plan:     falcon.Plan{MicroBatches: []int32{1, 2}},
	}))
	h.add(record(t0, kindImpact, mitigate.Impact{
		Incident: id,
		ImpactMs: float64(h.number("impact", 99)),
	}))
	if state == falcon.IncidentLocated {
		h.add(record(t0, kindSpeeds, speedsRecord{
			Incident: id,
			SelfMs:   []float64{1, 2},
			Profile:  falcon.JobProfile{SelfMs: []float64{1, 2}},
		}))
	}
	given := uint64(1000 + h.number("order", 9))
	h.add(record(t0, kindOrder, orderRecord{
		Order:   falcon.Order{ID: given},
		Command: given,
	}))
	h.add(record(t0, kindOutcome, outcomeRecord{Order: given, Failed: "late"}))
	h.add(record(t0, kindDecision, DecisionRecord{
		Action:   id + "/S2",
		Incident: id,
		By:       "maria",
		Approve:  true,
	}))
}

func (h *randomRecords) other() {
	n := uint64(h.number("n", 50))
	if h.whole {
		n += 10 // what counts from 1 has grown
	}
	policy := falcon.Policy{
		Mode:  falcon.ModeApprove,
		Cap:   falcon.RungS2,
		Rungs: map[falcon.Rung]falcon.RungPolicy{falcon.RungS2: {Undo: 5}},
	}
	records := []journal.Record{
		record(t0, kindEpoch, epochRecord{
			Epoch:  n + 1,
			Engine: &learn.Engine{ID: "e", Start: n + 1},
			Learnt: &learntRecord{Generation: n + 1},
		}),
		record(t0, kindReserve, reserveRecord{n}),
		record(t0, kindBaseline, baselineRecord{1, float64(n)}),
		record(t0, kindPolicy, policyRecord{Policy: policy, Version: n, By: "maria"}),
		record(t0, kindOrder, orderRecord{Order: falcon.Order{ID: n}, Command: n}),
		record(t0, kindOutcome, outcomeRecord{Order: n / 2}),
		record(t0, kindVote, voteRecord{Order: n / 3, Rank: 1, Iteration: 7}),
		record(t0, kindOverhead, map[falcon.Rung]float64{falcon.RungS2: float64(n)}),
		record(t0, kindEvent, eventRecord{
			Kind:  kindAudit,
			Text:  "INC-0001",
			Audit: &auditEntry{Actor: "maria", Verb: "approve"},
		}),
		record(t0, kindValidation, validationRecord{
			Validation: falcon.Validation{ID: fmt.Sprintf("VAL-%04d", n)},
			Pause:      n,
			Nodes:      []falcon.Node{"n1"},
		}),
		record(t0, kindRestart, restart.State{
			Phase:  restart.Leaving,
			Home:   h.placement("home"),
			Next:   &falcon.Launch{Generation: n},
			Launch: &falcon.Launch{Generation: n},
		}),
		record(t0, kindLaunchEnded, launchEndedRecord{
			Generation: n,
			Rank:       falcon.Rank(n % 4),
		}),
		record(t0, kindFence, fenceRecord{
			Generation: n,
			Nodes:      []falcon.Node{falcon.Node(fmt.Sprint("n", n%3))},
			Processes:  []string{fmt.Sprintf("n1/%d", n), "n2/7"},
			Stop:       n,
		}),
		record(t0, kindFence, fenceRecord{Lifted: "n1", By: "maria"}),
		record(t0, kindEnded, endedRecord{
			JobEpoch: n % 3,
			Ranks:    []falcon.Rank{falcon.Rank(n % 4)},
		}),
		record(t0, kindWatched, history.Watched{
			Name:       "gpt",
			World:      8,
			Iterations: int64(n),
			Ms:         float64(n),
			Over:       n%4 == 0,
		}),
		record(t0, kindTriage, triage.Entry{
			Incident: fmt.Sprintf("INC-%04d", n%4),
			Verb:     triage.Snooze,
			UntilNs:  int64(n),
			Text:     "a fan",
			By:       "dana",
		}),
		record(t0, kindTriage, triage.Entry{
			Incident: fmt.Sprintf("INC-%04d", n%4),
			Verb:     triage.Assign,
			To:       "lee",
			By:       "dana",
		}),
		record(t0, kindBar, bars.Entry{
			Name:    fmt.Sprint("n", n%3),
			UntilNs: 1 << 62,
			Reason:  "fan",
			By:      "dana",
			AtNs:    int64(n),
		}),
		record(t0, kindPace, []pace.Stretch{{
			Epoch:   n,
			First:   int64(n),
			N:       3,
			Per:     2,
			BeginNs: 5,
			EndNs:   9,
			Points:  []byte{1, 2, 3, 4},
		}}),
		record(t0, kindClock, clock.Mark{
			SteadyNs: int64(n),
			SinceNs:  1,
			BootID:   "a",
		}),
		record(t0, kindAside, asideRecord{Records: []uint64{n}}),
		record(t0, kindDevice, deviceRecord{
			Node:   falcon.Node(fmt.Sprint("n", n%3)),
			Device: "n1.g0",
			Code:   79,
			Text:   "gone",
		}),
	}
	from := h.number("kind", len(records)-1)
	most := 1
	if h.whole {
		most = len(records)
	}
	for i := range most {
		h.add(records[(from+i)%len(records)])
	}
}

// What is folded from a snapshot is what was folded from the records that it
// takes the place of, in every field; and it goes on alike.
func TestSnapshotSaysTheSame(t *testing.T) {
	filled := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		h := &randomRecords{t: t, m: newJournalState()}
		play := func() {
			for range h.number("records", 40) {
				[]func(){h.job, h.recovery, h.sent, h.incident, h.other}[h.number("what", 4)]()
			}
		}
		if h.whole = len(filled) == 0; h.whole { // the first meets all kinds, however few follow
			for _, f := range []func(){h.job, h.recovery, h.sent, h.incident, h.other} {
				f()
			}
			note(filled, h.m)
			h.whole = false
		}
		play()
		copied := newJournalState()
		for _, body := range h.m.snapshot() {
			if err := copied.apply(journal.Record{Kind: journal.KindPart, Body: body}); err != nil {
				t.Fatal(err)
			}
		}
		if diff := sameMemory(h.m, copied); diff != "" {
			t.Fatalf("the snapshot says something else: %s", diff)
		}
		note(filled, h.m)
		h.m = copied
		play()
	})
	for _, f := range reflect.VisibleFields(reflect.TypeFor[journalState]()) {
		if !f.Anonymous && !filled[f.Name] {
			t.Errorf("no history fills memory.%s: that a snapshot holds it is not tested", f.Name)
		}
	}
}

// note notes which fields of a memory differ from those of a new one.
func note(filled map[string]bool, m *journalState) {
	was := reflect.ValueOf(newJournalState()).Elem()
	is := reflect.ValueOf(m).Elem()
	for _, f := range reflect.VisibleFields(is.Type()) {
		if !cmp.Equal(
			fmt.Sprintf("%#v", was.FieldByIndex(f.Index)),
			fmt.Sprintf("%#v", is.FieldByIndex(f.Index)),
		) {
			filled[f.Name] = true
		}
	}
}

// old writes a journal that a falcon of format 1 wrote to a folder of its own.
func old(t testing.TB, name string) string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	path := filepath.Join(t.TempDir(), "journal.db")
	if err := errors.Join(err, os.WriteFile(path, b, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// An engine goes on with a journal of format 1, and with the snapshot of it.
func TestJournalOfFormat1IsFolded(t *testing.T) {
	for name, check := range map[string]func(m *journalState) bool{
		"journal-v1-story.db.gz": func(m *journalState) bool {
			return len(m.incidents) == 1 &&
				m.incidents[0].State == falcon.IncidentClosed &&
				len(m.actions) == 1 &&
				m.actions[0].DecidedBy == "tester" &&
				len(m.orders) == 0
		},
		"journal-v1-recovery.db.gz": func(m *journalState) bool {
			v, known := m.recovery("REC-0001")
			return known &&
				v.State == falcon.RecoveryResumed &&
				len(v.Placement) == 4 &&
				m.job.Epoch == 2 &&
				m.fences.processFenced("n1/102") &&
				len(m.sent) == 5
		},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := journal.Open(old(t, name))
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			m, _, err := restore(j)
			if err != nil || !check(m) {
				t.Fatalf("%+v, %v", m, err)
			}
			if diff := sameMemory(m, again(t, m)); diff != "" {
				t.Error(diff)
			}
			if err := j.Compact(1, m.snapshot(), Retention{}.auditKept(time.Now())); err != nil {
				t.Fatal(err)
			}
			if after, _, err := restore(j); err != nil || sameMemory(m, after) != "" {
				t.Errorf("after the compaction: %v, %s", err, sameMemory(m, after))
			}
		})
	}
}

// Records that an engine can't read end its start with their number, and are
// never passed over.
func TestUnreadableRecordsAreRefused(t *testing.T) {
	for name, r := range map[string]journal.Record{
		"kind": {Seq: 7, Kind: "lease", Body: []byte("{}")},
		"cap": {
			Seq:  7,
			Kind: kindPolicy,
			Body: []byte(`{"policy":{"mode":"auto","cap":"S9"},"version":2}`),
		},
		"mode": {
			Seq:  7,
			Kind: kindPolicy,
			Body: []byte(`{"policy":{"mode":"bold","cap":"S1"},"version":2}`),
		},
		"section": {Seq: 7, Kind: journal.KindPart, Body: []byte(`{"section":"leases","items":[{}]}`)},
		"delta":   {Seq: 7, Kind: kindRecovery, Body: []byte(`{"of":"REC-0009","set":{}}`)},
		"list":    {Seq: 7, Kind: kindJob, Body: []byte(`{"of":"job","lists":{"placement":{"9":"n1.g0"}}}`)},
		"sum": {
			Seq:  7,
			Kind: kindJob,
			Body: []byte(`{"of":"job","set":{"placement":["n1.g0"]},"sum":1}`),
		},
		"ranges":   {Seq: 7, Kind: kindRecovery, Body: []byte(`{"of":"job","ranges":{"survivors":"4-1"}}`)},
		"too many": {Seq: 7, Kind: kindSent, Body: []byte(`{"of":"job","ranks":"0-99999999"}`)},
		"no rank":  {Seq: 7, Kind: kindSent, Body: []byte(`{"of":"job","ranks":"0-3"}`)},
	} {
		err := newJournalState().apply(r)
		if err == nil || !strings.Contains(err.Error(), "journal record 7") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzApply(f *testing.F) {
	for _, kind := range []journal.Kind{kindJob, kindRecovery, kindSent, journal.KindPart} {
		f.Add(
			string(kind),
			[]byte(`{"of":"job","set":{"id":"REC-0001"},"lists":{"placement":{"0":"n1.g0"}},"ranges":{"survivors":"0-3"},"ranks":"0"}`),
		)
	}
	for _, body := range newJournalState().snapshot() {
		f.Add(string(journal.KindPart), body)
	}
	f.Add(string(kindPolicy), []byte(`{"policy":{"mode":"auto"}}`))
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		m := newJournalState()
		m.setJob(jobRecord{
			Epoch:     1,
			Placement: falcon.Placement{"n0.g0", "n1.g0"},
			Processes: []string{"n0/1", "n1/2"},
		})
		if m.apply(journal.Record{Seq: 1, Kind: journal.Kind(kind), Body: body}) != nil ||
			!json.Valid(body) ||
			bytes.Contains(body, []byte(`\u`)) {
			return
		}
		if kind != string(journal.KindPart) { // parts are written by this process alone
			again(t, m)
		}
	})
}
