package agent

import (
	"errors"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/act"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of an active test.
const (
	testLife = 5 * time.Second // of a test that names none
	testWait = time.Second     // beyond the deadline, for a hook that says nothing
	testsMax = 64              // ranks in one command: more than a node has
)

var (
	errNotHeld = errors.New("the pause of these tests is not in force here")
	errTests   = errors.New("a test command names from 1 to 64 ranks")
)

// testTask awaits the results of the tests that one command gave to ranks.
type testTask struct {
	agent   *Agent
	id      uint64
	waiting []*waitingTest
	results []*falconv1.TestResult
}

// waitingTest is one rank's test in progress.
type waitingTest struct {
	rank    *process
	kind    falconv1.TestKind
	untilNs int64
}

var _ = enter[*falconv1.Command_Test](command{
	start: func(a *Agent, cmd *falconv1.Command, _, _ time.Time) (act.Task, error) {
		return a.startTest(cmd.GetTest())
	},
})

// startTest puts a test into each rank's mailbox. What can't be tested is a
// result, not a refusal: the others go on.
func (a *Agent) startTest(cmd *falconv1.TestCommand) (act.Task, error) {
	switch n := len(cmd.GetTests()); {
	case a.held == nil || a.held.pause != cmd.GetPause():
		return nil, errNotHeld
	case n < 1 || n > testsMax:
		return nil, errTests
	}
	t := &testTask{agent: a, id: cmd.GetTest()}
	for _, one := range cmd.GetTests() {
		if why := t.startOne(one); why != "" {
			t.results = append(t.results, &falconv1.TestResult{
				Test:   t.id,
				Rank:   one.GetRank(),
				Kind:   one.GetKind(),
				Status: falconv1.TestStatus_TEST_STATUS_REFUSED,
				Reason: why,
			})
		}
	}
	return t, nil
}

// startOne gives one rank its test, or returns why not.
func (t *testTask) startOne(one *falconv1.RankTest) (why string) {
	h := t.agent.held
	i := slices.IndexFunc(h.ranks, func(r *heldRank) bool {
		return r.rank == falcon.Rank(one.GetRank())
	})
	switch {
	case i < 0:
		return "this rank is not held here"
	case !h.ranks[i].isQuiet():
		return "this rank is not quiet"
	}
	r := h.ranks[i]
	life := boundedMs(one.GetLifeMs())
	if life <= 0 {
		life = testLife
	}
	until := min(t.agent.dir.MonoNs()+life.Nanoseconds(), h.untilNs)
	test := ring.Test{
		ID:      t.id,
		UntilNs: until,
		Kind:    ring.TestKind(max(one.GetKind(), 0)),
		Repeats: int(one.GetRepeats()),
		N:       int(one.GetN()),
		Bytes:   one.GetBytes(),
		Side:    int(one.GetSide()),
		IDs:     [2][]byte{one.GetForwardId(), one.GetBackwardId()},
	}
	if test.Kind == ring.TestMint && test.Repeats == 0 {
		test.Repeats = 1 // nothing is repeated
	}
	if err := r.seg.PutTest(test); err != nil {
		return err.Error()
	}
	t.waiting = append(t.waiting, &waitingTest{
		rank:    r.process,
		kind:    one.GetKind(),
		untilNs: until,
	})
	return ""
}

// Poll is done when every rank has answered, ended, or is overdue.
func (t *testTask) Poll(time.Time) (*falconv1.CommandResult, bool) {
	mono := t.agent.dir.MonoNs()
	t.waiting = slices.DeleteFunc(t.waiting, func(w *waitingTest) bool {
		r := t.resultOf(w, mono)
		if r != nil {
			r.Test, r.Rank, r.Kind = t.id, int32(w.rank.rank), w.kind
			t.results = append(t.results, r)
		}
		return r != nil
	})
	if len(t.waiting) > 0 {
		return nil, false
	}
	return &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE, Tests: t.results}, true
}

// PollLate goes on beyond the command's deadline, which bounds the delivery: each
// test has a deadline of its own.
func (t *testTask) PollLate(now time.Time) (*falconv1.CommandResult, bool) {
	return t.Poll(now)
}

// testStatuses are the contract's names of the hook's statuses.
var testStatuses = map[ring.TestStatus]falconv1.TestStatus{
	ring.TestDone:    falconv1.TestStatus_TEST_STATUS_DONE,
	ring.TestRefused: falconv1.TestStatus_TEST_STATUS_REFUSED,
	ring.TestFailed:  falconv1.TestStatus_TEST_STATUS_FAILED,
	ring.TestLate:    falconv1.TestStatus_TEST_STATUS_LATE,
}

// resultOf is the result of one rank, nil while there is none.
func (t *testTask) resultOf(w *waitingTest, mono int64) *falconv1.TestResult {
	if w.rank.dead {
		return &falconv1.TestResult{
			Status: falconv1.TestStatus_TEST_STATUS_FAILED,
			Reason: "the process ended",
		}
	}
	got, ok := w.rank.seg.TestResult()
	status, over := testStatuses[got.Status]
	switch {
	case ok && got.ID == t.id && over:
		return testResult(w, got, status)
	case mono > w.untilNs+testWait.Nanoseconds():
		return &falconv1.TestResult{
			Status: falconv1.TestStatus_TEST_STATUS_LATE,
			Reason: "the hook gave no result in time",
		}
	}
	return nil
}

func testResult(w *waitingTest, got ring.TestResult, status falconv1.TestStatus) *falconv1.TestResult {
	out := &falconv1.TestResult{Status: status, Reason: got.Reason.String()}
	if status != falconv1.TestStatus_TEST_STATUS_DONE {
		return out
	}
	if int32(got.Kind) != int32(w.kind) {
		return &falconv1.TestResult{
			Status: falconv1.TestStatus_TEST_STATUS_FAILED,
			Reason: "the hook answered for a test of another kind",
		}
	}
	out.MedianMs = float64(got.MedianNs) / 1e6
	out.BestMs = float64(got.BestNs) / 1e6
	out.SetupMs = float64(got.SetupNs) / 1e6
	out.Bytes = got.Bytes
	out.Repeats = int32(got.Repeats)
	out.ForwardId, out.BackwardId = got.IDs[0], got.IDs[1]
	return out
}
