package engine

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/recovery/restart"
)

const ranksPerNode = 8

// largeJob describes a job of many nodes.
func largeJob(nodes int) jobRecord {
	world := nodes * ranksPerNode
	v := jobRecord{
		Epoch:      1,
		Layout:     falcon.Layout{TP: ranksPerNode, DP: nodes, PP: 1},
		Generation: 1,
		Can:        falcon.Can{Declared: true, Park: true},
	}
	for r := range world {
		node := fmt.Sprintf("node-%05d", r/ranksPerNode)
		v.Processes = append(v.Processes, fmt.Sprintf("%s/%d/g1", node, 100_000+r%50_000))
		v.Placement = append(v.Placement, falcon.NewDevice(falcon.Node(node), r%ranksPerNode))
	}
	return v
}

// nodeDies are the states of a recovery in which a spare takes over a node's
// ranks, and the job that it leads to.
func nodeDies(job jobRecord, number int) ([]falcon.Recovery, jobRecord) {
	dead := falcon.Node(fmt.Sprintf("node-%05d", number%(len(job.Placement)/ranksPerNode)))
	spare := falcon.Node(fmt.Sprintf("spare-%05d", number))
	v := falcon.Recovery{
		ID:       fmt.Sprintf("REC-%04d", number),
		JobEpoch: job.Epoch,
		RecoveryPlan: falcon.RecoveryPlan{
			PlanHash:  "8bf27c3661fa",
			Fenced:    []falcon.Node{dead},
			Placement: slices.Clone(job.Placement),
			Replaced:  map[falcon.Rank]falcon.Device{},
			Resume:    falcon.NoIteration,
		},
		RecoveryDecision:  falcon.RecoveryDecision{DecidedBy: "policy"},
		RecoveryExecution: falcon.RecoveryExecution{Generation: job.Generation + 1, Attempts: 1},
		RecoveryOutcome: falcon.RecoveryOutcome{
			PhaseMs: map[string]float64{"detect": 6000},
			PredictMs: map[string]float64{
				"suspend":   500,
				"replace":   60000,
				"ranktable": 500,
				"collect":   10,
				"groups":    5000,
				"restore":   5000,
			},
		},
	}
	next := job
	next.Epoch = job.Epoch + 1
	next.Rejoined = v.Generation
	next.Placement = v.Placement
	next.Processes = slices.Clone(job.Processes)
	for r, d := range job.Placement {
		if d.Node() != dead {
			v.Survivors = append(v.Survivors, falcon.Rank(r))
			continue
		}
		device := falcon.NewDevice(spare, d.Index())
		v.Replaced[falcon.Rank(r)], v.Placement[r] = device, device
		v.Moves = append(v.Moves, falcon.ShardMove{
			Rank: falcon.Rank(r),
			From: falcon.Rank((r + ranksPerNode) % len(job.Placement)),
			Why:  "same shard",
		})
		next.Processes[r] = fmt.Sprintf("%s/%d/g%d", spare, 7000+r%ranksPerNode, v.Generation)
	}
	v.Faults = []falcon.Fault{{
		Kind:     falcon.FaultNode,
		Node:     dead,
		Ranks:    slices.Collect(maps.Keys(v.Replaced)),
		Evidence: []string{"the agent of the node is silent", "its ranks' peers stand"},
	}}
	var states []falcon.Recovery
	for i, s := range []falcon.RecoveryState{
		falcon.RecoverySuspend, falcon.RecoveryReplace, falcon.RecoveryTable,
		falcon.RecoveryCollect, falcon.RecoveryRejoin, falcon.RecoveryResumed,
	} {
		v.State = s
		v.DeadlineNs = int64(i) * 1e9
		v.PhaseMs = maps.Clone(v.PhaseMs)
		v.PhaseMs[string(s)] = float64(100 * i)
		states = append(states, v)
	}
	return states, next
}

// promisesOf are the commands of a recovery: to the survivors' nodes, the spare,
// and all that are left.
func promisesOf(v falcon.Recovery, job jobRecord) (out []sentRecord) {
	nodes := v.Placement.SortedNodes()
	old := job.Placement.SortedNodes()
	pids := map[falcon.Rank]int32{}
	for _, r := range v.Survivors {
		pids[r], _ = pidOf(job, r)
	}
	for r := range v.Replaced {
		pids[r] = 7000
	}
	for i, kind := range []string{suspendKind, launchKind, tableKind, rejoinKind} {
		s := sentRecord{
			Generation: v.Generation,
			Kind:       kind,
			Hash:       "8bf27c3661fa",
			First:      uint64(i) * 20_000,
			Nodes:      nodes,
		}
		switch kind {
		case suspendKind:
			s.Nodes = difference(old, v.Fenced)
		case launchKind:
			s.Nodes = difference(nodes, old)
		case rejoinKind:
			s.Pids = pids
		}
		out = append(out, s)
	}
	return out
}

