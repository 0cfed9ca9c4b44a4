package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a proxy.
const (
	ClientsMax = 512 // of one node
	WaitsMax   = 128 // different sets of keys waited for at once
	SharedMax  = 2   // connections to the store for each layout, besides waits
	dialMax    = 10 * time.Second
	answerMax  = 30 * time.Second // for the store to answer what does not block
	sendMax    = 10 * time.Second // for a client to take an answer
)

const (
	stopWaiting  = 0
	waitCanceled = 1
)

// ErrListen is wrapped where a proxy can't listen.
var ErrListen = errors.New("store: can't listen")

// Options are what Open needs.
type Options struct {
	Listen   string // HOST:PORT on loopback
	Upstream string // HOST:PORT of the store
	Budget   int64  // bytes of requests, answers and waits in flight; 0 = DefaultBudget
	Log      *slog.Logger

	FirstRequest time.Duration // for a client to make its first request, default 30 s
	OneRequest   time.Duration // for a request that has begun to be complete, default 10 s
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Budget == 0 {
		o.Budget = DefaultBudget
	}
	if o.FirstRequest == 0 {
		o.FirstRequest = firstRequestMax
	}
	if o.OneRequest == 0 {
		o.OneRequest = oneRequestMax
	}
	return o
}

// Proxy serves one node.
type Proxy struct {
	o    Options
	l    net.Listener
	b    budget
	done sync.WaitGroup

	dialing chan struct{} // held by those who reach for the store, for shared connections

	mu      sync.Mutex
	closed  bool
	clients map[*client]bool
	shared  map[bool][]*shared // by layout: true = current
	turn    int
	waits   map[string]*waitFor // by layout and request
}

// client is one training process's connection.
type client struct {
	p       *Proxy
	nc      net.Conn
	r       *bufio.Reader
	current bool
	bill    bill    // of the present request
	up      *shared // guarded by p.mu for others than the client itself

	mu sync.Mutex // one answer at a time; taken before p.mu
	w  *waitFor   // guarded by p.mu
}

// shared is a connection to the store that several clients use in turn.
type shared struct {
	mu   sync.Mutex // one exchange at a time
	nc   net.Conn
	r    *bufio.Reader
	dead bool // guarded by Proxy.mu
}

// waitFor is one wait at the store, for all clients that wait for the same keys.
type waitFor struct {
	key     string
	nc      net.Conn // nil until the store is reached; guarded by Proxy.mu
	left    bool     // no client waits any more; guarded by Proxy.mu
	first   *client  // whose request it is; the others joined later
	clients map[*client]bool
	bill    bill
}

// Open listens and serves. The store need not be there yet.
func Open(o Options) (*Proxy, error) {
	host, _, err := net.SplitHostPort(o.Listen)
	ip := net.ParseIP(host)
	if err != nil || (host != "localhost" && (ip == nil || !ip.IsLoopback())) {
		return nil, fmt.Errorf(
			"%w: %q is not on loopback, and the store's protocol authenticates no client: use 127.0.0.1:PORT",
			ErrListen, o.Listen,
		)
	}
	if _, _, err := net.SplitHostPort(o.Upstream); err != nil {
		return nil, fmt.Errorf("%w: the store's address %q is not HOST:PORT", ErrListen, o.Upstream)
	}
	o = o.withDefaults()
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrListen, err)
	}
	p := &Proxy{
		o:       o,
		l:       l,
		b:       budget{limit: o.Budget},
		dialing: make(chan struct{}, SharedMax),
		clients: map[*client]bool{},
		shared:  map[bool][]*shared{},
		waits:   map[string]*waitFor{},
	}
	p.done.Go(p.acceptClients)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string {
	return p.l.Addr().String()
}

// Close disconnects everybody and waits for the goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	_ = p.l.Close()
	for c := range p.clients {
		_ = c.nc.Close()
	}
	for _, list := range p.shared {
		for _, s := range list {
			_ = s.nc.Close()
		}
	}
	for _, w := range p.waits {
		if w.nc != nil {
			_ = w.nc.Close()
		}
	}
	p.mu.Unlock()
	p.done.Wait()
}

func (p *Proxy) acceptClients() {
	for {
		nc, err := p.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // no file descriptor is free
			continue
		}
		c := &client{
			p:    p,
			nc:   nc,
			r:    bufio.NewReader(nc),
			bill: bill{b: &p.b},
		}
		p.mu.Lock()
		if p.closed || len(p.clients) >= ClientsMax {
			_ = nc.Close()
		} else {
			p.clients[c] = true
			p.done.Go(c.serveClient)
		}
		p.mu.Unlock()
	}
}

func (c *client) serveClient() {
	defer c.leaveWait()
	err := c.nc.SetReadDeadline(time.Now().Add(c.p.o.FirstRequest))
	if err != nil {
		return
	}
	if c.current, err = detectLayout(c.r); err != nil {
		return
	}
	if err = c.p.sharedConnection(c); err != nil {
		c.p.o.Log.Warn(
			"the rendezvous store can't be reached",
			slog.String("address", c.p.o.Upstream),
			slog.Any("err", err),
		)
		return
	}
	layout := legacy
	if c.current {
		layout = current
	}
	for {
		err := c.serveOne(layout)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				c.p.o.Log.Warn("a client of the rendezvous store was disconnected", slog.Any("err", err))
			}
			return
		}
	}
}

