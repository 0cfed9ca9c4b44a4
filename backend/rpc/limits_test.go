package rpc

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/backend/door"
)

// A large request is refused from its headers or its length, before it is read
// or decoded, whatever the role.
func TestLargeRequestsAreNotRead(t *testing.T) {
	s := newSite(t)
	big := &falconv1.SetPolicyRequest{
		Policy: &falconv1.Policy{
			Mode:  "approve",
			Owner: strings.Repeat("x", 16<<20),
		},
	}
	for _, role := range []auth.Role{auth.RoleViewer, auth.RoleAdmin, auth.RoleAgent} {
		client := falconv1.NewConsoleClient(s.dial(s.issue(role, string(role))))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_, err := client.SetPolicy(t.Context(), big)
				if status.Code(err) != codes.ResourceExhausted && status.Code(err) != codes.PermissionDenied {
					t.Errorf("as %s: %v", role, err)
				}
			})
		}
		wg.Wait()
	}
}

// Agents have frames of the size that profiles need; no request of theirs has.
func TestAgentsHaveTheirOwnBounds(t *testing.T) {
	s := newSite(t)
	cc := s.dial(s.issue(auth.RoleAgent, "n1"))
	st, err := falconv1.NewFleetClient(cc).Attach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := &falconv1.RankProfile{}
	for range 24_000 {
		p.Calls = append(p.Calls, &falconv1.CallTiming{
			Comm:       1,
			Ordinal:    1 << 40,
			Bytes:      1 << 40,
			StartMs:    1,
			DurationMs: 1,
			QueueMs:    1,
		})
	}
	rank := &falconv1.RankState{Alive: true, Comms: make([]*falconv1.Comm, 100_000)}
	for i := range rank.Comms {
		rank.Comms[i] = &falconv1.Comm{Id: uint64(i)}
	}
	for _, f := range []*falconv1.AgentFrame{
		hello("n1"),
		{
			Seq:  1,
			Body: &falconv1.AgentFrame_Profile{Profile: &falconv1.Profile{Ranks: []*falconv1.RankProfile{p}}},
		},
		{Seq: 2, Body: &falconv1.AgentFrame_Rank{Rank: rank}},
		{Seq: 3, Body: &falconv1.AgentFrame_Samples{Samples: &falconv1.Samples{}}},
	} {
		if err := st.Send(f); err != nil {
			t.Fatal(err)
		}
	}
	for acked := uint64(0); acked < 3; {
		e, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		acked = max(acked, e.GetAck().GetSeq())
	}
	if r, err := falconv1.NewConsoleClient(s.dialSocket()).Snapshot(t.Context(), &falconv1.SnapshotRequest{
		Rank: -1,
	}); err != nil ||
		len(r.GetRanks()) != 0 {
		t.Errorf("a rank with 100,000 communicators: %d ranks, %v", len(r.GetRanks()), err)
	}
	if _, err := falconv1.NewFleetClient(
		cc,
	).Renew(t.Context(), &falconv1.RenewRequest{Csr: make([]byte, 1<<20)}); err == nil ||
		status.Code(err) == codes.Unimplemented {
		t.Errorf("a request of 1 MiB: %v", err)
	}
}

// One viewer's watches end each other's, oldest first, and nobody else's.
func TestWatchesOfOneCallerAreBounded(t *testing.T) {
	s := newSite(t)
	watch := func(cc *grpc.ClientConn) grpc.ServerStreamingClient[falconv1.Event] {
		st, err := falconv1.NewConsoleClient(cc).Watch(t.Context(), &falconv1.WatchRequest{AfterSeq: 1 << 40})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Recv(); err != nil { // such a number is answered by a resync
			t.Fatal(err)
		}
		return st
	}
	other := watch(s.dial(s.issue(auth.RoleViewer, "dana")))
	greedy := s.dial(s.issue(auth.RoleViewer, "eve"))
	first := watch(greedy)
	for range 16 {
		watch(greedy)
	}
	if _, err := first.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the oldest: %v", err)
	}
	heard := make(chan error, 1)
	go func() {
		_, err := other.Recv()
		heard <- err
	}()
	agent, err := falconv1.NewFleetClient(s.dial(s.issue(auth.RoleAgent, "n1"))).Attach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Send(hello("n1")); err != nil { // makes a line
		t.Fatal(err)
	}
	if err := <-heard; err != nil {
		t.Errorf("another's watch: %v", err)
	}
}

