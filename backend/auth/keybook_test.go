package auth

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

func sshKey(t testing.TB) gossh.Signer {
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

func keyLine(options string, k gossh.PublicKey) string {
	return strings.TrimSpace(options+" "+strings.TrimSpace(string(gossh.MarshalAuthorizedKey(k)))) +
		" somebody@laptop\n"
}

var desk = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 4711}

func writeFile(t testing.TB, path, text string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func TestKeysCarryRoles(t *testing.T) {
	maria := sshKey(t)
	dana := sshKey(t)
	path := filepath.Join(t.TempDir(), "keys")
	writeFile(
		t,
		path,
		"# on call\n\n"+keyLine(`falcon-role="approver",falcon-name="maria"`, maria.PublicKey())+
			keyLine(
				`falcon-name="dana",from="192.0.2.0/24,2001:db8::1",falcon-role="viewer"`,
				dana.PublicKey(),
			),
		0o600,
	)
	b := OpenKeyBook(path, "", nil)
	id, err := b.Identify(maria.PublicKey(), desk)
	want := "ssh 10.0.0.7 " + gossh.FingerprintSHA256(maria.PublicKey())
	if err != nil || id.Role != RoleApprover || id.Name != "maria" || id.From != want {
		t.Errorf("%+v, %v", id, err)
	}
	if _, err := b.Identify(dana.PublicKey(), desk); !errors.Is(err, ErrRefused) {
		t.Errorf("from elsewhere: %v", err)
	}
	for _, ip := range []string{"192.0.2.9", "2001:db8::1", "::ffff:192.0.2.1"} {
		id, err := b.Identify(dana.PublicKey(), &net.TCPAddr{IP: net.ParseIP(ip)})
		if err != nil || id.Role != RoleViewer {
			t.Errorf("from %s: %+v, %v", ip, id, err)
		}
	}
	if _, err := b.Identify(sshKey(t).PublicKey(), desk); !errors.Is(err, ErrRefused) {
		t.Errorf("a stranger: %v", err)
	}
}

func TestKeyFilesAreStrict(t *testing.T) {
	k := sshKey(t).PublicKey()
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	weakKey, err := gossh.NewPublicKey(&weak.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	ok := `falcon-role="viewer",falcon-name="ann"`
	for say, text := range map[string]string{
		"line 2: it must begin with":         "# x\n" + keyLine("", k),
		"line 1: it must begin with":         keyLine(`falcon-role="viewer"`, k),
		`role "agent" is none of`:            keyLine(`falcon-role="agent",falcon-name="n1"`, k),
		`role "root" is none of`:             keyLine(`falcon-role="root",falcon-name="ann"`, k),
		"auth: bad name":                     keyLine(`falcon-role="viewer",falcon-name="../x"`, k),
		`option "command" is unknown`:        keyLine(ok+`,command="sh"`, k),
		`option "no-pty" is not of the form`: keyLine(ok+`,no-pty`, k),
		"stands there twice":                 keyLine(ok+`,falcon-role="admin"`, k),
		"line 3: the key of line 1": keyLine(ok, k) +
			"\n" +
			keyLine(`falcon-role="admin",falcon-name="eve"`, k),
		"line 1: no public key":       ok + " ssh-ed25519 AAAA x\n",
		"line 2: no public key":       keyLine(ok, k) + "garbage\n",
		"an RSA key of 1024 bits":     keyLine(ok, weakKey),
		`"10.0.0.0/99" is no address`: keyLine(ok+`,from="10.0.0.0/99"`, k),
		"a line has at most":          keyLine(ok, k) + strings.Repeat("x", lineMax+1),
	} {
		list, err := parseRoster(strings.NewReader(text))
		if err != nil ||
			len(list.bad) != 1 ||
			!errors.Is(list.bad[0], ErrKeys) ||
			!strings.Contains(list.bad[0].Error(), say) {
			t.Errorf("got %v and %v, want %q", list.bad, err, say)
		}
		for _, e := range list.entries {
			if e.line != 1 || e.role != RoleViewer {
				t.Errorf("%q: taken: %+v", say, e)
			}
		}
	}
	if _, err := parseAuthorities(strings.NewReader(keyLine(ok, k))); err == nil {
		t.Error("an authority with options was taken")
	}
	if _, err := parseAuthorities(strings.NewReader("# none\n")); err == nil {
		t.Error("an empty file of authorities was taken")
	}
}

// A file that others may write, that has gone or that has become unreadable
// lets nobody in; mended, it is read again without a restart.
func TestKeyFileIsReadAgain(t *testing.T) {
	maria := sshKey(t)
	dana := sshKey(t)
	path := filepath.Join(t.TempDir(), "keys")
	line := keyLine(`falcon-role="approver",falcon-name="maria"`, maria.PublicKey())
	writeFile(t, path, line, 0o620)
	b := OpenKeyBook(path, "", nil)
	if list := b.Problems(); len(list) != 1 || !strings.Contains(list[0].Error(), "chmod") {
		t.Errorf("a file that others may write: %v", list)
	}
	writeFile(t, path, line, 0o600)
	in := func(s gossh.Signer) bool {
		_, err := b.Identify(s.PublicKey(), desk)
		return err == nil
	}
	if !in(maria) || in(dana) {
		t.Error("at first")
	}
	writeFile(
		t,
		path,
		keyLine(`falcon-role="viewer",falcon-name="dana"`, dana.PublicKey())+"# changed\n",
		0o600,
	)
	if in(maria) || !in(dana) {
		t.Error("after the change")
	}
	writeFile(
		t,
		path,
		line+"nonsense\n"+keyLine(`falcon-role="root",falcon-name="dana"`, dana.PublicKey()),
		0o600,
	)
	if list := b.Problems(); !in(maria) ||
		in(dana) ||
		len(list) != 2 ||
		!strings.Contains(list[0].Error(), path+": ") {
		t.Errorf("two bad lines: maria %v, dana %v, %v", in(maria), in(dana), list)
	}
	if writeFile(t, path, line, 0o622); in(maria) || in(dana) || len(b.Problems()) != 1 {
		t.Error("a file that others may write lets somebody in")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if in(maria) || in(dana) {
		t.Error("a missing file lets somebody in")
	}
	writeFile(t, path, line, 0o600)
	if !in(maria) {
		t.Error("mended")
	}
}

func TestCertificatesCarryRoles(t *testing.T) {
	ca := sshKey(t)
	eve := sshKey(t)
	user := sshKey(t)
	path := filepath.Join(t.TempDir(), "ca.pub")
	writeFile(t, path, keyLine("", ca.PublicKey()), 0o600)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	b := OpenKeyBook("", path, func() time.Time { return now })
	certify := func(by gossh.Signer, change func(*gossh.Certificate)) *gossh.Certificate {
		c := &gossh.Certificate{
			Key:             user.PublicKey(),
			Serial:          7,
			CertType:        gossh.UserCert,
			KeyId:           "maria",
			ValidPrincipals: []string{"maria", "role:approver"},
			ValidAfter:      uint64(now.Add(-time.Hour).Unix()),
			ValidBefore:     uint64(now.Add(time.Hour).Unix()),
		}
		change(c)
		if err := c.SignCert(rand.Reader, by); err != nil {
			t.Fatal(err)
		}
		return c
	}
	id, err := b.Identify(certify(ca, func(*gossh.Certificate) {}), desk)
	want := fmt.Sprintf("ssh 10.0.0.7 %s certificate 7", gossh.FingerprintSHA256(user.PublicKey()))
	if err != nil || id.Role != RoleApprover || id.Name != "maria" || id.From != want {
		t.Errorf("%+v, %v", id, err)
	}
	forged := certify(ca, func(*gossh.Certificate) {})
	forged.ValidPrincipals = []string{"role:admin"} // after the signature
	refused := map[string]*gossh.Certificate{
		"another authority": certify(eve, func(*gossh.Certificate) {}),
		"no principals":     certify(ca, func(c *gossh.Certificate) { c.ValidPrincipals = nil }),
		"no role": certify(ca, func(c *gossh.Certificate) {
			c.ValidPrincipals = []string{"maria"}
		}),
		"two roles": certify(ca, func(c *gossh.Certificate) {
			c.ValidPrincipals = []string{"role:viewer", "role:admin"}
		}),
		"an agent": certify(ca, func(c *gossh.Certificate) {
			c.ValidPrincipals = []string{"role:agent"}
		}),
		"a host's": certify(ca, func(c *gossh.Certificate) {
			c.CertType = gossh.HostCert
		}),
		"expired": certify(ca, func(c *gossh.Certificate) {
			c.ValidBefore = uint64(now.Add(-time.Minute).Unix())
		}),
		"not yet": certify(ca, func(c *gossh.Certificate) {
			c.ValidAfter = uint64(now.Add(time.Minute).Unix())
		}),
		"from elsewhere": certify(ca, func(c *gossh.Certificate) {
			c.CriticalOptions = map[string]string{"source-address": "192.0.2.0/24"}
		}),
		"a forced command": certify(ca, func(c *gossh.Certificate) {
			c.CriticalOptions = map[string]string{"force-command": "ls"}
		}),
		"a bad name": certify(ca, func(c *gossh.Certificate) { c.KeyId = "a b" }),
		"forged":     forged,
	}
	for name, c := range refused {
		if id, err := b.Identify(c, desk); err == nil {
			t.Errorf("%s came in as %+v", name, id)
		}
	}
	if _, err := b.Identify(certify(ca, func(c *gossh.Certificate) {
		c.CriticalOptions = map[string]string{"source-address": "10.0.0.0/8"}
	}), desk); err != nil {
		t.Errorf("from where it may: %v", err)
	}
	if _, err := b.Identify(user.PublicKey(), desk); !errors.Is(err, ErrRefused) {
		t.Errorf("the bare key: %v", err)
	}
}

// Whatever a file holds, what is taken carries a person's role, a sound name
// and a key, and stands there as one line that says so.
func FuzzAuthorizedKeys(f *testing.F) {
	k := sshKey(f).PublicKey()
	f.Add([]byte(keyLine(`falcon-role="approver",falcon-name="maria"`, k)))
	f.Add([]byte("# x\n\n" + keyLine(`from="10.0.0.0/8",falcon-name="a",falcon-role="viewer"`, k)))
	f.Add([]byte(keyLine(`falcon-role="ad\"min",falcon-name="a"`, k)))
	f.Add([]byte("falcon-role=\"viewer\",falcon-name=\"a\" ssh-ed25519 AAAA\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := parseRoster(bytes.NewReader(text))
		for _, err := range append(list.bad, err) {
			if err != nil && !errors.Is(err, ErrKeys) {
				t.Fatalf("unmarked: %v", err)
			}
		}
		lines := bytes.Split(text, []byte("\n"))
		for _, e := range list.entries {
			if !e.role.Covers(RoleViewer) ||
				CheckName(e.name) != nil ||
				e.key == nil {
				t.Fatalf("taken: %+v", e)
			}
			line := string(lines[e.line-1])
			if !strings.Contains(line, `falcon-role="`+string(e.role)+`"`) ||
				!strings.Contains(line, `falcon-name="`+e.name+`"`) {
				t.Fatalf("line %d does not say so: %q", e.line, line)
			}
		}
	})
}
