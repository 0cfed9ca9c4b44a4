package rpc

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/backend/door"
	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/backend/fleet"
)

// Bounds of the servers.
const (
	FrameBytesMax   = 16 << 20 // one message from an agent: a profile window is the largest
	RequestBytesMax = 64 << 10 // one request of a console
	readBuffer      = 4 << 10  // per connection: 12,500 agents fit one process
	writeBuffer     = 8 << 10
	pingMin         = 2 * time.Second // clients may ping this often
	pingAfter       = 10 * time.Second
	pingWait        = 10 * time.Second
	socketPathMax   = 107 // sun_path of Linux, less its final zero
	stopWait        = 2 * time.Second
	handshakeWait   = 10 * time.Second
	agentStreams    = 4  // of one connection; an agent needs one
	personStreams   = 64 // of one connection
	windowBytes     = 64 << 10
	agentWindow     = 1 << 20
)

// ErrListen is wrapped by every error about an address that can't be had.
var ErrListen = errors.New("rpc: can't listen")

// Config says where to listen. Address "" leaves the network out; agents then
// can't come.
type Config struct {
	Engine  *engine.Engine
	Socket  string
	Address string
	TLS     *tls.Config // auth.ServerTLS or Certificates.ServerTLS; required with Address

	Limits  Limits
	Budgets fleet.Limits
	// whether a certificate still holds, as revocation may have ended it; nil = its dates count
	Check func(*door.Peer) error
	Renew Signer            // nil = agents' certificates are not renewed
	Load  Load              // nil = the engine is never short of memory
	Shed  func() fleet.Shed // which frames are left out now; nil = none
	Log   *slog.Logger

	Now func() time.Time // nil = the real clock
}

// Server is the engine's doors: a socket, the network, and one for callers
// inside this process.
type Server struct {
	cfg     Config
	gate    *gate
	local   *grpc.Server
	inside  *grpc.Server
	people  *grpc.Server // from the network
	agents  *grpc.Server
	door    *door.Door
	pipes   *door.Queue // connections made inside the process
	socket  net.Listener
	network net.Listener
	streams *fleet.Service
	running sync.WaitGroup
	once    sync.Once
}

// Listen takes the socket and the address and starts serving.
func Listen(cfg Config) (*Server, error) {
	s := &Server{
		cfg:     cfg,
		gate:    newGate(cfg),
		streams: fleet.NewService(cfg.Engine, fleet.NewBudgets(cfg.Budgets)),
	}
	if err := s.listen(); err != nil {
		s.closeListeners()
		return nil, err
	}
	now := cfg.Now
	if now == nil {
		now = cfg.Engine.Time
	}
	console := &consoleService{engine: cfg.Engine, presence: newPresence(now)}
	if s.network != nil {
		console.listening = s.network.Addr().String()
	}
	s.local = grpc.NewServer(append(s.options(auth.SocketCredentials()),
		grpc.InTapHandle(s.gate.ownerTap),
	)...)
	falconv1.RegisterConsoleServer(s.local, console)
	s.serveListener(s.local, s.socket)
	s.pipes = door.NewQueue(&net.UnixAddr{Name: "inside", Net: "inside"})
	s.inside = grpc.NewServer(append(s.options(auth.VouchedCredentials()),
		grpc.InTapHandle(s.gate.guestTap),
		grpc.MaxConcurrentStreams(personStreams),
	)...)
	falconv1.RegisterConsoleServer(s.inside, console)
	s.serveListener(s.inside, s.pipes)
	if s.network != nil {
		s.serveNetwork(console)
	}
	return s, nil
}

// serveNetwork hears people and agents apart: each has the limits of its kind
// from the first byte of HTTP/2 on. Both servers know both services, so that a
// the refusal of a wrong role names the one that is needed.
func (s *Server) serveNetwork(console *consoleService) {
	agents := &fleetService{streams: s.streams, renew: s.cfg.Renew}
	s.people = grpc.NewServer(append(s.options(door.Credentials()),
		grpc.InTapHandle(s.gate.guestTap),
		grpc.MaxConcurrentStreams(personStreams),
	)...)
	s.agents = grpc.NewServer(append(s.options(door.Credentials()),
		grpc.InTapHandle(s.gate.guestTap), grpc.MaxConcurrentStreams(agentStreams),
		grpc.MaxRecvMsgSize(FrameBytesMax), grpc.ForceServerCodecV2(fleet.NewCodec(s.cfg.Shed)),
		grpc.InitialWindowSize(agentWindow), grpc.InitialConnWindowSize(agentWindow),
	)...)
	for _, g := range []*grpc.Server{s.people, s.agents} {
		falconv1.RegisterConsoleServer(g, console)
		falconv1.RegisterFleetServer(g, agents)
	}
	s.door = door.Open(door.Config{
		Listener: s.network,
		TLS:      s.cfg.TLS,
		Limits:   s.cfg.Limits.Limits,
		Check:    s.cfg.Check,
		Log:      s.cfg.Log,
		Now:      s.cfg.Now,
	})
	s.serveListener(s.people, s.door.People())
	s.serveListener(s.agents, s.door.Agents())
}

