package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
)

// badPart is an engine with one part that does not work. mend puts it right.
type badPart struct {
	says  string // in the alarm
	off   bool   // SSH is off meanwhile
	check string // what --check begins its line with
	spoil func(t *testing.T, cfg *engineConfig) (mend func())
}

var badParts = map[string]badPart{
	"one bad line": {
		says:  "line 2: no public key",
		check: "off:",
		spoil: func(t *testing.T, cfg *engineConfig) func() {
			return spoilFile(t, cfg.SSH.AuthorizedKeys, func(good string) string {
				return good + "garbage\n"
			})
		},
	},
	"a line without a role": {
		says:  "line 1: it must begin with",
		check: "off:",
		spoil: func(t *testing.T, cfg *engineConfig) func() {
			return spoilFile(t, cfg.SSH.AuthorizedKeys, func(good string) string {
				return good[strings.Index(good, "ssh-"):] + good
			})
		},
	},
	"keys that are missing": {
		says:  "no such file",
		check: "off:",
		spoil: func(t *testing.T, cfg *engineConfig) func() {
			path := cfg.SSH.UserCA
			cfg.SSH.UserCA = path + ".missing"
			return func() { writeTestFile(t, path+".missing", readTestFile(t, path)) }
		},
	},
	"a host key that is none": {
		says:  "the console over SSH is off",
		off:   true,
		check: "off:",
		spoil: func(t *testing.T, cfg *engineConfig) func() {
			writeTestFile(t, cfg.SSH.HostKey, "garbage")
			return func() { _ = os.Remove(cfg.SSH.HostKey) }
		},
	},
	"a host key that others read": {
		says:  "chmod 600",
		off:   true,
		check: "off:",
		spoil: func(t *testing.T, cfg *engineConfig) func() {
			writeTestFile(t, cfg.SSH.HostKey, "x")
			_ = os.Chmod(cfg.SSH.HostKey, 0o644)
			return func() { _ = os.Remove(cfg.SSH.HostKey) }
		},
	},
	"a port in use": {
		says:  "the port is in use",
		off:   true,
		check: "off:",
		spoil: func(t *testing.T, cfg *engineConfig) func() {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			cfg.SSH.Listen = l.Addr().String()
			return func() { _ = l.Close() }
		},
	},
	"an address that is none": {
		says:  "is not of the form HOST:PORT",
		off:   true,
		check: "off:",
		spoil: func(_ *testing.T, cfg *engineConfig) func() {
			cfg.SSH.Listen = "2222"
			return nil
		},
	},
	"copies that can't be written": {
		says:  "no copies of the journal are written",
		check: "off:",
		spoil: func(t *testing.T, cfg *engineConfig) func() {
			path := filepath.Join(cfg.StateDir, "copies")
			writeTestFile(t, path, "a file")
			cfg.Journal.BackupDir = filepath.Join(path, "below")
			return nil
		},
	},
}

func writeTestFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readTestFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func spoilFile(t *testing.T, path string, change func(string) string) (mend func()) {
	t.Helper()
	good := readTestFile(t, path)
	writeTestFile(t, path, change(good))
	return func() { writeTestFile(t, path, good) }
}

