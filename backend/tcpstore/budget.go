package tcpstore

import (
	lists "container/list"
	"fmt"
	"net"
	"net/netip"
	"runtime/debug"
	"time"
)

// What things cost beside their bytes: the memory that the runtime needs to
// hold them, rounded up.
const (
	connCost = 8 << 10 // a connection: its goroutine, its buffers, its entry
	keyCost  = 160     // a key of the table or an entry of a queue
	waitCost = 192     // a key that one client waits for
	itemCost = 64      // a key or a value of a request in flight, or of its answer
)

// bigFrom is the size from which a charge is big, and reserved the share of the
// budget (one in so many) that big ones leave free: whoever fills the store with
// large values, clients that only meet still find room.
const (
	bigFrom  = 16 << 10
	reserved = 4
)

// Overhead is what a process that only serves a store needs beyond the budget:
// the program itself, the runtime, and garbage that is not collected yet.
const Overhead = 128 << 20

// LimitMemory has the runtime of a process that only serves a store collect
// garbage early enough to stay within the budget and Overhead.
func LimitMemory(budget int64) {
	debug.SetMemoryLimit(budget + Overhead/4)
}

// budget counts the memory that all parts of a server share. The server's lock
// guards it.
type budget struct{ limit, used int64 }

// take charges n bytes, or reports that there is no room for them.
func (b *budget) take(n int64, big bool) bool {
	most := b.limit
	if big {
		most -= b.limit / reserved
	}
	if n > 0 && b.used+n > most {
		return false
	}
	b.used += n
	return true
}

func (b *budget) full() error {
	return fmt.Errorf("%w: the budget of %d bytes is in use; give the store a larger one", ErrFull, b.limit)
}

// Connections by how little they have shown, oldest first: those that never
// completed a request, and those in the middle of one.
type suspects struct{ silent, amid lists.List }

// place finds room for a new connection. The oldest that never completed a
// request makes way.
func (s *Server) place(c *conn) error {
	if s.closed {
		return net.ErrClosed
	}
	if most := s.o.perAddress(c.from); most > 0 && s.from[c.from] >= most {
		return fmt.Errorf("%w: %d connections are all that one address may have", ErrFull, most)
	}
	for len(s.conns) >= s.o.MaxConns || !s.t.b.take(connCost, false) {
		if !s.makeWay(&s.doubt.silent) {
			if len(s.conns) >= s.o.MaxConns {
				return fmt.Errorf("%w: %d connections are all that it takes", ErrFull, s.o.MaxConns)
			}
			return s.t.b.full()
		}
	}
	c.generation = s.t.generation
	c.since = time.Now()
	c.silent = s.doubt.silent.PushBack(c)
	s.conns[c] = struct{}{}
	s.from[c.from]++
	s.wg.Add(1)
	return nil
}

// makeWay ends the oldest connection of a list; false = it is empty.
func (s *Server) makeWay(l *lists.List) bool {
	e := l.Front()
	if e == nil {
		return false
	}
	s.end(e.Value.(*conn))
	s.evicted++
	return true
}

// end disconnects a client and gives back at once what it was charged. Its
// goroutine notices by itself.
func (s *Server) end(c *conn) {
	_ = c.nc.Close()
	if _, there := s.conns[c]; !there {
		return
	}
	delete(s.conns, c)
	if s.from[c.from]--; s.from[c.from] == 0 {
		delete(s.from, c.from)
	}
	c.spoke()
	s.t.b.used -= connCost + c.charged
	c.charged, c.gone = 0, true
	if len(s.conns) == s.doubt.silent.Len() && s.deserted.IsZero() {
		s.deserted = time.Now()
	}
}

// dropDeserted drops the keys once there has been no client for a while: the job that met here is
// over. Keys of PyTorch's later versions do not name the attempt: a job that is started again would
// look for the old one's addresses. Processes of a job that comes again load PyTorch first, which
// takes longer than the gap between clients that come one after another. Where no two were here at
// a time no job has met: a script that leaves something for the next one gets longer.
func (s *Server) dropDeserted(now time.Time) {
	linger := s.o.Linger
	if !s.met {
		linger = s.o.LingerAlone
	}
	if s.deserted.IsZero() || now.Sub(s.deserted) < linger {
		return
	}
	if s.t.size() > 0 {
		s.o.Log.Info(
			"store: no client has been here for a while, its keys are dropped",
			"keys",
			s.t.size(),
			"after",
			linger,
		)
	}
	s.t.clear()
	s.met = false
}

