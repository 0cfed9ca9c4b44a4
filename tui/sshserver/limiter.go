package sshserver

import (
	"net"
	"net/netip"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/time/rate"

	"github.com/failslow/falcon/backend/api/netaddr"
)

// addressesMax bounds the addresses that are remembered; the longest quiet are forgotten.
const addressesMax = 4096

// connectionLimiter bounds open connections, and new ones a minute from one address.
type connectionLimiter struct {
	limits Limits
	mu     sync.Mutex
	open   int
	seen   *lru.Cache[netip.Prefix, *rate.Limiter]
}

func newConnectionLimiter(l Limits) *connectionLimiter {
	seen, _ := lru.New[netip.Prefix, *rate.Limiter](addressesMax) // fails for no size below 1
	return &connectionLimiter{limits: l, seen: seen}
}

// admit returns why a connection is turned away, or "".
func (d *connectionLimiter) admit(a net.Addr) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := netaddr.Network(a)
	l, ok := d.seen.Get(key)
	if !ok {
		l = rate.NewLimiter(rate.Limit(float64(d.limits.PerMinute)/60), d.limits.PerMinute)
		d.seen.Add(key, l)
	}
	switch {
	case !l.Allow():
		return "too many connections from one address"
	case d.open >= d.limits.Connections:
		return "too many connections"
	}
	d.open++
	return ""
}

func (d *connectionLimiter) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
}

// counted is a connection that gives its place back, once.
type counted struct {
	net.Conn
	once  sync.Once
	leave func()
}

func (c *counted) Close() error {
	c.once.Do(c.leave)
	return c.Conn.Close()
}

// sessionLimiter bounds sessions in all, of one connection and of one person.
type sessionLimiter struct {
	mu    sync.Mutex
	most  int
	taken int
	by    map[gossh.Conn]int
	of    map[string]int // by the person's name
}

// perConnection bounds sessions of one connection, as by OpenSSH's ControlMaster.
const perConnection = 4

// perPersonLeast is what one person may have of few seats; of many, a quarter.
const perPersonLeast = 8

func newSessionLimiter(most int) *sessionLimiter {
	return &sessionLimiter{most: most, by: map[gossh.Conn]int{}, of: map[string]int{}}
}

func (s *sessionLimiter) acquire(c gossh.Conn, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken >= s.most || s.by[c] >= perConnection || s.of[name] >= max(perPersonLeast, s.most/4) {
		return false
	}
	s.taken++
	s.by[c]++
	s.of[name]++
	return true
}

func (s *sessionLimiter) release(c gossh.Conn, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.of[name]--; s.of[name] == 0 {
		delete(s.of, name)
	}
	if s.by[c]--; s.by[c] == 0 {
		delete(s.by, c)
	}
}
