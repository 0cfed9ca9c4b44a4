// Package strangers bounds the connections of those who have not proven who they are, for
// both doors, the API's and that of SSH.
//
// It guarantees that they are at most so many, in all and by source address, and that a
// newcomer finds a place where one of them has sent nothing, or has had its time: who only
// holds connections keeps nobody out. It starts no goroutine and reads nothing itself; it
// is safe for use from any goroutine.
package strangers

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Room holds the connections that have not proven who they are, oldest
// first, in all and by source. Where there is no place for one more, the ones
// that have sent nothing go first: a stranger who only connects can't keep out
// one who speaks.
type Room struct {
	most, perSource int
	grace           time.Duration // one that speaks is left alone for so long

	mu      sync.Mutex
	all     *list.List // of *Stranger, oldest first
	sources map[netip.Prefix]*list.List
	closed  bool
}

// Stranger is one unproven connection. What is read by it is noted: its first byte makes it
// one who speaks.
type Stranger struct {
	net.Conn
	source netip.Prefix
	since  time.Time

	inAll, inSource *list.Element

	mu      sync.Mutex
	speaks  bool // it has sent a byte
	evicted bool
	heard   bool // speaks, of the one goroutine that reads
}

// NewRoom has room for so many connections, and for so many of one source. One that
// speaks is left alone for grace.
func NewRoom(most, perSource int, grace time.Duration) *Room {
	return &Room{
		most:      most,
		perSource: perSource,
		grace:     grace,
		all:       list.New(),
		sources:   map[netip.Prefix]*list.List{},
	}
}

// Enter makes a place for a connection, or reports that there is none. It
// closes the connections that have to go for it.
func (r *Room) Enter(c net.Conn, source netip.Prefix, now time.Time) (*Stranger, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, false
	}
	if l := r.sources[source]; l != nil && l.Len() >= r.perSource && !r.evictFrom(l, now) {
		return nil, false
	}
	if r.all.Len() >= r.most && !r.evictFrom(r.all, now) {
		return nil, false
	}
	s := &Stranger{Conn: c, source: source, since: now}
	l := r.sources[source]
	if l == nil {
		l = list.New()
		r.sources[source] = l
	}
	s.inAll, s.inSource = r.all.PushBack(s), l.PushBack(s)
	return s, true
}

// firstByte is how long a connection may take before it counts as silent.
const firstByte = 500 * time.Millisecond

// evictFrom closes one connection of the list: the oldest that is silent, else
// the oldest whose grace is over, else the oldest that has sent nothing so far.
func (r *Room) evictFrom(l *list.List, now time.Time) bool {
	first, _ := l.Front().Value.(*Stranger)
	s := oldestSilent(l)
	switch {
	case s != nil && now.Sub(s.since) >= firstByte:
		r.evict(s)
	case now.Sub(first.since) >= r.grace:
		r.evict(first)
	case s != nil:
		r.evict(s)
	default:
		return false
	}
	return true
}

// oldestSilent is the oldest that has sent nothing, nil where all have.
func oldestSilent(l *list.List) *Stranger {
	for e := l.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*Stranger); !s.spoken() {
			return s
		}
	}
	return nil
}

// EvictOldest makes room when the process has run out of descriptors.
func (r *Room) EvictOldest() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.all.Front()
	if e == nil {
		return false
	}
	r.evict(e.Value.(*Stranger))
	return true
}

// evict takes one out and closes it; the caller holds mu.
func (r *Room) evict(s *Stranger) {
	s.mu.Lock()
	s.evicted = true
	s.mu.Unlock()
	r.remove(s)
	_ = s.Conn.Close() // what it holds is freed either way
}

// Leave takes one out that has proven itself or failed to; it reports whether
// the connection is still the caller's.
func (r *Room) Leave(s *Stranger) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.evicted
}

func (r *Room) remove(s *Stranger) {
	if s.inAll == nil {
		return
	}
	r.all.Remove(s.inAll)
	if l := r.sources[s.source]; l != nil {
		if l.Remove(s.inSource); l.Len() == 0 {
			delete(r.sources, s.source)
		}
	}
	s.inAll, s.inSource = nil, nil
}

// Close refuses newcomers and closes those that wait.
func (r *Room) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for e := r.all.Front(); e != nil; e = r.all.Front() {
		r.evict(e.Value.(*Stranger))
	}
}

// Len is how many connections have not proven themselves.
func (r *Room) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.Len()
}

func (s *Stranger) spoken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.speaks
}

// Read reads from the connection.
func (s *Stranger) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if n > 0 && !s.heard {
		s.heard = true
		s.mu.Lock()
		s.speaks = true
		s.mu.Unlock()
	}
	return n, err
}
