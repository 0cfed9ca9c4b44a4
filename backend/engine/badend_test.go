package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/statements"
)

// Nobody has failed of whom no end is reported: a kernel that tells no status makes a stop look like that.
func TestAnEndThatIsNotToldIsNoFailure(t *testing.T) {
	at := func(s int, e *falconv1.RankState) *process {
		return &process{
			rank:    1,
			node:    "n0",
			endedAt: time.Unix(int64(s), 0),
			state:   e,
		}
	}
	for name, c := range map[string]struct {
		ranks []*process
		want  statements.Kind
	}{
		"nothing is reported": {
			[]*process{at(1, &falconv1.RankState{}), at(2, &falconv1.RankState{})},
			statements.Gone,
		},
		"one has failed": {
			[]*process{
				at(1, &falconv1.RankState{}),
				at(2, &falconv1.RankState{Exit: falconv1.ExitStatus(1)}),
			},
			statements.Failed,
		},
		"one has raised": {
			[]*process{
				at(1, &falconv1.RankState{}),
				at(2, &falconv1.RankState{Raised: &falconv1.Raised{Kind: "ValueError"}}),
			},
			statements.Failed,
		},
		"all by SIGTERM": {
			[]*process{at(1, &falconv1.RankState{Exit: falconv1.ExitSignal(15, "terminated")})},
			statements.Stopped,
		},
	} {
		j := &job{ranks: map[falcon.Rank]*process{}}
		for i, p := range c.ranks {
			j.ranks[falcon.Rank(i)] = p
		}
		var out falconv1.JobEnd
		j.fillBadEnd(&out)
		if out.GetHow() != string(c.want) {
			t.Errorf("%s: %v", name, &out)
		}
		if c.want == statements.Failed &&
			strings.Contains(out.GetWhy(), "nobody knows") &&
			name == "one has failed" {
			t.Errorf("%s: the first that is announced counts: %v", name, &out)
		}
	}
}

// Who is ordered to end while it waits for a recovery ends with success, and the job has not come to its
// end: an engine that has lost the records of the recovery knows that from the processes.
func TestADismissedJobHasNotFinished(t *testing.T) {
	at := func(r falcon.Rank, park *falconv1.Park, rejoined uint64) *process {
		return &process{
			rank:    r,
			node:    "n0",
			endedAt: time.Unix(1, 0),
			state: &falconv1.RankState{
				Exit:               falconv1.ExitedNormally,
				Park:               park,
				RejoinedGeneration: rejoined,
			},
		}
	}
	for name, c := range map[string]struct {
		ranks []*process
		want  bool
	}{
		"its own end":            {[]*process{at(0, nil, 0), at(1, nil, 0)}, false},
		"one waited when ending": {[]*process{at(0, nil, 0), at(1, &falconv1.Park{Generation: 4}, 1)}, true},
		"it had rejoined":        {[]*process{at(0, &falconv1.Park{Generation: 4}, 4)}, false},
	} {
		j := newJob()
		for _, p := range c.ranks {
			j.ranks[p.rank] = p
			j.dead++
		}
		if got := j.wasDismissed(); got != c.want || !j.finishedWell() {
			t.Errorf("%s: %t, all ended with success %t", name, got, j.finishedWell())
		}
	}
}
