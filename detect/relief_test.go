package detect

import (
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// A clock reading overtakes the samples that its agent ships in batches:
// iterations that ended before it must not count as healthy.
func TestReliefIsNotPlacedOnIterationsThatWereOnlySeenLate(t *testing.T) {
	const iterationNs, batch = int64(60e6), 4
	var ts iterationTimes
	start := time.Unix(1_700_000_000, 0)
	for i := int64(100); i < 180; i++ {
		seen := start.Add(time.Duration(((i/batch)+1)*batch*iterationNs + 50e6))
		ts.addIteration(cell{iteration: i, endNs: start.UnixNano() + i*iterationNs}, seen)
	}
	cleared := 159*iterationNs + 10e6 // iteration 159 was the last slow one
	at, ok := ts.firstAfter(start.Add(time.Duration(cleared)), start.UnixNano()+cleared)
	if !ok || at != 160 {
		t.Errorf("first healthy iteration %d, %v; want 160", at, ok)
	}
	if at, _ = ts.firstAfter(start.Add(time.Duration(cleared)), 0); at > 159 {
		t.Errorf("without the node's clock %d: then only the time of sight speaks", at)
	}
	skewed := start.UnixNano() + cleared + 3600e9
	at, _ = ts.firstAfter(start.Add(time.Duration(cleared)), skewed)
	if at > 160+shippedLate {
		t.Errorf("a clock that is an hour ahead moved it to %d", at)
	}
	if _, ok = ts.firstAfter(start.Add(time.Hour), 0); ok {
		t.Error("an iteration after the last one")
	}
}

// A change that is placed too early is moved past what is still slow.
func TestFirstFast(t *testing.T) {
	cfg := DefaultConfig()
	log := &sampleLog{slowest: newSeries(&cfg)}
	for i := range int64(20) {
		ms := 200.0
		if i >= 12 || i == 9 {
			ms = 100
		}
		log.slowest.observe(i, ms)
	}
	for at, want := range map[int64]int64{8: 12, 9: 12, 12: 12, 14: 14} {
		if got := log.firstFast(at, 150); got != want {
			t.Errorf("placed at %d: moved to %d, want %d", at, got, want)
		}
	}
}

func TestBurstThatPassesUnprofiledIsToldSo(t *testing.T) {
	m := New(DefaultConfig())
	m.Step(
		time.Unix(1, 0),
		Job{Epoch: 1, Layout: falcon.Layout{TP: 1, DP: 2, PP: 1}},
	)
	s := &incidentState{Incident: falcon.Incident{
		ID:             "INC-0001",
		State:          falcon.IncidentVerified,
		OnsetIteration: 4,
		Verdict:        falcon.Verdict{Cause: falcon.CauseUnknown},
	}}
	m.incidents.list = append(m.incidents.list, s)
	m.relief.relieve(s, 9, "the iteration time is back")
	got := m.Ready().Incidents[0]
	if got.Verdict.Severity != 1 ||
		len(got.Verdict.Evidence) != 1 ||
		!strings.Contains(got.Verdict.Evidence[0].Text, "before a profile was taken") {
		t.Errorf("incident %+v", got)
	}
}
