package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// order gives the agent a command with a deadline.
func (n *node) order(id uint64, within time.Duration, c *falconv1.Command) {
	c.Epoch = 1
	c.Id = id
	c.DeadlineUnixNs = time.Now().Add(within).UnixNano()
	n.Command(c)
	wait(10 * time.Millisecond)
}

func suspendCommand(generation uint64, waitMs int64) *falconv1.Command {
	return &falconv1.Command{
		Body: &falconv1.Command_Suspend{
			Suspend: &falconv1.SuspendCommand{Generation: generation, OptimizerWaitMs: waitMs},
		},
	}
}

func rejoinCommand(generation uint64, resume int64, seats ...*falconv1.RankSeat) *falconv1.Command {
	return &falconv1.Command{Body: &falconv1.Command_Rejoin{Rejoin: &falconv1.RejoinCommand{
		Generation:      generation,
		ResumeIteration: resume,
		Seats:           seats,
		MicroBatches:    []int32{4, 4},
		Moves:           []*falconv1.ShardMove{{Rank: 1, From: 0, Why: "replaced"}},
	}}}
}

func seat(rank, pid int32) *falconv1.RankSeat {
	return &falconv1.RankSeat{Rank: rank, Pid: pid}
}

// adapted is a process whose job has an adapter.
func (n *node) adapted(pid, rank int, device string) *fakeSegment {
	s := n.dir.add(pid, rank, device)
	s.set(s.declare)
	return s
}

// pair is a node with two adapted processes that the agent follows.
func (n *node) pair() (a, b *fakeSegment) {
	a, b = n.adapted(100, 0, "n1.g0"), n.adapted(101, 1, "n1.g1")
	wait(time.Second)
	return a, b
}

// newest is the newest state of one rank.
func (n *node) newest(rank int32) *falconv1.RankState {
	var out *falconv1.RankState
	for _, st := range n.ship.states() {
		if st.Rank == rank {
			out = st
		}
	}
	return out
}

// A suspension is done when all are parked; what each holds is known before.
func TestSuspendIsDoneWhenAllArePark(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.pair()
		n.order(1, 10*time.Second, suspendCommand(2, 300))
		if a.control.SuspendWanted != 2 ||
			b.control.SuspendWanted != 2 ||
			time.Duration(a.recovery.untilNs-time.Now().UnixNano()).Round(
				time.Millisecond,
			) != 290*time.Millisecond {
			t.Fatalf("suspended %d and %d until %d",
				a.control.SuspendWanted, b.control.SuspendWanted, a.recovery.untilNs)
		}
		a.parks(2, 7, 6, 7)
		wait(10 * time.Millisecond)
		n.expect(t, accepted)
		b.parks(2, 8, 8)
		wait(10 * time.Millisecond)
		n.expect(t, accepted, done)
		if p := n.newest(0).GetPark(); p.GetGeneration() != 2 ||
			p.GetTag() != 7 ||
			len(p.GetSteps()) != 2 ||
			p.GetSteps()[1] != 7 ||
			p.GetSums()[0] != 106 ||
			p.GetJoining() {
			t.Fatalf("park %v", p)
		}
		if p := n.newest(1).GetPark(); len(p.GetSteps()) != 1 || p.GetSums()[0] != 108 {
			t.Fatalf("park %v", p)
		}
		n.ship.mu.Lock()
		last := n.ship.frames[len(n.ship.frames)-1]
		n.ship.mu.Unlock()
		if last.GetResult() == nil {
			t.Fatalf("the outcome came before a state: %v", last)
		}
	})
}

