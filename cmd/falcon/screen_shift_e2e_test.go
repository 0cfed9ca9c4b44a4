package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/lab"
	"github.com/failslow/falcon/tui/report"
)

// shiftLab is one of two jobs of a shift, with a device that is slow all along.
const shiftLab = `name: %s
about: A GPU falls to half clock and stays there.
layout: {tp: 1, dp: %d, pp: 2}
nodes: %d
micro_batches: 8
iterations: 4000
link_mb_s: 20
events:
  - {at_iteration: 40, gpu: %s, clock: 0.5}
`

// A shift on one terminal with two jobs, both slow. Which device is at fault needs no key; S2 is
// approved in one job with three, actions are frozen with one and unfrozen with three, a link that
// slows it is tested with three; the other job's incident is snoozed with two, a rank dies there
// and is replaced with three, and its incidents are handed over. No key of one job reaches the other.
func TestScreenShift(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	north := shiftFile(t, dir, "north", 4, 4, "n1.g0")
	south := shiftFile(t, dir, "south", 2, 2, "n0.g1")
	s := newScreen(t, 160, 45, north...)
	s.tmux(append([]string{"new-window", "-d", binFalcon(t)}, south...)...)
	jobs := s.shiftJobs(2)
	s.tmux("new-window", binFalcon(t), "console", "--all")
	s.wait(120*time.Second, "2 jobs", "2 slow", "n1.g0", "n0.g1")
	s.northernJob(jobs["north"])
	s.southernJob(jobs["south"])
	if got := jobs["north"].incident(s); got.Triage != nil {
		t.Errorf("what was said of one job reached the other: %+v", got.Triage)
	}
	if got := jobs["south"].incident(s); len(got.Actions) > 0 && got.Actions[0].DecidedBy != "" {
		t.Errorf("what was decided in one job reached the other: %+v", got.Actions[0])
	}
	s.keys("0")
	s.wait(10*time.Second, "2 jobs")
}

// shiftFile writes a job's scenario, and returns the command that plays it.
func shiftFile(t *testing.T, dir, name string, dp, nodes int, gpu string) []string {
	t.Helper()
	file := filepath.Join(dir, name+".yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, shiftLab, name, dp, nodes, gpu), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"lab", "run", "--scenario", file, "--headless", "--approve", "never", "--no-reference"}
}

// shiftJob is one of the labs behind the screen.
type shiftJob struct{ dir, socket, context string }

// shiftJobs waits for labs of the screen, by the names of their scenarios.
func (s *screen) shiftJobs(n int) map[string]shiftJob {
	s.t.Helper()
	jobs := map[string]shiftJob{}
	waitFor(s.t, 60*time.Second, "the labs", func() bool {
		dirs, _ := filepath.Glob(filepath.Join(s.tmp, "falcon-lab-*", "run-*"))
		for _, dir := range dirs {
			var st lab.Status
			out, err := s.run("lab", "status", "--lab", dir)
			if err == nil && json.Unmarshal([]byte(out), &st) == nil {
				jobs[st.Scenario] = shiftJob{
					dir:     dir,
					socket:  st.Socket,
					context: "lab-" + strings.TrimPrefix(filepath.Base(dir), "run-"),
				}
			}
		}
		return len(jobs) == n
	})
	return jobs
}

// run runs the binary beside the screen's labs.
func (s *screen) run(args ...string) (string, error) {
	cmd := exec.Command(binFalcon(s.t), args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+s.tmp)
	out, err := cmd.Output()
	return string(out), err
}

func (j shiftJob) status(s *screen) lab.Status {
	s.t.Helper()
	var st lab.Status
	out, err := s.run("lab", "status", "--lab", j.dir)
	if err == nil {
		err = json.Unmarshal([]byte(out), &st)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

func (j shiftJob) incident(s *screen) report.Incident {
	s.t.Helper()
	var inc report.Incident
	out, err := s.run("incident", "show", "INC-0001", "--json", "--connect", j.socket)
	if err == nil {
		err = json.Unmarshal([]byte(out), &inc)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return inc
}

// openJob opens a job from the list.
func (s *screen) openJob(j shiftJob) {
	s.t.Helper()
	s.keys("/", "job:"+j.context, "Enter")
	s.wait(10*time.Second, "1 of 2")
	s.keys("Enter")
}

func (s *screen) northernJob(j shiftJob) {
	s.t.Helper()
	s.openJob(j)
	s.wait(60*time.Second, "n1.g0", "S2 PROPOSED")
	s.keys("a")
	s.wait(10*time.Second, "Cancel", "Approve")
	time.Sleep(dialogGuard)
	s.keys("Tab", "Enter")
	s.wait(60*time.Second, "S2 (shift micro-batches) kept")
	s.keys("F")
	s.wait(10*time.Second, "FREEZE?")
	time.Sleep(dialogGuard)
	s.keys("Enter")
	s.wait(10*time.Second, "F unfreezes")
	s.keys("F")
	s.wait(10*time.Second, "UNFREEZE?")
	time.Sleep(dialogGuard)
	s.keys("Tab", "Enter")
	waitFor(s.t, 10*time.Second, "the end of the freeze", func() bool {
		return !strings.Contains(s.text(), "FROZEN")
	})
	s.testTheLink(j)
	s.keys("0")
	s.wait(10*time.Second, "FLEET")
	s.keys("Escape")
	waitFor(s.t, 10*time.Second, "the end of the filter", func() bool {
		return !strings.Contains(s.text(), "1 of 2")
	})
}

func (s *screen) southernJob(j shiftJob) {
	s.t.Helper()
	s.openJob(j)
	s.wait(60*time.Second, "n0.g1", "INC-0001")
	s.keys("S")
	s.wait(10*time.Second, ":snooze 1h")
	s.keys("Enter")
	s.wait(10*time.Second, "snoozed until")
	pids := j.status(s).RankPids
	if _, err := s.run("lab", "inject", "kill", "3", "--lab", j.dir); err != nil {
		s.t.Fatal(err)
	}
	s.keys("7")
	s.wait(60*time.Second, "REC-0001 proposed", "SIGKILL")
	s.keys("a")
	s.wait(10*time.Second, "APPROVE RECOVERY REC-0001?")
	time.Sleep(dialogGuard)
	s.keys("Tab", "Enter")
	s.wait(60*time.Second, "REC-0001 resumed", "SIGKILL")
	now := j.status(s).RankPids
	if now["3"] == pids["3"] || now["0"] != pids["0"] {
		s.t.Errorf("processes %v before, %v now", pids, now)
	}
	s.keys(":handover lee", "Enter")
	waitFor(s.t, 10*time.Second, "the hand-over", func() bool {
		got := j.incident(s).Triage
		return got != nil && got.Owner == "lee"
	})
}

// testTheLink narrows a link, and tests with three keys what the incident names.
func (s *screen) testTheLink(j shiftJob) {
	s.t.Helper()
	if _, err := s.run("lab", "inject", "link", "n2-n3", "--bandwidth", "0.12", "--lab", j.dir); err != nil {
		s.t.Fatal(err)
	}
	s.wait(60*time.Second, "INC-0002", "+ test     n2-n3") // the engine's own test, which names the link
	s.keys("x")
	s.wait(10*time.Second, "Cancel", "Test links n2-n3")
	time.Sleep(dialogGuard)
	s.keys("Tab", "Enter")
	s.wait(60*time.Second, "VAL-0002 done", "n2-n3 is SLOW")
}
