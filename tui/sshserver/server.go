package sshserver

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"charm.land/ssh"
	"charm.land/wish/v2"
	gossh "golang.org/x/crypto/ssh"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui"
	"github.com/failslow/falcon/tui/feed"
)

// ErrListen is wrapped when the address can't be had.
var ErrListen = errors.New("sshserver: can't listen")

// Caller is who a key or certificate has proven to be.
type Caller struct {
	Name string
	Role string // viewer, operator, approver or admin
	From string // address and key, for the record
}

// Engine is one caller's own client; End closes it.
type Engine struct {
	Client falconv1.ConsoleClient
	End    func()
}

// Limits bound the server; zero values mean the defaults.
type Limits struct {
	Sessions    int           // open at once, 32
	Connections int           // of people who have proven a key, 64
	Unproven    int           // connections that have proven nothing so far, 256
	PerSource   int           // of them from one address, a quarter of Unproven
	Handshake   time.Duration // until the key is proven, 20 s
	Idle        time.Duration // a screen without a key, 1 h; negative = never closed
	Stall       time.Duration // a client that takes nothing, 30 s
	Recheck     time.Duration // between looks whether the key still holds, 15 s
}

func (l Limits) withDefaults() Limits {
	l.Unproven = cmp.Or(l.Unproven, 256)
	return Limits{
		Sessions:    cmp.Or(l.Sessions, 32),
		Connections: cmp.Or(l.Connections, 64),
		Unproven:    l.Unproven,
		PerSource:   cmp.Or(l.PerSource, max(l.Unproven/4, 1)),
		Handshake:   cmp.Or(l.Handshake, 20*time.Second),
		Idle:        cmp.Or(l.Idle, time.Hour),
		Stall:       cmp.Or(l.Stall, 30*time.Second),
		Recheck:     cmp.Or(l.Recheck, 15*time.Second),
	}
}

// Config says where to listen and whom to let in.
type Config struct {
	Address string // HOST:PORT
	HostKey string // path; made when it is not there
	// who comes with a key; the signature is checked here
	Identify func(gossh.PublicKey, net.Addr) (Caller, error)
	Dial     func(Caller) (Engine, error) // the caller's own client of the engine
	// theme and the like, where the session says nothing
	Screen tui.Options
	Limits Limits
	Log    *slog.Logger     // nil = silent
	Now    func() time.Time // nil = the real clock
}

// maxTries is how many keys one connection may offer: agents hold several.
const maxTries = 6

// leaveWait is how long sessions may take to give their terminals back.
const leaveWait = 2 * time.Second

// Server is the SSH server.
type Server struct {
	cfg      Config
	limits   Limits
	log      *slog.Logger
	now      func() time.Time
	door     *connectionLimiter
	seats    *sessionLimiter
	hub      *feed.Hub // what is the same for all is pulled once
	own      Engine    // by which the hub looks
	listener net.Listener
	ssh      *ssh.Server
	ctx      context.Context
	cancel   context.CancelFunc
	served   chan struct{}
	once     sync.Once

	mu      sync.Mutex
	closing bool
	running sync.WaitGroup // sessions
}

// Listen takes the address and starts serving.
func Listen(cfg Config) (*Server, error) {
	s := &Server{
		cfg:    cfg,
		limits: cfg.Limits.withDefaults(),
		log:    cfg.Log,
		now:    cfg.Now,
		served: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	key, err := loadHostKey(cfg.HostKey)
	if err != nil {
		return nil, err
	}
	s.door, s.seats = newConnectionLimiter(s.limits), newSessionLimiter(s.limits.Sessions)
	if s.ssh, err = wish.NewServer(s.configure(key), wish.WithMiddleware(s.sessionHandler)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrListen, err)
	}
	if err := s.acceptLoop(); err != nil {
		return nil, err
	}
	if s.own, err = cfg.Dial(Caller{Name: "ssh-front", Role: "viewer", From: "ssh front"}); err != nil {
		return nil, errors.Join(err, s.listener.Close())
	}
	s.hub = feed.NewHub(s.own.Client, nil)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(s.served)
		_ = s.ssh.Serve(s.listener) // it ends with Close
	}()
	return s, nil
}

