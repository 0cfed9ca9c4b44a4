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
		e.job.setState("n0", &falconv1.RankState{Rank: r, Pid: 10 + r, Alive: true, World: 4, Tp: 1, Dp: 2, Pp: 2, MicroBatches: 2})
	}
	view := e.describer.view()
	old := view.Candidate()
	e.state.setJob(old)
	e.describer.machine.Committed(now.Add(-time.Hour), old) // so it was all the time
	agreed, want := old, []int32{3, 1}
	agreed.MicroBatches = want
	e.describer.record(now, agreed)
	e.describe(now.Add(time.Second)) // another report of a rank came
	if !slices.Equal(e.state.job.MicroBatches, want) || !e.describer.recheck {
		t.Errorf("micro-batches %v, want %v until the ranks have had time to report; looks again: %v", e.state.job.MicroBatches, want, e.describer.recheck)
	}
}
