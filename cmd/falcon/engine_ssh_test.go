package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

func sshSigner(t *testing.T) gossh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := gossh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sshLine(role, name string, s gossh.Signer) string {
	return `falcon-role="` + role + `",falcon-name="` + name + `" ` +
		string(gossh.MarshalAuthorizedKey(s.PublicKey()))
}

// sshEngine is an engine with the SSH front, and nothing attached.
func sshEngine(t *testing.T, keys, authority string) *engineHandle {
	t.Helper()
	cfg := engineConfig{StateDir: shortDir(t), Listen: "none"}
	cfg.SSH.Listen = "127.0.0.1:0"
	cfg.SSH.AuthorizedKeys = filepath.Join(cfg.StateDir, "authorized_keys")
	cfg.SSH.UserCA = filepath.Join(cfg.StateDir, "user_ca.pub")
	if err := errors.Join(
		os.WriteFile(cfg.SSH.AuthorizedKeys, []byte(keys), 0o600),
		os.WriteFile(cfg.SSH.UserCA, []byte(authority), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	cfg.fillDefaults()
	if err := errors.Join(cfg.validate(), cfg.SSH.validate()); err != nil {
		t.Fatal(err)
	}
	h, err := startEngine(context.Background(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// sshRun runs a command over SSH with what is typed, and returns all output.
func sshRun(t *testing.T, h *engineHandle, s gossh.Signer, command, typed string) (string, error) {
	t.Helper()
	c, err := gossh.Dial("tcp", h.SSH, &gossh.ClientConfig{
		User:            "x",
		Auth:            []gossh.AuthMethod{gossh.PublicKeys(s)},
		HostKeyCallback: gossh.InsecureIgnoreHostKey(),
		Timeout:         20 * time.Second,
	})
	if err != nil {
		return "", err
	}
	defer c.Close()
	sess, err := c.NewSession()
	if err != nil {
		return "", err
	}
	defer sess.Close()
	var out bytes.Buffer
	sess.Stdout = &out
	keys, err := sess.StdinPipe()
	if err != nil {
		return "", err
	}
	if err := sess.Start(command); err != nil {
		return "", err
	}
	for line := range strings.Lines(typed) {
		time.Sleep(500 * time.Millisecond) // somebody reads, then types
		if _, err := io.WriteString(keys, line); err != nil {
			break
		}
	}
	err = sess.Wait()
	return out.String(), err
}

func TestRolesOverSSHAreTheEngines(t *testing.T) {
	ann := sshSigner(t)
	olga := sshSigner(t)
	ca := sshSigner(t)
	maria := sshSigner(t)
	h := sshEngine(
		t,
		sshLine("viewer", "ann", ann)+sshLine("operator", "olga", olga),
		string(gossh.MarshalAuthorizedKey(ca.PublicKey())),
	)
	for _, x := range []struct {
		role, name string
		key        gossh.Signer
	}{{"viewer", "ann", ann}, {"operator", "olga", olga}} {
		out, err := sshRun(t, h, x.key, "--once --json", "")
		if err != nil ||
			!strings.Contains(out, `"role":"`+x.role+`"`) ||
			!strings.Contains(out, `"actor":"`+x.name+`"`) {
			t.Errorf("%s: %v, %q", x.role, err, out)
		}
	}
	if out, err := sshRun(t, h, ann, "", "status\nfreeze\nquit\n"); err != nil ||
		!strings.Contains(out, "freezing needs the role operator; yours is viewer") {
		t.Errorf("a viewer freezes: %v, %q", err, out)
	}
	if out, err := sshRun(t, h, olga, "", "status\nfreeze\nstatus\nquit\n"); err != nil ||
		!strings.Contains(out, "FROZEN") {
		t.Errorf("an operator freezes: %v, %q", err, out)
	}
	cert := &gossh.Certificate{
		Key:             maria.PublicKey(),
		CertType:        gossh.UserCert,
		KeyId:           "maria",
		ValidPrincipals: []string{"role:approver"},
		ValidAfter:      uint64(time.Now().Add(-time.Minute).Unix()),
		ValidBefore:     uint64(time.Now().Add(time.Hour).Unix()),
	}
	if err := cert.SignCert(rand.Reader, ca); err != nil {
		t.Fatal(err)
	}
	certified, err := gossh.NewCertSigner(cert, maria)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := sshRun(t, h, certified, "--once --json", ""); err != nil ||
		!strings.Contains(out, `"role":"approver"`) {
		t.Errorf("a certificate: %v, %q", err, out)
	}
	if _, err := sshRun(t, h, maria, "", ""); err == nil {
		t.Error("the bare key of a certificate came in")
	}
	// The journal says who froze, and from where.
	code, out, errs := command(t, "console", "--once", "--json", "--connect", h.Socket)
	if code != 0 || !strings.Contains(out, "olga") {
		t.Errorf("console --once --json: %d %q %q", code, out, errs)
	}
}

func TestSSHConfigIsChecked(t *testing.T) {
	for say, c := range map[string]sshConfig{
		"no one could log in":          {Listen: "127.0.0.1:2222"},
		"is not of the form HOST:PORT": {Listen: "2222", UserCA: "x"},
		"sessions is -1":               {Listen: "127.0.0.1:2222", UserCA: "x", Sessions: -1},
		"idle is negative":             {Listen: "127.0.0.1:2222", UserCA: "x", Idle: new(-time.Second)},
	} {
		err := c.validate()
		if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), say) {
			t.Errorf("got %v, want %q", err, say)
		}
	}
	if err := (&sshConfig{}).validate(); err != nil {
		t.Errorf("no front: %v", err)
	}
	cfg := engineConfig{StateDir: shortDir(t), Listen: "none"}
	cfg.SSH = sshConfig{Listen: "127.0.0.1:0", AuthorizedKeys: filepath.Join(cfg.StateDir, "none")}
	cfg.fillDefaults()
	f := checkEngine(cfg)
	if len(f.refused) > 0 ||
		len(f.off) != 1 ||
		!strings.Contains(f.off[0], "no such file") {
		t.Errorf("no file of keys: %+v", f)
	}
}
