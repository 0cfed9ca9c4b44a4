package tcpstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Errors of Listen.
var (
	ErrExposed = errors.New("the store has no authentication and listens on loopback only")
	ErrAddress = errors.New("the store's address must be HOST:PORT")
)

// Options of a server; zero values become the defaults.
type Options struct {
	Generation uint64 // of the job that meets in it; see Fence
	Exposed    bool   // listen on an address that others can reach
	Budget     int64  // bytes of memory for everything, default 256 MiB; see the package comment
	MaxConns   int    // default 65,536, and not more than the process may have descriptors
	// connections of one address; default 4,096, and no bound for those of this machine
	MaxPerAddress int
	MaxKeys       int           // default 131,072
	MaxWaits      int           // keys that are waited for, over all connections, default 4,194,304
	FirstRequest  time.Duration // for a new connection to make its first request, default 30 s
	OneRequest    time.Duration // for a request that has begun to be complete, default 10 s
	Linger        time.Duration // of the keys after the last client of a job, default 1 s
	LingerAlone   time.Duration // the same where no two clients were here at a time, default 1 min
	Log           *slog.Logger
}

// Bounds that Options are filled with.
const (
	DefaultBudget   = 256 << 20
	maxConns        = 64 << 10
	spareFiles      = 64 // descriptors that are not for connections
	perAddressMost  = 4 << 10
	firstRequestMax = 30 * time.Second
	oneRequestMax   = 10 * time.Second
	lingerDefault   = time.Second
	aloneDefault    = time.Minute
)

func (o Options) withDefaults() Options {
	fill(&o.Budget, DefaultBudget)
	fill(&o.MaxConns, connsAllowed())
	fill(&o.MaxKeys, 128<<10)
	fill(&o.MaxWaits, 4<<20)
	fill(&o.FirstRequest, firstRequestMax)
	fill(&o.OneRequest, oneRequestMax)
	fill(&o.Linger, lingerDefault)
	fill(&o.LingerAlone, aloneDefault)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func fill[T int | int64 | time.Duration](v *T, otherwise T) {
	if *v == 0 {
		*v = otherwise
	}
}

// connsAllowed is how many connections the process has descriptors for.
func connsAllowed() int {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil || r.Cur >= maxConns+spareFiles {
		return maxConns
	}
	return max(int(r.Cur)-spareFiles, 1)
}

// acceptors take connections in parallel: while one takes the next connection,
// the others make what was taken theirs.
const acceptors = 4

// acceptPause is how long an acceptor waits where the process has no
// descriptor left; connections queue meanwhile.
const acceptPause = 20 * time.Millisecond

// Server is an open store. All methods may be called by anybody at any time.
type Server struct {
	o    Options
	l    net.Listener
	wg   sync.WaitGroup
	quit chan struct{}

	mu       sync.Mutex
	t        table
	conns    map[*conn]struct{}
	from     map[netip.Addr]int // connections by address
	doubt    suspects
	met      bool      // two clients were here at a time since there were no keys
	deserted time.Time // since when no client is here that has made a request; zero = one is
	refused  int64     // connections and requests
	evicted  int64     // connections that made way for others
	closed   bool
}

// Listen opens a store at host:port (port 0 = any) and serves until Close.
func Listen(address string, o Options) (*Server, error) {
	l, err := Bind(address, o.Exposed)
	if err != nil {
		return nil, err
	}
	return Serve(l, o), nil
}

// Bind listens at host:port for a Server of this process or of another one: on
// loopback only, unless exposed.
func Bind(address string, exposed bool) (*net.TCPListener, error) {
	if err := mayListen(address, exposed); err != nil {
		return nil, err
	}
	l, err := listen(address)
	if err != nil {
		return nil, fmt.Errorf("tcpstore: %w", err)
	}
	return l.(*net.TCPListener), nil
}

// Serve serves on a listener of Bind, which it owns from now on, until Close.
func Serve(l *net.TCPListener, o Options) *Server {
	s := &Server{
		o:     o.withDefaults(),
		l:     l,
		quit:  make(chan struct{}),
		conns: map[*conn]struct{}{},
		from:  map[netip.Addr]int{},
	}
	s.t.generation, s.t.b.limit = o.Generation, s.o.Budget
	s.t.clear()
	s.wg.Add(1 + acceptors)
	go s.sweep()
	for range acceptors {
		go s.accept()
	}
	return s
}

func mayListen(address string, exposed bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%w, not %q", ErrAddress, address)
	}
	// An empty host means every interface.
	ip := net.ParseIP(host)
	if exposed || host == "localhost" || (ip != nil && ip.IsLoopback()) {
		return nil
	}
	return fmt.Errorf("%w, not on %q", ErrExposed, address)
}

