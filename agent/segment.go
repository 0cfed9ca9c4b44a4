package agent

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/proof"
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
	Beat(keepParked bool)
	Err() error
	Close() error
}

// Directory is where segments are found; the hook's directory on a real node.
type Directory interface {
	// Discover lists the files of live processes, those left by dead ones, and those of
	// processes that can't be proven.
	Discover() (ring.Listing, error)
	Open(path string) (Segment, error)
	// Exit begins to watch the process that has made a file for its end. pid is its
	// number here; an error means that it is not that process (any more). ended is called
	// once Gone is closed, from another goroutine; it must not block.
	Exit(pid int, made ring.Header, ended func()) (Exit, error)
	// Ends reports whether the process of an end record has gone; it can't be known of
	// one that can't be seen from here.
	Ends(made ring.Header) (gone, known bool)
	// Namespace names where this agent's numbers of processes count, 0 = unknown.
	Namespace() uint64
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
	// since; os.ErrProcessDone where it has ended, errStranger where it is not proven to
	// be the process that made the file.
	Signal(sig unix.Signal) error
	Close()
}

// shmDir is the real Directory.
type shmDir struct {
	path, job string
	old       OldKernel
	scanner   *ring.Scanner
	prover    *proof.Prover
}

func newShmDir(path, job string, old OldKernel) *shmDir {
	return &shmDir{
		path:    path,
		job:     job,
		old:     old,
		scanner: ring.NewScanner(path, job),
		prover:  proof.NewProver("/proc"),
	}
}

func (d *shmDir) Discover() (ring.Listing, error) {
	return d.scanner.Discover(time.Now())
}

func (d *shmDir) Open(path string) (Segment, error) {
	return openSegment(path)
}
func (d *shmDir) MonoNs() int64 { return ring.MonoNs() }
func (d *shmDir) Born(pid int) (uint64, bool) {
	return startTicks(pid)
}

func (d *shmDir) Namespace() uint64 {
	return d.prover.PIDNs()
}

func (d *shmDir) Ended() ([]ring.Ended, map[string]error, error) {
	return ring.EndedIn(d.path, d.job)
}

func (d *shmDir) Ends(made ring.Header) (gone, known bool) {
	d.prover.Renew()
	_, outcome, why := d.prover.Find(made.Claim)
	return outcome == proof.Gone, why != falcon.UnprovenHidden
}

func (d *shmDir) Owner(path string) (int, error) {
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
