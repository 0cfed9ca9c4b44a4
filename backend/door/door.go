package door

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"

	"github.com/failslow/falcon/backend/api/netaddr"
	"github.com/failslow/falcon/backend/api/strangers"
	"github.com/failslow/falcon/backend/auth"
)

// Limits bound the door; zero values mean the defaults.
type Limits struct {
	Handshake   time.Duration // until a caller has proven who it is, 10 s
	Unproven    int           // connections that have not yet, 1,024 and at most a quarter of the descriptors
	PerSource   int           // of them from one address, a quarter of Unproven
	Connections int           // proven ones, what the descriptors leave
	PerAgent    int           // of one node, 4
	PerPerson   int           // of one person, 16
	Recheck     time.Duration // between two looks at the certificates of open connections, 15 s
}

// speakGrace is how long an unproven caller that speaks is left alone.
const speakGrace = 2 * time.Second

func (l Limits) fill() Limits {
	fds := descriptors()
	l.Handshake = cmp.Or(l.Handshake, 10*time.Second)
	l.Unproven = cmp.Or(l.Unproven, max(min(1024, fds/4), 8))
	l.PerSource = cmp.Or(l.PerSource, max(l.Unproven/4, 8))
	l.Connections = cmp.Or(l.Connections, max(fds-l.Unproven-Reserved, fds/4))
	l.PerAgent = cmp.Or(l.PerAgent, 4)
	l.PerPerson = cmp.Or(l.PerPerson, 16)
	l.Recheck = cmp.Or(l.Recheck, 15*time.Second)
	return l
}

// Config is what a door needs.
type Config struct {
	Listener net.Listener // the door closes it
	TLS      *tls.Config
	Limits   Limits
	Check    func(*Peer) error // whether a certificate still holds; nil = only its dates count
	Log      *slog.Logger
	Now      func() time.Time
}

// Door accepts connections, has them prove who they are, and hands them to the
// listener of their role.
type Door struct {
	cfg     Config
	waiting *strangers.Room
	peers   *peers
	agents  *Queue
	people  *Queue
	failed  *rate.Limiter // lines about handshakes that failed: strangers cause them
	running sync.WaitGroup
	stop    chan struct{}
	once    sync.Once
}

// Open starts accepting.
func Open(cfg Config) *Door {
	cfg.Limits = cfg.Limits.fill()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.TLS = secured(cfg.TLS)
	d := &Door{
		cfg:     cfg,
		waiting: strangers.NewRoom(cfg.Limits.Unproven, cfg.Limits.PerSource, speakGrace),
		peers:   newPeers(cfg.Limits),
		failed:  rate.NewLimiter(1, 10),
		agents:  NewQueue(cfg.Listener.Addr()),
		people:  NewQueue(cfg.Listener.Addr()),
		stop:    make(chan struct{}),
	}
	d.running.Go(d.accept)
	d.running.Go(d.recheck)
	return d
}

// secured has the caller speak HTTP/2, and prove itself on each connection: a
// resumed session would skip the certificate.
func secured(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.NextProtos = []string{"h2"}
	c.SessionTicketsDisabled = true
	if get := c.GetConfigForClient; get != nil {
		c.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			next, err := get(h)
			if err != nil || next == nil {
				return next, err
			}
			next = next.Clone()
			next.NextProtos = []string{"h2"}
			next.SessionTicketsDisabled = true
			return next, nil
		}
	}
	return c
}

// Agents is the listener of those whose certificate has the role agent.
func (d *Door) Agents() net.Listener { return d.agents }

// People is the listener of everybody else who has a certificate.
func (d *Door) People() net.Listener { return d.people }

// Counts are the connections now.
type Counts struct{ Unproven, Proven int }

// Counts looks at the door.
func (d *Door) Counts() Counts {
	return Counts{d.waiting.Len(), d.peers.len()}
}

// acceptPause is how long the door waits when the kernel has no descriptor.
const acceptPause = 10 * time.Millisecond

func (d *Door) accept() {
	for {
		c, err := d.cfg.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
			d.waiting.EvictOldest()
			d.pause()
		case err != nil:
			d.pause()
		default:
			d.enter(c)
		}
	}
}

func (d *Door) pause() {
	select {
	case <-time.After(acceptPause):
	case <-d.stop:
	}
}

func (d *Door) enter(c net.Conn) {
	s, ok := d.waiting.Enter(c, netaddr.Network(c.RemoteAddr()), d.cfg.Now())
	if !ok {
		_ = c.Close()
		return
	}
	d.running.Go(func() { d.prove(s) })
}

