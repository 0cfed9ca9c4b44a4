package agent

import (
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
)

// fakeRecovery is a process's side of recoveries, as its hook and its adapter
// would act when the test lets them.
type fakeRecovery struct {
	untilNs   int64 // of the newest suspension
	suspended int   // times that one was written
	stop      uint64
	orders    []ring.Rejoin
	park      ring.Park
	rejoined  ring.Rejoined
	job       ring.JobState
	kept      int64 // the newest time from which its longest wait counts
	deny      error // what Suspend and PutRejoin say
}

func (s *fakeSegment) Suspend(generation uint64, untilNs int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recovery.deny != nil {
		return s.recovery.deny
	}
	s.control.SuspendWanted = generation
	s.recovery.untilNs = untilNs
	s.recovery.suspended++
	return nil
}

func (s *fakeSegment) Stop(generation uint64) {
	s.set(func() { s.recovery.stop = generation })
}

func (s *fakeSegment) PutRejoin(r ring.Rejoin) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recovery.deny != nil {
		return s.recovery.deny
	}
	s.recovery.orders = append(s.recovery.orders, r)
	s.control.RejoinOrdered = r.Generation
	return nil
}

func (s *fakeSegment) Park() (ring.Park, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recovery.park, true
}

func (s *fakeSegment) Rejoined() (ring.Rejoined, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recovery.rejoined, true
}

// declare is an adapter that can do everything; in set.
func (s *fakeSegment) declare() {
	s.control.Coverage |= ring.CoverAdapter
	s.recovery.job.Can = falcon.Can{
		Declared:   true,
		Park:       true,
		Split:      true,
		Place:      true,
		Checkpoint: true,
		Versions:   1,
	}
}

func (s *fakeSegment) JobState() ring.JobState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recovery.job
}

// parks is what hook and adapter do with a suspension: the communicators are
// aborted, and the process waits with the steps that it holds.
func (s *fakeSegment) parks(generation uint64, tag int64, steps ...int64) {
	s.set(func() {
		s.control.Suspended = generation
		s.control.SuspendedNs = time.Now().UnixNano()
		s.recovery.park = ring.Park{
			On:         true,
			Generation: generation,
			Tag:        tag,
			Hold:       falcon.RankHold{Steps: [2]int64{-1, -1}},
		}
		for i, step := range steps {
			s.recovery.park.Hold.Steps[i] = step
			s.recovery.park.Hold.Sums[i] = uint64(100 + step)
		}
	})
}

// joins is a replacement process: it parks at once and holds nothing.
func (s *fakeSegment) joins(generation uint64) {
	s.parks(generation, -1)
	s.set(func() {
		s.control.GenerationNow, s.control.Suspended = generation, 0
		s.recovery.park.Status = ring.ParkJoin
	})
}

// goesOn is what hook and adapter do with a rejoin.
func (s *fakeSegment) goesOn(generation uint64, iteration int64, status int32) {
	s.set(func() {
		s.control.GenerationNow = generation
		s.recovery.park = ring.Park{}
		s.recovery.rejoined = ring.Rejoined{
			Generation: generation,
			Iteration:  iteration,
			Status:     status,
			GroupsNs:   3e6,
			StateNs:    5e6,
			Bytes:      64,
		}
	})
}
