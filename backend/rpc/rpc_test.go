package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/backend/engine"
	"github.com/failslow/falcon/backend/journal"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// site is an engine behind its doors, with an authority.
type site struct {
	t      testing.TB
	dir    string
	ca     *auth.CA
	server *Server
	engine *engine.Engine
	plan   engine.Planner // nil = the real one
	policy falcon.Policy
	tune   func(*Config) // nil = the defaults
}

func newSite(t testing.TB) *site {
	t.Helper()
	return newSiteWith(t, nil)
}

func newSiteWith(t testing.TB, plan engine.Planner) *site {
	t.Helper()
	return newSiteUnder(t, plan, nil)
}

func newSiteUnder(t testing.TB, plan engine.Planner, rungs map[falcon.Rung]falcon.RungPolicy) *site {
	t.Helper()
	return newTunedSite(t, plan, rungs, nil)
}

func newTunedSite(
	t testing.TB,
	plan engine.Planner,
	rungs map[falcon.Rung]falcon.RungPolicy,
	tune func(*Config),
) *site {
	t.Helper()
	// A socket's path must be short; the test's own directory may not be.
	dir, err := os.MkdirTemp("", "falcon")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ca, err := auth.NewCA("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := &site{
		t:      t,
		dir:    dir,
		ca:     ca,
		plan:   plan,
		policy: falcon.Policy{Mode: falcon.ModeApprove, Rungs: rungs},
		tune:   tune,
	}
	if err := ca.Save(dir); err != nil {
		t.Fatal(err)
	}
	s.issue(auth.RoleServer, "server", "127.0.0.1")
	s.open()
	return s
}

func (s *site) issue(role auth.Role, name string, hosts ...string) auth.Files {
	s.t.Helper()
	f := auth.FilesIn(s.dir, name)
	if _, err := os.Stat(f.Cert); err == nil {
		return f
	}
	if err := s.ca.IssueTo(
		s.dir,
		auth.Request{Role: role, Name: name, Hosts: hosts},
		time.Now(),
	); err != nil {
		s.t.Fatal(err)
	}
	return f
}

func (s *site) open() {
	s.t.Helper()
	j, err := journal.Open(filepath.Join(s.dir, "journal.db"))
	if err != nil {
		s.t.Fatal(err)
	}
	if s.engine, err = engine.New(engine.Config{
		JobName:      "test",
		Journal:      j,
		Planner:      s.plan,
		Policy:       s.policy,
		TrustJournal: true,
	}); err != nil {
		s.t.Fatal(err)
	}
	conf, err := auth.ServerTLS(auth.FilesIn(s.dir, "server"))
	if err != nil {
		s.t.Fatal(err)
	}
	cfg := Config{
		Engine:  s.engine,
		Socket:  filepath.Join(s.dir, "f.sock"),
		Address: "127.0.0.1:0",
		TLS:     conf,
	}
	if s.tune != nil {
		s.tune(&cfg)
	}
	if s.server, err = Listen(cfg); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.engine.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
		s.server.Close()
		if err := j.Close(); err != nil {
			s.t.Error(err)
		}
	})
}

func (s *site) dial(f auth.Files) *grpc.ClientConn {
	s.t.Helper()
	conf, err := auth.ClientTLS(f)
	if err != nil {
		s.t.Fatal(err)
	}
	cc, err := grpc.NewClient(s.server.Address(), grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = cc.Close() })
	return cc
}

