package agent

import (
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	"github.com/failslow/falcon/detect/period"
)

// The hook waits up to ring.DrainMax for the device: so must the agent, or it
// ships a profile without timings.
func TestProfileAwaitsTheHook(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 2, "n1.g0")
		s.set(func() { s.control.MicroBatches, s.slow = 4, true })
		run(s, 0, 3, 4, 15, 30, 60)
		n.Command(profileCommand(11, 3))
		wait(200 * time.Millisecond)
		run(s, 3, 6, 4, 15, 30, 60)
		var late []ring.Timing
		s.set(func() {
			late = s.timings
			s.timings = nil
		})
		wait(ring.DrainMax - time.Second)
		n.expect(t, accepted)
		s.set(func() {
			s.timings = late
			s.control.ProfileDone = s.window
		})
		wait(time.Second)
		n.expect(t, accepted, done)
		got := n.ship.profiles()[0].Ranks[0]
		if got.Iterations < 3 || got.Dropped != 0 {
			t.Fatalf("%d iterations, %d timings dropped", got.Iterations, got.Dropped)
		}
	})
}

// Micro-batches change in the middle of a window: only iterations after the
// change are divided by the new number.
func TestProfileAcrossAnOrder(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 2, "n1.g0")
		s.set(func() { s.control.MicroBatches = 4 })
		run(s, 0, 3, 4, 15, 30, 60)
		n.Command(profileCommand(11, 3))
		wait(200 * time.Millisecond)
		run(s, 3, 3, 4, 15, 30, 60)
		s.set(func() { s.control.MicroBatches = 8 })
		commit(s, 1, 6, 0)
		run(s, 6, 6, 8, 15, 30, 60)
		wait(time.Second)
		n.expect(t, accepted, done)
		got := n.ship.profiles()[0].Ranks[0]
		if got.Iterations < 3 ||
			got.MicroBatches != 8 ||
			got.SelfMs < 14.9 ||
			got.SelfMs > 15.1 {
			t.Fatalf("self %v over %d iterations of %d micro-batches",
				got.SelfMs, got.Iterations, got.MicroBatches)
		}
	})
}

// expecter is a tracker that remembers what it was given.
type expecter struct {
	*period.Tracker
	announced []int
}

func (e *expecter) Expect(n int) {
	e.announced = append(e.announced, n)
	e.Tracker.Expect(n)
}

func TestOtherMicroBatchesAreAnnounced(t *testing.T) {
	s := &fakeSegment{
		header:  ring.Header{PID: 1, Rank: 0, World: 4},
		control: ring.Control{Iteration: -1, MicroBatches: 8},
	}
	s.comms = []ring.Comm{
		{Slot: 0, ID: 77, Size: 4, State: ring.CommLive},
		{Slot: 1, ID: 88, Size: 2, State: ring.CommLive},
	}
	p := newProcess("x", s, &fakeExit{gone: make(chan struct{})})
	e := &expecter{Tracker: period.NewTracker(period.Config{})}
	p.iterations.infer = e
	var at int64
	ordinals := map[uint32]uint64{}
	call := func(comm uint32, op falcon.Op, count uint64) {
		at += 1e6
		s.records = append(s.records, ring.Record{
			Comm:    comm,
			Op:      op,
			Count:   count,
			Dtype:   7,
			EnterNs: at,
			Ordinal: ordinals[comm],
		})
		ordinals[comm]++
	}
	train := func(iterations, m int) {
		for range iterations {
			for range m {
				call(1, falcon.OpSend, 1000)
				call(1, falcon.OpRecv, 1000)
			}
			call(0, falcon.OpAllReduce, 100_000)
			call(0, falcon.OpAllReduce, 2)
		}
		p.drainRings(newBuffers(), nil)
	}
	train(20, 8)
	s.control.MicroBatches = 5
	train(2, 5)
	if len(e.announced) != 1 || e.announced[0] != 12 || p.iterations.infer.Period() != 12 {
		t.Fatalf("announced %v, period %d after two iterations of 12 calls", e.announced, p.iterations.infer.Period())
	}
}

// Without FALCON_DEVICE a rank's GPU is named by its local rank.
func TestDeviceComesFromTheLocalRank(t *testing.T) {
	for _, c := range []struct {
		device string
		local  int
		want   string
	}{{"n7.g3", 1, "n7.g3"}, {"", 5, "n1.g5"}, {"", 0, "n1.g0"}, {"", -1, ""}} {
		s := &fakeSegment{header: ring.Header{
			PID:       1,
			Rank:      2,
			World:     4,
			LocalRank: c.local,
			Device:    c.device,
		}}
		p := newProcess("x", s, &fakeExit{gone: make(chan struct{})})
		if got := p.rankState("n1").Device; got != c.want {
			t.Errorf("FALCON_DEVICE %q, LOCAL_RANK %d: device %q, want %q", c.device, c.local, got, c.want)
		}
	}
}
