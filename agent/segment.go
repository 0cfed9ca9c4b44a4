package agent

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
)

// Segment is one training process's shared memory; *ring.Process is one.
type Segment interface {
	Header() ring.Header
	UnixNs(monoNs int64) int64
	Drain(buf []ring.Record) (n int, lost uint64)
	Marks(next uint64, out []ring.Mark) (marks []ring.Mark, following, lost uint64)
	Timings(window uint32, out []ring.Timing) []ring.Timing
	Control() ring.Control
	Comms(out []ring.Comm) []ring.Comm
	Place() (p ring.Place, ok bool)

	StartProfile(window uint32, untilNs int64, comms ring.CommMask)
	StopProfile()
	PutOrder(o falcon.Order) error
	NewestOrder() uint64
	SetPeriod(calls, anchor uint32)
	Pause() ring.Pause
	Arm(order uint64, untilNs, boundary int64, cuts []ring.Cut) error
	Release()
	PutTest(t ring.Test) error
	TestResult() (r ring.TestResult, ok bool)
	Suspend(generation uint64, untilNs int64) error
	Stop(generation uint64)
	PutRejoin(r ring.Rejoin) error
	Park() (p ring.Park, ok bool)
	Rejoined() (r ring.Rejoined, ok bool)
	JobState() ring.JobState
	Beat()
	Err() error
	Close() error
}

// Directory is where segments are found; the hook's directory on a real node.
type Directory interface {
	// Discover lists the files of live processes and those left by dead ones.
	Discover() (live, stale []ring.Entry, err error)
	Open(path string) (Segment, error)
	// Exit begins to watch a process for its end. An error means that it can't
	// be seen from here. ended is called once Gone is closed, from another
	// goroutine; it must not block.
	Exit(pid int, ended func()) (Exit, error)
	MonoNs() int64
	// Born is when the process with this number began, in ticks that no later
	// process of that number has; false where none runs.
	Born(pid int) (ticks uint64, ok bool)
	// Owner is whose file that is.
	Owner(path string) (uid int, err error)
	// Ended lists the end records of processes that ended in order; bad are those
	// that can't be read, with the reasons.
	Ended() (found []ring.Ended, bad map[string]error, err error)
}

// Exit is one process watched for its end.
type Exit interface {
	// Gone is closed when the process has ended.
	Gone() <-chan struct{}
	// How describes how it ended; false while that is not known (its parent has not
	// collected it yet, or the kernel does not report it).
	How() (string, bool)
	// Signal sends a signal to the process and to no other that has its number
	// since; os.ErrProcessDone where it has ended.
	Signal(sig unix.Signal) error
	Close()
}

// shmDir is the real Directory.
type shmDir struct {
	path, job string
	old       OldKernel
}

func (d shmDir) Discover() (live, stale []ring.Entry, err error) { return ring.Discover(d.path, d.job) }
func (d shmDir) Open(path string) (Segment, error)               { return openSegment(path) }
func (d shmDir) Exit(pid int, ended func()) (Exit, error)        { return watchExit(pid, ended, d.old) }
func (d shmDir) MonoNs() int64                                   { return ring.MonoNs() }
func (d shmDir) Born(pid int) (uint64, bool)                     { return startTicks(pid) }

func (d shmDir) Ended() ([]ring.Ended, map[string]error, error) { return ring.EndedIn(d.path, d.job) }

func (d shmDir) Owner(path string) (int, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return -1, fmt.Errorf("agent: %s: %w", path, err)
	}
	return int(st.Uid), nil
}

func openSegment(path string) (Segment, error) {
	p, err := ring.Open(path)
	if err != nil {
		return nil, err
	}
	return p, nil
}
