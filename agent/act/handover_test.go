package act

import (
	"errors"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func anything(*falconv1.Command) string { return "" }

// What is done is answered from memory by the next Executor; what is in progress is
// taken up there, once.
func TestAnotherDeskGoesOn(t *testing.T) {
	first := newBench()
	first.executor.Execute(command(1, 7, t0.Add(time.Minute)), t0)
	first.finished = true
	first.executor.Poll(t0)
	first.finished = false
	first.executor.Execute(command(2, 8, t0.Add(10*time.Second)), t0)

	later := t0.Add(4 * time.Second)
	second := newBench()
	second.executor.Import(first.executor.Export(later), later, anything)
	if len(second.started) != 1 || second.started[0] != 8 {
		t.Fatalf("started %v", second.started)
	}
	second.expect(t)
	second.executor.Execute(command(1, 7, later.Add(time.Minute)), later)
	second.executor.Execute(command(2, 8, later.Add(time.Minute)), later)
	second.executor.Execute(command(1, 9, later.Add(time.Minute)), later) // of a past epoch
	second.expect(t, done, accepted, refused)
	second.finished = true
	second.executor.Poll(later)
	second.expect(t, done, accepted, refused, done)
	if len(second.started) != 1 {
		t.Fatalf("started %v", second.started)
	}
}

// The life of a command goes on: the time between the two Executors does not count,
// the time before does.
func TestLivesGoOn(t *testing.T) {
	first := newBench()
	first.executor.Execute(command(1, 7, t0.Add(10*time.Second)), t0)
	m := first.executor.Export(t0.Add(4 * time.Second))
	later := t0.Add(time.Hour)
	second := newBench()
	second.executor.Import(m, later, anything)
	second.executor.Poll(later.Add(5 * time.Second))
	second.expect(t)
	second.executor.Poll(later.Add(7 * time.Second))
	second.expect(t, expired)
}

// What can't be taken up is answered, with the reason; so is what is refused.
func TestWhatCannotBeTakenUp(t *testing.T) {
	first := newBench()
	first.executor.Execute(command(1, 7, t0.Add(time.Minute)), t0)
	first.executor.Execute(command(1, 8, t0.Add(time.Minute)), t0)
	second := newBench()
	second.refuse = errors.New("no")
	second.executor.Import(first.executor.Export(t0), t0, func(c *falconv1.Command) string {
		if c.Id == 7 {
			return "a pause"
		}
		return ""
	})
	second.expect(t, expired, refused)
	if second.results[0].Detail != "a pause" ||
		second.results[1].Detail != "no" ||
		second.executor.Running() {
		t.Fatalf("%v", second.results)
	}
}

// A command that was forgotten is refused by the next Executor too.
func TestTheFloorIsHandedOver(t *testing.T) {
	first := newBench()
	first.finished = true
	for id := range uint64(MemoryMax + 5) {
		first.executor.Execute(command(1, id+1, t0.Add(time.Minute)), t0)
		first.executor.Poll(t0)
	}
	second := newBench()
	second.executor.Import(first.executor.Export(t0), t0, anything)
	second.executor.Execute(command(1, 2, t0.Add(time.Minute)), t0)
	second.executor.Execute(command(1, MemoryMax, t0.Add(time.Minute)), t0)
	second.expect(t, refused, done)
}

type lingering struct{ *bench }

func (l lingering) PollLate(now time.Time) (*falconv1.CommandResult, bool) {
	return l.Poll(now)
}

// A LateTask past its deadline is watched further.
func TestLateOnesAreWatchedFurther(t *testing.T) {
	first, second := newBench(), newBench()
	first.executor.start = func(*falconv1.Command, time.Time, time.Time) (Task, error) {
		return lingering{first}, nil
	}
	second.executor.start = func(*falconv1.Command, time.Time, time.Time) (Task, error) {
		return lingering{second}, nil
	}
	first.executor.Execute(command(1, 7, t0.Add(time.Second)), t0)
	late := t0.Add(2 * time.Second)
	first.executor.Poll(late)
	second.executor.Import(first.executor.Export(late), late, anything)
	second.executor.Poll(late)
	second.expect(t)
	second.finished = true
	second.executor.Poll(late)
	second.expect(t, done)
}