// A parked process waits on as long as an engine is there, and one that trains is left alone.
func TestParkedProcessesAreKept(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.pair()
		n.order(1, 10*time.Second, suspendCommand(2, 300))
		a.parks(2, 7, 6, 7)
		wait(time.Second)
		before := a.keptAt()
		wait(time.Minute)
		if before == 0 ||
			a.keptAt()-before < int64(59*time.Second) ||
			b.keptAt() != 0 {
			t.Fatalf("kept at %d, a minute later at %d; who trains at %d", before, a.keptAt(), b.keptAt())
		}
		n.ship.mu.Lock()
		n.ship.alone = true
		n.ship.mu.Unlock()
		before = a.keptAt()
		wait(time.Minute)
		if a.keptAt()-before > int64(time.Second) {
			t.Fatalf("without an engine it is kept for %v more", time.Duration(a.keptAt()-before))
		}
	})
}

// A rank that can't park keeps its whole node as it is.
func TestSuspendIsAllOrNothing(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a := n.adapted(100, 0, "n1.g0")
		b := n.dir.add(101, 1, "n1.g1")
		wait(time.Second)
		n.order(1, 10*time.Second, suspendCommand(2, 0))
		got := n.expect(t, refused)
		if !strings.Contains(got[0].Detail, "rank 1 (pid 101) can't park") ||
			a.recovery.suspended+b.recovery.suspended != 0 {
			t.Fatalf("result %v, %d written", got[0], a.recovery.suspended)
		}
		b.set(func() {
			b.declare()
			b.control.SuspendWanted = 5
		})
		n.order(2, 10*time.Second, suspendCommand(2, 0))
		if got := n.expect(
			t,
			refused,
			refused,
		); !strings.Contains(got[1].Detail, "generation 5, which is newer") ||
			a.recovery.suspended != 0 {
			t.Fatalf("result %v", got[1])
		}
	})
}

// A node whose processes are gone, or die while they are awaited, is done; one
// that shows up in the middle is suspended too.
func TestSuspendCountsTheLiving(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.order(1, 10*time.Second, suspendCommand(2, 0))
		n.expect(t, accepted, done)
		a, _ := n.pair()
		n.order(2, 10*time.Second, suspendCommand(3, 0))
		a.parks(3, 4, 4)
		late := n.adapted(102, 2, "n1.g2")
		n.dir.exits[101].die("killed by signal 9 (SIGKILL)")
		wait(300 * time.Millisecond)
		n.expect(t, accepted, done, accepted)
		if late.control.SuspendWanted != 3 {
			t.Fatal("a process that came in the middle was not suspended")
		}
		late.parks(3, 4, 4)
		wait(10 * time.Millisecond)
		n.expect(t, accepted, done, accepted, done)
	})
}

func TestSuspendNamesWhoDoesNotPark(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.pair()
		n.order(1, 2*time.Second, suspendCommand(2, 0))
		a.parks(2, 4, 4)
		wait(3 * time.Second)
		got := n.expect(t, accepted, expired)
		if !strings.Contains(got[1].Detail, "rank 1 (pid 101) did not park in time") ||
			n.newest(0).GetPark() == nil {
			t.Fatalf("result %v", got[1])
		}
		b.parks(2, 4, 4) // its state still tells it
		wait(100 * time.Millisecond)
		if n.newest(1).GetPark().GetGeneration() != 2 {
			t.Fatal("a late park was not told")
		}
	})
}

// The command comes again, from an engine or to an agent that was restarted:
// nothing is written twice.
func TestSuspendAgain(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.pair()
		n.order(1, 10*time.Second, suspendCommand(2, 0))
		n.order(2, 10*time.Second, suspendCommand(2, 0))
		a.parks(2, 4, 4)
		b.parks(2, 4, 4)
		wait(10 * time.Millisecond)
		n.order(3, 10*time.Second, suspendCommand(2, 0))
		n.expect(t, accepted, accepted, done, done, accepted, done)
		if a.recovery.suspended != 1 || b.recovery.suspended != 1 {
			t.Fatalf("written %d and %d times", a.recovery.suspended, b.recovery.suspended)
		}
	})
}

