package main

import (
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/ship/shiptest"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// stop ends a daemon as a service manager does.
func stop(t *testing.T, daemon *exec.Cmd) {
	t.Helper()
	_ = daemon.Process.Signal(syscall.SIGTERM)
	if err := daemon.Wait(); err != nil {
		t.Fatalf("the daemon did not end well on SIGTERM: %v", err)
	}
}

// upgrade replaces a daemon by the next.
func (n *node) upgrade(t *testing.T, daemon *exec.Cmd, env ...string) *exec.Cmd {
	t.Helper()
	stop(t, daemon)
	greeted := len(n.engine.Hellos())
	next := start(t, env, "--config", n.config)
	if n.engine.Started() {
		shiptest.Until(t, "the next daemon", func() bool {
			return len(n.engine.Hellos()) > greeted
		})
	}
	return next
}

// exits are how each rank ended.
func (n *node) exits() map[int32][]string {
	out := map[int32][]string{}
	for _, f := range n.engine.Frames() {
		if st := f.GetRank(); st != nil && !st.Alive {
			out[st.Rank] = append(out[st.Rank], st.Exit)
		}
	}
	return out
}

// Upgrades while a job trains, some of them while the engine is away or cuts the
// stream: the engine hears each frame once and each iteration once, by one boot
// of the agent, and every stream that ended in order has said goodbye.
func TestUpgradesWhileAJobTrains(t *testing.T) {
	const upgrades = 6
	n := newNode(t, endless)
	daemon := n.begin(t)
	for i := range upgrades {
		switch at := n.newest()[0]; i % 3 {
		case 0:
			daemon = n.upgrade(t, daemon)
			shiptest.Until(t, "iterations by the next daemon", n.beyond(at+30))
		case 1:
			n.engine.CutAfter(3)
			daemon = n.upgrade(t, daemon)
			shiptest.Until(t, "iterations by the next daemon", n.beyond(at+30))
		case 2:
			n.engine.Stop()
			daemon = n.upgrade(t, daemon)
			n.engine.Start()
			shiptest.Until(t, "iterations after the engine's return", n.beyond(at+30))
		}
	}
	n.finish(t, 1)
	stop(t, daemon)
	n.checkOnce(t)
	for r, how := range n.exits() {
		if last := how[len(how)-1]; last != falconv1.ExitedNormally && last != falconv1.ExitedInOrder {
			t.Errorf("rank %d: %q", r, how)
		}
	}
}

func (n *node) checkOnce(t *testing.T) {
	t.Helper()
	var seqs []uint64
	goodbyes := 0
	newest := map[int32]int64{}
	for _, f := range n.engine.Frames() {
		if f.GetGoodbye() != nil {
			goodbyes++
		}
		if f.Seq > 0 {
			seqs = append(seqs, f.Seq)
		}
		for _, s := range f.GetSamples().GetSamples() {
			if at, seen := newest[s.Rank]; seen && s.Iteration <= at {
				t.Errorf("rank %d: iteration %d came after %d", s.Rank, s.Iteration, at)
			}
			newest[s.Rank] = s.Iteration
		}
	}
	if !slices.IsSorted(seqs) || len(slices.Compact(slices.Clone(seqs))) != len(seqs) {
		t.Errorf("frames came twice, or not in order: %v", seqs)
	}
	for _, h := range n.engine.Hellos() {
		if h.Boot != n.engine.Hellos()[0].Boot || h.Protocol != falconv1.ProtocolRevision {
			t.Errorf("hello %v", h)
		}
	}
	if goodbyes < 2 {
		t.Errorf("%d goodbyes", goodbyes)
	}
}

// Kernels that neither watch processes nor tell how they ended.
var oldKernels = []string{"FALCON_NO_PIDFD=1", "FALCON_NO_EXIT_INFO=1"}

// A job that ends while no daemon runs has ended in order; one whose rank was
// killed meanwhile has not. Neither is taken for the other, on old kernels too.
func TestAJobEndsWithoutADaemon(t *testing.T) {
	for name, kill := range map[string]bool{"in order": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, jobIterations)
			daemon := n.begin(t, oldKernels...)
			_ = daemon.Process.Kill()
			_ = daemon.Wait()
			if kill {
				_ = n.ranks[1].Process.Kill()
			}
			for _, cmd := range n.ranks {
				if err := cmd.Wait(); (err != nil) != kill {
					t.Fatalf("%v", err)
				}
			}
			daemon = start(t, oldKernels, "--config", n.config)
			shiptest.Until(t, "the ends", n.ended)
			stop(t, daemon)
			for r, how := range n.exits() {
				if want := falconv1.ExitedInOrder; len(how) != 1 || (how[0] == want) == kill {
					t.Errorf("rank %d: %q", r, how)
				}
			}
		})
	}
}