// spoke takes a connection off the lists of those that have shown too little.
func (c *conn) spoke() {
	if c.silent != nil {
		c.s.doubt.silent.Remove(c.silent)
		c.silent = nil
	}
	if c.amid != nil {
		c.s.doubt.amid.Remove(c.amid)
		c.amid = nil
	}
}

// charge has a connection pay for a request in flight, or for its answer. Where
// there is no room, the oldest requests that are not complete make way.
func (c *conn) charge(n int, big bool) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.pay(n, big)
}

// pay is charge with the lock held.
func (c *conn) pay(n int, big bool) error {
	for !c.gone && !c.s.t.b.take(int64(n), big) {
		front := c.s.doubt.amid.Front()
		if front == nil ||
			front.Value.(*conn) == c ||
			!c.s.makeWay(&c.s.doubt.amid) {
			return c.s.t.b.full()
		}
	}
	if c.gone {
		return net.ErrClosed
	}
	c.charged += int64(n)
	c.owes = true
	return nil
}

// settle gives back what a request was charged, and the values that its answer
// has sent.
func (c *conn) settle(sent []*value) {
	if !c.owes && len(sent) == 0 {
		return
	}
	c.owes = false
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.t.b.used -= c.charged
	c.charged = 0
	for _, v := range sent {
		c.s.t.read(v)
	}
}

// Read is where the connection's bytes come from. A request that did not come
// in one piece is listed with the time when that was noticed.
func (c *conn) Read(p []byte) (int, error) {
	if c.d.amid && !c.listed {
		c.listed = true
		c.s.mu.Lock()
		if !c.gone {
			c.begun = time.Now()
			c.amid = c.s.doubt.amid.PushBack(c)
		}
		c.s.mu.Unlock()
	}
	return c.nc.Read(p)
}

// sweepsPer is how often in a deadline those over it are looked for.
const sweepsPer = 10

// sweep ends connections that never made a request, or do not complete one, and drops deserted keys.
func (s *Server) sweep() {
	defer s.wg.Done()
	tick := time.NewTicker(max(min(s.o.FirstRequest, s.o.OneRequest)/sweepsPer, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-tick.C:
			s.expire(time.Now())
		}
	}
}

func (s *Server) expire(now time.Time) {
	s.mu.Lock()
	silent := s.overdue(&s.doubt.silent, func(c *conn) bool {
		return now.Sub(c.since) >= s.o.FirstRequest
	})
	amid := s.overdue(&s.doubt.amid, func(c *conn) bool {
		return now.Sub(c.begun) >= s.o.OneRequest
	})
	s.dropDeserted(now)
	s.mu.Unlock()
	for _, c := range silent {
		s.refuse(c, fmt.Errorf("%w: no request in %s", ErrLate, s.o.FirstRequest))
	}
	for _, c := range amid {
		s.refuse(c, fmt.Errorf("%w: a request is not complete after %s", ErrLate, s.o.OneRequest))
	}
}

func (s *Server) overdue(l *lists.List, late func(*conn) bool) (out []*conn) {
	for e := l.Front(); e != nil && late(e.Value.(*conn)); e = l.Front() {
		c := e.Value.(*conn)
		s.end(c)
		out = append(out, c)
	}
	return out
}

// perAddress is how many connections an address may have, 0 = any number. The
// processes of this machine share one, so that only an explicit bound holds for
// them.
func (o *Options) perAddress(a netip.Addr) int {
	if o.MaxPerAddress == 0 && a.IsLoopback() {
		return 0
	}
	if o.MaxPerAddress == 0 {
		return perAddressMost
	}
	return o.MaxPerAddress
}

func addressOf(nc *net.TCPConn) netip.Addr {
	if a, is := nc.RemoteAddr().(*net.TCPAddr); is {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
