package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// troubled is a lab with one node, whose agent is a process that sleeps.
func troubled(t *testing.T) (*Lab, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	l := &Lab{
		place:  &place{dir: t.TempDir()},
		agents: []*agentNode{{setup: NodeSetup{Node: "n1"}}},
	}
	l.closing = t.Context()
	l.stop = func() {}
	l.status.AgentPids = map[string]int{"n1": cmd.Process.Pid}
	t.Cleanup(l.wait.Wait)
	return l, cmd
}

func stateOf(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))[0]
}

func awaitState(t *testing.T, pid int, want string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if strings.Contains(want, stateOf(t, pid)) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("state %s, want %s", stateOf(t, pid), want)
		}
	}
}

func TestAgentsAreFrozenAndEnded(t *testing.T) {
	l, cmd := troubled(t)
	if err := l.Trouble().carryOut(Request{Op: "freeze-agent", Target: "n1"}); err != nil {
		t.Fatal(err)
	}
	awaitState(t, cmd.Process.Pid, "T")
	if err := l.Trouble().carryOut(Request{Op: "thaw-agent", Target: "n1"}); err != nil {
		t.Fatal(err)
	}
	awaitState(t, cmd.Process.Pid, "SR")
	if err := l.Trouble().carryOut(Request{
		Op:     "freeze-agent",
		Target: "n1",
		For:    50 * time.Millisecond,
	}); err != nil {
		t.Fatal(err)
	}
	awaitState(t, cmd.Process.Pid, "SR")
	if err := l.Trouble().carryOut(Request{
		Op:     "stop-agent",
		Target: "n1",
		For:    9 * time.Second,
	}); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	status, ok := cmd.ProcessState.Sys().(interface{ Signal() unix.Signal })
	if !ok || status.Signal() != unix.SIGTERM {
		t.Errorf("ended with %v", cmd.ProcessState)
	}
	away := time.Duration(l.agents[0].away.Load())
	if away != 9*time.Second {
		t.Errorf("away for %v", away)
	}
}

func TestTroubleThatCannotBe(t *testing.T) {
	l, _ := troubled(t)
	for _, r := range []Request{
		{Op: "stop-agent", Target: "n9"},
		{Op: "kill-agent", Target: "n1", For: -1},
		{Op: "stall", For: 2 * time.Hour},
		{Op: "stall", For: time.Second, Target: "n1"},
		{Op: "stall", For: time.Second, Target: "99"},
		{Op: "cut-agent", Target: "n1", Mode: "sever", For: time.Second},
		{Op: "thaw-agent"},
		{Op: "trip"},
	} {
		err := l.Trouble().carryOut(r)
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// What holds for a while is in a file with the time until then.
func TestCutsAndStalls(t *testing.T) {
	l, _ := troubled(t)
	if err := l.Trouble().carryOut(Request{
		Op:     "cut-agent",
		Target: "n1",
		Mode:   CutDrop,
		For:    time.Minute,
	}); err != nil {
		t.Fatal(err)
	}
	if err := l.Trouble().carryOut(Request{Op: "stall", For: time.Minute}); err != nil {
		t.Fatal(err)
	}
	for file, prefix := range map[string]string{"cut.n1": "drop ", "stall": ""} {
		text, err := os.ReadFile(filepath.Join(l.place.dir, file))
		until, ok := strings.CutPrefix(strings.TrimSpace(string(text)), prefix)
		until, _, _ = strings.Cut(until, " ")
		ns, err2 := strconv.ParseInt(until, 10, 64)
		left := time.Until(time.Unix(0, ns))
		if err != nil || err2 != nil || !ok || left <= 0 || left > time.Minute {
			t.Errorf("%s: %q", file, text)
		}
	}
}

// A trainer that refuses to begin ends the lab: nothing can recover it.
func TestATrainerThatRefuses(t *testing.T) {
	refuses := exec.Command("sh", "-c", "exit 2").Run()
	fails := exec.Command("sh", "-c", "exit 1").Run()
	for _, c := range []struct {
		p    rankProcess
		want bool
	}{
		{rankProcess{exited: true, err: refuses}, true},
		{rankProcess{exited: true, err: fails}, false},
		{rankProcess{exited: true, err: refuses, end: endStopped}, false},
		{rankProcess{err: refuses}, false},
	} {
		if got := c.p.neverBegan(); got != c.want {
			t.Errorf("%+v: %v", c.p, got)
		}
	}
	l := parkingLab(t)
	l.ranks = []*rankProcess{{rank: 0, exited: true, err: refuses}, {
		rank:   1,
		exited: true,
		err:    fails,
	}}
	err := l.describeOutcome()
	if !l.jobEnded() || err == nil || strings.Contains(err.Error(), "rank 1") {
		t.Errorf("a job that can't begin is waited for, or others are blamed: %v", err)
	}
	l.ranks[0].err = fails
	if l.jobEnded() {
		t.Error("a job that may be recovered is given up")
	}
}

// parkingLab is a lab whose ranks leave training for a recovery.
func parkingLab(t *testing.T) *Lab {
	t.Helper()
	sc, err := Load("rank-crash")
	if err != nil {
		t.Fatal(err)
	}
	return &Lab{
		sc:      sc,
		opt:     Options{Hook: true, Marks: true},
		records: newRecords(sc.Layout.Layout().World()),
	}
}
