package ship

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/ship/shiptest"
)

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// An agent that was killed at any point of putting a renewed pair in its place
// finds one that fits together.
func TestAKilledRenewalIsFinished(t *testing.T) {
	ca := shiptest.NewAuthority(t)
	old := ca.Issue(t, "n0")
	renewed := ca.Issue(t, "n0-renewed")
	for point := range 5 {
		dir := t.TempDir()
		cfg := Config{
			CertFile: filepath.Join(dir, "n0.crt"),
			KeyFile:  filepath.Join(dir, "n0.key"),
		}
		copyFile(t, old.Cert, cfg.CertFile)
		copyFile(t, old.Key, cfg.KeyFile)
		for i, step := range []func(){
			func() { copyFile(t, renewed.Cert, cfg.CertFile+nextSuffix) },
			func() { copyFile(t, renewed.Key, cfg.KeyFile+nextSuffix) },
			func() { _ = putInPlace(cfg.KeyFile) },
			func() { _ = putInPlace(cfg.CertFile) },
		} {
			if i < point {
				step()
			}
		}
		want := "n0"
		if point >= 3 {
			want = "n0-renewed"
		}
		for range 2 { // the second time nothing is left to finish
			pair, err := loadKeyPair(cfg)
			if err != nil || pair.Leaf.Subject.CommonName != want {
				t.Errorf("killed after step %d: %v", point, err)
			}
		}
		if _, err := os.Stat(cfg.CertFile + nextSuffix); point >= 3 && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("killed after step %d: the new certificate still waits", point)
		}
	}
	dir := t.TempDir()
	cfg := Config{
		CertFile: filepath.Join(dir, "n0.crt"),
		KeyFile:  filepath.Join(dir, "n0.key"),
	}
	copyFile(t, old.Cert, cfg.CertFile)
	copyFile(t, renewed.Key, cfg.KeyFile)
	if _, err := loadKeyPair(cfg); err == nil {
		t.Error("a pair that fits nowhere was taken")
	}
}

func TestRenewalIsDueAfterTwoThirds(t *testing.T) {
	from := time.Unix(1_700_000_000, 0)
	leaf := &x509.Certificate{NotBefore: from, NotAfter: from.Add(30 * time.Hour)}
	for range 100 {
		at := renewalTime(leaf).Sub(from)
		if at > 20*time.Hour || at < 18*time.Hour {
			t.Fatalf("due after %v of 30 h", at)
		}
	}
}