// serveOne reads and carries out one request. It must come soon after a client has
// connected, and be complete soon after it has begun; between two a client may be
// silent.
func (c *client) serveOne(layout map[byte]kind) error {
	defer c.bill.refundAll()
	if _, err := c.r.Peek(1); err != nil {
		return err
	}
	if err := c.nc.SetReadDeadline(time.Now().Add(c.p.o.OneRequest)); err != nil {
		return err
	}
	q, err := readRequest(c.r, layout, &c.bill)
	if err != nil {
		return err
	}
	if err := c.nc.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	return c.execute(q)
}

// execute carries out one request. Clients ask one thing at a time: any request ends a
// wait that is still open.
func (c *client) execute(q request) error {
	c.p.stopWaiting(c)
	switch q.answer {
	case canceled:
		return c.sendReply([]byte{waitCanceled})
	case waiting:
		return c.p.waitForKeys(c, q)
	}
	answer, err := c.up.roundTrip(q, &c.bill)
	if errors.Is(err, ErrFull) {
		return err
	}
	if err != nil {
		c.p.dropConnection(c.up)
		return err
	}
	return c.sendReply(answer)
}

func (c *client) sendReply(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writeLocked(b)
}

// writeLocked sends with mu held.
func (c *client) writeLocked(b []byte) error {
	if err := c.nc.SetWriteDeadline(time.Now().Add(sendMax)); err != nil {
		return err
	}
	_, err := c.nc.Write(b)
	return err
}

func (c *client) leaveWait() {
	c.p.stopWaiting(c)
	_ = c.nc.Close()
	c.p.mu.Lock()
	delete(c.p.clients, c)
	c.p.mu.Unlock()
}

// roundTrip sends a request and reads its answer.
func (s *shared) roundTrip(q request, b *bill) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.nc.SetDeadline(time.Now().Add(answerMax)); err != nil {
		return nil, err
	}
	if _, err := s.nc.Write(q.raw); err != nil {
		return nil, err
	}
	return readAnswer(s.r, q, b)
}

// sharedConnection gives a client one of the shared connections, in turn. One that the
// store has ended meanwhile is given up first: a client that begins now must not
// meet the end of those before it.
func (p *Proxy) sharedConnection(c *client) error {
	for _, s := range p.connections(c.current) {
		if !s.isUsable() {
			p.dropConnection(s)
		}
	}
	if p.assignConnection(c, nil) {
		return nil
	}
	p.dialing <- struct{}{} // clients that begin together need no connection each
	defer func() { <-p.dialing }()
	if p.assignConnection(c, nil) {
		return nil
	}
	nc, err := p.dialStore(c.current)
	if err != nil {
		return err
	}
	if !p.assignConnection(c, nc) {
		return net.ErrClosed
	}
	return nil
}

func (p *Proxy) connections(isCurrent bool) []*shared {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.shared[isCurrent])
}

// assignConnection gives a client a connection: a fresh one where there are few, else the
// next in turn. It is false where there is none to give.
func (p *Proxy) assignConnection(c *client, fresh net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.shared[c.current]
	switch {
	case fresh != nil && (p.closed || len(list) >= SharedMax):
		_ = fresh.Close() // others were faster
	case fresh != nil:
		list = append(list, &shared{nc: fresh, r: bufio.NewReader(fresh)})
		p.shared[c.current] = list
	case len(list) < SharedMax:
		return false
	}
	if p.closed || len(list) == 0 {
		return false
	}
	p.turn++
	c.up = list[p.turn%len(list)]
	return true
}

// isUsable reports whether the store has not ended the connection, and owes nothing on it.
// One in use is alive.
func (s *shared) isUsable() bool {
	if !s.mu.TryLock() {
		return true
	}
	defer s.mu.Unlock()
	conn, ok := s.nc.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	idle := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		idle = errors.Is(err, unix.EAGAIN)
		return true
	})
	return err == nil && idle
}

func (p *Proxy) dialStore(isCurrent bool) (net.Conn, error) {
	nc, err := net.DialTimeout("tcp", p.o.Upstream, dialMax)
	if err != nil {
		return nil, err
	}
	if isCurrent {
		if _, err := nc.Write(greetingBytes()); err != nil {
			_ = nc.Close()
			return nil, err
		}
	}
	return nc, nil
}

// dropConnection gives a shared connection up, with all clients that use it.
func (p *Proxy) dropConnection(s *shared) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.dead {
		return
	}
	s.dead = true
	_ = s.nc.Close()
	for isCurrent, list := range p.shared {
		p.shared[isCurrent] = slices.DeleteFunc(slices.Clone(list), func(o *shared) bool { return o == s })
	}
	for c := range p.clients {
		if c.up == s {
			_ = c.nc.Close()
		}
	}
}
