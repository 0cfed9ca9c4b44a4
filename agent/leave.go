package agent

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// leaving says that a process has ended by itself, and that nobody has said yet
// with which status. One that ends by itself takes its file back; what was
// killed leaves it behind, and is told of at once. A job's end must not be taken
// for the death of its ranks.
func (a *Agent) leaving(p *process, now time.Time) bool {
	if p.goneAt.IsZero() {
		p.goneAt = now
	}
	if !p.tookBack() || now.Sub(p.goneAt) >= exitWait {
		return false
	}
	a.launcher.Collect()
	_, known := a.howEnded(p)
	return !known
}

// tookBack says that a process's file is gone.
func (p *process) tookBack() bool {
	_, err := os.Lstat(p.path)
	return errors.Is(err, fs.ErrNotExist)
}

// inOrder is how a process ended of which no kernel tells: in order, if it had
// given up all its communicators and took its file back; else it is not known.
func (p *process) inOrder() string {
	p.comms = p.seg.Comms(p.comms)
	live := func(c ring.Comm) bool { return c.State == ring.CommLive || c.State == ring.CommAborted }
	if !p.tookBack() || len(p.comms) == 0 || slices.ContainsFunc(p.comms, live) {
		return ""
	}
	return falconv1.ExitedInOrder
}
