package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

func changedAt(t *testing.T, path string) syscall.Timespec {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ctim
}

// A role that was lowered in place holds at once, whatever the file's time of
// writing was set to, as tools that copy files do.
func TestKeyFileChangedUnderItsOldTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	k := sshKey(t).PublicKey()
	lines := map[Role]string{}
	for _, r := range []Role{RoleOperator, RoleApprover} { // of one length
		lines[r] = keyLine(`falcon-role="`+string(r)+`",falcon-name="maria"`, k)
	}
	write := func(r Role) {
		t.Helper()
		if err := os.WriteFile(path, []byte(lines[r]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(RoleApprover)
	b := OpenKeyBook(path, "", nil)
	holds := func(want Role) {
		t.Helper()
		id, err := b.Identify(k, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)})
		if err != nil || id.Role != want {
			t.Fatalf("the key holds as %q, want %q (%v)", id.Role, want, err)
		}
	}
	holds(RoleApprover)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	was := changedAt(t, path)
	write(RoleOperator)
	for changedAt(t, path) == was {
		if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	holds(RoleOperator)
}

// A connection outlives its certificate's end; what is called on it from then
// on is nobody's.
func TestExpiredCertificateOnAnOldConnection(t *testing.T) {
	ca, err := NewCA("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	call := func(life time.Duration, issued time.Time) (Identity, error) {
		certPEM, _, err := ca.Issue(Request{Role: RoleApprover, Name: "maria", Life: life}, issued)
		if err != nil {
			t.Fatal(err)
		}
		state := tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf(t, certPEM)}}}
		return FromContext(peer.NewContext(context.Background(), &peer.Peer{
			Addr:     &net.TCPAddr{},
			AuthInfo: credentials.TLSInfo{State: state},
		}))
	}
	if id, err := call(time.Hour, time.Now()); err != nil || id.Role != RoleApprover {
		t.Errorf("a certificate that holds: %v, %v", id, err)
	}
	if id, err := call(time.Minute, time.Now().Add(-time.Hour)); err == nil {
		t.Errorf("an expired certificate still speaks as %v", id)
	}
}
