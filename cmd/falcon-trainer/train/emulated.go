package train

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
)

// State is what the emulated GPU's state costs to move: the trainer's own is
// small. It counts only where the hardware is emulated at a pace.
type State struct {
	Bytes float64 // of one GPU; 0 = those that are really there
	Copy  float64 // bytes/s between device and host; 0 = no time
	Disk  float64 // bytes/s of each rank's storage, both ways; 0 = no time
}

func (s State) validate() error {
	if s.Bytes < 0 || s.Copy < 0 || s.Disk < 0 {
		return fmt.Errorf(
			"%w: a state of %g bytes, copied at %g and stored at %g bytes/s; give no negative numbers",
			ErrConfig, s.Bytes, s.Copy, s.Disk,
		)
	}
	return nil
}

// emulatedBytes is the emulated size of real bytes of state.
func (s State) emulatedBytes(real int) float64 {
	if s.Bytes > 0 {
		return s.Bytes
	}
	return float64(real)
}

// copyTime and storing are how long real bytes of state take.
func (s State) copyTime(real int) time.Duration {
	return transferTime(s.emulatedBytes(real), s.Copy)
}

func (s State) storeTime(real int) time.Duration {
	return transferTime(s.emulatedBytes(real), s.Disk)
}

func transferTime(bytes, rate float64) time.Duration {
	if rate <= 0 || !device.Paced() {
		return 0
	}
	return time.Duration(bytes / rate * float64(time.Second))
}

// Faults are failures that tests inject into this process's placements.
type Faults struct {
	Fail string // step that is done and then reported as failed, once
	Die  string // step at whose beginning the process is killed; "vote" and "commit" come behind the last one
}

// Moments of a placement at which only Die can strike.
const (
	momentVote   = "vote"   // at any time while the last vote is taken
	momentCommit = "commit" // this rank knows that all hold their state, and has not published it
)

func (f Faults) validate() error {
	steps := falcon.SwapSteps[:]
	if f.Fail != "" && !slices.Contains(steps, f.Fail) {
		return fmt.Errorf("%w: no step of a placement is called %q; give one of %v", ErrConfig, f.Fail, steps)
	}
	moments := append(slices.Clone(steps), momentVote, momentCommit)
	if f.Die != "" && !slices.Contains(moments, f.Die) {
		return fmt.Errorf("%w: no moment of a placement is called %q; give one of %v",
			ErrConfig, f.Die, moments)
	}
	return nil
}

// strikeAt kills the process where Die names the moment, as a machine dies: without a log line.
func (f Faults) strikeAt(moment string) {
	const spread = 400 * time.Microsecond // of a vote in an unpaced run
	switch {
	case f.Die != moment:
	case moment == momentVote:
		time.AfterFunc(time.Duration(rand.Int64N(int64(spread))), killProcess)
	default:
		killProcess()
	}
}

func killProcess() {
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL) // can't fail for oneself
}
