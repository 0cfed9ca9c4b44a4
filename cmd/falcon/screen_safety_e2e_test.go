package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/failslow/falcon/tui/report"
)

// safetyLab is a job whose slow GPU stays slow, under a policy that wants two
// people for S2 and gives time to withdraw what they approve.
const safetyLab = `about: A GPU falls to half clock and stays there; S2 takes two people.
layout: {tp: 1, dp: 4, pp: 2}
nodes: 4
micro_batches: 8
iterations: 4000
policy:
  mode: approve
  rungs: {S2: {undo_s: 20, second: true}}
events:
  - {at_iteration: 40, gpu: n1.g0, clock: 0.5}
`

// What stands between one person and the job is on the screen at every moment:
// the approval that waits for a second person, the time in which it can be
// withdrawn, the freeze that holds it, and who took it back.
func TestScreenSafety(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "safety.yaml")
	if err := os.WriteFile(file, []byte(safetyLab), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newScreen(t, 80, 24, "lab", "run", "--scenario", file, "--no-reference")
	s.wait(60*time.Second, "INC-0001", "S2 PROPOSED")
	maria := s.person("maria")
	s.firstOfTwo()
	maria("decide", "INC-0001", "--approve")
	s.wait(10*time.Second, " and maria, acts in", "v withdraws it")
	s.keys("F")
	s.wait(10*time.Second, "FREEZE?")
	time.Sleep(dialogGuard)
	s.keys("Enter")
	s.wait(10*time.Second, "FROZEN", " and maria, held while frozen, v withdraws it")
	s.keys("F")
	s.wait(10*time.Second, "UNFREEZE?")
	time.Sleep(dialogGuard)
	s.keys("Tab", "Enter")
	s.wait(10*time.Second, " and maria, acts in")
	s.withdraw()
	s.bothAgain(maria)
	s.announced()
	s.keys("q")
}

// person issues a certificate for somebody else, and returns falcon as run by
// them over mutual TLS.
func (s *screen) person(name string) func(args ...string) string {
	s.t.Helper()
	dir := filepath.Dir(s.status().Socket)
	b, err := os.ReadFile(filepath.Join(dir, "falcon.yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	var c engineConfig
	if err := yaml.Unmarshal(b, &c); err != nil {
		s.t.Fatal(err)
	}
	certs := filepath.Join(dir, certsName)
	s.falcon("certs", "issue", "--dir", certs, "--role", "approver", "--name", name)
	return func(args ...string) string {
		s.t.Helper()
		return s.falcon(append(args, "--connect", c.Listen, "--ca", filepath.Join(certs, "ca.crt"),
			"--cert", filepath.Join(certs, name+".crt"), "--key", filepath.Join(certs, name+".key"))...)
	}
}

// firstOfTwo approves on the screen; nothing happens, and the same person can't
// be the second.
func (s *screen) firstOfTwo() {
	s.t.Helper()
	s.keys("a")
	s.wait(
		10*time.Second,
		"Two people have to approve S2",
		"It goes out 20 s after the approval",
		"Cancel",
		"Approve",
	)
	time.Sleep(dialogGuard)
	s.keys("Tab", "Enter")
	s.wait(10*time.Second, "S2 approved by ", "waits for a second approver", "v veto")
	s.keys("a")
	s.wait(10*time.Second, "you have approved S2 already; another person has to approve it, too")
	cmd := exec.Command(binFalcon(s.t), "decide", "INC-0001", "--approve")
	cmd.Env = append(os.Environ(), "FALCON_SOCKET="+s.status().Socket)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "a second approver is required") {
		s.t.Errorf("the same person approved twice: %v: %s", err, out)
	}
}

// withdraw takes back what both have approved, while its time runs.
func (s *screen) withdraw() {
	s.t.Helper()
	s.keys("v")
	s.wait(10*time.Second, "WITHDRAW S2?", "reason (optional)", "Nothing is changed in the job")
	time.Sleep(dialogGuard)
	s.keys("no", "Enter")
	s.wait(10*time.Second, " and maria, withdrawn by ")
	s.keys("5")
	s.wait(10*time.Second, "vetoed · approved by ", "withdrawn by ")
}

// bothAgain takes the rung by hand, twice, and leaves it its time.
func (s *screen) bothAgain(maria func(args ...string) string) {
	s.t.Helper()
	if got := s.falcon(
		"decide",
		"INC-0001",
		"--approve",
		"--rung", "S2",
	); !strings.Contains(got, "waits for a second approver") {
		s.t.Errorf("the first of two is told %q", got)
	}
	s.wait(10*time.Second, "1 OF 2", "waits for a second approver")
	maria("decide", "INC-0001", "--approve")
	s.wait(10*time.Second, "APPROVED", " and maria, acts in")
	waitFor(s.t, 60*time.Second, "S2 to go out", func() bool {
		var inc report.Incident
		if err := json.Unmarshal(
			[]byte(s.falcon("incident", "show", "INC-0001", "--json")),
			&inc,
		); err != nil {
			s.t.Fatal(err)
		}
		return inc.Actions[len(inc.Actions)-1].AppliedIteration > 0
	})
}

// told looks for the whole of it in the report, each line of whose timeline is
// a record of the journal.
func (s *screen) announced() {
	s.t.Helper()
	got := s.falcon("incident", "export", "INC-0001", "--format", "md")
	for _, want := range []string{
		"approve (1 of 2)", "approve (2 of 2)", "maria (approver)",
		"is approved and waits: actions are frozen",
		"is ordered in 20 s unless an operator withdraws it", "withdrawn by ",
	} {
		if !strings.Contains(got, want) {
			s.t.Errorf("the report does not tell %q:\n%s", want, got)
		}
	}
}