// Calls of one identity are counted over all its connections, and a caller's
// refusals are its own.
func TestCallsOfOneCallerAreBounded(t *testing.T) {
	s := newTunedSite(t, nil, nil, func(c *Config) {
		c.Limits.CallsPerS = 1
	})
	client := func(role auth.Role, name string) falconv1.ConsoleClient {
		return falconv1.NewConsoleClient(s.dial(s.issue(role, name)))
	}
	refused := 0
	for range 12 {
		_, err := client(auth.RoleViewer, "eve").Snapshot(t.Context(), &falconv1.SnapshotRequest{})
		if status.Code(err) == codes.ResourceExhausted {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Error("12 calls in a row, and none was refused at one a second")
	}
	if _, err := client(auth.RoleViewer, "dana").Snapshot(
		t.Context(),
		&falconv1.SnapshotRequest{},
	); err != nil {
		t.Errorf("another's call: %v", err)
	}
	owner := falconv1.NewConsoleClient(s.dialSocket())
	for i := range 200 {
		if _, err := owner.Snapshot(t.Context(), &falconv1.SnapshotRequest{}); err != nil {
			t.Fatalf("the owner's call %d: %v", i, err)
		}
	}
}

// A caller who makes nothing but refused calls loses the connection.
func TestRefusedCallsEndTheConnection(t *testing.T) {
	s := newTunedSite(t, nil, nil, func(c *Config) {
		c.Limits.CallsPerS = 1 << 20
	})
	client := falconv1.NewConsoleClient(s.dial(s.issue(auth.RoleViewer, "eve")))
	for range 10_000 {
		_, err := client.SetPolicy(t.Context(), &falconv1.SetPolicyRequest{})
		if status.Code(err) == codes.Unavailable {
			return
		}
	}
	t.Error("10,000 refused calls on one connection")
}

// A refused call leaves nothing behind, however late its deadline is.
func TestRefusedCallsLeaveNothing(t *testing.T) {
	const connections, calls = 20, 200
	s := newTunedSite(t, nil, nil, func(c *Config) {
		c.Limits.CallsPerS = 1 << 20
	})
	files := s.issue(auth.RoleViewer, "eve")
	ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Hour)
	defer cancel()
	round := func() {
		for range connections {
			cc := s.dial(files)
			client := falconv1.NewConsoleClient(cc)
			for range calls {
				_, err := client.SetPolicy(ctx, &falconv1.SetPolicyRequest{})
				if status.Code(err) != codes.PermissionDenied {
					t.Fatalf("%v", err)
				}
			}
			cc.Close()
		}
	}
	live := func() (n int64) {
		var m runtime.MemStats
		for range 3 { // what has a finalizer is freed by the collection after
			runtime.GC()
			runtime.ReadMemStats(&m)
		}
		return int64(m.HeapObjects)
	}
	round() // pools and tables grow once
	before := live()
	round()
	if grown := live() - before; grown > connections*calls {
		t.Errorf("%d refused calls left %d objects", connections*calls, grown)
	}
}

// A call that panics ends alone, and is counted.
func TestPanicsEndOneCall(t *testing.T) {
	g := newGate(Config{})
	ctx := context.WithValue(context.Background(), identityKey{}, auth.Identity{
		Role: auth.RoleAdmin,
		Name: "ann",
	})
	_, err := g.unaryInterceptor(
		ctx,
		nil,
		&grpc.UnaryServerInfo{FullMethod: falconv1.Console_Snapshot_FullMethodName},
		func(context.Context, any) (any, error) { panic("a defect") },
	)
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "defect") {
		t.Errorf("unary: %v", err)
	}
	err = g.stream(
		nil,
		gatedStream{ctx: ctx},
		&grpc.StreamServerInfo{FullMethod: falconv1.Console_Watch_FullMethodName},
		func(any, grpc.ServerStream) error { panic("a defect") },
	)
	if status.Code(err) != codes.Internal || g.panics.Load() != 2 {
		t.Errorf("stream: %v, %d panics", err, g.panics.Load())
	}
}

// attached opens a stream of one agent and waits until it is welcome.
func (s *site) attached(name string) grpc.BidiStreamingClient[falconv1.AgentFrame, falconv1.EngineFrame] {
	s.t.Helper()
	st, err := falconv1.NewFleetClient(s.dial(s.issue(auth.RoleAgent, name))).Attach(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if err := st.Send(hello(name)); err != nil {
		s.t.Fatal(err)
	}
	if e, err := st.Recv(); err != nil || e.GetWelcome() == nil {
		s.t.Fatalf("welcome: %v, %v", e, err)
	}
	return st
}

func ended(st grpc.BidiStreamingClient[falconv1.AgentFrame, falconv1.EngineFrame]) error {
	for {
		if _, err := st.Recv(); err != nil {
			return err
		}
	}
}

func TestStreamsBecomeNoOlder(t *testing.T) {
	s := newTunedSite(t, nil, nil, func(c *Config) {
		c.Limits.StreamAge = 300 * time.Millisecond
	})
	err := ended(s.attached("n1"))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "connect again") {
		t.Errorf("an old stream: %v", err)
	}
}

// An open stream ends with its certificate.
func TestStreamsEndWithTheirCertificates(t *testing.T) {
	s := newSite(t)
	if err := s.ca.IssueTo(
		s.dir,
		auth.Request{Role: auth.RoleAgent, Name: "short", Life: 3 * time.Second},
		time.Now(),
	); err != nil {
		t.Fatal(err)
	}
	if err := ended(s.attached("short")); status.Code(err) != codes.Unauthenticated ||
		!strings.Contains(err.Error(), "expired") {
		t.Errorf("past the certificate's end: %v", err)
	}
}

