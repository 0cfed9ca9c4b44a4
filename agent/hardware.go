package agent

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// hardwareProbe reads the node's hardware from a goroutine of its own, as that may
// be slow.
type hardwareProbe struct {
	read  func(now time.Time, pids map[falcon.Rank]int) *falconv1.AgentFrame
	every time.Duration
	now   func() time.Time

	mu   sync.Mutex
	pids map[falcon.Rank]int
}

// setPids replaces the processes that the host's readings are about.
func (h *hardwareProbe) setPids(pids map[falcon.Rank]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pids = pids
}

func (h *hardwareProbe) currentPids() map[falcon.Rank]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.pids)
}

// probeLoop sends a reading every so often until ctx ends.
func (h *hardwareProbe) probeLoop(ctx context.Context, send func(*falconv1.AgentFrame)) {
	if h.read == nil {
		return
	}
	ticker := time.NewTicker(h.every)
	defer ticker.Stop()
	for {
		if f := h.read(h.now(), h.currentPids()); f != nil {
			send(f)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