// A newer suspension takes the place of one that a frozen process has not obeyed,
// as often as there are faults.
func TestSuspendThatIsSuperseded(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, _ := n.pair()
		const faults = 12
		for g := uint64(2); g < 2+faults; g++ {
			n.order(g, 50*time.Second, suspendCommand(g, 0))
			a.parks(g, 4, 4)
			wait(10 * time.Millisecond)
		}
		var over int
		for _, r := range n.ship.results() {
			switch r.Status {
			case expired:
				if over++; !strings.Contains(r.Detail, "rank 1 (pid 101) did not park before generation") {
					t.Errorf("result %v", r)
				}
			case refused:
				t.Errorf("result %v", r)
			}
		}
		if over != faults-1 {
			t.Fatalf("%d of %d were superseded", over, faults-1)
		}
	})
}

// What is held or profiled for less is given up.
func TestSuspendEndsAPause(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.adapted(100, 0, "n1.g0")
		s.set(func() { s.control.MicroBatches = 4 })
		run(s, 0, 4, 4, 15, 30, 60)
		n.Command(pauseCommand(2, 5, arm1, 0))
		wait(50 * time.Millisecond)
		s.hold(ring.PauseQuiet)
		wait(50 * time.Millisecond)
		n.order(3, 10*time.Second, suspendCommand(2, 0))
		if s.pause.Wanted != 0 || !s.pause.State.Over() {
			t.Fatalf("the pause is still in force: %+v", s.pause)
		}
	})
}

func TestRejoinIsDoneWhenAllTrain(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.pair()
		a.parks(2, 7, 6, 7)
		b.joins(2)
		wait(300 * time.Millisecond)
		p := n.newest(1).GetPark()
		if !p.GetJoining() || p.GetGeneration() != 2 || len(p.GetSteps()) != 0 {
			t.Fatalf("park %v", p)
		}
		c := rejoinCommand(2, 7, seat(0, 100), seat(1, 101))
		n.order(1, time.Second, c)
		a.goesOn(2, 7, 0)
		wait(2 * time.Second) // groups and shards take longer than the delivery
		n.expect(t, accepted, accepted)
		b.goesOn(2, 7, 0)
		wait(10 * time.Millisecond)
		got := n.expect(t, accepted, accepted, done)
		r := got[2].Ranks
		if len(r) != 2 ||
			r[1].Rank != 1 ||
			r[1].Generation != 2 ||
			r[1].Iteration != 7 ||
			r[1].GroupsMs != 3 ||
			r[1].RestoreMs != 5 ||
			r[1].MovedBytes != 64 ||
			r[1].Status != 0 {
			t.Fatalf("acknowledgements %v", r)
		}
		st := n.newest(1)
		if st.GetPark() != nil || st.GetRejoinedGeneration() != 2 {
			t.Fatalf("state %v", st)
		}
		o := a.recovery.orders
		if len(o) != 1 ||
			o[0].Resume != 7 ||
			o[0].Checkpoint ||
			len(o[0].MicroBatches) != 2 ||
			o[0].Moves[0] != (falcon.ShardMove{Rank: 1, From: 0}) {
			t.Fatalf("orders %+v", o)
		}
		n.order(2, time.Second, c) // by an engine that was restarted
		if n.expect(t, accepted, accepted, done, accepted, done); len(a.recovery.orders) != 1 {
			t.Fatal("the order was given twice")
		}
	})
}

