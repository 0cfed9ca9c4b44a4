package agent

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/launch"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// exitPending reports whether a process has ended by itself and its status is not known
// yet. One that ends by itself marks its end and takes its file
// back; what was killed does neither, and is reported at once. A job's end must
// not be taken for the death of its ranks.
func (a *Agent) exitPending(p *process, now time.Time) bool {
	if p.goneAt.IsZero() {
		p.goneAt = now
	}
	if !p.status.Ended.InOrder() && !p.fileRemoved() || now.Sub(p.goneAt) >= exitWait {
		return false
	}
	a.launcher.Collect()
	_, known := p.exitReason(a.launcher)
	return !known
}

// fileRemoved reports whether a process's file is gone.
func (p *process) fileRemoved() bool {
	_, err := os.Lstat(p.path)
	return errors.Is(err, fs.ErrNotExist)
}

// exitReason is how a process ended: by its own mark where that has the status,
// since what goes wrong behind it is no matter of the job; by the
// launcher's knowledge where it started the process; else by the kernel's.
func (p *process) exitReason(started *launch.Launcher) (string, bool) {
	if end := p.status.Ended; end.InOrder() && end.Status >= 0 {
		return describeEnd(end), true
	}
	if how, known := started.How(p.header.PID, p.status.Generation); known {
		return how, true
	}
	return p.exit.How()
}

// describeEnd is a process's own mark of its end, for people; "" is none.
func describeEnd(end ring.End) string {
	switch {
	case !end.InOrder():
		return ""
	case end.Status < 0:
		return falconv1.ExitedInOrder
	}
	return launch.DescribeExit(unix.WaitStatus(end.Status << 8))
}

// exitFromMark is how a process ended of which no kernel reports the status: in order, if it has
// marked its end, or, where its hook is one that does not, if it had given up all
// its communicators and took its file back; else it is not known.
func (p *process) exitFromMark() string {
	if how := describeEnd(p.status.Ended); how != "" {
		return how
	}
	p.comms.readTable(p.seg)
	if !p.fileRemoved() ||
		len(p.comms.list) == 0 ||
		slices.ContainsFunc(p.comms.list, p.commInUse) {
		return ""
	}
	return falconv1.ExitedInOrder
}

// commInUse reports whether a communicator was not given up. One that a suspension has
// aborted is no part of the job any more, once others took its place or the
// process has parked; without a suspension it was aborted for a failure.
func (p *process) commInUse(c ring.Comm) bool {
	if c.State != ring.CommAborted || p.status.Suspended == 0 {
		return c.State == ring.CommLive || c.State == ring.CommAborted
	}
	return !p.recovery.park.On && !p.comms.anyInState(ring.CommGone)
}
