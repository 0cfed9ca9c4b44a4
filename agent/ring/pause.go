package ring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrPause is wrapped when a pause can't be ordered; nothing is held then.
// ErrMissed is wrapped beside it where a cut farther ahead could be.
var (
	ErrPause  = errors.New("ring: no pause")
	ErrMissed = errors.New("the cut was missed")
)

// PauseMax is how long a pause may last; the hook refuses a longer one.
const PauseMax = pauseMaxMs * time.Millisecond

const gateTries = 1 << 12 // a training thread changes a gate once a call: this is many calls

// PauseState is the state of a process's newest pause order.
type PauseState uint32

// States of a pause, in the order in which they can come.
const (
	PauseNone     PauseState = pauseNone
	PauseArmed    PauseState = pauseArmed    // taken up; calls before the cut still pass
	PauseReached  PauseState = pauseReached  // at the cut; the streams still run
	PauseQuiet    PauseState = pauseQuiet    // at the cut and drained
	PauseReleased PauseState = pauseReleased // the agent took the order back
	PauseExpired  PauseState = pauseExpired  // let go at the deadline
	PauseRefused  PauseState = pauseRefused  // holds nothing; see the reason
)

var pauseStateNames = [...]string{"none", "armed", "reached", "quiet", "released", "expired", "refused"}

func (s PauseState) String() string {
	if int(s) < len(pauseStateNames) {
		return pauseStateNames[s]
	}
	return "unknown"
}

// Over reports whether the order holds nothing any more.
func (s PauseState) Over() bool { return s >= PauseReleased }

// PauseReason is why a pause or a test was refused.
type PauseReason uint32

// reasonTexts are one clause each, by enum falcon_pause_reason.
var reasonTexts = [...]string{
	"", "a stream captures a CUDA graph or replays one", "a group of calls reaches across the cut",
	"a communicator was aborted, revoked or destroyed meanwhile",
	"the CUDA runtime can't be asked whether the streams have drained",
	"the order came too late or lives too long",
	"no test workspace is reserved, or too little: set FALCON_TEST_MB for the job",
	"cuBLAS or an NCCL function is missing", "the job is not held", "a call returned an error",
	"an iteration made other calls than those before it",
	"NCCL_COMM_ID or NCCL_COMM_BLOCKING=1 is set for the job, so that no communicator can be made aside",
	"NCCL's profiler plug-in watches it, which can't hold calls: start it with falcon-agent run without --monitor",
}

func (r PauseReason) String() string {
	if int(r) < len(reasonTexts) {
		return reasonTexts[r]
	}
	return "the hook gives a reason that this agent does not know: update it"
}

// Pause is what the hook reports of its newest pause order. Times are
// CLOCK_MONOTONIC ns, 0 where it has not come so far.
type Pause struct {
	Wanted                         uint64 // order in force, as the agent wrote it, 0 = none
	UntilNs                        int64  // its deadline
	Seen                           uint64 // order that the rest is about
	State                          PauseState
	Reason                         PauseReason
	TrappedNs, QuietNs, ReleasedNs int64
}

// HeldNs is how long the first trapped call was held by nowNs, at most
// PauseMax whatever the process claims.
func (s Pause) HeldNs(nowNs int64) int64 {
	end := s.ReleasedNs
	if end == 0 {
		end = nowNs
	}
	if s.TrappedNs <= 0 || end <= s.TrappedNs {
		return 0
	}
	return min(end-s.TrappedNs, int64(PauseMax))
}

// Pause reads the state of the newest pause order. A state beyond the known ones reads as
// refused: nothing may rely on it.
func (p *Process) Pause() (s Pause) {
	p.access(func() { s = p.controlBlock().readPause() })
	return s
}

func (m image) readPause() (s Pause) {
	for range seqlockTries { // the state is stored last: equal before and after, it goes with the times
		state := m.readUint32(ctlPauseState)
		seen := m.readUint64(ctlPauseSeen)
		s = Pause{
			Wanted:     m.readUint64(ctlPauseOrder),
			UntilNs:    m.readInt64(ctlPauseUntilNs),
			Seen:       seen,
			State:      PauseState(state),
			Reason:     PauseReason(m.readUint32(ctlPauseReason)),
			TrappedNs:  m.readInt64(ctlTrappedNs),
			QuietNs:    m.readInt64(ctlQuietNs),
			ReleasedNs: m.readInt64(ctlReleasedNs),
		}
		if m.readUint32(ctlPauseState) == state && m.readUint64(ctlPauseSeen) == seen {
			break
		}
	}
	if s.State > PauseRefused {
		s.State = PauseRefused
	}
	return s
}

// Cut is how many calls one communicator lets through in a pause, counted
// since its creation.
type Cut struct {
	Comm  uint64 // id
	Calls uint64
}

// Arm orders a pause: each communicator named traps the first call beyond its
// cut, until untilNs (CLOCK_MONOTONIC) at the latest. A cut equal to the count
// holds the next call; one behind it is missed, and then nothing is held. order
// must not have been used on this process. boundary is the iteration that begins
// behind the cuts by the process's own marks, negative where it marks none: a
// call that then contradicts the cuts ends the pause. Every live communicator
// needs a cut. The error wraps ErrPause, and ErrMissed where a cut is behind or
// a communicator is new, or is the fault that made this Process useless.
func (p *Process) Arm(order uint64, untilNs, boundary int64, cuts []Cut) error {
	if p.err != nil {
		return p.err
	}
	gates, err := p.gatesOf(cuts)
	if err != nil {
		return err
	}
	return p.guarded(func() error {
		return p.writePause(order, untilNs, boundary, gates, cuts)
	})
}