// A revoked certificate ends what is open and opens nothing more.
func TestRevocationEndsWhatIsOpen(t *testing.T) {
	var mu sync.Mutex
	gone := ""
	s := newTunedSite(t, nil, nil, func(c *Config) {
		c.Check = func(g *door.Peer) error {
			mu.Lock()
			defer mu.Unlock()
			if g.Identity.Name == gone {
				return fmt.Errorf("%w: that of %s", door.ErrRevoked, gone)
			}
			return nil
		}
	})
	bad := s.attached("n1")
	good := s.attached("n2")
	mu.Lock()
	gone = "n1"
	mu.Unlock()
	s.server.door.Recheck()
	if err := ended(bad); status.Code(err) != codes.Unauthenticated ||
		!strings.Contains(err.Error(), "revoked") {
		t.Errorf("the revoked one's stream: %v", err)
	}
	st, err := falconv1.NewFleetClient(s.dial(s.issue(auth.RoleAgent, "n1"))).Attach(t.Context())
	if err == nil {
		_ = st.Send(hello("n1"))
		_, err = st.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("again: %v", err)
	}
	if err := good.Send(&falconv1.AgentFrame{
		Seq:  1,
		Body: &falconv1.AgentFrame_Samples{Samples: &falconv1.Samples{}},
	}); err != nil {
		t.Fatal(err)
	}
	if e, err := good.Recv(); err != nil || e.GetAck().GetSeq() != 1 {
		t.Errorf("another's stream: %v, %v", e, err)
	}
}

// load is an engine that is short of memory.
type load struct{ watches, snapshots bool }

func (l load) NoWatches() bool   { return l.watches }
func (l load) NoSnapshots() bool { return l.snapshots }

func TestShortOfMemoryRefusesViewersFirst(t *testing.T) {
	s := newTunedSite(t, nil, nil, func(c *Config) {
		c.Load = load{true, true}
	})
	for role, want := range map[auth.Role]codes.Code{
		auth.RoleViewer:   codes.Unavailable,
		auth.RoleOperator: codes.OK,
	} {
		c := falconv1.NewConsoleClient(s.dial(s.issue(role, string(role))))
		if _, err := c.Snapshot(t.Context(), &falconv1.SnapshotRequest{}); status.Code(err) != want {
			t.Errorf("a snapshot as %s: %v", role, err)
		}
		if err := calls[falconv1.Console_Watch_FullMethodName](
			t.Context(),
			s.dial(s.issue(role, string(role))),
		); status.Code(err) != codes.Unavailable {
			t.Errorf("a watch as %s: %v", role, err)
		}
	}
	for _, m := range []string{
		falconv1.Console_Snapshot_FullMethodName,
		falconv1.Console_Watch_FullMethodName,
	} {
		if err := calls[m](t.Context(), s.dialSocket()); err != nil {
			t.Errorf("%s as the owner: %v", m, err)
		}
	}
}

// An agent's certificate is signed again for the node that it names; nothing in
// the request changes that.
func TestRenewalKeepsTheName(t *testing.T) {
	var asked *x509.Certificate
	s := newTunedSite(t, nil, nil, func(c *Config) {
		c.Renew = func(_ []byte, leaf *x509.Certificate) ([]byte, []byte, error) {
			asked = leaf
			return []byte("certificate"), []byte("roots"), nil
		}
	})
	r, err := falconv1.NewFleetClient(s.dial(s.issue(auth.RoleAgent, "n1"))).Renew(
		t.Context(),
		&falconv1.RenewRequest{Csr: []byte("x")},
	)
	if err != nil ||
		string(r.GetCertificate()) != "certificate" ||
		string(r.GetRoots()) != "roots" ||
		asked.Subject.CommonName != "n1" {
		t.Errorf("%v, %v", r, err)
	}
}

// Strangers who connect and say nothing take a bounded number of places, and
// keep out neither an agent nor the owner.
func TestStrangersTakeBoundedPlaces(t *testing.T) {
	s := newTunedSite(t, nil, nil, func(c *Config) {
		c.Limits.Unproven, c.Limits.PerSource = 64, 32
	})
	var conns []net.Conn
	t.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
	})
	for range 500 {
		c, err := net.Dial("tcp", s.server.Address())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	s.attached("n1")
	if _, err := falconv1.NewConsoleClient(s.dialSocket()).Snapshot(
		t.Context(),
		&falconv1.SnapshotRequest{},
	); err != nil {
		t.Error(err)
	}
	if n := s.server.door.Counts(); n.Unproven > 32 || n.Proven != 1 {
		t.Errorf("%+v", n)
	}
	_ = conns[0].SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, conns[0]); err != nil && errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the first stranger was left in: %v", err)
	}
}

// The newest connections of an identity count; a peer that lost some without
// the engine's knowing is not kept out by them.
func TestConnectionsOfOneIdentityAreBounded(t *testing.T) {
	s := newSite(t)
	first := s.attached("n1")
	for range 6 {
		s.attached("n1")
	}
	if err := ended(first); status.Code(err) != codes.Aborted {
		t.Errorf("the first: %v", err)
	}
	if n := s.server.door.Counts().Proven; n > 4+3 { // those that leave do so within a second
		t.Errorf("%d connections", n)
	}
}
