package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// wake has the loop poll at once, for a process's end or an order's outcome; it
// never blocks.
func (a *Agent) wake() {
	select {
	case a.wakeup <- struct{}{}:
	default:
	}
}

// beatPeriod is how often the node gives a sign of life: twice as often while its processes
// wait in a recovery, which gives a silent node up. A lost beat then counts for half.
func (s processSet) beatPeriod(usual time.Duration) time.Duration {
	for _, p := range s.allProcesses() {
		if !p.dead && p.parkedForNewest() {
			return usual / 2
		}
	}
	return usual
}

// rankBeats are the heartbeats of the node's processes, read now: what was polled is up
// to drainEvery old, and the age of a hook's beat must not grow by that.
func (a *Agent) rankBeats() []*falconv1.RankBeat {
	mono := a.dir.MonoNs()
	var out []*falconv1.RankBeat
	for _, p := range a.processes.withRanks(nil) {
		out = append(out, p.beat(a.proc, mono))
	}
	return out
}

// beat is the process's sign of life as it goes out; proc is the root of the kernel's files.
func (p *process) beat(proc string, mono int64) *falconv1.RankBeat {
	b := p.rankBeat(mono)
	if b.HookAgeMs > doubtMs && waitsForCPU(proc, int(b.Pid)) {
		b.HookAgeMs = doubtMs
	}
	return b
}

// doubtMs is the age from which on a hook's silence is looked into.
const doubtMs = 1000

// hookThread is the name of the thread that beats; see native/hook/side.c.
const hookThread = "falcon-hook"

// tasksMax bounds how many threads of a process are looked at.
const tasksMax = 4096

// waitsForCPU reports whether the hook's thread of a process could run if it got a
// core. Its silence is the node's load then: a stopped process, or one that is
// stuck in the kernel, is not runnable.
func waitsForCPU(proc string, pid int) bool {
	tasks := filepath.Join(proc, strconv.Itoa(pid), "task")
	dir, err := os.Open(tasks)
	if err != nil {
		return false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(tasksMax)
	for _, tid := range names {
		stat, err := os.ReadFile(filepath.Join(tasks, tid, "stat"))
		if err != nil {
			continue // it has ended
		}
		if bytes.HasPrefix(stat, []byte(tid+" ("+hookThread+") R")) {
			return true
		}
	}
	return false
}

// rankBeat is one process's sign of life. A hook that has not beaten so far is as
// old as its process.
func (p *process) rankBeat(monoNs int64) *falconv1.RankBeat {
	st := p.seg.Control()
	last := max(st.HeartbeatNs, p.header.StartMonoNs)
	b := &falconv1.RankBeat{
		Rank:       int32(p.rank),
		Pid:        int32(p.header.PID),
		Iteration:  max(st.Iteration, -1),
		StepTag:    max(st.StepTag, -1),
		HookAgeMs:  float64(max(monoNs-last, 0)) / float64(time.Millisecond),
		Generation: st.GenerationNow,
	}
	if t := &p.iterations; t.begun == b.Iteration && t.begunNs > 0 {
		b.BegunMs = float64(max(monoNs-t.begunNs, 1)) / float64(time.Millisecond)
	}
	p.addProgress(b, st, monoNs)
	return b
}
