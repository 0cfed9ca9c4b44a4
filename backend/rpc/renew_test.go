package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/ship"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
)

// An agent outlives its certificate: it renews it by itself, and is heard with
// the new one when the first has ended.
func TestAgentsRenewTheirCertificates(t *testing.T) {
	var ca *auth.CA
	s := newTunedSite(t, nil, nil, func(c *Config) {
		c.Renew = func(csr []byte, leaf *x509.Certificate) ([]byte, []byte, error) {
			cert, err := ca.Renew(csr, leaf, time.Now())
			return cert, ca.CertPEM(), err
		}
	})
	ca = s.ca
	const life = 3 * time.Second
	if err := ca.IssueTo(
		s.dir,
		auth.Request{Role: auth.RoleAgent, Name: "n1", Life: life},
		time.Now(),
	); err != nil {
		t.Fatal(err)
	}
	f := auth.FilesIn(s.dir, "n1")
	first, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := ship.Open(ship.Config{
		Address:  s.server.Address(),
		CertFile: f.Cert,
		KeyFile:  f.Key,
		CAFile:   f.CA,
		Hello:    &falconv1.Hello{Agent: "n1", Node: "n1", Boot: "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	for end := first.Leaf.NotAfter.Add(life); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		agent.Send(&falconv1.AgentFrame{
			Body: &falconv1.AgentFrame_Telemetry{Telemetry: &falconv1.Telemetry{}},
		})
	}
	for deadline := time.Now().Add(time.Minute); agent.Stats().Frames > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d frames were not acknowledged after the first certificate's end",
				agent.Stats().Frames)
		}
	}
	newest, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	if newest.Leaf.SerialNumber.Cmp(first.Leaf.SerialNumber) == 0 ||
		newest.Leaf.Subject.CommonName != "n1" {
		t.Errorf("the certificate is still %v of %s",
			newest.Leaf.SerialNumber, newest.Leaf.Subject.CommonName)
	}
	for _, path := range []string{f.Cert, f.Key} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}
