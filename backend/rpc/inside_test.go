package rpc

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
)

func (s *site) inside(id auth.Identity) *grpc.ClientConn {
	s.t.Helper()
	cc, err := s.server.As(id)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// A caller inside the process passes the same table as one from outside, for
// every method and every role; what is no person's role is let in nowhere.
func TestRoleMatrixInside(t *testing.T) {
	s := newSite(t)
	for _, role := range append([]auth.Role{auth.RoleNone, "root"}, auth.Roles...) {
		cc := s.inside(auth.Identity{
			Role: role,
			Name: "maria",
			From: "ssh 10.0.0.7 SHA256:abc",
		})
		for _, m := range methods() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			err := calls[m](ctx, cc)
			cancel()
			want := codes.PermissionDenied
			switch {
			case role == auth.RoleNone || role == "root" || role == auth.RoleAgent || role == auth.RoleServer:
				want = codes.Unauthenticated
			case strings.Contains(" "+admitted[m]+" ", " "+string(role)+" "):
				want = codes.OK
			}
			if got := status.Code(err); got != want {
				t.Errorf("%s as %s inside: %v, want %v (%v)", m, role, got, want, err)
			}
		}
	}
}

func TestInsideKeepsTheIdentity(t *testing.T) {
	s := newSite(t)
	for _, id := range []auth.Identity{
		{Role: auth.RoleViewer, Name: "ann", From: "ssh a"},
		{Role: auth.RoleApprover, Name: "maria", From: "ssh b"},
	} {
		r, err := falconv1.NewConsoleClient(s.inside(
			id,
		)).Snapshot(t.Context(), &falconv1.SnapshotRequest{Rank: -1})
		if err != nil || r.GetRole() != string(id.Role) || r.GetActor() != id.Name {
			t.Errorf("as %v: role %q, actor %q, %v", id, r.GetRole(), r.GetActor(), err)
		}
	}
	if _, err := falconv1.NewConsoleClient(s.inside(auth.Identity{
		Role: auth.RoleAdmin,
		Name: "../x",
	})).Snapshot(t.Context(), &falconv1.SnapshotRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a bad name: %v", err)
	}
}

// A pipe that nobody vouches for is refused at the handshake.
func TestInsideNeedsAWord(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	if _, _, err := auth.VouchedCredentials().ServerHandshake(theirs); err == nil {
		t.Error("a bare pipe was taken")
	}
}

// Calls after the server has ended fail; they don't hang.
func TestInsideEndsWithTheServer(t *testing.T) {
	s := newSite(t)
	cc := s.inside(auth.Identity{Role: auth.RoleViewer, Name: "ann"})
	client := falconv1.NewConsoleClient(cc)
	if _, err := client.Snapshot(t.Context(), &falconv1.SnapshotRequest{}); err != nil {
		t.Fatal(err)
	}
	s.server.Close()
	if _, err := client.Snapshot(
		t.Context(),
		&falconv1.SnapshotRequest{},
	); status.Code(err) != codes.Unavailable {
		t.Errorf("after the end: %v", err)
	}
}
