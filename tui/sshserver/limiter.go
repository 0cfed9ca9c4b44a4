package sshserver

import (
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/failslow/falcon/backend/api/netaddr"
	"github.com/failslow/falcon/backend/api/strangers"
)

// speakGrace is none: where there is no place for another the oldest goes, as a login takes
// less time than it takes to fill the room.
const speakGrace = 0

// perPersonConnections is how many connections of one person are open: the newest.
const perPersonConnections = 16

// connectionLimiter bounds open connections: those that have proven nothing, in all and by
// source, apart from those of people with a key.
type connectionLimiter struct {
	limits   Limits
	unproven *strangers.Room

	mu     sync.Mutex
	proven map[string][]*limited // by the person's name, oldest first
	open   int                   // of them
}

func newConnectionLimiter(l Limits) *connectionLimiter {
	return &connectionLimiter{
		limits:   l,
		unproven: strangers.NewRoom(l.Unproven, l.PerSource, speakGrace),
		proven:   map[string][]*limited{},
	}
}

// admit makes a place for a connection, or reports that the room is closed.
func (d *connectionLimiter) admit(c net.Conn, now time.Time) (*limited, bool) {
	s, ok := d.unproven.Enter(c, netaddr.Network(c.RemoteAddr()), now)
	if !ok {
		return nil, false
	}
	return &limited{Stranger: s, limiter: d}, true
}

// limited is a connection that gives its place back, once.
type limited struct {
	*strangers.Stranger
	limiter *connectionLimiter
	name    string // of the person who has proven a key; the limiter's mutex guards it
	once    sync.Once
}

var (
	errEvicted = errors.New("closed: others needed the place of a connection that has proven nothing")
	errFull    = errors.New("too many connections of people with a key: close some, or have fewer screens")
)

// prove has a connection be a person's. The person's oldest ones go where they are too many.
func (c *limited) prove(name string) error {
	d := c.limiter
	if !d.unproven.Leave(c.Stranger) {
		return errEvicted
	}
	d.mu.Lock()
	mine := d.proven[name]
	var old []*limited
	for len(mine) > 0 && (len(mine) >= perPersonConnections || d.open >= d.limits.Connections) {
		old = append(old, mine[0])
		mine = mine[1:]
		old[len(old)-1].name = ""
		d.open--
	}
	full := d.open >= d.limits.Connections // of others: this person has none
	if !full {
		c.name = name
		d.proven[name] = append(slices.Clone(mine), c)
		d.open++
	}
	d.mu.Unlock()
	for _, o := range old {
		_ = o.Stranger.Close()
	}
	if full {
		return errFull
	}
	return nil
}

// close closes all connections, and those that come.
func (d *connectionLimiter) close() {
	d.unproven.Close()
	d.mu.Lock()
	d.limits.Connections = 0
	open := slices.Concat(slices.Collect(maps.Values(d.proven))...)
	d.mu.Unlock()
	for _, c := range open {
		_ = c.Stranger.Close()
	}
}

// Close closes the connection and frees its place.
func (c *limited) Close() error {
	c.once.Do(func() {
		d := c.limiter
		d.unproven.Leave(c.Stranger)
		d.mu.Lock()
		defer d.mu.Unlock()
		mine := d.proven[c.name]
		if i := slices.Index(mine, c); i >= 0 {
			d.open--
			mine = slices.Delete(mine, i, i+1)
			d.proven[c.name] = mine
		}
		if len(mine) == 0 {
			delete(d.proven, c.name)
		}
	})
	return c.Stranger.Close()
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
	return &sessionLimiter{
		most: most,
		by:   map[gossh.Conn]int{},
		of:   map[string]int{},
	}
}

func (s *sessionLimiter) acquire(c gossh.Conn, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken >= s.most ||
		s.by[c] >= perConnection ||
		s.of[name] >= max(perPersonLeast, s.most/4) {
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
