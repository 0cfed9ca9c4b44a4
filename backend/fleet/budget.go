package fleet

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Limits bound what agents may send; zero values mean the defaults.
type Limits struct {
	BytesPerS  int   // of one agent, 8 MiB; four seconds of it at once
	FramesPerS int   // of one agent, 2,000; four seconds of them at once
	Waiting    int64 // decoded bytes of all agents that the engine has not taken, 256 MiB
	Refused    int   // frames beyond the bounds a minute, after which the stream ends, 32
	Log        *slog.Logger
}

// Budgets are the agents' present means, by node: a reconnect does not renew
// them.
type Budgets struct {
	limits  Limits
	waiting *semaphore.Weighted
	mu      sync.Mutex
	nodes   *lru.Cache[string, *pace]
}

// NewBudgets fills what is left open.
func NewBudgets(l Limits) *Budgets {
	l.BytesPerS = cmp.Or(l.BytesPerS, 8<<20)
	l.FramesPerS = cmp.Or(l.FramesPerS, 2000)
	l.Waiting = cmp.Or(l.Waiting, 256<<20)
	l.Refused = cmp.Or(l.Refused, 32)
	if l.Log == nil {
		l.Log = slog.New(slog.DiscardHandler)
	}
	nodes, _ := lru.New[string, *pace](NodesMax) // fails for no size below 1
	return &Budgets{
		limits:  l,
		waiting: semaphore.NewWeighted(l.Waiting),
		nodes:   nodes,
	}
}

// of finds a node's means.
func (b *Budgets) of(node string) *pace {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p, ok := b.nodes.Get(node); ok {
		return p
	}
	const burst = 4 // seconds
	p := &pace{
		node: node,
		all:  b,
		bytes: rate.NewLimiter(
			rate.Limit(b.limits.BytesPerS),
			max(burst*b.limits.BytesPerS, frameBytesMost),
		),
		frames:  rate.NewLimiter(rate.Limit(b.limits.FramesPerS), burst*b.limits.FramesPerS),
		refused: rate.NewLimiter(rate.Every(time.Minute/time.Duration(b.limits.Refused)), b.limits.Refused),
	}
	b.nodes.Add(node, p)
	return p
}

// frameBytesMost is the largest frame that a server may let through.
const frameBytesMost = 16 << 20

// inMemory is how much more a message takes decoded than on the wire.
const inMemory = 4

// pace is how fast one node may go on.
type pace struct {
	node                   string
	all                    *Budgets
	bytes, frames, refused *rate.Limiter
}

// admit waits until the agent's budget and the engine's memory have room for a
// frame, and counts those that were refused before they were decoded.
func (p *pace) admit(s *Session, f *falconv1.AgentFrame) error {
	if refused(f) {
		p.all.limits.Log.Warn(
			"a frame was left out",
			slog.String("node", p.node),
			slog.Uint64("seq", f.GetSeq()),
		)
		if !p.refused.Allow() {
			return fmt.Errorf("%w: %d within a minute", ErrBudget, p.all.limits.Refused)
		}
	}
	size := min(proto.Size(f), frameBytesMost)
	if err := p.frames.Wait(s.ctx); err != nil {
		return waited(s.ctx, err)
	}
	if err := p.bytes.WaitN(s.ctx, size); err != nil {
		return waited(s.ctx, err)
	}
	weight := min(int64(size)*inMemory+1024, p.all.limits.Waiting)
	if err := p.all.waiting.Acquire(s.ctx, weight); err != nil {
		return waited(s.ctx, err)
	}
	s.held.push(p.all.waiting, weight)
	return nil
}

// waited gives the reason for which the session has ended.
func waited(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// held is what a session's frames take of the engine's memory, oldest first.
type held struct {
	mu      sync.Mutex
	pool    *semaphore.Weighted
	weights []int64
}

func (h *held) push(pool *semaphore.Weighted, n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pool = pool
	h.weights = append(h.weights, n)
}

// pop gives back the oldest frame's: the engine takes them in their order.
func (h *held) pop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.weights) > 0 {
		h.pool.Release(h.weights[0])
		h.weights = h.weights[1:]
	}
}

// drop gives back the newest frame's, which the engine did not take.
func (h *held) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.weights); n > 0 {
		h.pool.Release(h.weights[n-1])
		h.weights = h.weights[:n-1]
	}
}
