package tcpstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
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
	MaxConns   int    // default 65,536
	MaxKeys    int    // default 131,072
	MaxBytes   int64  // of keys and values together, default 1 GiB
	MaxWaits   int    // keys that are waited for, over all connections, default 4,194,304
	Log        *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.MaxConns == 0 {
		o.MaxConns = 64 << 10
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = 128 << 10
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 1 << 30
	}
	if o.MaxWaits == 0 {
		o.MaxWaits = 4 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// acceptors take connections in parallel: while one takes the next connection,
// the others make what was taken theirs.
const acceptors = 4

// acceptPause is how long an acceptor waits where the process has no
// descriptor left; connections queue meanwhile.
const acceptPause = 20 * time.Millisecond

// Server is an open store. All methods may be called by anybody at any time.
type Server struct {
	o  Options
	l  net.Listener
	wg sync.WaitGroup

	mu      sync.Mutex
	t       table
	conns   map[*conn]struct{}
	refused int64 // connections and requests
	closed  bool
}

// Listen opens a store at host:port (port 0 = any) and serves until Close.
func Listen(address string, o Options) (*Server, error) {
	if err := mayListen(address, o.Exposed); err != nil {
		return nil, err
	}
	l, err := listen(address)
	if err != nil {
		return nil, fmt.Errorf("tcpstore: %w", err)
	}
	s := &Server{o: o.withDefaults(), l: l, conns: map[*conn]struct{}{}}
	s.t.generation = o.Generation
	s.t.clear()
	for range acceptors {
		s.wg.Add(1)
		go s.accept()
	}
	return s, nil
}

func mayListen(address string, exposed bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%w, not %q", ErrAddress, address)
	}
	// An empty host means every interface.
	if ip := net.ParseIP(host); exposed || host == "localhost" || (ip != nil && ip.IsLoopback()) {
		return nil
	}
	return fmt.Errorf("%w, not on %q", ErrExposed, address)
}

func listen(address string) (net.Listener, error) {
	return (&net.ListenConfig{KeepAlive: -1, Control: inherited}).Listen(context.Background(), "tcp", address)
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
func (s *Server) Addr() string { return s.l.Addr().String() }

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
	c := &conn{s: s, nc: nc}
	s.mu.Lock()
	ok := !s.closed && len(s.conns) < s.o.MaxConns
	if ok {
		c.generation = s.t.generation
		s.conns[c] = struct{}{}
		s.wg.Add(1)
	}
	s.mu.Unlock()
	if !ok {
		c.s.refuse(c, fmt.Errorf("%w: %d connections are all that it takes", ErrFull, s.o.MaxConns))
		nc.Close()
		return
	}
	go c.serve()
}

func (s *Server) leave(c *conn) {
	c.nc.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
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
	s.hangUp()
	s.o.Log.Info("store: fenced", "generation", generation)
	return nil
}

// hangUp ends all connections; each one's goroutine notices by itself.
func (s *Server) hangUp() {
	for c := range s.conns {
		c.nc.Close()
	}
}

// Close ends all connections and waits for everybody. The error is the
// listener's.
func (s *Server) Close() error {
	s.mu.Lock()
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
	Waits      int   // keys that are waited for
	Refused    int64 // connections and requests since it was opened
}

// Stats of this moment.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{s.t.generation, len(s.conns), len(s.t.values) + len(s.t.queues), s.t.bytes, s.t.waiting, s.refused}
}

// told is how many refusals the log has in full; after that it has one of
// every so many.
const (
	told      = 100
	toldEvery = 1000
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
	if n <= told || n%toldEvery == 0 {
		s.o.Log.Warn("store: client refused", "client", c.nc.RemoteAddr().String(), "err", err, "refused", n)
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
