package main

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

var clockSteps = flag.Int("lab-clock-steps", 0,
	"play so many steps of the engine's clock; 0 = the short ones of make check")

// stepIterations is the length of a job whose engine's clock steps.
const stepIterations = 260

// stepSizes are by how much clocks step, each way.
var stepSizes = []time.Duration{
	3 * time.Second,
	30 * time.Second,
	10 * time.Second,
	10 * 365 * 24 * time.Hour,
	10 * time.Minute,
	24 * time.Hour,
	365 * 24 * time.Hour,
}

// clockStep is a step of the engine's wall clock in a step of a recovery.
type clockStep struct {
	by   time.Duration
	step falcon.RecoveryState
}

// String is the step in a few words.
func (s clockStep) String() string {
	return fmt.Sprintf("%s at %s", s.by, s.step)
}

// kind groups steps in the table.
func (s clockStep) kind() string {
	if s.by < 0 {
		return "back"
	}
	return "ahead"
}

// steppedAt is the ith play: all sizes each way, at the steps of a recovery in turn.
func steppedAt(i int) clockStep {
	s := clockStep{
		by:   -stepSizes[i/2%len(stepSizes)],
		step: pauseSteps[1+i%(len(pauseSteps)-1)],
	}
	if i%2 == 1 {
		s.by = -s.by
	}
	return s
}

// shortSteps are played in make check.
var shortSteps = []clockStep{
	{-30 * time.Second, falcon.RecoveryReplace},
	{10 * 365 * 24 * time.Hour, falcon.RecoverySuspend},
}

// TestClockSteps steps the engine's clock while it recovers a rank: that recovery and the next
// must come to their end with times that can be, and the engine must start from its journal again.
func TestClockSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("whole lab runs")
	}
	binFalcon(t)
	list := shortSteps
	if *clockSteps > 0 {
		list = nil
		for i := range *clockSteps {
			list = append(list, steppedAt(i))
		}
	}
	var c tally
	for i, s := range list {
		began := time.Now()
		bad := s.play(t)
		c.add(t, s.kind(), fmt.Sprintf("%d: %s", i+1, s), bad, time.Since(began))
	}
	c.report(t)
}

// play plays one step and says what was wrong.
func (s clockStep) play(t *testing.T) []string {
	ref := playReference(t, stepIterations)
	l := startPlay(t, playScenario4("clock", 0, stepIterations))
	engine := l.status().EnginePid
	if err := s.disturb(l, engine); err != nil && !errors.Is(err, errPlayEnded) {
		return append([]string{err.Error(), l.standing()}, l.finish(ref, 0)...)
	}
	bad := l.finish(ref, playEndsWithin)
	if r, err := readReport(l.report); err == nil {
		bad = append(bad, judgeStepTimes(r)...)
	}
	return bad
}

// disturb steps the clock in a recovery, kills another rank, and restarts the engine.
func (s clockStep) disturb(l *livePlay, engine int) error {
	if err := l.recoveryReaches(s.step); err != nil {
		return err
	}
	if err := l.ask("step-clock", "", s.by); err != nil {
		return err
	}
	if err := l.goesOn(); err != nil {
		return err
	}
	if err := l.killAndGoOn("rank 1"); err != nil {
		return err
	}
	if now := l.status().EnginePid; now != engine {
		return fmt.Errorf("the engine has ended: it was process %d, and is %d", engine, now)
	}
	return l.withoutEngine(2*time.Second, func(string) error { return nil })
}

// judgeStepTimes: both recoveries ended, and no phase of theirs took less than no time, or longer
// than the play.
func judgeStepTimes(r lab.Report) []string {
	var bad []string
	if len(r.Recoveries) != 2 {
		bad = append(bad, fmt.Sprintf("%d recoveries, want two", len(r.Recoveries)))
	}
	for _, v := range r.Recoveries {
		for phase, ms := range v.PhasesMs {
			if most := float64(playEndsWithin.Milliseconds()); !(ms >= 0 && ms <= most) {
				bad = append(bad, fmt.Sprintf("%s took %.0f ms for %s", v.ID, ms, phase))
			}
		}
	}
	return bad
}

// The judge says what is wrong, one thing at a time.
func TestJudgeStepTimes(t *testing.T) {
	one := lab.RecoveryReport{ID: "REC-0001", PhasesMs: map[string]float64{"replace": 40}}
	if bad := judgeStepTimes(lab.Report{Recoveries: []lab.RecoveryReport{one, one}}); bad != nil {
		t.Errorf("a right report: %v", bad)
	}
	for _, ms := range []float64{-30_000, 1e9} {
		two := lab.RecoveryReport{ID: "REC-0002", PhasesMs: map[string]float64{"replace": ms}}
		bad := judgeStepTimes(lab.Report{Recoveries: []lab.RecoveryReport{one, two}})
		if len(bad) != 1 {
			t.Errorf("%.0f ms: %v", ms, bad)
		}
	}
	if bad := judgeStepTimes(lab.Report{}); len(bad) != 1 {
		t.Errorf("no recovery: %v", bad)
	}
}
