package lab

import (
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// played is a lab of two ranks whose loop is the test.
func played(t *testing.T) *Lab {
	t.Helper()
	sc, err := parseScenario(
		[]byte("layout: {tp: 1, dp: 2, pp: 1}\nnodes: 2\nspares: 1\niterations: 50\n"),
		"t",
	)
	if err != nil {
		t.Fatal(err)
	}
	l := &Lab{
		sc:      sc,
		opt:     Options{Hook: true},
		records: newRecords(2),
		events:  make(chan event, 8),
	}
	l.status.RankPids = map[string]int{}
	l.faults = newFaults(sc, testSilicon(t, sc))
	for r := range falcon.Rank(2) {
		l.ranks = append(l.ranks, &rankProcess{rank: r, pid: 100 + int(r)})
	}
	return l
}

func (l *Lab) says(p *rankProcess, iterations ...int64) {
	for _, i := range iterations {
		loss := float64(i) / 10
		l.handleLine(p, line{
			Rank:      int(p.rank),
			Iteration: &i,
			Ms:        5,
			Loss:      &loss,
		})
	}
}

func again(generation uint64, from int64, source int32) line {
	return line{rejoinLine: rejoinLine{Rejoin: generation, Again: from, Source: source}}
}

// crash has rank 1 die in iteration 3 and come back as another process.
func crash(l *Lab, resume int64) (survivor, replacement *rankProcess) {
	survivor = l.ranks[0]
	l.says(survivor, 0, 1, 2)
	l.says(l.ranks[1], 0, 1)
	if resume == 2 {
		l.records.rows = l.records.rows[:3]
	}
	l.ranks[1].exited = true
	replacement = &rankProcess{
		rank:       1,
		pid:        300,
		launch:     2,
		generation: 2,
		joining:    true,
	}
	l.handleEvent(event{proc: replacement, joined: true})
	failed := again(2, resume, 0)
	failed.Status = -3
	l.takeRejoin(replacement, failed) // an attempt that came to nothing
	l.takeRejoin(survivor, again(2, resume, 0))
	l.takeRejoin(replacement, again(2, resume, 0))
	return survivor, replacement
}

func TestRejoin(t *testing.T) {
	l := played(t)
	survivor, replacement := crash(l, 3)
	if l.records.done != 3 ||
		!l.records.rows[2].Untold ||
		l.records.rows[1].Untold {
		t.Fatalf("done %d, rows %+v", l.records.done, l.records.rows)
	}
	l.says(survivor, 3, 4)
	l.says(replacement, 3)
	if l.records.done != 4 || l.records.rows[3].Generation != 2 {
		t.Errorf("done %d, rows %+v", l.records.done, l.records.rows)
	}
	s := RecoveryReport{
		Generation: 2,
		Replaced:   map[falcon.Rank]falcon.Device{1: "n2.g0"},
	}
	l.records.fillRecovery(&s, 0)
	if !s.SurvivorPidsKept || s.LostIterations != 1 {
		t.Errorf("%+v", s)
	}
	s = RecoveryReport{Generation: 2} // nobody says that rank 1 was replaced
	if l.records.fillRecovery(&s, 0); s.SurvivorPidsKept {
		t.Error("rank 1 has another process id")
	}
	if len(l.workingProcesses()) != 2 || l.jobEnded() {
		t.Errorf("%d processes work", len(l.workingProcesses()))
	}
	if generation, members := l.newestGeneration(); generation != 2 || len(members) != 2 {
		t.Errorf("generation %d has %d members", generation, len(members))
	}
}

// A job that has rejoined is waited for without a limit: one that is left from the wait for
// its recovery would end it minutes later.
func TestNoLimitAfterARejoin(t *testing.T) {
	l := parkingLab(t)
	l.status.RankPids = map[string]int{}
	l.faults = newFaults(l.sc, testSilicon(t, l.sc))
	for r := range falcon.Rank(l.records.world) {
		l.ranks = append(l.ranks, &rankProcess{rank: r, pid: 100 + int(r)})
	}
	limit := time.Duration(0)
	take := func(e event) {
		if l.handleEvent(e) {
			limit = l.waitLimit()
		}
	}
	lost := l.ranks[5]
	replacement := &rankProcess{
		rank:       5,
		pid:        300,
		launch:     2,
		generation: 2,
		joining:    true,
	}
	take(event{proc: lost, exited: true})
	take(event{proc: replacement, joined: true})
	if limit != recoverWait {
		t.Fatalf("a recovery is waited for for %s, want %s", limit, recoverWait)
	}
	for _, p := range append(l.ranks[:5:5], l.ranks[6:]...) {
		ln := again(2, 0, int32(p.rank))
		take(event{proc: p, line: &ln})
	}
	if limit != 0 {
		t.Errorf("the job has rejoined, and its ranks would be killed after %s", limit)
	}
}

// An iteration that some ranks had finished is run again: it counts as lost.
func TestRedoneIterations(t *testing.T) {
	l := played(t)
	survivor, replacement := crash(l, 2)
	if l.records.done != 2 ||
		len(l.records.rows) != 2 ||
		l.records.rejoins[0].redone != 2 {
		t.Errorf("done %d, %d rows, redone %d",
			l.records.done, len(l.records.rows), l.records.rejoins[0].redone)
	}
	l.says(survivor, 2)
	l.says(replacement, 2)
	if l.records.done != 3 {
		t.Errorf("done %d", l.records.done)
	}
}

// A frozen process lives on, and the job is over without it.
func TestFrozenIsNoMember(t *testing.T) {
	l := played(t)
	l.ranks[1].exited = false
	survivor, replacement := crash(l, 3)
	l.ranks[1].exited = false // it was frozen
	for _, p := range []*rankProcess{survivor, replacement} {
		p.end = endDone
		l.handleEvent(event{proc: p, exited: true})
	}
	if !l.jobEnded() || l.describeOutcome() != nil {
		t.Errorf("over %v, %v", l.jobEnded(), l.describeOutcome())
	}
}

func TestBlame(t *testing.T) {
	l := played(t)
	kills := []Kill{
		{Target: "console", UnixNs: 1},
		{Target: "rank 1", UnixNs: 5e6},
		{Target: "node n0", Frozen: true, UnixNs: 9e6},
	}
	s := RecoveryReport{
		ID: "REC-0001",
		Faults: []falcon.Fault{
			{Kind: "exit", Node: "n1", Ranks: []falcon.Rank{1}, DetectedNs: 45e6},
			{Kind: "node", Node: "n0", Ranks: []falcon.Rank{0}, DetectedNs: 109e6},
		},
	}
	s.matchDeaths(kills, l.sc)
	if s.Fault != "rank 1 killed; node n0 frozen" || s.DetectedMs != 40 {
		t.Errorf("%q after %v ms", s.Fault, s.DetectedMs)
	}
	k := kills[2]
	if k.Recovery != "REC-0001" || *k.DetectedMs != 100 || kills[0].Recovery != "" {
		t.Errorf("%+v", kills)
	}
	alone := RecoveryReport{
		ID: "REC-0002",
		Faults: []falcon.Fault{{
			Kind:       "device",
			Node:       "n0",
			Device:     "n0.g0",
			FirstNs:    1e6,
			DetectedNs: 3e6,
		}},
	}
	if alone.matchDeaths(kills, l.sc); alone.Fault != "device of n0 n0.g0" || alone.DetectedMs != 2 {
		t.Errorf("%q after %v ms", alone.Fault, alone.DetectedMs)
	}
}

// Ranks of a larger world before are nobody's.
func TestFewerRanks(t *testing.T) {
	l := played(t)
	l.says(l.ranks[0], 0, 1, 2)
	l.says(l.ranks[1], 0, 1, 2)
	l.ranks[0].exited = true // the other is frozen
	replacement := &rankProcess{
		rank:       0,
		pid:        300,
		launch:     2,
		generation: 2,
	}
	l.handleEvent(event{proc: replacement, joined: true})
	l.says(replacement, 1, 2)
	if l.records.done != 3 ||
		!l.records.fewer ||
		l.records.restarts[0].Redone != 2 {
		t.Errorf("done %d, fewer %v, %+v", l.records.done, l.records.fewer, l.records.restarts)
	}
	if got := l.rankOwners(); len(got) != 1 || got[0] != 300 {
		t.Errorf("owners %v", got)
	}
	if got := l.workingProcesses(); len(got) != 1 || got[0] != replacement {
		t.Errorf("%d processes work", len(got))
	}
}

func TestSamplesNote(t *testing.T) {
	l := played(t)
	survivor, replacement := crash(l, 3)
	l.says(survivor, 3)
	l.says(replacement, 3)
	ref := Reference{}
	for _, loss := range []float64{0, 0.1, 7, 0.3} { // iteration 2 was not reported: nobody knows its loss
		ref.Rows = append(ref.Rows, Iteration{Loss: loss})
	}
	if got := l.records.samplesNote(ref); got != SamplesEqual {
		t.Error(got)
	}
	ref.Rows[3].Sample = 8
	if got := l.records.samplesNote(ref); !strings.Contains(got, "iteration 3 began with sample 0") {
		t.Error(got)
	}
	ref.Rows[3].Sample, ref.Rows[3].Loss = 0, 0.31
	if got := l.records.samplesNote(ref); !strings.Contains(got, "the reference's with 0 and 0.31") {
		t.Error(got)
	}
	l.records.fewer = true // what was summed up in another order need not be equal to the bit
	if got := l.records.samplesNote(ref); !strings.Contains(got, "the reference's with 0 and 0.31") {
		t.Error(got)
	}
	ref.Rows[3].Loss = 0.300001
	if got := l.records.samplesNote(ref); got != SamplesShared {
		t.Error(got)
	}
}