// An end under the eyes of a daemon on an old kernel.
func TestEndsOnAnOldKernel(t *testing.T) {
	n := newNode(t, jobIterations)
	daemon := n.begin(t, oldKernels...)
	shiptest.Until(t, "the ends", n.ended)
	stop(t, daemon)
	for r, how := range n.exits() {
		if len(how) != 1 || how[0] != falconv1.ExitedInOrder {
			t.Errorf("rank %d: %q", r, how)
		}
	}
}

// parks are the newest words of the parked ranks.
func (n *node) parks() map[int32]*falconv1.Park {
	out := map[int32]*falconv1.Park{}
	for _, f := range n.engine.Frames() {
		if st := f.GetRank(); st.GetPark() != nil {
			out[st.Rank] = st.Park
		}
	}
	return out
}

func (n *node) order(c *falconv1.Command, id uint64) {
	c.Epoch = 1
	c.Id = id
	c.DeadlineUnixNs = time.Now().Add(50 * time.Second).UnixNano()
	n.engine.Command(c)
}

func (n *node) done(id uint64) func() bool {
	return func() bool { return n.last(id).GetStatus() == falconv1.CommandStatus_COMMAND_STATUS_DONE }
}

// Upgrades in the middle of a suspension and of a rejoin: the ranks park, stay
// parked without a daemon, and go on as the same processes.
func TestUpgradesInARecovery(t *testing.T) {
	n := newNode(t, endless, "--park")
	daemon := n.begin(t)
	n.order(
		&falconv1.Command{Body: &falconv1.Command_Suspend{Suspend: &falconv1.SuspendCommand{Generation: 1}}},
		1,
	)
	shiptest.Until(t, "the suspension's begin", func() bool { return n.last(1) != nil })
	daemon = n.upgrade(t, daemon)
	shiptest.Until(t, "the suspension's end", n.done(1))
	daemon = n.upgrade(t, daemon)
	shiptest.Until(t, "both ranks parked", func() bool {
		return len(n.parks()) == jobRanks
	})

	order := &falconv1.RejoinCommand{
		Generation:      1,
		ResumeIteration: -1,
		MicroBatches:    []int32{8, 8},
	}
	for _, s := range n.parks()[0].Steps {
		if slices.Contains(n.parks()[1].Steps, s) {
			order.ResumeIteration = max(order.ResumeIteration, s)
		}
	}
	for r := range jobRanks {
		order.Seats = append(order.Seats, &falconv1.RankSeat{
			Rank: int32(r),
			Pid:  n.pid(r),
		})
	}
	n.order(&falconv1.Command{Body: &falconv1.Command_Rejoin{Rejoin: order}}, 2)
	shiptest.Until(t, "the rejoin's begin", func() bool { return n.last(2) != nil })
	n.upgrade(t, daemon)
	shiptest.Until(t, "the rejoin's end", n.done(2))
	shiptest.Until(t, "iterations after the recovery", n.beyond(n.newest()[0]+20))
	if len(n.exits()) != 0 {
		t.Fatalf("ends: %v", n.exits())
	}
}
