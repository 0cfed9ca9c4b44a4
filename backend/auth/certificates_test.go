package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// office is an authority in a folder, with a server's certificate.
type office struct {
	t   *testing.T
	ca  *CA
	dir string
}

func newOffice(t *testing.T) *office {
	t.Helper()
	ca, err := NewCA("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	d := &office{t, ca, t.TempDir()}
	if err := errors.Join(
		ca.Save(d.dir),
		ca.IssueTo(
			d.dir,
			Request{Role: RoleServer, Name: "server", Hosts: []string{"127.0.0.1"}},
			time.Now(),
		),
	); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *office) leaf(q Request) *x509.Certificate {
	d.t.Helper()
	cert, _, err := d.ca.Issue(q, time.Now())
	if err != nil {
		d.t.Fatal(err)
	}
	return parsed(d.t, cert)
}

func parsed(t *testing.T, certPEM []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(certPEM)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// seen is the certificate that a server shows now.
func (d *office) seen(conf *tls.Config) string {
	d.t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	go func() { _ = tls.Server(theirs, conf).Handshake() }()
	c := tls.Client(ours, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // only what is shown counts
	_ = c.Handshake()
	shown := c.ConnectionState().PeerCertificates
	if len(shown) == 0 {
		d.t.Fatal("no certificate was shown")
	}
	return shown[0].SerialNumber.String()
}

// A renewed certificate is shown without a restart; one that is half written
// changes nothing.
func TestCertificatesAreReadAgain(t *testing.T) {
	d := newOffice(t)
	f := FilesIn(d.dir, "server")
	c, err := OpenCertificates(f, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	conf := c.ServerTLS()
	first := d.seen(conf)
	cert, key, err := d.ca.Issue(Request{Role: RoleServer, Name: "server"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	write := func(path string, b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		c.Refresh()
	}
	write(f.Cert, cert)
	if got := d.seen(conf); got != first || c.Err() == nil {
		t.Errorf("a certificate without its key: %s instead of %s, %v", got, first, c.Err())
	}
	write(f.Key, key)
	if got := d.seen(conf); got == first || c.Err() != nil || got != c.Leaf().SerialNumber.String() {
		t.Errorf("the renewed one: %s, %v", got, c.Err())
	}
}

func TestRevocationsFollowTheirFile(t *testing.T) {
	d := newOffice(t)
	list := filepath.Join(d.dir, RevokedFile)
	c, err := OpenCertificates(FilesIn(d.dir, "server"), list, nil)
	if err != nil {
		t.Fatal(err)
	}
	n1, again := d.leaf(Request{Role: RoleAgent, Name: "n1"}), d.leaf(Request{
		Role: RoleAgent,
		Name: "n1",
	})
	n2 := d.leaf(Request{Role: RoleAgent, Name: "n2"})
	check := func(when string, want ...bool) {
		t.Helper()
		c.Refresh()
		for i, leaf := range []*x509.Certificate{n1, again, n2} {
			id, _ := fromLeaf(leaf)
			if got := c.Revoked(id, leaf); got != want[i] {
				t.Errorf("%s: certificate %d of %s is revoked: %v", when, i, id.Name, got)
			}
		}
	}
	check("without a list", false, false, false)
	for i, what := range []string{"serial:" + n1.SerialNumber.Text(16), "n2"} {
		if added, err := Revoke(list, what, "lost"); !added || err != nil {
			t.Fatalf("%s: %v, %v", what, added, err)
		}
		if added, err := Revoke(list, what, "lost"); added || err != nil {
			t.Errorf("%s twice: %v, %v", what, added, err)
		}
		check(what, true, false, i == 1)
	}
	if info, err := os.Stat(list); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for what, spoil := range map[string]func() error{
		"unreadable": func() error {
			return os.WriteFile(list, []byte("no such name!\n"), 0o600)
		},
		"writable": func() error { return os.Chmod(list, 0o666) },
		"gone":     func() error { return os.Remove(list) },
	} {
		if err := os.WriteFile(list, []byte("n2\nserial:"+n1.SerialNumber.Text(16)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		check("before it is "+what, true, false, true)
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		check(what, true, false, true)
		if c.Err() == nil {
			t.Errorf("%s: nothing is said", what)
		}
		if err := os.RemoveAll(list); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{"serial:xyz", "../x", "", "serial:-1"} {
		_, err := Revoke(list, bad, "")
		if !errors.Is(err, ErrName) && !errors.Is(err, ErrSerial) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func request(t *testing.T, key any) []byte {
	t.Helper()
	csr, err := x509.CreateCertificateRequest(
		rand.Reader,
		&x509.CertificateRequest{
			Subject:  pkix.Name{CommonName: "admin"},
			DNSNames: []string{"engine"},
		},
		key,
	)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

// A renewed certificate says what the one before said, whatever was asked for.
func TestRenewalKeepsRoleNameAndLife(t *testing.T) {
	d := newOffice(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	old := d.leaf(Request{Role: RoleAgent, Name: "n1", Life: 24 * time.Hour})
	later := time.Now().Add(16 * time.Hour)
	cert, err := d.ca.Renew(request(t, key), old, later)
	if err != nil {
		t.Fatal(err)
	}
	got := parsed(t, cert)
	if id, err := fromLeaf(got); err != nil ||
		id.Role != RoleAgent ||
		id.Name != "n1" ||
		len(got.DNSNames) != 0 ||
		got.Subject.CommonName != "n1" {
		t.Errorf("%v, %v, for %v", id, err, got.DNSNames)
	}
	end := got.NotAfter.Sub(later)
	if end < 23*time.Hour ||
		end > 25*time.Hour ||
		!got.PublicKey.(*ecdsa.PublicKey).Equal(key.Public()) {
		t.Errorf("good for %v", end)
	}
	pool := x509.NewCertPool()
	pool.AddCert(d.ca.cert)
	if _, err := got.Verify(x509.VerifyOptions{
		Roots:       pool,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		CurrentTime: later,
	}); err != nil {
		t.Error(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Skip("this build makes no weak key: ", err)
	}
	for what, c := range map[string]struct {
		csr  []byte
		leaf *x509.Certificate
	}{
		"a person": {request(t, key), d.leaf(Request{
			Role: RoleAdmin,
			Name: "ann",
		})},
		"a server": {request(t, key), d.leaf(Request{
			Role: RoleServer,
			Name: "server",
		})},
		"garbage":  {[]byte("garbage"), old},
		"weak key": {request(t, weak), old},
		"spoiled":  {append(request(t, key)[:100:100], request(t, key)[101:]...), old},
	} {
		if _, err := d.ca.Renew(c.csr, c.leaf, later); !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestWhatEndsSoon(t *testing.T) {
	day := 24 * time.Hour
	for what, c := range map[string]struct {
		life, left time.Duration
		want       bool
	}{
		"a year, 8 days left": {365 * day, 8 * day, false},
		"a year, 6 days left": {365 * day, 6 * day, true},
		"a day, 8 hours left": {day, 8 * time.Hour, false},
		"a day, 7 hours left": {day, 7 * time.Hour, true},
	} {
		now := time.Now()
		leaf := &x509.Certificate{
			NotBefore: now.Add(c.left - c.life),
			NotAfter:  now.Add(c.left),
		}
		if got := EndsSoon(leaf, now); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

func FuzzRevocations(f *testing.F) {
	for _, s := range []string{
		"n1\n",
		"serial:3f # lost\n\n",
		"# nothing\n",
		"serial:\n",
		strings.Repeat("a", 70),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := parseRevocations(strings.NewReader(s))
		if err != nil {
			return
		}
		for key := range list {
			if name, ok := strings.CutPrefix(key, "name:"); ok && CheckName(name) != nil {
				t.Errorf("the name %q was taken", name)
			}
		}
	})
}