func TestRejoinRefusals(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.pair()
		a.parks(2, 7, 7)
		cases := []struct {
			say     string
			prepare func()
			seats   []*falconv1.RankSeat
		}{
			{"no training process", func() {}, nil},
			{"rank 3 (pid 100) does not run here", func() {}, []*falconv1.RankSeat{seat(3, 100)}},
			{"rank 1 (pid 101) is not parked", func() {}, []*falconv1.RankSeat{seat(0, 100), seat(1, 101)}},
			{
				"parked in generation 1, not in 2",
				func() { b.parks(1, 7, 7) },
				[]*falconv1.RankSeat{seat(0, 100), seat(1, 101)},
			},
			{"has two seats", func() {}, []*falconv1.RankSeat{seat(0, 100), seat(0, 100)}},
			{
				"suspended for generation 3",
				func() { b.set(func() { b.control.SuspendWanted = 3 }) },
				[]*falconv1.RankSeat{seat(0, 100), seat(1, 101)},
			},
		}
		for i, c := range cases {
			c.prepare()
			n.order(uint64(i+1), time.Second, rejoinCommand(2, 7, c.seats...))
			results := n.ship.results()
			last := results[len(results)-1]
			if last.Status != refused || !strings.Contains(last.Detail, c.say) {
				t.Errorf("%v lacks %q", last, c.say)
			}
		}
		if len(a.recovery.orders)+len(b.recovery.orders) != 0 {
			t.Fatal("an order that was refused was written")
		}
		a.set(func() { a.recovery.deny = errors.New("no room") })
		n.order(20, time.Second, rejoinCommand(2, 7, seat(0, 100)))
		results := n.ship.results()
		if last := results[len(results)-1]; last.Status != refused ||
			!strings.Contains(last.Detail, "no room") {
			t.Fatalf("result %v", last)
		}
	})
}

// A second fault while the groups are built: the seats that were suspended again,
// or died, are not waited for.
func TestRejoinEndsWithANewSuspension(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.pair()
		a.parks(2, 7, 7)
		b.parks(2, 7, 7)
		n.order(1, time.Second, rejoinCommand(2, 7, seat(0, 100), seat(1, 101)))
		n.dir.exits[101].die("killed by signal 9 (SIGKILL)")
		a.set(func() {
			a.recovery.park = ring.Park{}
			a.control.GenerationNow = 2
		})
		n.order(2, 10*time.Second, suspendCommand(3, 0))
		a.parks(3, 7, 7)
		wait(10 * time.Millisecond)
		got := n.expect(t, accepted, accepted, refused, done)
		if !strings.Contains(got[2].Detail,
			"rank 0 (pid 100), rank 1 (pid 101) ended or was suspended again") {
			t.Fatalf("result %v", got[2])
		}
	})
}

func TestRejoinThatFailsOnARank(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, b := n.pair()
		a.parks(2, 7, 7)
		b.parks(2, 7, 7)
		n.order(1, time.Second, rejoinCommand(2, 7, seat(0, 100), seat(1, 101)))
		a.goesOn(2, 7, 0)
		b.goesOn(2, 7, -3)
		wait(10 * time.Millisecond)
		got := n.ship.results()
		last := got[len(got)-1]
		if last.Status != done ||
			last.Ranks[1].Status != -3 ||
			!strings.Contains(last.Detail, "rank 1 could not go on: status -3") {
			t.Fatalf("result %v", last)
		}
		if n.newest(1).GetRejoinedGeneration() != 0 {
			t.Fatal("a rejoin that failed counts as carried out")
		}
	})
}

func TestRejoinThatNobodyAnswers(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, _ := n.pair()
		a.parks(2, 7, 7)
		n.order(1, time.Second, rejoinCommand(2, 7, seat(0, 100)))
		wait(rejoinWait)
		got := n.expect(t, accepted, expired)
		if !strings.Contains(got[1].Detail, "rank 0 (pid 100) did not train again within 10m") {
			t.Fatalf("result %v", got[1])
		}
	})
}

func TestMovesOfALargeJob(t *testing.T) {
	cmd := &falconv1.RejoinCommand{}
	for i := range int32(movesMax + 1) {
		cmd.Moves = append(cmd.Moves, &falconv1.ShardMove{
			Rank: 2 * i,
			From: 2*i + 1,
		})
	}
	if got := rejoinOrder(cmd, 9).Moves; len(got) != 1 || got[0] != (falcon.ShardMove{Rank: 8, From: 9}) {
		t.Fatalf("moves %v", got)
	}
	cmd.Moves = cmd.Moves[1:]
	if got := rejoinOrder(cmd, 9).Moves; len(got) != movesMax {
		t.Fatalf("%d moves", len(got))
	}
}

