package launch

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/internal/procstat"
)

const patience = 30 * time.Second

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("gave up waiting for %s", what)
		}
	}
}

func real(t *testing.T, dir string, script string) *Launcher {
	t.Helper()
	cfg := Config{
		Command:   []string{"/bin/sh", "-c", script},
		NodeRanks: 4,
		LogDir:    dir,
	}
	return New(
		cfg,
		At{Node: "n1", Job: "gpt", ShmDir: dir},
		filepath.Join(dir, "record"),
		nil,
		slog.New(slog.DiscardHandler),
	)
}

// Real processes: they lead sessions, print to their files, are collected, and
// are found by a later agent that has nothing written down of them.
func TestRealProcesses(t *testing.T) {
	dir := t.TempDir()
	l := real(t, dir,
		"echo rank $RANK of generation {generation}; if [ $RANK = 1 ]; then exit 3; fi; exec sleep 600")
	if err := l.Begin(plan(1, 0, 1), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.End)
	until(t, "the exit of rank 1", func() bool {
		l.Collect()
		return l.State(1).Ended
	})
	if how := l.State(1).How; how != "exited with status 3" {
		t.Fatalf("rank 1 %s", how)
	}
	until(t, "what rank 0 printed", func() bool { // rank 1 may end before it does
		text, err := os.ReadFile(filepath.Join(dir, "gpt.g1.rank0.log"))
		return err == nil && strings.Contains(string(text), "rank 0 of generation 1")
	})
	pid := l.State(0).PID
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Fatalf("process %d is in session %d, %v", pid, sid, err)
	}
	m := machine{proc: "/proc"}
	found, ok := m.Find(markVariable + "=" + l.markValue(plan(1, 0), Rank{Rank: 0}))
	if !ok || found != l.rec.Procs[0] {
		t.Fatalf("found %+v, %v instead of %+v", found, ok, l.rec.Procs[0])
	}
	if _, ok := m.Find(markVariable + "=" + l.markValue(plan(1, 0), Rank{Rank: 1})); ok {
		t.Fatal("found a process that has ended")
	}
	l.End()
	until(t, "the end of rank 0", func() bool {
		l.Collect()
		return l.State(0).Ended
	})
	if how := l.State(0).How; how != "killed by signal 9 (SIGKILL)" {
		t.Fatalf("rank 0 %s", how)
	}
}

func TestRealStartThatFails(t *testing.T) {
	dir := t.TempDir()
	l := real(t, dir, "true")
	l.cfg.Command[0] = filepath.Join(dir, "absent")
	err := l.Begin(plan(1, 0), nil)
	if err == nil || !strings.Contains(err.Error(), "absent") {
		t.Fatal(err)
	}
}

// A log that can't be written, whoever has seen to that, keeps no rank from being started.
func TestLogsThatCanNotBeWritten(t *testing.T) {
	for what, spoil := range map[string]func(path string) error{
		"no folder":    func(path string) error { return os.Remove(filepath.Dir(path)) },
		"a folder":     func(path string) error { return os.Mkdir(path, 0o700) },
		"a link":       func(path string) error { return os.Symlink("/dev/zero", path) },
		"a pipe":       func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a device":     func(path string) error { return os.Symlink("/dev/full", path) },
		"nobody there": func(string) error { return nil },
	} {
		dir := t.TempDir()
		l := real(t, dir, "exit 0")
		l.cfg.LogDir = filepath.Join(dir, "logs")
		path := filepath.Join(l.cfg.LogDir, "gpt.g2.rank0.log")
		if err := errors.Join(os.Mkdir(l.cfg.LogDir, 0o700), spoil(path)); err != nil {
			t.Fatal(err)
		}
		if err := l.Begin(plan(2, 0), nil); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		until(t, "the end of rank 0", func() bool {
			l.Collect()
			return l.State(0).Ended
		})
		at := l.State(0)
		if (at.Log == path) != (what == "nobody there") || at.How != "exited normally" {
			t.Errorf("%s: %+v", what, at)
		}
	}
}

// A number that another process has taken is not the process that was started.
func TestAnotherProcessOfTheSameNumber(t *testing.T) {
	m := machine{proc: "/proc"}
	st, err := procstat.Read("/proc", os.Getpid())
	if err != nil || st.Start == 0 {
		t.Fatal(st, err)
	}
	if _, ended := m.Ended(Proc{PID: os.Getpid(), Start: st.Start}); ended {
		t.Fatal("this process was said to have ended")
	}
	if _, ended := m.Ended(Proc{PID: os.Getpid(), Start: st.Start - 1}); !ended {
		t.Fatal("another process's number was believed")
	}
	m.Kill(Proc{PID: os.Getpid(), Start: st.Start - 1}) // would end this test
}
