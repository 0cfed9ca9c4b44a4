package auth

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func leaf(t *testing.T, pemBytes []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(pemBytes)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRolesAreOrderedForPeopleOnly(t *testing.T) {
	people := []Role{RoleViewer, RoleOperator, RoleApprover, RoleAdmin}
	for i, have := range people {
		for k, need := range people {
			if have.Covers(need) != (i >= k) {
				t.Errorf("%s covers %s = %v", have, need, have.Covers(need))
			}
		}
		for _, apart := range []Role{RoleAgent, RoleServer, RoleNone} {
			if have.Covers(apart) || apart.Covers(have) {
				t.Errorf("%q and %q cover each other", have, apart)
			}
		}
	}
	if !RoleAgent.Covers(RoleAgent) || RoleAgent.Covers(RoleServer) || RoleNone.Covers(RoleNone) {
		t.Error("agent covers itself alone, nobody covers nothing")
	}
}

func TestIssuedCertificateCarriesRoleAndName(t *testing.T) {
	ca, err := NewCA("test", start)
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range Roles {
		cert, _, err := ca.Issue(Request{Role: role, Name: "n1", Hosts: []string{"127.0.0.1", "head"}}, start)
		if err != nil {
			t.Fatal(err)
		}
		c := leaf(t, cert)
		id, err := FromChains([][]*x509.Certificate{{c, ca.cert}})
		if err != nil || id.Role != role || id.Name != "n1" {
			t.Errorf("%s: %+v, %v", role, id, err)
		}
		server := len(c.DNSNames)+len(c.IPAddresses) > 0
		if server != (role == RoleServer) {
			t.Errorf("%s: hosts %v %v", role, c.DNSNames, c.IPAddresses)
		}
	}
}

func TestAmbiguousCertificateIsRefused(t *testing.T) {
	two := &x509.Certificate{
		URIs: []*url.URL{uri(roleHost, "viewer"), uri(roleHost, "admin"), uri(nameHost, "eve")},
	}
	none := &x509.Certificate{URIs: []*url.URL{uri(nameHost, "eve")}}
	odd := &x509.Certificate{URIs: []*url.URL{uri(roleHost, "root"), uri(nameHost, "eve")}}
	bad := &x509.Certificate{URIs: []*url.URL{uri(roleHost, "admin"), uri(nameHost, "../eve")}}
	for name, c := range map[string]*x509.Certificate{"two": two, "none": none, "odd": odd, "bad": bad} {
		if id, err := FromChains([][]*x509.Certificate{{c}}); err == nil {
			t.Errorf("%s: accepted as %+v", name, id)
		}
	}
	if _, err := FromChains(nil); !errors.Is(err, ErrCert) {
		t.Errorf("no chain: %v", err)
	}
}

func TestFilesArePrivateAndNeverOverwritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	ca, err := NewCA("test", start)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Save(dir); err != nil {
		t.Fatal(err)
	}
	again, err := OpenCA(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.IssueTo(dir, Request{Role: RoleAgent, Name: "n1"}, start); err != nil {
		t.Fatal(err)
	}
	if err := ca.Save(dir); err == nil || !strings.Contains(err.Error(), "there already") {
		t.Errorf("second Save = %v", err)
	}
	for _, name := range []string{CACertFile, CAKeyFile, "n1.crt", "n1.key"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if info, _ := os.Stat(dir); info.Mode().Perm() != 0o700 {
		t.Errorf("directory mode %v", info.Mode())
	}
}

func TestBadRequestsAndFiles(t *testing.T) {
	ca, err := NewCA("test", start)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []Request{
		{Role: "boss", Name: "x"},
		{Role: RoleAgent},
		{Role: RoleAgent, Name: "a/b"},
		{Role: RoleAgent, Name: strings.Repeat("n", 65)},
	} {
		if _, _, err := ca.Issue(q, start); err == nil {
			t.Errorf("issued %+v", q)
		}
	}
	if _, err := ServerTLS(FilesIn(t.TempDir(), "none")); !errors.Is(err, ErrCert) ||
		!strings.Contains(err.Error(), "falcon certs issue") {
		t.Errorf("absent files: %v", err)
	}
	if _, err := OpenCA(t.TempDir()); err == nil || !strings.Contains(err.Error(), "falcon certs init") {
		t.Errorf("absent authority: %v", err)
	}
}

func TestTLSIsMutualAndNew(t *testing.T) {
	dir := t.TempDir()
	ca, err := NewCA("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Save(dir); err != nil {
		t.Fatal(err)
	}
	if err := ca.IssueTo(dir, Request{Role: RoleServer, Name: "head"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	s, err := ServerTLS(FilesIn(dir, "head"))
	if err != nil {
		t.Fatal(err)
	}
	if s.MinVersion != tls.VersionTLS13 || s.ClientAuth != tls.RequireAndVerifyClientCert {
		t.Errorf("server takes version %x, client auth %v", s.MinVersion, s.ClientAuth)
	}
	c, err := ClientTLS(FilesIn(dir, "head"))
	if err != nil || c.MinVersion != tls.VersionTLS13 || c.InsecureSkipVerify {
		t.Errorf("client %+v, %v", c, err)
	}
}

func TestSocketPeers(t *testing.T) {
	for _, c := range []struct {
		uid, self int
		role      Role
	}{{0, 0, RoleAdmin}, {7, 7, RoleAdmin}, {0, 7, RoleAdmin}, {8, 7, RoleNone}} {
		id, err := fromSocket(PeerCred{UID: c.uid, PID: 1}, c.self)
		if id.Role != c.role || (err == nil) != (c.role != RoleNone) {
			t.Errorf("uid %d at an engine of %d: %+v, %v", c.uid, c.self, id, err)
		}
	}
}