// One part that does not work is reported on the first page and in the log, keeps nothing else
// from working, and is right again without a restart.
func TestOneBadPart(t *testing.T) {
	for name, bad := range badParts {
		t.Run(name, func(t *testing.T) {
			maria := sshSigner(t)
			cfg := engineConfig{
				StateDir:  shortDir(t),
				Listen:    "none",
				lookEvery: 20 * time.Millisecond,
			}
			cfg.SSH = sshConfig{
				Listen:         "127.0.0.1:0",
				AuthorizedKeys: filepath.Join(cfg.StateDir, "keys"),
				UserCA:         filepath.Join(cfg.StateDir, "ca"),
			}
			writeTestFile(t, cfg.SSH.AuthorizedKeys, sshLine("viewer", "maria", maria))
			writeTestFile(
				t,
				cfg.SSH.UserCA,
				strings.TrimSpace(sshLine("", "", sshSigner(t))[len(`falcon-role="",falcon-name="" `):]),
			)
			cfg.fillDefaults()
			mend := bad.spoil(t, &cfg)
			if f := checkEngine(cfg); len(f.refused) > 0 || len(f.off) != 1 {
				t.Errorf("--check: %+v", f)
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
			if (h.SSH == "") != bad.off {
				t.Errorf("ssh on %q", h.SSH)
			}
			untilAlarm(t, h, func(alarm string) bool {
				return strings.Contains(alarm, bad.says)
			})
			if h.SSH != "" {
				if out, err := sshRun(t, h, maria, "--once --json", ""); err != nil {
					t.Errorf("a good key: %v, %q", err, out)
				}
			}
			code, out, errs := command(t, "console", "--once", "--json", "--connect", h.Socket)
			if code != 0 || !strings.Contains(out, bad.says) {
				t.Errorf("the event: %d %q %q", code, out, errs)
			}
			if mend != nil {
				mend()
				untilAlarm(t, h, func(alarm string) bool { return alarm == "" })
			}
		})
	}
}

// untilAlarm waits until the first page's alarm is as wanted.
func untilAlarm(t *testing.T, h *engineHandle, good func(string) bool) {
	t.Helper()
	cc, err := grpc.NewClient("unix:"+h.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	client := falconv1.NewConsoleClient(cc)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		snap, err := client.Snapshot(t.Context(), &falconv1.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if good(snap.GetJob().GetAlarm()) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the alarm is %q", snap.GetJob().GetAlarm())
		}
	}
}

// What decides who comes in is refused at the start where others have a say in it, and by
// --check before.
func TestStateDirectoriesOfOthers(t *testing.T) {
	for name, spoil := range map[string]func(cfg *engineConfig) error{
		"open to others": func(cfg *engineConfig) error { return os.Chmod(cfg.StateDir, 0o777) },
		"of another user": func(cfg *engineConfig) error {
			return os.Chown(cfg.StateDir, 61234, -1)
		},
		"a stranger's certs": func(cfg *engineConfig) error {
			return makeFor(61234, filepath.Join(cfg.StateDir, certsName))
		},
		"a pipe": func(cfg *engineConfig) error {
			return os.Symlink("/dev/null", filepath.Join(cfg.StateDir, journalName))
		},
		"no home": func(cfg *engineConfig) error {
			cfg.StateDir = noStateDir
			return nil
		},
	} {
		cfg := engineConfig{StateDir: shortDir(t), Listen: "none"}
		cfg.fillDefaults()
		if err := spoil(&cfg); errors.Is(err, os.ErrPermission) {
			continue // only root gives things away
		} else if err != nil {
			t.Fatal(err)
		}
		h, err := startEngine(context.Background(), cfg, slog.New(slog.DiscardHandler))
		if err == nil {
			_ = h.Close()
		}
		f := checkEngine(cfg)
		if err == nil ||
			!strings.Contains(err.Error(), "state_dir") ||
			len(f.refused) != 1 {
			t.Errorf("%s: started: %v; --check: %+v", name, err, f)
		}
	}
}

func makeFor(uid int, dir string) error {
	return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, uid, -1))
}

// No list of revoked certificates is left out: that is refused, and --check says it before.
func TestBadRevocationsAreRefused(t *testing.T) {
	h, cfg := testEngine(t)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	writeTestFile(t, filepath.Join(cfg.StateDir, certsName, auth.RevokedFile), "../x\n")
	_, err := startEngine(context.Background(), cfg, slog.New(slog.DiscardHandler))
	f := checkEngine(cfg)
	if err == nil ||
		len(f.refused) != 1 ||
		!strings.Contains(f.refused[0], "line 1") {
		t.Errorf("started: %v; --check: %+v", err, f)
	}
}

// A user without a home has no state directory, and the temporary folder is never one.
func TestNoStateDirectoryIsTemporary(t *testing.T) {
	for _, name := range []string{"FALCON_STATE_DIR", "XDG_STATE_HOME", "HOME"} {
		t.Setenv(name, "")
	}
	dir := defaultStateDir()
	if strings.HasPrefix(dir, os.TempDir()) || !filepath.IsAbs(dir) {
		t.Errorf("without HOME: %s", dir)
	}
}

// Whatever a stranger has put in the place of a name in the state directory, the start is
// refused with the path, and --check says it before.
func TestSquattersInTheStateDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can play two users")
	}
	for what, put := range map[string]func(path string) error{
		"file": func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"folder": func(p string) error {
			return os.MkdirAll(filepath.Join(p, "x"), 0o755)
		},
		"link": func(p string) error { return os.Symlink("/etc/passwd", p) },
		"pipe": func(p string) error { return syscall.Mkfifo(p, 0o600) },
	} {
		for _, name := range append(stateNames, socketName) {
			cfg := engineConfig{StateDir: shortDir(t), Listen: "none"}
			cfg.fillDefaults()
			path := filepath.Join(cfg.StateDir, name)
			if err := errors.Join(put(path), os.Lchown(path, 61234, 61234)); err != nil {
				t.Fatal(err)
			}
			h, err := startEngine(context.Background(), cfg, slog.New(slog.DiscardHandler))
			if err == nil {
				_ = h.Close()
			}
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("a %s at %s: %v", what, name, err)
			}
			if f := checkEngine(cfg); name != socketName && len(f.refused) != 1 {
				t.Errorf("a %s at %s: --check: %+v", what, name, f)
			}
		}
	}
}