func (s *site) dialSocket() *grpc.ClientConn {
	s.t.Helper()
	cc, err := grpc.NewClient(
		"unix://"+s.server.Socket(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// calls has one call for every method; a method without one fails the test.
var calls = map[string]func(context.Context, *grpc.ClientConn) error{
	falconv1.Fleet_Attach_FullMethodName: func(ctx context.Context, cc *grpc.ClientConn) error {
		st, err := falconv1.NewFleetClient(cc).Attach(ctx)
		if err != nil {
			return err
		}
		_ = st.Send(hello("agent")) // a refusal is read below
		_, err = st.Recv()
		return err
	},
	falconv1.Fleet_Renew_FullMethodName: func(ctx context.Context, cc *grpc.ClientConn) error {
		_, err := falconv1.NewFleetClient(cc).Renew(ctx, &falconv1.RenewRequest{})
		if status.Code(err) == codes.Unimplemented && strings.Contains(err.Error(), "renew: true") {
			return nil // passed, and this engine renews none
		}
		return err
	},
	falconv1.Console_Snapshot_FullMethodName: func(ctx context.Context, cc *grpc.ClientConn) error {
		_, err := falconv1.NewConsoleClient(cc).Snapshot(ctx, &falconv1.SnapshotRequest{})
		return err
	},
	falconv1.Console_Watch_FullMethodName: func(ctx context.Context, cc *grpc.ClientConn) error {
		st, err := falconv1.NewConsoleClient(cc).Watch(ctx, &falconv1.WatchRequest{AfterSeq: 1 << 40})
		if err != nil {
			return err
		}
		_, err = st.Recv() // such a number is answered by a resync at once
		return err
	},
	falconv1.Console_Incidents_FullMethodName: func(ctx context.Context, cc *grpc.ClientConn) error {
		_, err := falconv1.NewConsoleClient(cc).Incidents(ctx, &falconv1.IncidentsRequest{})
		return err
	},
	falconv1.Console_Decide_FullMethodName: func(ctx context.Context, cc *grpc.ClientConn) error {
		_, err := falconv1.NewConsoleClient(cc).Decide(ctx, &falconv1.DecideRequest{Incident: "INC-0001"})
		if status.Code(err) == codes.NotFound {
			return nil // admitted, and there is no such incident
		}
		return err
	},
	falconv1.Console_Validate_FullMethodName: func(ctx context.Context, cc *grpc.ClientConn) error {
		_, err := falconv1.NewConsoleClient(cc).Validate(ctx, &falconv1.ValidateRequest{Cancel: "VAL-0001"})
		if status.Code(err) == codes.NotFound {
			return nil // admitted, and there is no such validation
		}
		return err
	},
	falconv1.Console_Probe_FullMethodName: func(ctx context.Context, cc *grpc.ClientConn) error {
		_, err := falconv1.NewConsoleClient(cc).Probe(ctx, &falconv1.ProbeRequest{End: true})
		return err
	},
	falconv1.Console_Triage_FullMethodName: func(ctx context.Context, cc *grpc.ClientConn) error {
		_, err := falconv1.NewConsoleClient(
			cc,
		).Triage(ctx, &falconv1.TriageRequest{Incident: "INC-0001", Verb: "ack"})
		if status.Code(err) == codes.NotFound {
			return nil // admitted, and there is no such incident
		}
		return err
	},
	falconv1.Console_Peek_FullMethodName: func(ctx context.Context, cc *grpc.ClientConn) error {
		_, err := falconv1.NewConsoleClient(cc).Peek(ctx, &falconv1.PeekRequest{
			What: "kernel",
			Node: "n9",
		})
		if status.Code(err) == codes.NotFound {
			return nil // admitted, and there is no such node
		}
		return err
	},
	falconv1.Console_History_FullMethodName: func(ctx context.Context, cc *grpc.ClientConn) error {
		_, err := falconv1.NewConsoleClient(cc).History(ctx, &falconv1.HistoryRequest{})
		return err
	},
	falconv1.Console_Recoveries_FullMethodName: func(ctx context.Context, cc *grpc.ClientConn) error {
		_, err := falconv1.NewConsoleClient(cc).Recoveries(ctx, &falconv1.RecoveriesRequest{Map: true})
		return err
	},
	falconv1.Console_Recover_FullMethodName: func(ctx context.Context, cc *grpc.ClientConn) error {
		_, err := falconv1.NewConsoleClient(
			cc,
		).Recover(ctx, &falconv1.RecoverRequest{Recovery: "REC-0001", Verb: "approve"})
		if status.Code(err) == codes.NotFound {
			return nil // admitted, and there is no such recovery
		}
		return err
	},
	falconv1.Console_SetPolicy_FullMethodName: func(ctx context.Context, cc *grpc.ClientConn) error {
		_, err := falconv1.NewConsoleClient(
			cc,
		).SetPolicy(ctx, &falconv1.SetPolicyRequest{
			Policy: &falconv1.Policy{Mode: "approve", Frozen: true, Version: 99},
		})
		if status.Code(err) == codes.FailedPrecondition {
			return nil // admitted, and the version is stale
		}
		return err
	},
}

// admitted is who may call what, written down apart from the table it tests.
var admitted = map[string]string{
	falconv1.Fleet_Attach_FullMethodName:       "agent",
	falconv1.Fleet_Renew_FullMethodName:        "agent",
	falconv1.Console_Snapshot_FullMethodName:   "viewer operator approver admin",
	falconv1.Console_Watch_FullMethodName:      "viewer operator approver admin",
	falconv1.Console_Incidents_FullMethodName:  "viewer operator approver admin",
	falconv1.Console_Decide_FullMethodName:     "approver admin",
	falconv1.Console_Validate_FullMethodName:   "approver admin",
	falconv1.Console_Recoveries_FullMethodName: "viewer operator approver admin",
	falconv1.Console_History_FullMethodName:    "viewer operator approver admin",
	falconv1.Console_Probe_FullMethodName:      "approver admin",
	falconv1.Console_Triage_FullMethodName:     "operator approver admin",
	falconv1.Console_Peek_FullMethodName:       "operator approver admin",
	falconv1.Console_Recover_FullMethodName:    "approver admin",
	falconv1.Console_SetPolicy_FullMethodName:  "operator approver admin",
}

func methods() []string {
	var out []string
	for _, d := range []grpc.ServiceDesc{falconv1.Fleet_ServiceDesc, falconv1.Console_ServiceDesc} {
		for _, m := range d.Methods {
			out = append(out, "/"+d.ServiceName+"/"+m.MethodName)
		}
		for _, m := range d.Streams {
			out = append(out, "/"+d.ServiceName+"/"+m.StreamName)
		}
	}
	return out
}

func TestEveryMethodHasARole(t *testing.T) {
	all := methods()
	if len(all) != len(needs) {
		t.Errorf("%d methods and %d rows in the table", len(all), len(needs))
	}
	for _, m := range all {
		if needs[m] == auth.RoleNone || calls[m] == nil || admitted[m] == "" {
			t.Errorf("%s lacks a role, a call or an expectation", m)
		}
	}
	if _, err := admitRole(context.Background(), "/x/y"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a caller without a transport: %v", err)
	}
}

func TestRoleMatrix(t *testing.T) {
	s := newSite(t)
	for _, role := range auth.Roles {
		if role == auth.RoleServer {
			continue // a server's certificate is no client's: TLS refuses it, see below
		}
		cc := s.dial(s.issue(role, string(role)))
		for _, m := range methods() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			err := calls[m](ctx, cc)
			cancel()
			want := codes.PermissionDenied
			if strings.Contains(" "+admitted[m]+" ", " "+string(role)+" ") {
				want = codes.OK
			}
			if got := status.Code(err); got != want {
				t.Errorf("%s as %s: %v, want %v (%v)", m, role, got, want, err)
			}
		}
	}
}

func TestSocketIsItsOwnersAlone(t *testing.T) {
	s := newSite(t)
	info, err := os.Stat(s.server.Socket())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v", info.Mode(), err)
	}
	cc := s.dialSocket()
	r, err := falconv1.NewConsoleClient(
		cc,
	).Snapshot(context.Background(), &falconv1.SnapshotRequest{
		Rank:    -1,
		Columns: 10,
	})
	if err != nil || r.GetRole() != "admin" || r.GetActor() == "" {
		t.Fatalf("snapshot %v, %v", r, err)
	}
	again, err := falconv1.NewConsoleClient(
		cc,
	).Snapshot(context.Background(), &falconv1.SnapshotRequest{KnownVersion: r.GetVersion()})
	if err != nil || !again.GetUnchanged() {
		t.Errorf("known version: %v, %v", again, err)
	}
	st, err := falconv1.NewFleetClient(cc).Attach(context.Background())
	if err == nil {
		_, err = st.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("agents through the socket: %v", err)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	s := newSite(t)
	probe := func(name string, creds credentials.TransportCredentials) {
		t.Helper()
		cc, err := grpc.NewClient(s.server.Address(), grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := falconv1.NewConsoleClient(cc).Snapshot(
			ctx,
			&falconv1.SnapshotRequest{},
		); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v, want a failed handshake", name, err)
		}
	}
	good, err := auth.ClientTLS(s.issue(auth.RoleViewer, "viewer"))
	if err != nil {
		t.Fatal(err)
	}
	probe("plaintext", insecure.NewCredentials())
	bare := good.Clone()
	bare.Certificates = nil
	probe("no certificate", credentials.NewTLS(bare))
	old := good.Clone()
	old.MinVersion = tls.VersionTLS12
	old.MaxVersion = tls.VersionTLS12
	probe("TLS 1.2", credentials.NewTLS(old))
	other, err := auth.NewCA("other", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	foreign := t.TempDir()
	if err := errors.Join(
		other.Save(foreign),
		other.IssueTo(foreign, auth.Request{Role: auth.RoleAdmin, Name: "eve"}, time.Now()),
	); err != nil {
		t.Fatal(err)
	}
	f := auth.FilesIn(foreign, "eve")
	f.CA = filepath.Join(s.dir, auth.CACertFile)
	eve, err := auth.ClientTLS(f)
	if err != nil {
		t.Fatal(err)
	}
	probe("another authority", credentials.NewTLS(eve))
	server, err := auth.ClientTLS(auth.FilesIn(s.dir, "server"))
	if err != nil {
		t.Fatal(err)
	}
	probe("a server's certificate", credentials.NewTLS(server))
}

func hello(node string) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{
		Body: &falconv1.AgentFrame_Hello{Hello: &falconv1.Hello{
			Agent: node,
			Node:  node,
			Boot:  "1",
		}},
	}
}

func TestAgentSpeaksForItsOwnNodeAlone(t *testing.T) {
	s := newSite(t)
	cc := s.dial(s.issue(auth.RoleAgent, "n1"))
	attach := func(first *falconv1.AgentFrame) (*falconv1.EngineFrame, error) {
		st, err := falconv1.NewFleetClient(cc).Attach(t.Context())
		if err != nil {
			return nil, err
		}
		if err := st.Send(first); err != nil {
			return nil, err
		}
		return st.Recv()
	}
	if _, err := attach(hello("n2")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("another node's name: %v", err)
	}
	if _, err := attach(&falconv1.AgentFrame{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no hello: %v", err)
	}
	if e, err := attach(hello("n1")); err != nil ||
		e.GetWelcome().GetEpoch() == 0 ||
		e.GetWelcome().GetBeatPeriodMs() == 0 {
		t.Errorf("own name: %v, %v", e, err)
	}
}

func TestFramesAreAcknowledgedOverTLS(t *testing.T) {
	s := newSite(t)
	cc := s.dial(s.issue(auth.RoleAgent, "n1"))
	st, err := falconv1.NewFleetClient(cc).Attach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	frames := []*falconv1.AgentFrame{
		hello("n1"),
		{Seq: 1, Body: &falconv1.AgentFrame_Telemetry{Telemetry: &falconv1.Telemetry{}}},
		{Seq: 2, Body: &falconv1.AgentFrame_Samples{Samples: &falconv1.Samples{}}},
	}
	for _, f := range frames {
		if err := st.Send(f); err != nil {
			t.Fatal(err)
		}
	}
	for acked := uint64(0); acked < 2; {
		e, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		acked = max(acked, e.GetAck().GetSeq())
	}
}

func TestListenRefusals(t *testing.T) {
	s := newSite(t)
	conf, err := auth.ServerTLS(auth.FilesIn(s.dir, "server"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(s.dir, "plain")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg Config
		say string
	}{
		"port in use": {
			Config{
				Socket:  filepath.Join(s.dir, "g.sock"),
				Address: s.server.Address(),
				TLS:     conf,
			},
			"port is in use",
		},
		"no address": {
			Config{Socket: filepath.Join(s.dir, "g.sock"), Address: "nonsense", TLS: conf},
			"HOST:PORT",
		},
		"plaintext": {
			Config{Socket: filepath.Join(s.dir, "g.sock"), Address: "127.0.0.1:0"},
			"no plaintext",
		},
		"socket in use": {Config{Socket: s.server.Socket()}, "another falcon answers"},
		"not a socket":  {Config{Socket: file}, "no socket"},
		"long path":     {Config{Socket: "/tmp/" + strings.Repeat("x", 120)}, "shorter"},
	} {
		c.cfg.Engine = s.engine
		got, err := Listen(c.cfg)
		if !errors.Is(err, ErrListen) || !strings.Contains(err.Error(), c.say) {
			if got != nil {
				got.Close()
			}
			t.Errorf("%s: %v, want %q", name, err, c.say)
		}
	}
}

func TestAKilledEnginesSocketIsTakenOver(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := listenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Close(); err != nil {
		t.Fatal(err)
	}
}
