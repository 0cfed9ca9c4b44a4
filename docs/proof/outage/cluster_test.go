package outage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/backend/rpc"
	"github.com/failslow/falcon/recovery"
)

// Meeting is the rendezvous store that the emulated ranks meet in, and how long
// n of them need for it: from the first connection until the last is released.
type Meeting interface {
	engine.Store
	Meet(n int) (time.Duration, error)
}

// Config is one emulated job.
type Config struct {
	Devices int // a multiple of 16
	StepMs  float64
	Beat    time.Duration // of agents; 0 = the engine's
	Machine recovery.Config
	Model   Model
	Meeting Meeting
	Log     io.Writer // the engine's; nil = none
}

// readers of the rank table: nodes that write, read and parse it.
const readers = 4

// dialers attach agents at a time.
const dialers = 32

// handshake is how long a connection may take: all ends of all share one
// machine.
const handshake = time.Minute

// met is how the job's rendezvous went.
type met struct{ groups time.Duration }

// Cluster is a running engine with its emulated agents, one spare among them.
type Cluster struct {
	Config
	dir     string
	agents  []*agent
	conns   []*grpc.ClientConn
	engine  *engine.Engine
	server  *rpc.Server
	journal *journal.Journal
	stop    context.CancelFunc
	ended   chan error
	wg      sync.WaitGroup
	begun   time.Time
	tables  atomic.Int64 // taken by nodes
	stalled atomic.Int64 // iteration at which the job stands, plus 1; 0 = it goes on
	since   atomic.Int64 // Unix ns, when it came to stand

	mu       sync.Mutex
	err      error
	waiting  int // nodes that are ordered to rejoin
	rejoined uint64
	moves    []*falconv1.ShardMove
	written  time.Duration // the slowest reader
	parsed   time.Duration
	table    int // bytes
	sent     int // of them, to one node
}

// New starts everything and returns once the engine knows the job. The caller
// calls Close in any case but an error.
func New(ctx context.Context, cfg Config) (*Cluster, error) {
	if cfg.Devices < 2*perNode || cfg.Devices%(2*perNode) != 0 {
		return nil, fmt.Errorf("outage: %d devices are not a multiple of %d", cfg.Devices, 2*perNode)
	}
	dir, err := os.MkdirTemp("", "outage") // short: a socket's path must be
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		Config: cfg,
		dir:    dir,
		begun:  time.Now(),
		ended:  make(chan error, 1),
	}
	if err = c.serve(); err == nil {
		err = c.attachAll(ctx)
	}
	if err == nil {
		err = c.described(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) serve() error {
	var err error
	if c.journal, err = journal.Open(filepath.Join(c.dir, "journal.db")); err != nil {
		return err
	}
	conf := engine.Config{
		JobName: "outage",
		Journal: c.journal,
		Policy:  falcon.Policy{Mode: falcon.ModeApprove},
		Recovery: engine.Recovery{
			Machine: c.Machine,
			Beat:    c.Beat,
			Store:   c.Meeting,
		},
	}
	if c.Log != nil {
		conf.Log = slog.New(slog.NewTextHandler(c.Log, nil))
	}
	if c.engine, err = engine.New(conf); err != nil {
		return err
	}
	ca, err := auth.NewCA("outage", time.Now())
	if err != nil {
		return err
	}
	mine, pool, err := identity(ca, auth.Request{
		Role:  auth.RoleServer,
		Name:  "server",
		Hosts: []string{"127.0.0.1"},
	})
	if err != nil {
		return err
	}
	c.server, err = rpc.Listen(rpc.Config{
		Engine:  c.engine,
		Socket:  filepath.Join(c.dir, "f.sock"),
		Address: "127.0.0.1:0",
		TLS: &tls.Config{
			MinVersion:   tls.VersionTLS13,
			Certificates: []tls.Certificate{mine},
			ClientCAs:    pool,
			ClientAuth:   tls.RequireAndVerifyClientCert,
		},
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go func() { c.ended <- c.engine.Run(ctx) }()
	return c.makeAgents(ca)
}

func identity(ca *auth.CA, q auth.Request) (tls.Certificate, *x509.CertPool, error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.CertPEM())
	cert, key, err := ca.Issue(q, time.Now())
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	return pair, pool, err
}

// makeAgents has one agent a node, and a spare without ranks.
func (c *Cluster) makeAgents(ca *auth.CA) error {
	nodes := c.Devices / perNode
	for n := range nodes + 1 {
		a := &agent{
			c:      c,
			node:   fmt.Sprintf("n%05d", n),
			frames: make(chan *falconv1.EngineFrame, framesMax),
			again:  make(chan met, 1),
			reads:  n%max(1, nodes/readers) == 0,
		}
		for i := range perNode {
			if n < nodes {
				number := int32(n*perNode + i)
				a.ranks = append(a.ranks, rank{number: number, pid: 1000 + number})
			}
		}
		cert, pool, err := identity(ca, auth.Request{
			Role: auth.RoleAgent,
			Name: a.node,
		})
		if err != nil {
			return err
		}
		cc, err := grpc.NewClient(
			c.server.Address(),
			grpc.WithTransportCredentials(credentials.NewTLS(
				&tls.Config{
					MinVersion:   tls.VersionTLS13,
					Certificates: []tls.Certificate{cert},
					RootCAs:      pool,
				})),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.DefaultConfig,
				MinConnectTimeout: handshake,
			}),
			grpc.WithReadBufferSize(4<<10),
			grpc.WithWriteBufferSize(4<<10),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		)
		if err != nil {
			return err
		}
		c.agents, c.conns = append(c.agents, a), append(c.conns, cc)
	}
	return nil
}

