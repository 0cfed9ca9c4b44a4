package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
)

// ErrRanks is wrapped by errors about ranks that ended badly.
var ErrRanks = errors.New("lab: the job failed")

// Run plays the scenario until every rank has ended or ctx is done. It is the
// loop that owns records and faults; call it once, after Start.
func (l *Lab) Run(ctx context.Context) error {
	left := len(l.ranks)
	var giveUp <-chan time.Time
	for left > 0 {
		select {
		case e := <-l.events:
			if l.handle(e) {
				left--
				if giveUp == nil {
					giveUp = time.After(stragglerWait)
				}
			}
		case <-giveUp:
			l.killRanks()
			giveUp = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return l.outcome()
}

// handle takes one event and says whether a rank has ended.
func (l *Lab) handle(e event) bool {
	switch {
	case e.call != nil:
		e.call()
	case e.line != nil:
		if l.records.add(e.rank, *e.line) {
			l.faults.before(l.records.done)
			l.setPid(func(s *Status) { s.Iteration, s.Faults = l.records.done, l.faults.inForce() })
		}
	case e.exited:
		p := l.rankOf(falcon.Rank(e.rank))
		p.exited, p.err = true, e.err
		return true
	}
	return false
}

func (l *Lab) rankOf(r falcon.Rank) *rankProcess {
	for _, p := range l.ranks {
		if p.rank == r {
			return p
		}
	}
	panic(fmt.Sprintf("lab: rank %d was never started", r))
}

func (l *Lab) killRanks() {
	for _, p := range l.ranks {
		if !p.exited {
			_ = p.cmd.Process.Kill() // gone already is as good
		}
	}
}

// outcome says in one sentence which ranks ended badly and why.
func (l *Lab) outcome() error {
	var bad []string
	for _, p := range l.ranks {
		if p.err != nil {
			bad = append(bad, fmt.Sprintf("rank %d (%s) %s%s", p.rank, p.device, p.err, lastWords(p.log)))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrRanks, strings.Join(bad, "; "))
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
	s.RankPids, s.AgentPids = clone(l.status.RankPids), clone(l.status.AgentPids)
	return s
}

func clone(m map[string]int) map[string]int {
	out := make(map[string]int, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// Close ends every process, waits for every goroutine and removes the files.
func (l *Lab) Close() {
	l.once.Do(func() {
		l.stop()
		if l.control != nil {
			l.control.close()
		}
		l.signalAll(unix.SIGTERM)
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
		l.spawn.close()
		if l.hw != nil {
			_ = l.hw.close()
		}
		l.place.remove()
	})
}

// signalAll reaches all processes of all nodes through their groups.
func (l *Lab) signalAll(sig unix.Signal) {
	for _, a := range l.agents {
		if g := a.group(); g > 0 {
			_ = unix.Kill(-g, sig)
		}
	}
	for _, p := range l.ranks {
		_ = p.cmd.Process.Signal(sig)
	}
}