// What the adapter says of the job's state comes with the rank's state.
func TestStateOfTheJob(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.adapted(100, 0, "n1.g0")
		wait(time.Second)
		if st := n.newest(0); st.CheckpointIteration != 1 && st.CheckpointIteration != 0 {
			t.Fatalf("state %v", st)
		}
		s.set(func() {
			s.recovery.job = ring.JobState{
				ZeRO:          falcon.ZeRO{Stage: 1, Instances: 2},
				Bytes:         1 << 20,
				CopyBytesS:    12e6,
				MicroMin:      1,
				MicroMax:      9,
				MicroMultiple: 3,
				Checkpoint:    0,
			}
		})
		wait(time.Second)
		st := n.newest(0)
		if st.ZeroStage != 1 ||
			st.ZeroInstances != 2 ||
			st.StateBytes != 1<<20 ||
			st.CopyMbs != 12 ||
			st.MicroMin != 1 ||
			st.MicroMax != 9 ||
			st.MicroMultiple != 3 ||
			st.CheckpointIteration != 1 {
			t.Fatalf("state %v", st)
		}
		s.set(func() { s.recovery.job.Checkpoint = falcon.NoIteration })
		wait(time.Second)
		if n.newest(0).CheckpointIteration != 0 {
			t.Fatal("no checkpoint reads as one")
		}
	})
}

// No iteration's time is told across a suspension; those that are done again are
// told again.
func TestSamplesAroundARecovery(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.adapted(100, 0, "n1.g0")
		base := float64(time.Now().UnixNano()) / 1e6
		for i := range int64(4) {
			s.mark(i, base+100*float64(i))
		}
		wait(350 * time.Millisecond) // inside of iteration 3
		s.parks(2, 4, 3, 4)
		wait(650 * time.Millisecond)
		s.goesOn(2, 4, 0)
		for i := range int64(3) { // 3 was finished on this rank: 4 is next
			s.mark(4+i, base+1100+100*float64(i))
		}
		wait(time.Second)
		s.mark(6, base+2200) // 6 is done again
		s.mark(7, base+2300)
		wait(time.Second)
		var got []int64
		for _, g := range n.ship.samples() {
			if got = append(got, g.Iteration); g.Ms != 100 {
				t.Errorf("sample %v", g)
			}
		}
		if want := []int64{0, 1, 2, 4, 5, 6}; !slices.Equal(got, want) {
			t.Fatalf("iterations %v, want %v", got, want)
		}
	})
}

// A second fault comes while a process is being started for the first: when it
// has come up, it parks in the newer generation, and is explained in that one only.
func TestProcessThatJoinsLate(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a := n.adapted(100, 0, "n1.g0")
		wait(time.Second)
		n.order(1, 10*time.Second, suspendCommand(3, 0))
		a.parks(3, 7, 7)
		wait(10 * time.Millisecond)
		n.expect(t, accepted, done)
		late := n.adapted(101, 1, "n1.g1")
		late.set(func() { late.control.Generation = 2 })
		late.joins(2)
		wait(time.Second)
		if st := n.newest(1); st.GetPark() != nil ||
			late.control.SuspendWanted != 3 ||
			late.recovery.suspended != 1 {
			t.Fatalf("state %v, suspended %d", st, late.control.SuspendWanted)
		}
		late.set(func() { late.recovery.park.Generation = 3 })
		wait(100 * time.Millisecond)
		p := n.newest(1).GetPark()
		if p.GetGeneration() != 3 || !p.GetJoining() || late.recovery.suspended != 1 {
			t.Fatalf("park %v, suspended %d times", p, late.recovery.suspended)
		}
		for _, st := range n.ship.states() {
			if st.Rank == 1 && st.GetPark().GetGeneration() == 2 {
				t.Fatalf("announced as parked in a generation that is over: %v", st)
			}
		}
		// One that trains, of a job that was started again by hand, is let alone.
		other := n.adapted(102, 2, "n1.g2")
		wait(time.Second)
		if other.recovery.suspended != 0 {
			t.Fatal("a process of another job's life was suspended")
		}
	})
}
