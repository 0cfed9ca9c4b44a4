package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRanks is wrapped by errors about ranks that ended badly.
var ErrRanks = errors.New("lab: the job failed")

// Run plays the scenario until the job is over or ctx is done: when the newest
// generation of ranks has ended, and not to be started again from a checkpoint.
// It is the loop that owns records, ranks and faults; call it once, after Start.
func (l *Lab) Run(ctx context.Context) error {
	var patience <-chan time.Time
	for {
		select {
		case e := <-l.events:
			if changed := l.handleEvent(e); !changed {
				continue
			}
		case <-patience:
			if len(l.workingProcesses()) == 0 {
				return l.neverLaunched()
			}
			l.killRanks()
		case <-ctx.Done():
			return ctx.Err()
		}
		if l.jobEnded() {
			return l.describeOutcome()
		}
		patience = nil
		if limit := l.waitLimit(); limit > 0 {
			patience = time.After(limit)
		}
	}
}

// jobEnded reports whether the job has ended for good: no rank works, and it was neither
// left for a restart nor did a launch fail before its first iteration, nor can
// what died be recovered.
func (l *Lab) jobEnded() bool {
	return len(l.workingProcesses()) == 0 && !l.mayReturn()
}

func (l *Lab) mayReturn() bool {
	generation, members := l.newestGeneration()
	if slices.ContainsFunc(members, (*rankProcess).neverBegan) {
		return false
	}
	left, failed := 0, 0
	for _, p := range members {
		if p.end == endCheckpointed {
			left++
		} else if !p.endedWell() {
			failed++
		}
	}
	return left > 0 && failed == 0 ||
		failed > 0 && (l.recoveryExpected() || generation > 0 && !l.records.hasIteration(generation))
}

// waitLimit is how long the loop waits from now on for the job to go on: for
// the others once one rank has ended, for a launch once all have. 0 = for ever.
func (l *Lab) waitLimit() time.Duration {
	_, members := l.newestGeneration()
	switch {
	case len(l.workingProcesses()) == 0:
		return launchWait
	case l.recoveryExpected() &&
		slices.ContainsFunc(members, func(p *rankProcess) bool {
			return p.exited && p.end != endDone
		}):
		// dead, or stopped on a fenced node
		if l.opt.Attended {
			return decideWait
		}
		return recoverWait
	case slices.ContainsFunc(members, func(p *rankProcess) bool { return p.exited }):
		return stragglerWait
	}
	return 0
}

func (l *Lab) neverLaunched() error {
	generation, _ := l.newestGeneration()
	return fmt.Errorf("%w: generation %d has ended after iteration %d and was not started again within %s",
		ErrRanks, generation, l.records.done-1, launchWait)
}

// handleEvent takes one event and reports whether a rank has come or gone, or has rejoined.
func (l *Lab) handleEvent(e event) bool {
	switch {
	case e.call != nil:
		e.call()
	case e.joined:
		l.ranks = append(l.ranks, e.proc)
		l.assignRank(e.proc)
		return true
	case e.line != nil:
		return l.handleLine(e.proc, *e.line)
	case e.exited:
		e.proc.exited = true
		e.proc.err = e.err
		if !e.proc.endedWell() {
			l.reachedPoint(e.proc.rank, "", e.unixNs) // if its log did not show it first
		}
		if e.proc.neverBegan() { // the others would wait for it
			l.killRanks()
		}
		return true
	}
	return false
}

// lastWords is the last line that a process left in its log.
func lastWords(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return ": " + last
	}
	return ""
}

// Iterations is how many iterations all ranks have finished; for after Run.
func (l *Lab) Iterations() int64 { return l.records.done }

// Status is the present state, safe from any goroutine.
func (l *Lab) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	s.RankPids = maps.Clone(s.RankPids)
	s.AgentPids = maps.Clone(s.AgentPids)
	return s
}

// Close ends every process, waits for every goroutine and removes the files.
func (l *Lab) Close() {
	l.once.Do(func() {
		l.stop()
		if l.control != nil {
			l.control.closeSocket()
		}
		if l.logs != nil {
			l.logs.closeSocket()
		}
		l.signalAll(unix.SIGTERM)
		l.signalAll(unix.SIGCONT) // the frozen hear nothing else
		done := make(chan struct{})
		go func() {
			l.wait.Wait()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(stopWait):
			l.signalAll(unix.SIGKILL)
			<-done
		}
		l.spawn.stopThread()
		if l.hw != nil {
			_ = l.hw.unmapState()
		}
		l.place.removePlace()
	})
}

// signalAll reaches all processes of all nodes through their groups.
func (l *Lab) signalAll(sig unix.Signal) {
	for _, a := range l.agents {
		if g := a.processGroup(); g > 0 {
			_ = unix.Kill(-g, sig)
		}
	}
	for _, p := range l.liveProcesses() {
		p.signalProcess(sig)
	}
}