func listen(address string) (net.Listener, error) {
	return (&net.ListenConfig{KeepAlive: -1, Control: inherited}).Listen(
		context.Background(),
		"tcp",
		address,
	)
}

// Keep-alive of clients: one whose machine is gone is noticed after some
// minutes.
const (
	aliveIdle  = 60 // s
	aliveEvery = 15 // s
	aliveTries = 8
)

// inherited sets on the listening socket what accepted ones take from it: set
// one by one on each of ten thousand it would be a good part of their time.
func inherited(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		for _, o := range [][3]int{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, aliveIdle},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, aliveEvery},
			{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, aliveTries},
		} {
			failed = errors.Join(failed, unix.SetsockoptInt(int(fd), o[0], o[1], o[2]))
		}
	})
	return errors.Join(err, failed)
}

// Addr is where it listens.
func (s *Server) Addr() string {
	return s.l.Addr().String()
}

func (s *Server) accept() {
	defer s.wg.Done()
	for {
		nc, err := s.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.o.Log.Warn("store: no connection can be taken now", "err", err)
			time.Sleep(acceptPause)
			continue
		}
		s.admit(nc.(*net.TCPConn))
	}
}

func (s *Server) admit(nc *net.TCPConn) {
	c := &conn{s: s, nc: nc, from: addressOf(nc)}
	c.d = newDecoder(c)
	c.d.charge = c.charge
	s.mu.Lock()
	err := s.place(c)
	s.mu.Unlock()
	if err != nil {
		s.refuse(c, err)
		nc.Close()
		return
	}
	go c.serve()
}

func (s *Server) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(c)
	if c.w != nil && c.w.left > 0 {
		s.t.forget(c.w)
	}
}

// Fence puts a newer generation in force: all clients are disconnected and all
// keys dropped, and nothing of theirs takes effect once it has returned. An
// older generation is refused with ErrFenced; the present one changes nothing.
func (s *Server) Fence(generation uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if generation < s.t.generation {
		return fmt.Errorf("%w: generation %d is in force, not %d", ErrFenced, s.t.generation, generation)
	}
	if generation == s.t.generation {
		return nil
	}
	s.t.generation = generation
	s.t.clear()
	s.met = false
	s.hangUp()
	s.o.Log.Info("store: fenced", "generation", generation)
	return nil
}

// hangUp ends all connections; each one's goroutine notices by itself.
func (s *Server) hangUp() {
	for c := range s.conns {
		s.end(c)
	}
}

// Close ends all connections and waits for everybody. The error is the
// listener's.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.closed {
		close(s.quit)
	}
	s.closed = true
	s.hangUp()
	s.mu.Unlock()
	err := s.l.Close()
	s.wg.Wait()
	return err
}

// Stats is what a console may show of it.
type Stats struct {
	Generation uint64
	Conns      int
	Keys       int
	Bytes      int64 // of keys and values
	Used       int64 // of the budget
	Waits      int   // keys that are waited for
	Refused    int64 // connections and requests since it was opened
	Evicted    int64 // connections that were ended for others, since then
}

// Stats of this moment.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Generation: s.t.generation,
		Conns:      len(s.conns),
		Keys:       s.t.size(),
		Bytes:      s.t.bytes,
		Used:       s.t.b.used,
		Waits:      s.t.waiting,
		Refused:    s.refused,
		Evicted:    s.evicted,
	}
}

// told is how many refusals the log has in full; after that it has one of
// every so many.
const (
	announced      = 100
	announcedEvery = 1000
)

// refuse notes why a connection is ended; a client that has just left is no
// news.
func (s *Server) refuse(c *conn, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isNet(err) {
		return
	}
	s.mu.Lock()
	s.refused++
	n := s.refused
	s.mu.Unlock()
	if n <= announced || n%announcedEvery == 0 {
		s.o.Log.Warn(
			"store: client refused",
			"client",
			c.nc.RemoteAddr().String(),
			"err",
			err,
			"refused",
			n,
		)
	}
}

func isNet(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, net.ErrClosed)
}

// readBuffer of a connection: most requests fit, and ten thousand stay small.
const readBuffer = 512

func newDecoder(r io.Reader) *decoder {
	return &decoder{r: bufio.NewReaderSize(r, readBuffer)}
}