func (p *Process) writePause(order uint64, untilNs, boundary int64, gates []gate, cuts []Cut) error {
	if err := p.checkPause(order, untilNs); err != nil {
		return err
	}
	p.mem.writeUint64(p.control+ctlPauseUntilNs, uint64(untilNs))
	p.mem.writeUint64(p.control+ctlPauseBoundary, uint64(max(boundary, -1)+1))
	p.mem.writeUint64(p.control+ctlPauseOrder, order)
	for i, g := range gates {
		if err := p.armGate(g, cuts[i]); err != nil {
			p.releaseGates()
			return err
		}
	}
	p.mem.writeUint64(p.control+ctlPauseArmed, order)
	p.wakeThreads()
	return nil
}

func (p *Process) checkPause(order uint64, untilNs int64) error {
	left, s := untilNs-MonoNs(), p.Pause()
	switch wanted := p.mem.readUint64(p.control + ctlPauseOrder); {
	case order == 0:
		return fmt.Errorf("%w: an order needs a number", ErrPause)
	case wanted != 0:
		return fmt.Errorf("%w: pause %d is in force already", ErrPause, wanted)
	case s.State != PauseNone && !s.State.Over(): // its end would clear the gates of this one as well
		return fmt.Errorf("%w: %w: the hook has not let go of order %d yet", ErrPause, ErrMissed, s.Seen)
	case left <= 0 || left > int64(PauseMax):
		return fmt.Errorf("%w: it would end in %v, which is not within %v",
			ErrPause, time.Duration(left), PauseMax)
	}
	return nil
}

// gate is where a communicator's gate lies, and which life of the slot it is.
type gate struct {
	at         uint64
	generation uint32
}

// gatesOf finds the live communicators that the cuts name, which must be all:
// calls on another one would go on while the job is held.
func (p *Process) gatesOf(cuts []Cut) ([]gate, error) {
	if len(cuts) == 0 {
		return nil, fmt.Errorf("%w: no communicator is named", ErrPause)
	}
	byID := map[uint64]gate{}
	for _, c := range p.Comms(nil) {
		if _, twice := byID[c.ID]; c.State != CommLive || twice {
			continue
		}
		byID[c.ID] = gate{
			at:         p.comms + uint64(c.Slot)*commBytes,
			generation: c.Generation,
		}
	}
	out := make([]gate, len(cuts))
	for i, c := range cuts {
		g, ok := byID[c.Comm]
		if !ok || c.Comm == 0 {
			return nil, fmt.Errorf("%w: communicator %016x is not alive here", ErrPause, c.Comm)
		}
		out[i] = g
	}
	for _, c := range cuts {
		delete(byID, c.Comm)
	}
	for id := range byID {
		return nil, fmt.Errorf("%w: %w: communicator %016x was made since the calls were counted",
			ErrPause, ErrMissed, id)
	}
	return out, nil
}

// armGate writes a cut that is not behind the count, in one step with looking
// at the count, so that "missed" is known here and now.
func (p *Process) armGate(g gate, c Cut) error {
	at := p.mem.pointer64(g.at + comGate)
	for range gateTries {
		old := atomic.LoadUint64(at)
		count := old & gateCountMask
		if c.Calls < count {
			return fmt.Errorf("%w: %w: communicator %016x has let %d calls through, the cut is at %d",
				ErrPause, ErrMissed, c.Comm, count, c.Calls)
		}
		if c.Calls-count > gateCutMask/2 {
			return fmt.Errorf(
				"%w: the cut of communicator %016x is %d calls ahead, at most %d can be expressed",
				ErrPause, c.Comm, c.Calls-count, uint64(gateCutMask/2),
			)
		}
		if !atomic.CompareAndSwapUint64(at, old, gateArmed|(c.Calls&gateCutMask)<<gateCutShift|count) {
			continue
		}
		if p.mem.readUint32(g.at+comGeneration) != g.generation {
			return fmt.Errorf("%w: communicator %016x was destroyed meanwhile", ErrPause, c.Comm)
		}
		return nil
	}
	return fmt.Errorf("%w: %w: communicator %016x changes too fast to be cut", ErrPause, ErrMissed, c.Comm)
}

// Release takes the pause back: trapped calls go on at once. It may be called
// at any time, and does nothing where nothing is held.
func (p *Process) Release() {
	p.access(p.releaseGates)
}

func (p *Process) releaseGates() {
	p.mem.writeUint64(p.control+ctlPauseOrder, 0)
	p.wakeThreads()
	for slot := range uint64(commsMax) {
		disarmGate(p.mem.pointer64(p.comms + slot*commBytes + comGate))
	}
}

// disarmGate clears one gate; where that does not succeed, the hook does it, as no
// order is in force.
func disarmGate(at *uint64) {
	for range gateTries {
		old := atomic.LoadUint64(at)
		if old&gateArmed == 0 || atomic.CompareAndSwapUint64(at, old, old&gateCountMask) {
			return
		}
	}
}

// wakeThreads wakes the trapped threads and the hook's side thread. The word changes
// first, so that a thread on its way to sleep does not miss it.
func (p *Process) wakeThreads() {
	word := p.mem.pointer32(p.control + ctlPauseWord)
	atomic.AddUint32(word, 1)
	futexWake(word)
	futexWake(p.mem.pointer32(p.control + ctlMode))
}

func futexWake(word *uint32) {
	const wake, all = 1, 1 << 30
	_, _, _ = unix.Syscall6(
		unix.SYS_FUTEX,
		uintptr(unsafe.Pointer(word)),
		wake,
		all,
		0,
		0,
		0,
	)
}
