package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nightLab is a job with a spare node whose fault does not go away, and that
// lasts as long as the night's work.
const nightLab = `about: A GPU falls to half clock and stays there; a spare node waits.
layout: {tp: 1, dp: 4, pp: 2}
nodes: 4
spares: 1
micro_batches: 8
iterations: 4000
events:
  - {at_iteration: 40, gpu: n1.g0, clock: 0.5}
`

// dialogGuard outlasts the 400 ms in which a dialog ignores keys.
const dialogGuard = 500 * time.Millisecond

// A night on one terminal: the operator takes S4, which wants the job's name
// and its ranks typed, tests the job once it runs elsewhere, watches a killed
// rank come back, and is refused an S4 whose spare is the culprit of before.
func TestScreenNight(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "night.yaml")
	if err := os.WriteFile(file, []byte(nightLab), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newScreen(t, 120, 40, "lab", "run", "--scenario", file, "--no-reference")
	s.wait(60*time.Second, "INC-0001", "n1.g0", "S2 PROPOSED")
	s.restart()
	s.validate()
	s.recoverRank(5)
	s.resize()
	s.refuseTheCulprit()
	s.keys("q")
}

// restart takes S4 from the ladder. Nothing is sent before word and reason are
// there and the button is pressed.
func (s *screen) restart() {
	s.t.Helper()
	s.keys("5")
	s.wait(5*time.Second, "S4 restart")
	for range 8 {
		if strings.Contains(s.text(), "▸ S4 restart") {
			break
		}
		s.keys("j")
		time.Sleep(100 * time.Millisecond)
	}
	s.keys("x")
	s.wait(5*time.Second, "TAKE S4 restart NOW?", "type lab 8:")
	time.Sleep(dialogGuard)
	before := s.status().RankPids["2"]
	s.keys("Tab", "lab 9", "Tab", "hot all night", "Tab", "Enter")
	s.wait(5*time.Second, "lab 9", "type lab 8")
	if s.status().RankPids["2"] != before {
		s.t.Fatal("the job was restarted by the wrong word")
	}
	s.keys("BTab", "BTab", "BSpace", "8", "Tab", "Tab", "Enter")
	s.wait(60*time.Second, "In force since iteration", "and kept: ")
	got := s.falcon("incident", "show", "INC-0001")
	for _, want := range []string{"S4", "kept", "hot all night"} {
		if !strings.Contains(got, want) {
			s.t.Errorf("the engine's incident does not tell %q:\n%s", want, got)
		}
	}
	if s.status().RankPids["2"] == before {
		s.t.Error("the slow rank's process was not started again")
	}
}

// validate tests everything from page 6. A profile window comes first where one
// is in progress, and on a busy machine it may take longer than the engine lets
// a test wait: then the operator asks again.
func (s *screen) validate() {
	s.t.Helper()
	s.keys("6")
	s.wait(5*time.Second, "none picked")
	for n := 1; ; n++ {
		s.keys("x")
		s.wait(5*time.Second, "HOLD THE JOB AND TEST?")
		time.Sleep(dialogGuard)
		s.keys("Tab", "Enter")
		val := fmt.Sprintf("VAL-%04d ", n)
		waitFor(s.t, 60*time.Second, "the end of "+val, func() bool {
			now := s.text()
			return strings.Contains(now, val+"done") || strings.Contains(now, val+"refused")
		})
		if strings.Contains(s.text(), val+"done") {
			break
		}
		if n == 4 {
			s.t.Fatalf("refused %d times:\n%s", n, s.text())
		}
	}
	s.wait(5*time.Second, "1.00×", "emulated")
}

// recoverRank kills a rank and watches page 7 until the job trains again.
func (s *screen) recoverRank(rank int) {
	s.t.Helper()
	pids := s.status().RankPids
	s.keys("7")
	s.falcon("lab", "inject", "kill", fmt.Sprint(rank))
	s.wait(60*time.Second, "REC-0001 resumed", fmt.Sprintf("rank %d", rank), "SIGKILL")
	now := s.status().RankPids
	for r, pid := range pids {
		if (r == fmt.Sprint(rank)) == (now[r] == pid) {
			s.t.Errorf("rank %s: process %d before, %d now", r, pid, now[r])
		}
	}
}

// resize changes the size thirty times as fast as tmux takes it; the console
// then draws what fits, down to a summary, and nothing of the old size stays.
func (s *screen) resize() {
	s.t.Helper()
	for i := range 30 {
		s.tmux(
			"resize-window",
			"-x", fmt.Sprint(20+(i*37)%180),
			"-y", fmt.Sprint(5+(i*13)%55),
		)
	}
	s.tmux("resize-window", "-x", "50", "-y", "14")
	s.wait(5*time.Second, "enlarge to 60×16")
	s.tmux("resize-window", "-x", "80", "-y", "24")
	s.wait(5*time.Second, "REC-0001", "? help")
	for i, row := range strings.Split(s.text(), "\n") {
		if strings.Contains(row, "enlarge") {
			s.t.Errorf("row %d still shows the summary: %q", i, row)
		}
	}
}

// refuseTheCulprit slows another node: the only spare left is the one that S4 took out of
// the job, and nothing that the operator presses puts the job back on it.
func (s *screen) refuseTheCulprit() {
	s.t.Helper()
	s.tmux("resize-window", "-x", "120", "-y", "40")
	s.falcon("lab", "inject", "gpu", "n2.g0", "--clock", "0.5")
	s.keys("1")
	s.wait(60*time.Second, "INC-0002", "n2.g0")
	s.keys("5")
	s.wait(10*time.Second, "LADDER INC-0002", "S4 restart")
	for range 8 {
		if got := s.text(); strings.Contains(got, "▸ S4 restart") {
			break
		}
		s.keys("j")
		time.Sleep(100 * time.Millisecond)
	}
	s.wait(10*time.Second, "S4 restart: no spare is fit: n1 was the culprit of INC-0001")
	s.keys("x")
	s.wait(5*time.Second, "S4 restart can't be taken: no spare is fit: n1 was the culprit of INC-0001")
	if got := s.falcon("incident", "show", "INC-0002"); strings.Contains(s.text(), "TAKE S4") ||
		strings.Contains(got, "action    S4") {
		s.t.Errorf("S4 on the culprit of before is offered or taken:\n%s\n%s", s.text(), got)
	}
}