func (s *Server) listen() error {
	var err error
	if s.socket, err = listenSocket(s.cfg.Socket); err != nil {
		return err
	}
	if s.cfg.Address == "" {
		return nil
	}
	if s.cfg.TLS == nil {
		return fmt.Errorf("%w on %s without certificates; there is no plaintext TCP",
			ErrListen, s.cfg.Address)
	}
	s.network, err = net.Listen("tcp", s.cfg.Address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w on %s: the port is in use; stop what uses it or set another listen address",
			ErrListen, s.cfg.Address)
	case err != nil:
		return fmt.Errorf("%w on %s: %w; set a listen address of the form HOST:PORT",
			ErrListen, s.cfg.Address, err)
	}
	return nil
}

// listenSocket makes the socket readable by its owner alone, from its first
// moment on. A socket that a killed engine left behind is taken over.
func listenSocket(path string) (net.Listener, error) {
	if len(path) > socketPathMax {
		return nil, fmt.Errorf("%w: the socket's path %s is longer than %d bytes; set a shorter one",
			ErrListen, path, socketPathMax)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrListen, err)
	}
	if err := clearSocket(path); err != nil {
		return nil, err
	}
	old := syscall.Umask(0o177)
	l, err := net.Listen("unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("%w on %s: %w", ErrListen, path, err)
	}
	return l, nil
}

func clearSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrListen, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%w: %s is there and is no socket; remove it or set another socket path",
			ErrListen, path)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = c.Close()
		return fmt.Errorf("%w: another falcon answers on %s; stop it or set another socket path",
			ErrListen, path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("%w: %w", ErrListen, err)
	}
	return nil
}

// options are those of every server; later ones of the same kind win.
func (s *Server) options(creds credentials.TransportCredentials) []grpc.ServerOption {
	shown := wallTime{s.cfg.Engine.WallOffset}
	return []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.ConnectionTimeout(cmp.Or(s.cfg.Limits.Handshake, handshakeWait)),
		grpc.ChainUnaryInterceptor(s.gate.unaryInterceptor, shown.unary),
		grpc.ChainStreamInterceptor(s.gate.stream, shown.stream),
		grpc.UnknownServiceHandler(elsewhere),
		grpc.MaxRecvMsgSize(RequestBytesMax),
		grpc.InitialWindowSize(windowBytes),
		grpc.InitialConnWindowSize(windowBytes),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.ReadBufferSize(readBuffer),
		grpc.WriteBufferSize(writeBuffer),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             pingMin,
			PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingWait}),
	}
}

func (s *Server) serveListener(g *grpc.Server, l net.Listener) {
	s.running.Go(func() { _ = g.Serve(l) }) // it ends with Close, which needs no news of it
}

// Address is where agents find the engine; "" when they can't.
func (s *Server) Address() string {
	if s.network == nil {
		return ""
	}
	return s.network.Addr().String()
}

// Peers are the callers from the network that are connected now.
func (s *Server) Peers() []*door.Peer {
	if s.door == nil {
		return nil
	}
	return s.door.Peers()
}

// Socket is the path of the local socket.
func (s *Server) Socket() string { return s.cfg.Socket }

// Close ends all streams, lets short calls finish within stopWait, and waits.
func (s *Server) Close() {
	s.once.Do(func() {
		s.streams.End()
		for _, g := range []*grpc.Server{s.local, s.inside, s.people, s.agents} {
			if g != nil {
				stopServer(g)
			}
		}
		s.running.Wait()
		if s.door != nil {
			s.door.Close()
		}
		s.streams.Close()
		s.closeListeners()
	})
}

func stopServer(g *grpc.Server) {
	timer := time.AfterFunc(stopWait, g.Stop)
	defer timer.Stop()
	g.GracefulStop()
}

func (s *Server) closeListeners() {
	for _, l := range []net.Listener{s.socket, s.network} {
		if l != nil {
			_ = l.Close() // the second time says so; nothing is lost
		}
	}
}
