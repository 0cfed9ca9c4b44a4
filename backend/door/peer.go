package door

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/failslow/falcon/backend/auth"
)

// Reasons for which a peer is sent away.
var (
	ErrReplaced = errors.New("door: the same identity has opened newer connections")
	ErrRevoked  = errors.New("door: the certificate is revoked")
	ErrExpired  = errors.New("door: the certificate has expired")
	ErrAge      = errors.New("door: the stream is as old as a stream may become: connect again")
	ErrClosed   = errors.New("door: the engine is stopping")
	ErrRefused  = errors.New("door: too many refused calls")
)

// Peer is one connection of a proven caller. It is also its AuthInfo, so that
// a call knows which connection it came by.
type Peer struct {
	credentials.TLSInfo
	Identity auth.Identity
	Leaf     *x509.Certificate

	conn   *tls.Conn
	ctx    context.Context
	cancel context.CancelCauseFunc
	since  time.Time

	mu      sync.Mutex
	refused int
}

// AuthType names the method for gRPC.
func (*Peer) AuthType() string { return "tls" }

// Certificate is what TLS has verified of the caller.
func (g *Peer) Certificate() credentials.TLSInfo { return g.TLSInfo }

// Context ends when the peer is sent away; its cause is the reason.
func (g *Peer) Context() context.Context { return g.ctx }

// partingWait is how long the reason may take to reach the caller before the
// connection is closed.
const partingWait = time.Second

// End closes the session: its streams receive the reason first.
func (g *Peer) End(reason error) {
	g.cancel(reason)
	time.AfterFunc(partingWait, func() { _ = g.conn.Close() })
}

// refusalsMost is how many refused calls one connection may make: no program that
// means well goes on.
const refusalsMost = 256

// Refused counts a refused call, and ends a connection that makes many.
func (g *Peer) Refused() {
	g.mu.Lock()
	g.refused++
	over := g.refused == refusalsMost
	g.mu.Unlock()
	if over {
		g.End(fmt.Errorf("%w: %d", ErrRefused, refusalsMost))
	}
}

// Stream derives the context of one stream of the peer: it ends with the
// peer, when the certificate expires, and when the stream has become as old
// as most, less up to a tenth, so that a fleet does not come back as one.
func (g *Peer) Stream(
	ctx context.Context,
	most time.Duration,
	now time.Time,
) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.ctx, func() {
		cancel(context.Cause(g.ctx))
	})
	age := time.AfterFunc(jitter(most), func() { cancel(ErrAge) })
	expiry := time.AfterFunc(g.Leaf.NotAfter.Sub(now), func() { cancel(ErrExpired) })
	return ctx, func() {
		stop()
		age.Stop()
		expiry.Stop()
		cancel(context.Canceled)
	}
}

func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Float64()*float64(d)/10)
}

// conn is the connection as its server sees it.
type conn struct {
	net.Conn
	caller *Peer
	once   sync.Once
	leave  func()
}

func (c *conn) Close() error {
	c.once.Do(c.leave)
	return c.Conn.Close()
}

// Credentials takes the peer from a connection that a Door has handed out, and
// refuses every other.
func Credentials() credentials.TransportCredentials {
	return auth.ServerOnly("tls", func(c net.Conn) (credentials.AuthInfo, error) {
		p, ok := c.(*conn)
		if !ok {
			return nil, errNotProven
		}
		return p.caller, nil
	})
}

var errNotProven = errors.New("door: the connection did not come through the door")
