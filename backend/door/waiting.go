package door

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

// waiting holds the connections that have not proven who they are, oldest
// first, in all and by source. Where there is no place for one more, the ones
// that have sent nothing go first: a stranger who only connects can't keep out
// one who speaks.
type waiting struct {
	most, perSource int
	grace           time.Duration // one that speaks is left alone for so long

	mu      sync.Mutex
	all     *list.List // of *stranger, oldest first
	sources map[netip.Prefix]*list.List
	closed  bool
}

// stranger is one unproven connection.
type stranger struct {
	conn   net.Conn
	source netip.Prefix
	since  time.Time

	inAll, inSource *list.Element

	mu      sync.Mutex
	speaks  bool // it has sent a byte
	evicted bool
}

func newWaiting(most, perSource int, grace time.Duration) *waiting {
	return &waiting{most: most, perSource: perSource, grace: grace, all: list.New(), sources: map[netip.Prefix]*list.List{}}
}

// enter makes a place for a connection, or reports that there is none. It
// closes the connections that have to go for it.
func (w *waiting) enter(c net.Conn, source netip.Prefix, now time.Time) (*stranger, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, false
	}
	if l := w.sources[source]; l != nil && l.Len() >= w.perSource && !w.evictFrom(l, now) {
		return nil, false
	}
	if w.all.Len() >= w.most && !w.evictFrom(w.all, now) {
		return nil, false
	}
	s := &stranger{conn: c, source: source, since: now}
	l := w.sources[source]
	if l == nil {
		l = list.New()
		w.sources[source] = l
	}
	s.inAll, s.inSource = w.all.PushBack(s), l.PushBack(s)
	return s, true
}

// evictFrom closes one connection of the list: the oldest that is silent, else
// the oldest whose grace is over.
func (w *waiting) evictFrom(l *list.List, now time.Time) bool {
	for e := l.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*stranger); !s.spoken() {
			w.evict(s)
			return true
		}
	}
	if e := l.Front(); e != nil && now.Sub(e.Value.(*stranger).since) >= w.grace {
		w.evict(e.Value.(*stranger))
		return true
	}
	return false
}

// evictOldest makes room when the process has run out of descriptors.
func (w *waiting) evictOldest() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.all.Front()
	if e == nil {
		return false
	}
	w.evict(e.Value.(*stranger))
	return true
}

// evict takes one out and closes it; the caller holds mu.
func (w *waiting) evict(s *stranger) {
	s.mu.Lock()
	s.evicted = true
	s.mu.Unlock()
	w.remove(s)
	_ = s.conn.Close() // what it holds is freed either way
}

// leave takes one out that has proven itself or failed to; it reports whether
// the connection is still the caller's.
func (w *waiting) leave(s *stranger) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.evicted
}

func (w *waiting) remove(s *stranger) {
	if s.inAll == nil {
		return
	}
	w.all.Remove(s.inAll)
	if l := w.sources[s.source]; l != nil {
		if l.Remove(s.inSource); l.Len() == 0 {
			delete(w.sources, s.source)
		}
	}
	s.inAll, s.inSource = nil, nil
}

// close refuses newcomers and closes those that wait.
func (w *waiting) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for e := w.all.Front(); e != nil; e = w.all.Front() {
		w.evict(e.Value.(*stranger))
	}
}

func (w *waiting) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Len()
}

func (s *stranger) spoken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.speaks
}

// listened is a connection that notes its first byte.
type listened struct {
	net.Conn
	s    *stranger
	done bool // of the one goroutine that reads
}

func (l *listened) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 && !l.done {
		l.done = true
		l.s.mu.Lock()
		l.s.speaks = true
		l.s.mu.Unlock()
	}
	return n, err
}
