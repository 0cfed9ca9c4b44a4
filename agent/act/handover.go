package act

import (
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Memory is what an Executor leaves to the one that replaces it. Over lives of the agent
// that hand it on, a command is executed at most once too.
type Memory struct {
	// newest seen; the rest of Standing is kept apart, as it outlives an agent that leaves nothing
	Epoch   uint64
	Floor   uint64 // ids of this epoch up to here are forgotten
	Answers []*falconv1.CommandResult
	Open    []Open
}

// Open is a command whose work has not ended.
type Open struct {
	Command *falconv1.Command
	Left    time.Duration // of its life; 0 or less is a LateTask past its deadline
}

// Export is the Executor's memory, oldest first. The Executor must not be used further.
func (d *Executor) Export(now time.Time) Memory {
	m := Memory{Epoch: d.seen.GetEpoch(), Floor: d.floor}
	for _, k := range d.order {
		m.Answers = append(m.Answers, d.last[k])
	}
	for _, r := range append(append([]running{}, d.late...), d.running...) {
		m.Open = append(m.Open, Open{Command: r.cmd, Left: r.deadline.Sub(now)})
	}
	return m
}

// Import takes over the memory of the Executor before. again returns why a command can't
// be resumed, "" where it can: then it is started again, which must be safe, and reported
// as any other. Nothing may have been executed before.
func (d *Executor) Import(m Memory, now time.Time, again func(*falconv1.Command) string) {
	d.Fence(m.Epoch)
	if m.Epoch == d.seen.GetEpoch() {
		d.floor = max(d.floor, m.Floor)
	}
	for _, r := range m.Answers {
		k := key{r.GetEpoch(), r.GetId()}
		if _, known := d.last[k]; !known {
			d.order = append(d.order, k)
		}
		d.last[k] = r
	}
	for _, o := range m.Open[:min(len(m.Open), RunningMax+LateMax)] {
		d.resumeTask(o, now, again(o.Command))
	}
	d.trimMemory()
}

func (d *Executor) resumeTask(o Open, now time.Time, why string) {
	k := key{o.Command.GetEpoch(), o.Command.GetId()}
	deadline := now.Add(min(o.Left, LifeMax))
	if why != "" {
		d.recordResult(k, newResult(k, falconv1.CommandStatus_COMMAND_STATUS_EXPIRED, why))
		return
	}
	task, err := d.start(o.Command, now, deadline)
	if err != nil {
		d.recordResult(k, refusal(k, err))
		return
	}
	r := running{
		key:      k,
		task:     task,
		deadline: deadline,
		cmd:      o.Command,
	}
	if _, lingers := task.(LateTask); lingers && o.Left <= 0 {
		d.late = append(d.late, r)
		return
	}
	d.running = append(d.running, r) // past its deadline it is answered at the next tick
}