// attachAll opens all streams, some at a time.
func (c *Cluster) attachAll(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	engineStop := c.stop
	c.stop = func() {
		cancel()
		engineStop()
	}
	errs := make([]error, dialers)
	var wg sync.WaitGroup
	for d := range dialers {
		wg.Go(func() {
			for i := d; i < len(c.agents); i += dialers {
				if err := c.agents[i].attach(ctx, c.conns[i]); err != nil {
					errs[d] = err
					return
				}
				c.wg.Go(func() { c.agents[i].run(ctx) })
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// look is how often the engine's picture is looked at.
const look = 200 * time.Millisecond

// described waits until the engine knows the whole job.
func (c *Cluster) described(ctx context.Context) error {
	err := c.until(ctx, "the job is not described", func() (bool, error) {
		s, err := c.engine.Latest(ctx)
		return err == nil &&
			int(s.Reply.GetJob().GetWorld()) == c.Devices &&
			s.Reply.GetJob().GetEpoch() > 0, err
	})
	if err != nil {
		return err
	}
	return c.until(ctx, "the rank table is not everywhere", func() (bool, error) {
		return int(c.tables.Load()) >= c.Devices/perNode, nil
	})
}

func (c *Cluster) until(ctx context.Context, what string, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if err := c.failed(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("outage: %s: %w", what, ctx.Err())
		case <-time.After(look):
		}
	}
}

// Close ends everything and waits; its error is the engine's or an agent's.
func (c *Cluster) Close() error {
	var errs []error
	if c.stop != nil {
		c.stop()
		errs = append(errs, <-c.ended)
	}
	for _, cc := range c.conns {
		errs = append(errs, cc.Close())
	}
	c.wg.Wait()
	if c.server != nil {
		c.server.Close()
	}
	if c.journal != nil {
		errs = append(errs, c.journal.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// fail keeps the first error of an agent.
func (c *Cluster) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

func (c *Cluster) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// iteration is the newest one begun: the job trains by the clock until it
// stands.
func (c *Cluster) iteration() int64 {
	if at := c.stalled.Load(); at > 0 {
		return at - 1
	}
	return int64(time.Since(c.begun).Seconds() * 1e3 / c.StepMs)
}

// waitingMs is for how long all ranks have waited for one that is lost.
func (c *Cluster) waitingMs() float64 {
	if c.stalled.Load() == 0 {
		return 0
	}
	return float64(time.Since(time.Unix(0, c.since.Load())).Milliseconds())
}

// sum is the checksum of a rank's shard: the two instances hold the same.
func (c *Cluster) sum(r int32, step int64) uint64 {
	half := int32(c.Devices / 2)
	return uint64(r%half)<<32 + uint64(step)
}

// forgetTables has only what a recovery brings measured.
func (c *Cluster) forgetTables() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written, c.parsed = 0, 0
}

func (c *Cluster) readTable(write, parse time.Duration, size, sent int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written, c.parsed, c.table = max(c.written, write), max(c.parsed, parse), size
	if sent < size { // a node that stays
		c.sent = sent
	}
}

// ready counts a node that is ordered to rejoin. The last one has the job meet:
// every rank as a client of the store; then all go on.
func (c *Cluster) ready(o *falconv1.RejoinCommand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rejoined != o.GetGeneration() {
		c.rejoined, c.waiting, c.moves = o.GetGeneration(), 0, o.GetMoves()
	}
	if c.waiting++; c.waiting < c.Devices/perNode {
		return
	}
	c.wg.Go(c.meet)
}

func (c *Cluster) meet() {
	took, err := c.Meeting.Meet(c.Devices)
	if err != nil {
		c.fail(fmt.Errorf("outage: the job does not meet: %w", err))
		return
	}
	for _, a := range c.agents {
		a.again <- met{took} // of capacity 1, and empty: once a generation
	}
}
