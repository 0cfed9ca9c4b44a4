package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/lab"
)

// says runs a command at the lab's engine.
func (l *liveLab) says(args ...string) (string, error) {
	l.t.Helper()
	out, err := exec.Command(
		binFalcon(l.t),
		append(args, "--connect", filepath.Join(l.dir, socketName))...,
	).CombinedOutput()
	return string(out), err
}

// saysSoon runs a command until its answer holds all the words.
func (l *liveLab) saysSoon(within time.Duration, words []string, args ...string) string {
	l.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(300 * time.Millisecond) {
		out, err := l.says(args...)
		missing := ""
		for _, w := range words {
			if !strings.Contains(out, w) {
				missing = w
			}
		}
		if err == nil && missing == "" {
			return out
		}
		if time.Now().After(end) {
			l.t.Fatalf("falcon %s: %v, without %q:\n%s", strings.Join(args, " "), err, missing, out)
		}
	}
}

// TestLabSays has ranks and nodes of a running lab tell what they know: a rank that trains, one
// that was killed, one that hangs, and a kernel with an Xid (an emulated line).
func TestLabSays(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole lab run")
	}
	sc, err := lab.Load("rank-crash")
	if err != nil {
		t.Fatal(err)
	}
	sc.Name = "says"
	sc.Iterations = 2000
	sc.ForwardMs = 2
	sc.Events = []lab.Event{
		{AtIteration: 100, Kill: "rank 5"},
		{AtIteration: 280, Stall: "rank 3", ForMs: 25000},
	}
	l := startLab(t, sc, "")
	victim := l.status().RankPids["5"]
	l.saysSoon(
		10*time.Second,
		[]string{"rank 3 on n1: process ", "runs", `"iteration":`, `"rank":3`},
		"rank",
		"logs",
		"3",
		"--lines", "3",
	)
	if out, err := l.says("rank", "stack", "3"); err == nil ||
		!strings.Contains(out, "does not stand still") {
		t.Errorf("a rank that trains gives its stack unasked: %v\n%s", err, out)
	}
	l.saysSoon(
		10*time.Second,
		[]string{"main thread", "falcon-hook"},
		"rank",
		"stack",
		"3",
		"--sure",
	)

	line := fmt.Sprintf("3,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=%d, GPU has fallen off the bus.\n",
		victim)
	f, err := os.OpenFile(
		filepath.Join(l.dir, "kmsg-n2"),
		os.O_APPEND|os.O_WRONLY,
		0,
	)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(line); err != nil {
		t.Fatal(err)
	}
	f.Close()
	l.saysSoon(
		10*time.Second,
		[]string{"Xid 79: the GPU has fallen off the bus (rank 5). Take the node out"},
		"node",
		"kernel",
		"n2",
	)

	l.await(140, time.Minute) // rank 5 was killed and has come back
	out := l.saysSoon(
		10*time.Second,
		[]string{fmt.Sprintf("of process %d before: ", victim), `"rank":5`},
		"rank",
		"logs",
		"5",
		"--lines", "3",
	)
	now := l.status().RankPids["5"]
	if now == victim || !strings.Contains(out, fmt.Sprintf("process %d runs", now)) {
		t.Errorf("rank 5 was process %d and is process %d:\n%s", victim, now, out)
	}
	l.await(280, time.Minute)
	l.saysSoon(20*time.Second, []string{"main thread"}, "rank", "stack", "3") // it makes no call
	l.saysSoon(20*time.Second, []string{"main thread"}, "rank", "stack", "0") // it waits for it
	r := l.stop()
	if len(r.Recoveries) != 1 {
		t.Errorf("%d recoveries: the killed rank's alone was to be, and none for a line of the kernel",
			len(r.Recoveries))
	}
}
