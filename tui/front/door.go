package front

import (
	"net"
	"net/netip"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/time/rate"
)

// addressesMax bounds how many addresses the door remembers; the ones that
// were quiet longest are forgotten.
const addressesMax = 4096

// door lets connections in: so many at once, and so many a minute from one
// address.
type door struct {
	limits Limits
	mu     sync.Mutex
	open   int
	seen   *lru.Cache[netip.Prefix, *rate.Limiter]
}

func newDoor(l Limits) *door {
	seen, _ := lru.New[netip.Prefix, *rate.Limiter](addressesMax) // fails for no size below 1
	return &door{limits: l, seen: seen}
}

// enter says why a connection is turned away, or "".
func (d *door) enter(a net.Addr) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := network(a)
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

func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
}

// network is an IPv4 address, or the 64 bits that one IPv6 customer has.
func network(a net.Addr) netip.Prefix {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		host = a.String()
	}
	ip, _ := netip.ParseAddr(host)
	ip = ip.WithZone("").Unmap()
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // of an address that is none: all such share one
	return p
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

// seats bounds sessions: in all, and of one connection.
type seats struct {
	mu    sync.Mutex
	most  int
	taken int
	by    map[gossh.Conn]int
}

// perConnection is how many sessions may share one connection, as OpenSSH's
// ControlMaster makes them.
const perConnection = 4

func newSeats(most int) *seats { return &seats{most: most, by: map[gossh.Conn]int{}} }

func (s *seats) take(c gossh.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken >= s.most || s.by[c] >= perConnection {
		return false
	}
	s.taken++
	s.by[c]++
	return true
}

func (s *seats) leave(c gossh.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.by[c]--; s.by[c] == 0 {
		delete(s.by, c)
	}
}
