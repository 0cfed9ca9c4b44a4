package engine

import (
	"slices"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Agents tell of a new split a moment after the ranks have agreed on it. What
// they said until then is old, and never the job's split again.
func TestAgreedSplitOutlivesOlderWords(t *testing.T) {
	now := time.Unix(1000, 0)
	e := bareEngine(newJournalState())
	for r := range int32(4) {
		e.job.setState("n0", &falconv1.RankState{Rank: r, Pid: 10 + r, Alive: true, World: 4, Tp: 1, Dp: 2, Pp: 2, MicroBatches: 2})
	}
	old, _, _ := e.describer.candidate()
	e.state.setJob(old)
	e.describer.seen, e.describer.seenAt = old, now.Add(-time.Hour) // so it was all the time
	agreed, want := old, []int32{3, 1}
	agreed.MicroBatches = want
	e.describer.record(now, agreed)
	e.describe(now.Add(time.Second)) // some other word of a rank came
	if !slices.Equal(e.state.job.MicroBatches, want) || !e.describer.recheck {
		t.Errorf("micro-batches %v, want %v until the ranks have had time to tell; looks again: %v", e.state.job.MicroBatches, want, e.describer.recheck)
	}
}
