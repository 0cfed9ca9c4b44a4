package engine

import (
	"slices"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Agents report a new split a moment after the ranks have agreed on it. What they
// reported until then is old, and never the job's split again.
func TestAgreedSplitOutlivesOlderReports(t *testing.T) {
	now := time.Unix(1000, 0)
	e := bareEngine(newJournalState())
	for r := range int32(4) {
		e.job.setState("n0", &falconv1.RankState{
			Rank:         r,
			Pid:          10 + r,
			Alive:        true,
			World:        4,
			Tp:           1,
			Dp:           2,
			Pp:           2,
			MicroBatches: 2,
		})
	}
	view := e.describer.view()
	old := view.Candidate()
	e.state.setJob(old)
	e.describer.machine.Committed(now.Add(-time.Hour), old) // so it was all the time
	agreed := old
	want := []int32{3, 1}
	agreed.MicroBatches = want
	e.describer.record(now, agreed)
	e.describe(now.Add(time.Second)) // another report of a rank came
	if !slices.Equal(e.state.job.MicroBatches, want) || !e.describer.recheck {
		t.Errorf("micro-batches %v, want %v until the ranks have had time to report; looks again: %v",
			e.state.job.MicroBatches, want, e.describer.recheck)
	}
}

// An agent that comes back tells all it knows again. Where that is nothing new, the job is not
// described again: after a cut of 10,000 ranks it was, 1,250 times for 20 ms.
func TestWhatIsToldAgainIsNoChange(t *testing.T) {
	j := newJob()
	state := func(r int32) *falconv1.RankState {
		return &falconv1.RankState{
			Rank:         r,
			Pid:          10 + r,
			Alive:        true,
			World:        4,
			Tp:           1,
			Dp:           2,
			Pp:           2,
			MicroBatches: 2,
			Comms:        []*falconv1.Comm{{Id: 7}},
		}
	}
	for r := range int32(4) {
		j.setState("n0", state(r))
	}
	j.dirty = false
	changes := j.changes
	for r := range int32(4) {
		if !j.setState("n0", state(r)) {
			t.Errorf("rank %d: the state is refused", r)
		}
	}
	if j.dirty || j.changes != changes {
		t.Errorf("told again: dirty %v, %d changes", j.dirty, j.changes-changes)
	}
	for name, change := range map[string]func(*falconv1.RankState){
		"a communicator":  func(s *falconv1.RankState) { s.Comms[0].Id = 8 },
		"a split":         func(s *falconv1.RankState) { s.MicroBatches = 3 },
		"an end":          func(s *falconv1.RankState) { s.Alive = false },
		"another process": func(s *falconv1.RankState) { s.Pid = 99 },
	} {
		s := state(2)
		change(s)
		j.dirty = false
		if j.setState("n0", s); !j.dirty {
			t.Errorf("%s is no change", name)
		}
	}
}
