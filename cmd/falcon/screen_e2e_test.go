package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/lab"
)

// screen is a real terminal: a tmux server of its own on a private socket.
type screen struct {
	t      *testing.T
	socket string
	tmp    string // TMPDIR of what runs in it: its labs are its own
}

func newScreen(t *testing.T, width, height int, args ...string) *screen {
	t.Helper()
	if testing.Short() {
		t.Skip("a whole lab run takes a minute")
	}
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is absent: the console can't be driven on a real terminal")
	}
	bin := binFalcon(t)
	tmp, err := os.MkdirTemp("", "fs") // short: unix sockets live below it
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, socket: filepath.Join(tmp, "tmux"), tmp: tmp}
	cmd := append(
		[]string{"new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height), bin},
		args...,
	)
	s.tmux(cmd...)
	t.Cleanup(s.close)
	return s
}

func (s *screen) tmux(args ...string) string {
	s.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", s.socket, "-f", "/dev/null"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+s.tmp, "TERM=xterm-256color", "LANG=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil && args[0] != "kill-server" {
		s.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

func (s *screen) close() {
	s.tmux("kill-server")
	for range 100 { // the lab ends with its terminal; its folder goes last
		left, _ := filepath.Glob(filepath.Join(s.tmp, "falcon-lab-*", "run-*"))
		if len(left) == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if left, _ := filepath.Glob(filepath.Join(s.tmp, "falcon-lab-*", "run-*")); len(left) != 0 {
		s.t.Errorf("the lab left %v behind when its terminal closed", left)
	}
	_ = os.RemoveAll(s.tmp)
}

func (s *screen) text() string { return s.tmux("capture-pane", "-p") }

// keys presses keys at a person's pace: what comes faster confirms nothing.
func (s *screen) keys(keys ...string) {
	for _, k := range keys {
		s.tmux("send-keys", k)
		if len(k) > 10 { // a text; nobody types it at once
			time.Sleep(time.Second)
		}
		time.Sleep(150 * time.Millisecond)
	}
}

// wait polls until every text is on the screen at once.
func (s *screen) wait(limit time.Duration, texts ...string) string {
	s.t.Helper()
	end := time.Now().Add(limit)
	for {
		now := s.text()
		missing := ""
		for _, want := range texts {
			if !strings.Contains(now, want) {
				missing = want
			}
		}
		if missing == "" {
			return now
		}
		if time.Now().After(end) {
			s.t.Fatalf("%q did not come to the screen within %s:\n%s", missing, limit, now)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// status asks the screen's lab.
func (s *screen) status() lab.Status {
	s.t.Helper()
	cmd := exec.Command(binFalcon(s.t), "lab", "status")
	cmd.Env = append(os.Environ(), "TMPDIR="+s.tmp)
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("lab status: %v", err)
	}
	var st lab.Status
	if err := json.Unmarshal(out, &st); err != nil {
		s.t.Fatal(err)
	}
	return st
}

// falcon runs the binary against the screen's engine.
func (s *screen) falcon(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(binFalcon(s.t), args...)
	cmd.Env = append(os.Environ(),
		"TMPDIR="+s.tmp,
		"FALCON_SOCKET="+s.status().Socket,
	)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("falcon %v: %v: %s", args, err, out)
	}
	return string(out)
}

// The operator sees the incident, approves S2 with the keyboard, sees the gain.
func TestScreenApprove(t *testing.T) {
	t.Run("80x24", func(t *testing.T) { approve(t, 80, 24) })
	t.Run("120x40", func(t *testing.T) { approve(t, 120, 40) })
}

func approve(t *testing.T, width, height int) {
	t.Parallel()
	s := newScreen(t, width, height, "lab", "run")
	s.wait(60*time.Second, "INC-0001", "n1.g0", "S2 PROPOSED")
	s.keys("a")
	s.wait(5*time.Second, "Cancel", "Approve")
	time.Sleep(500 * time.Millisecond) // the dialog ignores keys for 400 ms, against type-ahead
	s.keys("Tab")
	s.keys("Enter")
	s.wait(60*time.Second, "kept", "measured")
	if got := s.falcon("incident", "show", "INC-0001"); !strings.Contains(got, "kept") {
		t.Errorf("the engine does not know the action as kept:\n%s", got)
	}
	s.keys("q")
}

// A veto at 80x24: nothing is applied, and the job stays as it was.
func TestScreenVeto(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 80, 24, "lab", "run")
	s.wait(60*time.Second, "INC-0001", "S2 PROPOSED")
	s.keys("v")
	s.wait(5*time.Second, "eto")
	time.Sleep(500 * time.Millisecond) // as above
	s.keys("not now")
	s.keys("Enter")
	s.wait(10*time.Second, "vetoed")
	before := s.status().Iteration
	for s.status().Iteration < before+30 {
		time.Sleep(200 * time.Millisecond)
	}
	got := s.falcon("incident", "show", "INC-0001")
	if !strings.Contains(got, "vetoed") ||
		strings.Contains(got, "in force") ||
		strings.Contains(got, "kept") {
		t.Errorf("after a veto the engine says:\n%s", got)
	}
}

// kill -9 of the console: the ranks live on, the console comes back and shows
// the same incident from its journal; kill -9 of an agent: likewise.
func TestScreenSurvivesKills(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 120, 40, "lab", "run")
	s.wait(60*time.Second, "INC-0001", "S2 PROPOSED")
	first := s.status()
	kill := func(pid int) {
		t.Helper()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	kill(first.EnginePid)
	waitFor(t, 20*time.Second, "a new console process", func() bool {
		return s.status().EnginePid != first.EnginePid
	})
	s.wait(30*time.Second, "INC-0001", "n1.g0", "S2 PROPOSED")
	kill(first.AgentPids["n1"])
	waitFor(t, 20*time.Second, "a new agent of n1", func() bool {
		return s.status().AgentPids["n1"] != first.AgentPids["n1"]
	})
	now := s.status()
	for rank, pid := range first.RankPids {
		if now.RankPids[rank] != pid || syscall.Kill(pid, 0) != nil {
			t.Errorf("rank %s did not survive", rank)
		}
	}
	waitFor(t, 20*time.Second, "20 more iterations", func() bool {
		return s.status().Iteration > now.Iteration+20
	})
	s.keys("a")
	s.wait(5*time.Second, "Cancel", "Approve")
	time.Sleep(500 * time.Millisecond) // against type-ahead, as above
	s.keys("Tab")
	s.keys("Enter")
	s.wait(60*time.Second, "kept")
}

// kill -9 of a trainer: the lab says which rank died and ends; nothing hangs.
func TestKilledTrainerEndsTheLab(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 100, 30, "lab", "run", "--headless")
	waitFor(t, 30*time.Second, "a running job", func() bool {
		out, err := s.tryStatus()
		return err == nil && out.Iteration > 15
	})
	if err := syscall.Kill(s.status().RankPids["5"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 60*time.Second, "the lab to end", func() bool {
		_, err := s.tryStatus()
		return err != nil
	})
}

func (s *screen) tryStatus() (lab.Status, error) {
	cmd := exec.Command(binFalcon(s.t), "lab", "status")
	cmd.Env = append(os.Environ(), "TMPDIR="+s.tmp)
	out, err := cmd.Output()
	var st lab.Status
	if err == nil {
		err = json.Unmarshal(out, &st)
	}
	return st, err
}

func waitFor(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %s for %s", limit, what)
		}
	}
}
