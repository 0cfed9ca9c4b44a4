package agent

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/launch"
)

// Bounds of the time between two searches for the newest checkpoint: soon after a
// process has come, and more and more seldom, as thousands of nodes may share a storage.
const (
	storedSoon   = time.Second
	storedSeldom = 32 * time.Second
)

// storedCheckpoint is the newest checkpoint that storage holds, for jobs whose adapter
// does not report it. It is searched by a goroutine that nothing waits for: a network
// file system may answer late, or never.
type storedCheckpoint struct {
	path   string // as launch.checkpoint has it, "" = none is searched
	log    *slog.Logger
	newest atomic.Int64
	soon   chan struct{} // a process has come
}

func newStoredCheckpoint(path string, log *slog.Logger) *storedCheckpoint {
	s := &storedCheckpoint{
		path: path,
		log:  log,
		soon: make(chan struct{}, 1),
	}
	s.newest.Store(falcon.NoIteration)
	return s
}

// searchSoon has the next search come soon. It never blocks.
func (s *storedCheckpoint) searchSoon() {
	select {
	case s.soon <- struct{}{}:
	default:
	}
}

func (s *storedCheckpoint) searchLoop(ctx context.Context) {
	if s.path == "" {
		return
	}
	timer := time.NewTimer(storedSoon)
	defer timer.Stop()
	failing, wait := false, storedSoon
	for {
		n, err := launch.NewestCheckpoint(s.path)
		if err != nil && !failing {
			s.log.Warn("can't find the newest checkpoint", slog.Any("err", err))
		}
		failing = err != nil
		s.newest.Store(n)
		select {
		case <-ctx.Done():
			return
		case <-s.soon:
			wait = storedSoon
		case <-timer.C:
			wait = min(2*wait, storedSeldom)
		}
		timer.Reset(wait)
	}
}