func (s *Server) acceptLoop() error {
	l, err := net.Listen("tcp", s.cfg.Address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w on %s: the port is in use; stop what uses it or set another ssh listen address",
			ErrListen, s.cfg.Address)
	case err != nil:
		return fmt.Errorf("%w on %s: %w; set an ssh listen address of the form HOST:PORT",
			ErrListen, s.cfg.Address, err)
	}
	s.listener = l
	return nil
}

// configure sets the library up: only sessions, only public keys.
func (s *Server) configure(key gossh.Signer) ssh.Option {
	return func(srv *ssh.Server) error {
		srv.AddHostKey(key)
		srv.Version = "Falcon"
		srv.HandshakeTimeout = s.limits.Handshake
		srv.ChannelHandlers = map[string]ssh.ChannelHandler{"session": s.handleSession}
		srv.RequestHandlers = map[string]ssh.RequestHandler{}
		srv.SubsystemHandlers = map[string]ssh.SubsystemHandler{}
		srv.ConnCallback = s.admitConnection
		srv.ServerConfigCallback = s.authenticate
		srv.ConnectionFailedCallback = func(c net.Conn, err error) {
			s.log.Info(
				"ssh: not let in",
				"from",
				c.RemoteAddr().String(),
				"why",
				err.Error(),
			)
		}
		return nil
	}
}

// admitConnection lets a connection in or turns it away, before any byte is read.
func (s *Server) admitConnection(ctx ssh.Context, c net.Conn) net.Conn {
	l, ok := s.door.admit(c, s.now())
	if !ok {
		s.log.Info("ssh: turned away", "from", c.RemoteAddr().String(), "why", "the server is closing")
		return nil
	}
	boundUnacknowledged(c, s.limits.Stall)
	ctx.SetValue(connectionKey{}, l)
	return l
}

// connectionKey is where the context of a connection has it.
type connectionKey struct{}

// Extensions of a connection's permissions. They belong to the key whose
// signature was checked, which need not be the one that was offered last.
const (
	extName = "falcon-name"
	extRole = "falcon-role"
	extFrom = "falcon-from"
	extKey  = "falcon-key"
)

func (s *Server) authenticate(ctx ssh.Context) *gossh.ServerConfig {
	return &gossh.ServerConfig{
		MaxAuthTries: maxTries,
		VerifiedPublicKeyCallback: func(
			_ gossh.ConnMetadata,
			_ gossh.PublicKey,
			who *gossh.Permissions,
			_ string,
		) (*gossh.Permissions, error) {
			c, ok := ctx.Value(connectionKey{}).(*limited)
			if !ok {
				return nil, errEvicted
			}
			return who, c.prove(who.Extensions[extName])
		},
		PublicKeyCallback: func(c gossh.ConnMetadata, key gossh.PublicKey) (*gossh.Permissions, error) {
			who, err := s.cfg.Identify(key, c.RemoteAddr())
			if err != nil {
				return nil, err
			}
			return &gossh.Permissions{Extensions: map[string]string{
				extName: who.Name,
				extRole: who.Role,
				extFrom: who.From,
				extKey:  base64.StdEncoding.EncodeToString(key.Marshal()),
			}}, nil
		},
	}
}

// Address is where the server listens.
func (s *Server) Address() string {
	return s.listener.Addr().String()
}

// beginSession counts a session in, unless the server is closing.
func (s *Server) beginSession() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.running.Add(1)
	}
	return !s.closing
}

// Close asks all sessions to leave, cuts those left after leaveWait, and waits.
func (s *Server) Close() {
	s.once.Do(func() {
		s.mu.Lock()
		s.closing = true
		s.mu.Unlock()
		_ = s.listener.Close()
		s.cancel()
		gone := make(chan struct{})
		go func() {
			s.running.Wait()
			close(gone)
		}()
		timer := time.NewTimer(leaveWait)
		defer timer.Stop()
		select {
		case <-gone:
		case <-timer.C:
		}
		_ = s.ssh.Close()
		s.door.close()
		<-gone
		<-s.served
		ctx, cancel := context.WithTimeout(context.Background(), leaveWait)
		defer cancel()
		s.hub.Close()
		s.own.End()
		_ = s.ssh.Shutdown(ctx) // waits for the connections' goroutines
	})
}