// What a recovery writes, whole as an older falcon wrote it and by what changes:
// go test ./backend/engine -run BytesOfARecovery -v
func TestBytesOfARecovery(t *testing.T) {
	const perDay = 48 // two an hour
	for _, nodes := range []int{1000, 12_500} {
		m, w, job := newJournalState(), written{}, largeJob(nodes)
		if err := m.apply(record(t0, kindJob, jobDelta(m.job, job))); err != nil {
			t.Fatal(err)
		}
		whole, now := 0, 0
		add := func(old any, r journal.Record) {
			whole, now = whole+len(encode(old)), now+len(r.Body)
			if err := m.apply(r); err != nil {
				t.Fatal(err)
			}
		}
		states, next := nodeDies(job, 1)
		for _, s := range promisesOf(states[0], job) {
			add(s, m.sentRecord(t0, s))
		}
		for _, v := range states {
			add(v, w.recoveryRecord(t0, m.job, v))
		}
		add(next, record(t0, kindJob, jobDelta(m.job, next)))
		t.Logf(
			"%6d nodes, %6d ranks: %9d bytes a recovery whole, %6d by what changes; %8.1f and %5.1f MB a day with two an hour",
			nodes, nodes*ranksPerNode, whole, now, float64(perDay*whole)/1e6,
			float64(perDay*now)/1e6,
		)
		if now*100 > whole {
			t.Errorf("%d nodes: %d bytes, and %d if everything is written", nodes, now, whole)
		}
	}
}

// largeMemory is memory after a year at a number of nodes: all that it keeps is
// kept.
func largeMemory(t testing.TB, nodes int) *journalState {
	t.Helper()
	m, w, job := newJournalState(), written{}, largeJob(nodes)
	add := func(r journal.Record) {
		if err := m.apply(r); err != nil {
			t.Fatal(err)
		}
	}
	add(record(t0, kindJob, jobDelta(m.job, job)))
	for n := range recoveriesKept {
		states, next := nodeDies(job, n+1)
		for _, s := range promisesOf(states[0], job) {
			add(m.sentRecord(t0, s))
		}
		add(w.recoveryRecord(t0, m.job, states[len(states)-1]))
		job = next
		job.Generation = uint64(n + 2)
		add(record(t0, kindJob, jobDelta(m.job, job)))
	}
	add(record(t0, kindRestart, restart.State{
		Phase:  restart.Over,
		Home:   job.Placement,
		Launch: &falcon.Launch{Generation: 2, Placement: job.Placement},
	}))
	for n := range incidentsKept {
		id := fmt.Sprintf("INC-%04d", n+1)
		add(record(t0, kindIncident, falcon.Incident{
			ID:      id,
			State:   falcon.IncidentClosed,
			Verdict: falcon.Verdict{Devices: []falcon.Device{"node-00001.g0"}},
		}))
		add(record(t0, kindAction, falcon.Action{
			ID:       id + "/S2",
			Incident: id,
			Rung:     falcon.RungS2,
			State:    falcon.ActionReverted,
		}))
		add(record(t0, kindDecision, DecisionRecord{
			Action:   id + "/S2",
			Incident: id,
			By:       "maria",
		}))
	}
	for n := range 2 * EventsMax {
		add(record(t0, kindEvent, eventRecord{
			Iteration: int64(n),
			Kind:      "agent",
			Text:      "the agent of node node-00001 is here (version 1.0)",
		}))
	}
	return m
}

// What a start costs at 100,000 ranks: opening and checking the journal, the
// snapshot, and a tail of records after it.
func BenchmarkStartAt100000Ranks(b *testing.B) {
	path := filepath.Join(b.TempDir(), "journal.db")
	j, err := journal.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	m := largeMemory(b, 12_500)
	if err := j.Compact(1, m.snapshot(), journal.Keep{}); err != nil {
		b.Fatal(err)
	}
	var tail []journal.Record
	for range 20_000 {
		tail = append(tail, record(t0, kindEvent, eventRecord{
			Iteration: 7,
			Kind:      "jitter",
			Text:      "iteration 7 of rank 12345 was slow and the next one is not",
		}))
	}
	if err := j.Append(tail); err != nil {
		b.Fatal(err)
	}
	r := j.Report()
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	began := cpuTime(b)
	for b.Loop() {
		j, err := journal.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := restore(j); err != nil {
			b.Fatal(err)
		}
		if err := j.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-began).Milliseconds())/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(r.Snapshot)/1e6, "snapshot-MB")
	b.ReportMetric(float64(r.Since)/1e6, "tail-MB")
}

// cpuTime is what this process has used of its processors: the time on a clock
// is also that of whatever else runs here.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// How long the loop is blocked for a snapshot of that memory, its writing left out.
func BenchmarkSnapshotAt100000Ranks(b *testing.B) {
	m := largeMemory(b, 12_500)
	for b.Loop() {
		m.snapshot()
	}
}
