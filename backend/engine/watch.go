package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of watching.
const (
	WatchersMax  = 256
	WatchersEach = 16  // of one caller
	watchQueue   = 256 // lines that wait for one watcher
)

// ErrCrowded ends a watch whose place a newer one has taken.
var ErrCrowded = errors.New("engine: too many watches")

// hub hands event lines to watchers. A watcher that can't keep up loses lines
// and is asked to pull a snapshot; publishing never waits.
type hub struct {
	mu       sync.Mutex
	recent   []*falconv1.EventLine
	newest   uint64
	watchers []*Watcher // oldest first
	closed   bool
}

// Watcher is one subscription.
type Watcher struct {
	hub    *hub
	who    watching
	lines  chan *falconv1.EventLine
	missed bool  // guarded by hub.mu
	ended  error // why lines is closed; guarded by hub.mu
}

// watching identifies the callers whose watches are counted together.
type watching struct{ name, role string }

func newHub(recent []*falconv1.EventLine, newest uint64) *hub {
	return &hub{
		recent: append([]*falconv1.EventLine(nil), recent...),
		newest: newest,
	}
}

func (h *hub) publish(line *falconv1.EventLine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.newest = line.GetSeq()
	if len(h.recent) >= EventsMax {
		h.recent = append(h.recent[:0:0], h.recent[len(h.recent)-EventsMax/2:]...)
	}
	h.recent = append(h.recent, line)
	for _, w := range h.watchers {
		select {
		case w.lines <- line:
		default:
			w.missed = true
		}
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for len(h.watchers) > 0 {
		h.endWatch(0, ErrStopped)
	}
}

// endWatch closes one subscription; the caller holds mu.
func (h *hub) endWatch(i int, why error) {
	w := h.watchers[i]
	w.ended = why
	close(w.lines)
	h.watchers = slices.Delete(h.watchers, i, i+1)
}

// Watch subscribes to the lines after seq, for the process itself.
func (e *Engine) Watch(after uint64) (*Watcher, error) {
	return e.WatchAs(Actor{}, after)
}

// WatchAs subscribes a caller to the lines after seq. It fails when the engine
// has stopped, and may end a caller's oldest watch. The caller must Close the
// watcher.
func (e *Engine) WatchAs(who Actor, after uint64) (*Watcher, error) {
	return e.hub.watch(who, after)
}

// watch subscribes a caller to the lines after seq. It fails when the engine
// has stopped. Of too many watches of one caller the oldest ends, and of too
// many in all the oldest of the caller with most: a peer that lost its connection
// opens another before the loss is seen here, and one caller can't take the
// others' places. The caller must Close the watcher.
func (h *hub) watch(who Actor, after uint64) (*Watcher, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrStopped
	}
	w := &Watcher{
		hub:   h,
		who:   watching{who.Name, who.Role},
		lines: make(chan *falconv1.EventLine, watchQueue),
	}
	if i, n := h.oldestOf(w.who); n >= WatchersEach {
		h.endWatch(i, fmt.Errorf("%w: %s watches %d times already, and the oldest of them ended",
			ErrCrowded, who.Name, n))
	}
	if len(h.watchers) >= WatchersMax {
		i, n := h.oldestOf(h.greediest())
		h.endWatch(i, fmt.Errorf(
			"%w: there are %d, of which %d were this caller's, and the oldest of those ended",
			ErrCrowded, WatchersMax, n,
		))
	}
	w.missed = !h.replay(w, after)
	h.watchers = append(h.watchers, w)
	return w, nil
}

// oldestOf finds a caller's oldest watch and counts all of them.
func (h *hub) oldestOf(who watching) (oldest, n int) {
	for i, w := range h.watchers {
		if w.who != who {
			continue
		}
		if n == 0 {
			oldest = i
		}
		n++
	}
	return oldest, n
}

// greediest is who watches most often; of several the one whose oldest watch is
// the oldest.
func (h *hub) greediest() watching {
	count := map[watching]int{}
	most := 0
	for _, w := range h.watchers {
		count[w.who]++
		most = max(most, count[w.who])
	}
	i := slices.IndexFunc(h.watchers, func(w *Watcher) bool {
		return count[w.who] == most
	})
	return h.watchers[i].who
}

// replay queues the lines after seq; false when some of them are gone, do not
// fit, or were never given out by this engine.
func (h *hub) replay(w *Watcher, after uint64) bool {
	missing := h.newest - after
	if after > h.newest || missing > uint64(len(h.recent)) || missing > watchQueue {
		return false
	}
	for _, line := range h.recent[uint64(len(h.recent))-missing:] {
		w.lines <- line
	}
	return true
}

// Next waits for the next line; resync = lines before it were lost.
func (w *Watcher) Next(ctx context.Context) (line *falconv1.EventLine, resync bool, err error) {
	if w.takeMissed() {
		return nil, true, nil
	}
	select {
	case line, ok := <-w.lines:
		if !ok {
			return nil, false, w.endReason()
		}
		return line, false, nil
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
}

func (w *Watcher) endReason() error {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.ended
}

// takeMissed reports a loss once, and drops the lines queued before it: the
// snapshot that the client pulls now is newer.
func (w *Watcher) takeMissed() bool {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if !w.missed {
		return false
	}
	w.missed = false
	for len(w.lines) > 0 {
		<-w.lines // also of one that has ended: what it held is older than the snapshot
	}
	return true
}

// Close ends the subscription.
func (w *Watcher) Close() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.hub.watchers = slices.DeleteFunc(w.hub.watchers, func(x *Watcher) bool { return x == w })
}

// Waiting is how many lines Next would return at once.
func (w *Watcher) Waiting() int { return len(w.lines) }

// Impair has consoles show which part of the engine does not work, where nothing worse is
// to be shown; "" = all do.
func Impair(ctx context.Context, e *Engine, text string) error {
	return e.readInLoop(ctx, func() {
		e.views.dirty = e.views.dirty || e.views.impaired != text
		e.views.impaired = text
	})
}

// Alarm writes a line about the engine itself that a person should know, such
// as its certificates or its memory.
func (e *Engine) Alarm(ctx context.Context, severity int32, text string) error {
	return e.readInLoop(ctx, func() {
		e.oplog.logf("alarm", severity, "", "%s", text)
	})
}
