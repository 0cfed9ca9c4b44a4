package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/lab"
)

var labJournals = flag.Int("lab-journals", 0,
	"play the loss of journals so often each; 0 = the short ones of make check")

// journalLoss is how the engine comes to a journal that knows less than its agents and ranks.
type journalLoss struct {
	how string // restored (by the documented command), rolled back (file by file), emptied
	age int    // recoveries since the copy
}

// String is the loss in a few words.
func (j journalLoss) String() string {
	return fmt.Sprintf("%s, %d recoveries old", j.how, j.age)
}

// journalLosses are all that are played.
var journalLosses = []journalLoss{
	{"restored", 1}, {"restored", 3}, {"restored", 10}, {"rolled back", 3}, {"emptied", 3},
}

// shortLosses are played in make check.
var shortLosses = journalLosses[:1]

const (
	engineGone     = 6 * time.Second       // for which the engine stays away while its journal is handled
	playIteration  = 30 * time.Millisecond // an iteration of a play takes no less
	journalPerKill = 60                    // iterations that a kill and what follows take at most
)

// TestJournalsOfBefore gives a job's engine an older journal, or none, and then kills a rank and a
// node: both must be recovered, and the job come to its end with the reference's weights.
func TestJournalsOfBefore(t *testing.T) {
	if testing.Short() {
		t.Skip("whole lab runs")
	}
	binFalcon(t)
	list, times := shortLosses, 1
	if *labJournals > 0 {
		list = journalLosses
		times = *labJournals
	}
	var c tally
	for i := range times {
		for _, j := range list {
			began := time.Now()
			bad := j.play(t)
			c.add(
				t,
				j.String(),
				fmt.Sprintf("%d: %s", i+1, j),
				bad,
				time.Since(began),
			)
		}
	}
	c.report(t)
}

// play plays one loss and says what was wrong.
func (j journalLoss) play(t *testing.T) []string {
	// it trains on without the engine
	iterations := 150 + 2*int(engineGone/playIteration) + (j.age+2)*journalPerKill
	ref := playReference(t, iterations)
	l := startPlay(t, playScenario4("journal", 1, iterations))
	err := j.disturb(l, t.TempDir())
	if err != nil && !errors.Is(err, errPlayEnded) {
		return append([]string{err.Error(), l.standing()}, l.finish(ref, 0)...)
	}
	return l.finish(ref, 3*playEndsWithin, "n2")
}

// disturb copies the journal, has the job recover so often, brings the copy back, and kills a rank
// and a node.
func (j journalLoss) disturb(l *livePlay, dir string) error {
	if err := l.withoutEngine(engineGone, func(state string) error {
		return j.keep(l, state, dir)
	}); err != nil {
		return err
	}
	for i := range j.age {
		if err := l.killAndGoOn(fmt.Sprintf("rank %d", i%playNodes)); err != nil {
			return fmt.Errorf("kill %d before the loss: %w", i+1, err)
		}
	}
	if err := l.withoutEngine(engineGone, func(state string) error {
		return j.lose(l, state, dir)
	}); err != nil {
		return err
	}
	if err := l.killAndGoOn("rank 1"); err != nil {
		return fmt.Errorf("the rank killed after the loss: %w", err)
	}
	if err := l.killAndGoOn("node n2"); err != nil {
		return fmt.Errorf("the node killed after the loss: %w", err)
	}
	return nil
}

// killAndGoOn kills somebody and waits until the job trains on.
func (p *livePlay) killAndGoOn(target string) error {
	if err := p.goesOn(); err != nil {
		return err
	}
	if err := p.ask("kill", target, 0); err != nil {
		return err
	}
	return p.goesOn()
}

// withoutEngine stops the engine for so long, does something to its files, and waits until it
// answers again.
func (p *livePlay) withoutEngine(away time.Duration, do func(state string) error) error {
	pid := p.status().EnginePid
	if _, err := lab.Ask(p.dir, lab.Request{Op: "stop-engine", For: away}); err != nil {
		return err
	}
	for end := time.Now().Add(away / 2); processLives(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("the engine did not end within %s of SIGTERM", away/2)
		}
	}
	if err := do(p.dir); err != nil {
		return err
	}
	return p.engineAnswers(away + engineWait)
}

// processLives reports whether a process of the lab, which reaps it, is still there.
func processLives(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil
}

// journalFiles are the journal and the file beside it that has its end.
var journalFiles = []string{journalName, "journal.head"}

// keep makes the copy that is brought back later.
func (j journalLoss) keep(l *livePlay, state, dir string) error {
	if j.how == "restored" {
		return l.runFalcon(
			"journal",
			"backup",
			filepath.Join(dir, "copy.db"),
			"--journal", filepath.Join(state, journalName),
		)
	}
	return copyFiles(state, dir)
}

// lose puts the copy, or nothing, in the journal's place.
func (j journalLoss) lose(l *livePlay, state, dir string) error {
	switch j.how {
	case "restored":
		return l.runFalcon(
			"journal",
			"restore",
			"--force", filepath.Join(dir, "copy.db"),
			"--journal", filepath.Join(state, journalName),
		)
	case "rolled back":
		return copyFiles(dir, state)
	}
	for _, name := range journalFiles {
		if err := os.Remove(filepath.Join(state, name)); err != nil {
			return err
		}
	}
	return nil
}

func copyFiles(from, to string) error {
	for _, name := range journalFiles {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// runFalcon runs a command as an operator does.
func (p *livePlay) runFalcon(args ...string) error {
	if out, err := exec.Command(binFalcon(p.t), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("falcon %v: %w: %s", args, err, out)
	}
	return nil
}
