package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/record"
)

// shortRecording is a file to replay on a terminal.
func shortRecording(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "r.frec")
	at := time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)
	w, err := record.Create(path, record.Options{Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		at = at.Add(time.Second)
		w.Record(&feed.State{
			Snap: &falconv1.SnapshotReply{Job: &falconv1.Job{
				Name:      "recorded-job",
				World:     2,
				Dp:        2,
				Iteration: int64(i),
				State:     "steady",
			}},
			Conn:     feed.Live,
			Since:    at,
			Received: at,
		})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// shellScreen is a terminal with a plain shell in it.
func shellScreen(t *testing.T) *screen {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is absent: the console can't be driven on a real terminal")
	}
	tmp, err := os.MkdirTemp("", "fg")
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, socket: filepath.Join(tmp, "tmux"), tmp: tmp}
	s.tmux("new-session", "-d", "-x", "90", "-y", "26", "env PS1='ready$ ' sh -i")
	t.Cleanup(func() {
		s.tmux("kill-server")
		_ = os.RemoveAll(tmp)
	})
	s.wait(10*time.Second, "ready$")
	return s
}

// under lists the processes below pid, nearest first.
func under(t *testing.T, pid int) []int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, f := range files { // each thread has its own
		b, _ := os.ReadFile(f) // a thread may just have ended
		out = append(out, b...)
	}
	var all []int
	for _, f := range strings.Fields(string(out)) {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(append(all, n), under(t, n)...)
	}
	return all
}

func (s *screen) shellPid() int {
	s.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(s.tmux("display-message", "-p", "#{pane_pid}")))
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

func (s *screen) alternate() bool {
	s.t.Helper()
	return strings.TrimSpace(s.tmux("display-message", "-p", "#{alternate_on}")) == "1"
}

// echoes proves that the shell has its terminal again.
func (s *screen) echoes() {
	s.t.Helper()
	if s.alternate() {
		s.t.Errorf("the alternate screen is still on:\n%s", s.text())
	}
	s.keys("echo typed-$((40+2)) $(stty -a | grep -o ' -\\?echo ')", "Enter")
	got := s.wait(10*time.Second, "typed-42 echo", "echo typed-$((40+2))")
	if strings.Contains(got, "typed-42 -echo") {
		s.t.Errorf("the terminal does not echo:\n%s", got)
	}
}

func startReplay(t *testing.T) (s *screen, guardian, console int) {
	t.Helper()
	bin := binFalcon(t)
	s = shellScreen(t)
	s.keys(bin+" replay "+shortRecording(t, s.tmp)+"; echo code $?", "Enter")
	s.wait(20*time.Second, "recorded-job", "REPLAY")
	if !s.alternate() {
		t.Error("no alternate screen")
	}
	below := under(t, s.shellPid())
	if len(below) != 2 {
		t.Fatalf("%d processes run below the shell, want guardian and console", len(below))
	}
	return s, below[0], below[1]
}

// kill -9 of the console: the shell has its terminal again.
func TestKilledConsoleLeavesTheTerminalAsItWas(t *testing.T) {
	s, _, console := startReplay(t)
	if err := syscall.Kill(console, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.wait(10*time.Second, "was killed by SIGKILL; the terminal is restored", "code 137")
	s.echoes()
}

// kill -9 of the guardian: the console ends in order. The shell's words stand
// below its end, or came before, on the screen that was then left: the console
// says so itself then.
func TestKilledGuardianEndsTheConsole(t *testing.T) {
	s, guardian, console := startReplay(t)
	if err := syscall.Kill(guardian, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 10*time.Second, "the console to end", func() bool {
		return syscall.Kill(console, 0) != nil
	})
	waitFor(t, 10*time.Second, "the shell", func() bool {
		text := s.text()
		return strings.Contains(text, "code 137") ||
			strings.Contains(text, "guarded this terminal was killed")
	})
	s.echoes()
}

// A signal to the guardian reaches the console, which ends as it does alone.
func TestSignalsReachTheConsole(t *testing.T) {
	s, guardian, _ := startReplay(t)
	if err := syscall.Kill(guardian, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.wait(10*time.Second, "code 0")
	s.echoes()
}

// Stopped and continued by the shell: the terminal is the shell's in between.
func TestConsoleIsStoppedAndGoesOn(t *testing.T) {
	s, guardian, _ := startReplay(t)
	if err := syscall.Kill(guardian, syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 10*time.Second, "the shell", func() bool {
		return !s.alternate()
	})
	s.wait(10*time.Second, "ready$")
	s.echoes()
	s.keys("fg", "Enter")
	s.wait(10*time.Second, "recorded-job", "REPLAY", "overview", "help")
	s.keys("q")
	waitFor(t, 10*time.Second, "the shell", func() bool {
		return !s.alternate()
	})
	s.echoes()
}

// The console of `lab run` is not the guardian's child, and still not without one.
func TestAncestors(t *testing.T) {
	shell := exec.Command("/bin/sh", "-c", "sleep 600 & echo $!; wait")
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	var below int
	if _, err := fmt.Fscan(out, &below); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(below, syscall.SIGKILL) })
	for _, above := range []int{os.Getpid(), shell.Process.Pid, below} {
		if !isAncestor(above, below) {
			t.Errorf("%d is not found above %d", above, below)
		}
	}
	if isAncestor(below, shell.Process.Pid) {
		t.Error("a child counts as its parent's ancestor")
	}
	_ = shell.Process.Kill()
	_ = shell.Wait()
	if isAncestor(shell.Process.Pid, below) || isAncestor(os.Getpid(), below) {
		t.Error("a process that was killed is still found above its child")
	}
}
