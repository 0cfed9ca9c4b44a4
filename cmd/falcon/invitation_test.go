package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/failslow/falcon/backend/api/remedy"
	"github.com/failslow/falcon/backend/auth"
)

// What certs issue --for writes is all that context join needs, and --connect finds what it brought.
func TestInvitation(t *testing.T) {
	dir := t.TempDir()
	home := t.TempDir()
	t.Setenv("FALCON_CONTEXTS", filepath.Join(home, "contexts.toml"))
	must(t, "certs", "init", "--dir", dir, "--host", "head")
	said := must(
		t,
		"certs",
		"issue",
		"--dir", dir,
		"--role", "viewer",
		"--name", "dana",
		"--for", "head:7440",
	)
	file := filepath.Join(dir, "dana.falcon")
	if !strings.Contains(said, "falcon context join dana.falcon") {
		t.Errorf("said %q", said)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	if said := must(t, "context", "join", file); !strings.Contains(said, "head is the engine at head:7440") {
		t.Errorf("said %q", said)
	}
	f, _, err := loadContexts()
	if err != nil || f.Current != "head" || len(f.Contexts) != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	target := engineTarget{connect: "head:7440"}
	if err := target.useContext(); err != nil || target.certs.Key == "" {
		t.Errorf("--connect has %+v, %v", target.certs, err)
	}
	if _, err := auth.ClientTLS(target.certs); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(target.certs.Key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v %v", info, err)
	}
	for _, bad := range []string{filepath.Join(home, "none"), filepath.Join(dir, "ca.crt")} {
		if code, _, _ := command(t, "context", "join", bad); code != 2 {
			t.Errorf("%s was taken: %d", bad, code)
		}
	}
	if code, _, out := command(
		t,
		"certs",
		"issue",
		"--dir", dir,
		"--role", "viewer",
		"--name", "lee",
		"--for", "head",
	); code != 2 ||
		!strings.Contains(out, "HOST:PORT") {
		t.Errorf("without a port: %d %q", code, out)
	}
}

// What goes wrong between two machines says what to do.
func TestConnectionErrorsSayWhatToDo(t *testing.T) {
	for text, want := range map[string]string{
		`authentication handshake failed: tls: failed to verify certificate: x509: certificate is valid for localhost, not head`: "issue it again with --host",
		`error reading server preface: EOF`:                                                "revoked",
		`tls: failed to verify certificate: x509: certificate signed by unknown authority`: "copy ca.crt",
		`dial tcp 10.0.0.1:7440: connect: connection refused`:                              "is the engine started",
	} {
		got := remedy.With(text)
		if !strings.Contains(got, text) || !strings.Contains(got, want) {
			t.Errorf("%s: %s", text, got)
		}
	}
	if got := remedy.With("anything"); got != "anything" {
		t.Error(got)
	}
}
