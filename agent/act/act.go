// Package act executes the engine's commands at most once each.
//
// It guarantees that a command is executed at most once per (epoch, id) over
// the life of the agent process, and over lives that hand their memory on
// (Export, Import), that a repeat is answered from memory, that nothing is
// executed after its life or for a past epoch, and that every command taken on is
// answered in the end. A life is counted from the command's receipt, so that
// clocks which differ do no harm, and ends at LifeMax. Memory is bounded: an id
// that was forgotten is refused, not executed again.
//
// An Executor is a plain machine: no goroutines, no clock, no I/O. Its owner calls
// Execute and Poll from one goroutine and gives the time. It must not know what a
// command does; a Starter does.
package act

import (
	"errors"
	"fmt"
	"slices"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of an Executor.
const (
	MemoryMax  = 1024             // answered commands remembered
	RunningMax = 8                // commands in progress; one more is refused
	LifeMax    = 60 * time.Second // a command without a deadline, or with a later one, ends here
	LateMax    = 16               // commands watched beyond their deadline; the oldest is left for one more
)

// Task is one command in progress.
type Task interface {
	// Poll goes on with the work. A result is reported each time it is not
	// nil; the last one comes with done. After the deadline Poll must end.
	Poll(now time.Time) (result *falconv1.CommandResult, done bool)
}

// LateTask is a Task whose effect can come after the deadline, where the Executor
// could only report that it did not come in time. PollLate is called in place of
// Poll from then on, and ends by itself.
type LateTask interface {
	Task
	PollLate(now time.Time) (result *falconv1.CommandResult, done bool)
}

// Starter begins a command's work; an error is a refusal, its text the reason.
// deadline is when the task must have ended.
type Starter func(cmd *falconv1.Command, now, deadline time.Time) (Task, error)

type key struct{ epoch, id uint64 }

type running struct {
	key      key
	task     Task
	deadline time.Time
	cmd      *falconv1.Command // for the next life of the agent
}

// Executor starts commands, remembers them and polls those in progress.
type Executor struct {
	start   Starter
	report  func(*falconv1.CommandResult)
	seen    *falconv1.Standing // of engines; generation and order are others'
	last    map[key]*falconv1.CommandResult
	order   []key  // of last, oldest first
	floor   uint64 // ids of this epoch up to here are forgotten
	running []running
	late    []running // LateTasks past their deadline, oldest first
}

// New builds an Executor that reports results through report.
func New(start Starter, report func(*falconv1.CommandResult)) *Executor {
	return &Executor{
		start:  start,
		report: report,
		seen:   &falconv1.Standing{},
		last:   map[key]*falconv1.CommandResult{},
	}
}

// Running reports whether work is in progress.
func (d *Executor) Running() bool { return len(d.running) > 0 }

// Execute starts a command, or answers a repeat from memory.
func (d *Executor) Execute(cmd *falconv1.Command, now time.Time) {
	k := key{cmd.GetEpoch(), cmd.GetId()}
	if old, ok := d.last[k]; ok {
		d.report(old)
		return
	}
	if k.epoch < d.seen.GetEpoch() {
		r := newResult(k, falconv1.CommandStatus_COMMAND_STATUS_REFUSED,
			fmt.Sprintf("epoch %d is over, this agent follows epoch %d", k.epoch, d.seen.GetEpoch()))
		r.Newer = d.Standing()
		d.report(r)
		return
	}
	d.Fence(k.epoch)
	d.obey(k.id, cmd.GetRecord())
	if k.id <= d.floor {
		d.report(newResult(k, falconv1.CommandStatus_COMMAND_STATUS_REFUSED,
			fmt.Sprintf("command %d is older than this agent's memory", k.id)))
		return
	}
	deadline := deadlineOf(cmd, now)
	if !deadline.After(now) {
		d.recordResult(
			k,
			newResult(k, falconv1.CommandStatus_COMMAND_STATUS_EXPIRED,
				"the command arrived after its deadline"),
		)
		return
	}
	d.startTask(k, cmd, now, deadline)
}

// deadlineOf is when a command ends. Its life is counted from its receipt by the
// caller's clock alone: the engine's may be set otherwise. Only of an engine that
// gives no life the absolute deadline counts.
func deadlineOf(cmd *falconv1.Command, now time.Time) time.Time {
	most := now.Add(LifeMax)
	switch life, ns := cmd.GetLifeMs(), cmd.GetDeadlineUnixNs(); {
	case life < 0:
		return now
	case life > 0 && life < LifeMax.Milliseconds():
		return now.Add(time.Duration(life) * time.Millisecond)
	case life == 0 && ns != 0 && time.Unix(0, ns).Before(most):
		return time.Unix(0, ns)
	}
	return most
}

func (d *Executor) startTask(k key, cmd *falconv1.Command, now, deadline time.Time) {
	if len(d.running) >= RunningMax {
		d.recordResult(k, newResult(k, falconv1.CommandStatus_COMMAND_STATUS_REFUSED,
			fmt.Sprintf("%d commands are in progress already", RunningMax)))
		return
	}
	task, err := d.start(cmd, now, deadline)
	if err != nil {
		d.recordResult(k, refusal(k, err))
		return
	}
	d.recordResult(k, newResult(k, falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED, ""))
	d.running = append(d.running, running{
		key:      k,
		task:     task,
		deadline: deadline,
		cmd:      cmd,
	})
}

// Poll steps what is in progress. A task that goes on past its deadline is
// left and reported as expired, but for a LateTask, which is watched further
// without counting as in progress.
func (d *Executor) Poll(now time.Time) {
	d.pollLate(now)
	still := d.running[:0]
	for _, r := range d.running {
		res, done := r.task.Poll(now)
		d.reportResult(r, res)
		_, lingers := r.task.(LateTask)
		if lingers && !done && now.After(r.deadline) {
			d.late = append(d.late[max(0, len(d.late)+1-LateMax):], r)
			done = true
		}
		if !done && now.After(r.deadline) {
			d.recordResult(
				r.key,
				newResult(r.key, falconv1.CommandStatus_COMMAND_STATUS_EXPIRED,
					"the deadline passed before the work was done"),
			)
			done = true
		}
		if !done {
			still = append(still, r)
		}
	}
	clear(d.running[len(still):])
	d.running = still
}

func (d *Executor) pollLate(now time.Time) {
	d.late = slices.DeleteFunc(d.late, func(r running) bool {
		res, done := r.task.(LateTask).PollLate(now)
		d.reportResult(r, res)
		return done
	})
}

func (d *Executor) reportResult(r running, res *falconv1.CommandResult) {
	if res != nil {
		res.Epoch, res.Id = r.key.epoch, r.key.id
		if n := res.Newer; n != nil {
			n.Epoch = max(n.Epoch, r.key.epoch)
		}
		d.recordResult(r.key, res)
	}
}

// recordResult remembers and reports.
func (d *Executor) recordResult(k key, r *falconv1.CommandResult) {
	if _, known := d.last[k]; !known {
		d.order = append(d.order, k)
	}
	d.last[k] = r
	d.report(r)
	d.trimMemory()
}

// trimMemory keeps the memory bounded. Commands in progress and late ones are never
// forgotten: there are fewer of them than the memory holds.
func (d *Executor) trimMemory() {
	for len(d.order) > MemoryMax {
		i := 0
		for d.inProgress(d.order[i]) {
			i++
		}
		k := d.order[i]
		d.order = append(d.order[:i], d.order[i+1:]...)
		delete(d.last, k)
		if k.epoch == d.seen.GetEpoch() {
			d.floor = max(d.floor, k.id)
		}
	}
}

func (d *Executor) inProgress(k key) bool {
	is := func(r running) bool { return r.key == k }
	return slices.ContainsFunc(d.running, is) || slices.ContainsFunc(d.late, is)
}

// Older is an error about a command of a generation that is over here: Newest is the one in force.
type Older struct {
	Newest uint64
	Reason error
}

// Error is the reason's own sentence.
func (e *Older) Error() string { return e.Reason.Error() }

// Unwrap is the reason.
func (e *Older) Unwrap() error { return e.Reason }

// refusal is the result of a command that was not begun.
func refusal(k key, err error) *falconv1.CommandResult {
	r := newResult(k, falconv1.CommandStatus_COMMAND_STATUS_REFUSED, err.Error())
	var older *Older
	if errors.As(err, &older) {
		r.Newer = &falconv1.Standing{Epoch: k.epoch, Generation: older.Newest}
	}
	return r
}

// Refused is a task's result for an error.
func Refused(err error) *falconv1.CommandResult {
	return refusal(key{}, err)
}

func newResult(k key, status falconv1.CommandStatus, detail string) *falconv1.CommandResult {
	return &falconv1.CommandResult{
		Epoch:  k.epoch,
		Id:     k.id,
		Status: status,
		Detail: detail,
	}
}
