package feed

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Hub pulls the engine's picture once for all consoles of a process. What is
// the same for everybody (ranks, incidents, events …) is received, cleaned and
// published once; each Session adds what is its own.
//
// It owns two kinds of goroutines: the shared feed's, and one that passes word
// of a new picture on. The word is a flag: a session that does not read delays
// no other. Close ends the sessions too and waits.
type Hub struct {
	feed   *Feed
	now    func() time.Time
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	sessions map[*Session]bool
	closed   bool
}

// NewHub starts a hub that looks by client, which needs the role viewer; it
// pulls nothing while there is no session. Now may be nil for the real clock.
func NewHub(client falconv1.ConsoleClient, now func() time.Time) *Hub {
	ctx, cancel := context.WithCancel(context.Background())
	h := &Hub{
		feed:     openFeed(client, now, sharedWant(Want{}), asleep, ""),
		cancel:   cancel,
		sessions: map[*Session]bool{},
	}
	h.now = h.feed.now
	h.wg.Go(func() { h.notifySessions(ctx) })
	return h
}

// sharedWant asks for no series: each session has its own.
func sharedWant(wanted Want) Want {
	return Want{
		Rank:       WorstRank,
		Recoveries: wanted.Recoveries,
		Tests:      wanted.Tests,
		History:    wanted.History,
		Recent:     wanted.Recent,
	}
}

// Session is a console's source that looks and acts by the caller's own
// client: role, actor, series and decisions are that client's, and what the
// engine refuses to it is not shown from what others may see. On a closed hub
// the session is closed from the start.
func (h *Hub) Session(client falconv1.ConsoleClient) *Session {
	s := newSession(h, client)
	h.mu.Lock()
	closed := h.closed
	if !closed {
		h.sessions[s] = true
	}
	h.mu.Unlock()
	if closed {
		s.endSession()
		return s
	}
	h.adjustPace()
	return s
}

// Sessions is how many are open.
func (h *Hub) Sessions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sessions)
}

// Close ends all sessions and the shared feed, and waits.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	open := slices.Collect(maps.Keys(h.sessions))
	h.mu.Unlock()
	for _, s := range open {
		s.Close()
	}
	h.cancel()
	h.wg.Wait()
	h.feed.Close()
}

func (h *Hub) notifySessions(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.feed.Changed():
		}
		h.mu.Lock()
		for s := range h.sessions {
			Signal(s.moved)
		}
		h.mu.Unlock()
	}
}

func (h *Hub) removeSession(s *Session) {
	h.mu.Lock()
	delete(h.sessions, s)
	h.mu.Unlock()
	h.adjustPace()
}

// adjustPace pulls as often as the keenest session wants, and recoveries, older
// validations, the history and every rank's newest iterations while one of them does.
func (h *Hub) adjustPace() {
	h.mu.Lock()
	defer h.mu.Unlock()
	most := asleep
	wanted := Want{}
	for s := range h.sessions {
		if p := pace(s.pace.Load()); p < most {
			most = p
		}
		w := s.want.Load()
		wanted.Recoveries = wanted.Recoveries || w.Recoveries
		wanted.Tests = wanted.Tests || w.Tests
		wanted.History = wanted.History || w.History
		wanted.Recent = max(wanted.Recent, w.Recent)
	}
	h.feed.Ask(sharedWant(wanted))
	h.feed.setPace(most)
}
