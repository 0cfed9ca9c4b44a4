package door

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/failslow/falcon/backend/auth"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func caller(role auth.Role, name string) *Peer {
	return &Peer{Identity: auth.Identity{Role: role, Name: name}}
}

func TestOneIdentityReplacesItsOwnConnections(t *testing.T) {
	s := newPeers(Limits{Connections: 6, PerAgent: 2, PerPerson: 3})
	enter := func(g *Peer) (old []*Peer, ok bool) {
		t.Helper()
		return s.enter(g)
	}
	first := caller(auth.RoleAgent, "n1")
	second := caller(auth.RoleAgent, "n1")
	enter(first)
	enter(second)
	if old, ok := enter(caller(auth.RoleAgent, "n1")); !ok || len(old) != 1 || old[0] != first {
		t.Errorf("the third of two: %v, %v", old, ok)
	}
	for range 3 {
		enter(caller(auth.RoleViewer, "n1")) // a person of the same name is another identity
	}
	if old, ok := enter(caller(auth.RoleAgent, "n2")); !ok || len(old) != 0 || s.len() != 6 {
		t.Errorf("another agent: %v, %v, %d open", old, ok, s.len())
	}
	if _, ok := enter(caller(auth.RoleAgent, "n3")); ok {
		t.Error("one more than all")
	}
	if old, ok := enter(caller(auth.RoleAgent, "n2")); !ok || len(old) != 1 || s.len() != 6 {
		t.Errorf("a reconnect when all places are taken: %v, %v, %d open", old, ok, s.len())
	}
	s.leave(second)
	s.leave(second)
	if s.len() != 5 {
		t.Errorf("%d open after one left", s.len())
	}
}

// A connection that its peer closes does not look as if the engine had ended
// what went over it.
func TestPeersOwnEndIsNoReason(t *testing.T) {
	d := &Door{peers: newPeers(Limits{}.fill()), people: NewQueue(nil)}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	g := caller(auth.RoleViewer, "ann")
	g.conn = tls.Server(ours, &tls.Config{MinVersion: tls.VersionTLS13})
	g.Leaf = &x509.Certificate{NotAfter: time.Now().Add(time.Hour)}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	let := make(chan error, 1)
	go func() { let <- d.let(g) }()
	c, err := d.people.Accept()
	if err = errors.Join(err, <-let); err != nil || d.peers.len() != 1 {
		t.Fatalf("%d peers, %v", d.peers.len(), err)
	}
	ctx, stop := g.Stream(context.Background(), time.Hour, time.Now())
	defer stop()
	_ = c.Close()
	<-ctx.Done()
	cause := context.Cause(ctx)
	if !errors.Is(cause, context.Canceled) || d.peers.len() != 0 {
		t.Errorf("%v, %d peers", cause, d.peers.len())
	}
}

func TestStreamsEndForTheirReasons(t *testing.T) {
	for what, c := range map[string]struct {
		life, most time.Duration
		end        error
		want       error
		from, to   time.Duration
	}{
		"certificate": {time.Minute, time.Hour, nil, ErrExpired, time.Minute, time.Minute},
		"age":         {time.Hour, time.Minute, nil, ErrAge, 54 * time.Second, time.Minute},
		"sent away":   {time.Hour, time.Hour, ErrRevoked, ErrRevoked, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := &Peer{Leaf: &x509.Certificate{NotAfter: time.Now().Add(c.life)}}
			g.ctx, g.cancel = context.WithCancelCause(context.Background())
			from := time.Now()
			ctx, stop := g.Stream(context.Background(), c.most, from)
			defer stop()
			if c.end != nil {
				g.cancel(c.end)
			}
			<-ctx.Done()
			after := time.Since(from)
			if !errors.Is(context.Cause(ctx), c.want) ||
				after < c.from ||
				after > c.to {
				t.Errorf("%s: %v after %v", what, context.Cause(ctx), after)
			}
		})
	}
}