// prove shakes hands and hands the connection on.
func (d *Door) prove(s *strangers.Stranger) {
	conn := tls.Server(s, d.cfg.TLS)
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.Limits.Handshake)
	err := conn.HandshakeContext(ctx)
	cancel()
	if !d.waiting.Leave(s) || err != nil {
		d.noteFailed(s.RemoteAddr(), err)
		_ = s.Close()
		return
	}
	g, err := d.identify(conn)
	if err == nil {
		err = d.let(g)
	}
	if err != nil {
		d.cfg.Log.Warn(
			"a caller with a certificate was turned away",
			slog.String("from", conn.RemoteAddr().String()),
			slog.Any("err", err),
		)
		_ = conn.Close()
	}
}

// noteFailed says why a handshake failed where a certificate is the reason: its caller receives the remedy,
// and so is who reads the engine's log. Who only knocks is no line.
func (d *Door) noteFailed(from net.Addr, err error) {
	var refused *tls.CertificateVerificationError
	var alert *net.OpError
	byCaller := errors.As(err, &alert) && alert.Op == "remote error"
	byEngine := errors.As(err, &refused)
	if !byCaller && !byEngine || !d.failed.Allow() {
		return
	}
	caller := slog.String("from", from.String())
	if byEngine {
		d.cfg.Log.Warn("the certificate of a caller was refused", caller, slog.Any("err", err))
		return
	}
	d.cfg.Log.Warn(
		"a caller has refused the engine's certificate, or offers none: does it name the address by which it was called?",
		caller,
		slog.Any("err", err),
	)
}

func (d *Door) identify(c *tls.Conn) (*Peer, error) {
	state := c.ConnectionState()
	id, err := auth.FromChains(state.VerifiedChains)
	if err != nil {
		return nil, err
	}
	id.From = c.RemoteAddr().String()
	g := &Peer{
		TLSInfo: credentials.TLSInfo{
			State:          state,
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		},
		Identity: id,
		Leaf:     state.VerifiedChains[0][0],
		conn:     c,
		since:    d.cfg.Now(),
	}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	return g, d.holds(g)
}

// holds checks a certificate again.
func (d *Door) holds(g *Peer) error {
	if d.cfg.Now().After(g.Leaf.NotAfter) {
		return fmt.Errorf("%w: that of %s ended at %s",
			ErrExpired, g.Identity.Name, g.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if d.cfg.Check != nil {
		return d.cfg.Check(g)
	}
	return nil
}

func (d *Door) let(g *Peer) error {
	old, ok := d.peers.enter(g)
	for _, o := range old {
		o.End(ErrReplaced)
	}
	if !ok {
		return fmt.Errorf("door: %d connections are open; %s was turned away",
			d.cfg.Limits.Connections, g.Identity.Name)
	}
	to := d.people
	if g.Identity.Role == auth.RoleAgent {
		to = d.agents
	}
	c := &conn{Conn: g.conn, caller: g}
	c.leave = func() {
		g.cancel(context.Canceled) // the peer's doing unless a reason was given before
		d.peers.leave(g)
	}
	if to.Put(context.Background(), c) != nil {
		return c.Close()
	}
	return nil
}

// recheck ends the connections whose certificates hold no more.
func (d *Door) recheck() {
	tick := time.NewTicker(d.cfg.Limits.Recheck)
	defer tick.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-tick.C:
			d.Recheck()
		}
	}
}

// Recheck looks at all certificates now.
func (d *Door) Recheck() {
	for _, g := range d.peers.list() {
		if g.ctx.Err() != nil {
			continue
		}
		if err := d.holds(g); err != nil {
			d.cfg.Log.Warn(
				"a connection was ended",
				slog.String("name", g.Identity.Name),
				slog.Any("err", err),
			)
			g.End(err)
		}
	}
}

// Peers are the proven callers that are connected now.
func (d *Door) Peers() []*Peer { return d.peers.list() }

// Close stops accepting, ends those that have not proven who they are, and
// waits. Connections that were handed out are their server's to end.
func (d *Door) Close() {
	d.once.Do(func() {
		close(d.stop)
		_ = d.cfg.Listener.Close() // the second time says so; nothing is lost
		d.waiting.Close()
		_ = errors.Join(d.agents.Close(), d.people.Close())
	})
	d.running.Wait()
}

// Queue is a listener that is fed with connections.
type Queue struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewQueue makes a listener that gives addr as its address.
func NewQueue(addr net.Addr) *Queue {
	return &Queue{
		addr:   addr,
		conns:  make(chan net.Conn),
		closed: make(chan struct{}),
	}
}

// Put blocks until Accept takes the connection. The error is net.ErrClosed or the
// context's cause.
func (q *Queue) Put(ctx context.Context, c net.Conn) error {
	select {
	case q.conns <- c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-q.closed:
		return net.ErrClosed
	}
}

// Accept waits for the next connection.
func (q *Queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Put and Accept with net.ErrClosed.
func (q *Queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

// Addr is the address that it was made with.
func (q *Queue) Addr() net.Addr { return q.addr }
