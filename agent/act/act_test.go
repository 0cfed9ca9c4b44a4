package act

import (
	"errors"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

var t0 = time.Unix(1000, 0)

// bench is an Executor whose commands are counted and end on demand.
type bench struct {
	executor *Executor
	started  []uint64
	results  []*falconv1.CommandResult
	finished bool
	refuse   error
}

func (b *bench) Poll(time.Time) (*falconv1.CommandResult, bool) {
	if !b.finished {
		return nil, false
	}
	return &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE, Detail: "work"}, true
}

func newBench() *bench {
	b := &bench{}
	b.executor = New(func(c *falconv1.Command, _, _ time.Time) (Task, error) {
		b.started = append(b.started, c.Id)
		return b, b.refuse
	}, func(r *falconv1.CommandResult) { b.results = append(b.results, r) })
	return b
}

func command(epoch, id uint64, deadline time.Time) *falconv1.Command {
	return &falconv1.Command{
		Epoch:          epoch,
		Id:             id,
		DeadlineUnixNs: deadline.UnixNano(),
	}
}

func (b *bench) expect(t *testing.T, want ...falconv1.CommandStatus) {
	t.Helper()
	if len(b.results) != len(want) {
		t.Fatalf("got %d results %v, want %v", len(b.results), b.results, want)
	}
	for i, w := range want {
		if b.results[i].Status != w {
			t.Fatalf("result %d is %v, want %v", i, b.results[i], w)
		}
	}
}

const (
	accepted = falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED
	done     = falconv1.CommandStatus_COMMAND_STATUS_DONE
	refused  = falconv1.CommandStatus_COMMAND_STATUS_REFUSED
	expired  = falconv1.CommandStatus_COMMAND_STATUS_EXPIRED
)

func TestExecutesOnceAndAnswersFromMemory(t *testing.T) {
	b := newBench()
	c := command(3, 7, t0.Add(time.Second))
	b.executor.Execute(c, t0)
	b.executor.Execute(c, t0) // while in progress
	b.finished = true
	b.executor.Poll(t0)
	b.executor.Execute(c, t0)                // when done
	b.executor.Execute(c, t0.Add(time.Hour)) // and long after its deadline
	b.expect(t, accepted, accepted, done, done, done)
	if len(b.started) != 1 {
		t.Fatalf("started %d times", len(b.started))
	}
	if r := b.results[4]; r.Epoch != 3 || r.Id != 7 || r.Detail != "work" {
		t.Fatalf("answer from memory is %v", r)
	}
}

func TestExpiredIsNotExecuted(t *testing.T) {
	b := newBench()
	b.executor.Execute(command(1, 1, t0), t0)
	b.expect(t, expired)
	if len(b.started) != 0 {
		t.Fatal("an expired command was executed")
	}
}

func TestStaleEpochIsRefused(t *testing.T) {
	b := newBench()
	b.executor.Fence(5)
	b.executor.Execute(command(4, 1, t0.Add(time.Second)), t0)
	b.executor.Execute(command(6, 1, t0.Add(time.Second)), t0)
	b.executor.Execute(command(5, 2, t0.Add(time.Second)), t0)
	b.expect(t, refused, accepted, refused)
	if len(b.started) != 1 {
		t.Fatalf("started %v, want the one of epoch 6", b.started)
	}
}

func TestRefusalCarriesTheReason(t *testing.T) {
	b := newBench()
	b.refuse = errors.New("no such rank here")
	b.executor.Execute(command(1, 1, t0.Add(time.Second)), t0)
	b.expect(t, refused)
	if b.results[0].Detail != "no such rank here" {
		t.Fatalf("detail %q", b.results[0].Detail)
	}
}

func TestTaskThatOverrunsIsLeft(t *testing.T) {
	b := newBench()
	b.executor.Execute(command(1, 1, t0.Add(time.Second)), t0)
	b.executor.Poll(t0.Add(2 * time.Second))
	b.executor.Poll(t0.Add(3 * time.Second))
	b.expect(t, accepted, expired)
	if b.executor.Running() {
		t.Fatal("still running")
	}
}

func TestCommandsInProgressAreBounded(t *testing.T) {
	b := newBench()
	for id := range uint64(RunningMax + 1) {
		b.executor.Execute(command(1, id+1, t0.Add(time.Second)), t0)
	}
	if got := b.results[RunningMax].Status; got != refused {
		t.Fatalf("one too many is %v", got)
	}
	if len(b.started) != RunningMax {
		t.Fatalf("started %d", len(b.started))
	}
}

