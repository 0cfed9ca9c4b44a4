package agent

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/internal/procstat"
)

// exitPollEvery is between two polls of a process without a pidfd.
const exitPollEvery = 50 * time.Millisecond

// startTicks is when the process with this number began, in clock ticks since boot: a
// number is used again, but not at one start. It is false where none runs, or
// what is left of one waits for its parent.
func startTicks(pid int) (ticks uint64, ok bool) {
	s, err := procstat.Read("/proc", pid)
	// Where the first thread alone has ended, the others go on.
	ended := s.State == 'X' || s.State == 'Z' && s.Threads <= 1
	return s.Start, err == nil && !ended
}

// polledExit watches a process by polling it.
type polledExit struct {
	pid        int
	ticks      uint64
	gone, stop chan struct{}
	done       sync.WaitGroup
	once       sync.Once
}

func newPolledExit(pid int, ended func()) (Exit, error) {
	ticks, ok := startTicks(pid)
	if !ok {
		return nil, fmt.Errorf("agent: can't watch process %d: %w", pid, unix.ESRCH)
	}
	w := &polledExit{
		pid:   pid,
		ticks: ticks,
		gone:  make(chan struct{}),
		stop:  make(chan struct{}),
	}
	w.done.Go(func() { w.pollUntilExit(pid, ticks, ended) })
	return w, nil
}

func (w *polledExit) pollUntilExit(pid int, ticks uint64, ended func()) {
	tick := time.NewTicker(exitPollEvery)
	defer tick.Stop()
	for {
		if now, ok := startTicks(pid); !ok || now != ticks {
			close(w.gone)
			ended()
			return
		}
		select {
		case <-tick.C:
		case <-w.stop:
			return
		}
	}
}

func (w *polledExit) Gone() <-chan struct{} { return w.gone }

// Signal reaches the process if its number is still its own: without a pidfd an
// instant remains in which it can end and the number be used again.
func (w *polledExit) Signal(sig unix.Signal) error {
	if now, ok := startTicks(w.pid); !ok || now != w.ticks {
		return os.ErrProcessDone
	}
	return signalError(unix.Kill(w.pid, sig))
}

// How is for newer kernels.
func (w *polledExit) How() (string, bool) { return "", false }

func (w *polledExit) Close() {
	w.once.Do(func() { close(w.stop) })
	w.done.Wait()
}