// A forgotten id is refused: executing it again would break the promise.
func TestForgottenIdsAreNotExecutedAgain(t *testing.T) {
	b := newBench()
	b.finished = true
	for id := range uint64(MemoryMax + 10) {
		b.executor.Execute(command(1, id+1, t0.Add(time.Second)), t0)
		b.executor.Poll(t0)
	}
	if len(b.executor.last) != MemoryMax || len(b.executor.order) != MemoryMax {
		t.Fatalf("memory holds %d of %d", len(b.executor.last), MemoryMax)
	}
	b.results = nil
	b.executor.Execute(command(1, 1, t0.Add(time.Second)), t0)
	b.expect(t, refused)
	if len(b.started) != MemoryMax+10 {
		t.Fatalf("started %d", len(b.started))
	}
}

// slow is a task whose effect comes late.
type slow struct {
	pollLate func() (*falconv1.CommandResult, bool)
}

func (slow) Poll(time.Time) (*falconv1.CommandResult, bool) {
	return nil, false
}

func (s slow) PollLate(time.Time) (*falconv1.CommandResult, bool) {
	return s.pollLate()
}

// Late tasks neither count as in progress nor pile up.
func TestLateTasksAreWatchedAndBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	watched := map[uint64]int{}
	ends := false
	var reports []*falconv1.CommandResult
	d := New(func(cmd *falconv1.Command, _, _ time.Time) (Task, error) {
		return slow{func() (*falconv1.CommandResult, bool) {
			watched[cmd.Id]++
			if ends {
				return &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}, true
			}
			return nil, false
		}}, nil
	}, func(r *falconv1.CommandResult) { reports = append(reports, r) })
	for id := uint64(1); id <= LateMax+3; id++ {
		d.Execute(&falconv1.Command{Epoch: 1, Id: id, DeadlineUnixNs: now.Add(time.Second).UnixNano()}, now)
		now = now.Add(2 * time.Second)
		d.Poll(now)
		if d.Running() {
			t.Fatal("a late task counts as in progress")
		}
	}
	clear(watched)
	ends, reports = true, nil
	d.Poll(now)
	if len(watched) != LateMax ||
		watched[3] != 0 ||
		len(reports) != LateMax ||
		reports[0].Id != 4 ||
		reports[0].Epoch != 1 {
		t.Fatalf("watched %v, reports %v", watched, reports)
	}
	d.Poll(now)
	if len(reports) != LateMax {
		t.Fatal("a task that ended was asked again")
	}
	d.Execute(&falconv1.Command{Epoch: 1, Id: 9}, now)
	if r := reports[len(reports)-1]; r.Id != 9 || r.Status != falconv1.CommandStatus_COMMAND_STATUS_DONE {
		t.Fatalf("a repeat is answered with %v, not with the late result", r)
	}
}

// A life counts from the receipt by the agent's own clock, however far that is
// from the engine's; only an engine that gives none is taken at its word.
func TestLifeCountsFromReceipt(t *testing.T) {
	for _, skew := range []time.Duration{-10 * time.Minute, 0, 10 * time.Minute} {
		b := newBench()
		c := command(1, 1, t0.Add(-skew).Add(5*time.Second))
		c.LifeMs = 5000
		b.executor.Execute(c, t0)
		b.executor.Poll(t0.Add(4 * time.Second))
		b.expect(t, accepted)
		b.executor.Poll(t0.Add(6 * time.Second))
		b.expect(t, accepted, expired)
	}
}

func TestLifeIsBounded(t *testing.T) {
	for life, ends := range map[int64]time.Duration{
		int64(time.Hour / time.Millisecond): LifeMax,
		1 << 62:                             LifeMax,
		1500:                                1500 * time.Millisecond,
	} {
		b := newBench()
		b.executor.Execute(&falconv1.Command{Epoch: 1, Id: 1, LifeMs: life, DeadlineUnixNs: 1}, t0)
		b.executor.Poll(t0.Add(ends))
		b.expect(t, accepted)
		b.executor.Poll(t0.Add(ends + time.Millisecond))
		b.expect(t, accepted, expired)
	}
}

// A command that was over when it was sent is not executed, also where the
// agent's clock is behind.
func TestLifeThatIsOver(t *testing.T) {
	b := newBench()
	c := command(1, 1, t0.Add(time.Hour))
	c.LifeMs = -1
	b.executor.Execute(c, t0)
	b.expect(t, expired)
	if len(b.started) != 0 {
		t.Fatal("a command whose life is over was executed")
	}
}
