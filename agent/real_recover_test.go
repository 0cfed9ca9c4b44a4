package agent

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// state is the newest state of the process that holds a rank, in a generation of
// launches.
func (j *realJob) state(rank int32, generation uint64) *falconv1.RankState {
	var out *falconv1.RankState
	for _, st := range j.ship.states() {
		if st.Rank == rank && st.Generation == generation {
			out = st
		}
	}
	return out
}

// give sends a recovery's order and waits for its end.
func (j *realJob) give(t *testing.T, id uint64, c *falconv1.Command) *falconv1.CommandResult {
	t.Helper()
	c.Epoch = 1
	c.Id = id
	c.DeadlineUnixNs = time.Now().Add(50 * time.Second).UnixNano()
	j.agent.Command(c)
	j.until(t, fmt.Sprintf("command %d", id), func() bool {
		r := j.newest(id)
		return r != nil && r.Status != accepted
	})
	r := j.newest(id)
	if r.Status != done {
		t.Fatalf("command %d: %v", id, r)
	}
	return r
}

// resumeAt is the largest step that a survivor of every stage holds, and who
// lacks it: this job has two replicas, and ranks 2s and 2s+1 have one shard.
func (j *realJob) resumeAt(t *testing.T, dead int32) (step int64, moves []*falconv1.ShardMove) {
	t.Helper()
	holds := map[int32][]int64{}
	for r := range int32(realRanks) {
		if r != dead {
			holds[r] = j.state(r, 0).GetPark().GetSteps()
		}
	}
	step = -1
	for _, s := range holds[dead^1] {
		if slices.Contains(holds[dead^2], s) || slices.Contains(holds[dead^3], s) {
			step = max(step, s)
		}
	}
	for r := range int32(realRanks) {
		if !slices.Contains(holds[r], step) {
			moves = append(moves, &falconv1.ShardMove{Rank: r, From: r ^ 1})
		}
	}
	if step < 0 {
		t.Fatalf("no step that all shards are held at: %v", holds)
	}
	return step, moves
}

// A rank of a real job is killed: the agent tells it, has the others park, starts
// a replacement, and lets all go on. The survivors are the same processes, and no
// iteration's time spans the recovery. A second agent takes over in the middle:
// it goes on from what the processes' memory says.
func TestRecoversARealJob(t *testing.T) {
	j := startJob(t, "--iterations", "1000000", "--park")
	j.until(t, "the first iterations", j.iterations(50))
	if err := j.ranks[1].Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	go func() { _ = j.ranks[1].Wait() }() // the kernel tells how it ended once it is collected
	j.until(t, "the end of rank 1", func() bool {
		return !j.state(1, 0).GetAlive()
	})
	j.give(t, 1, suspendCommand(1, 5000))
	step, moves := j.resumeAt(t, 1)
	join := &falconv1.LaunchCommand{
		Generation: 1,
		World:      realRanks,
		Join:       true,
		Ranks:      []*falconv1.RankLaunch{{Rank: 1, LocalRank: 1, Device: "n1.g1"}},
	}
	j.give(t, 2, &falconv1.Command{Body: &falconv1.Command_Launch{Launch: join}})
	j.follow(t) // another agent follows the same processes beside the first
	j.until(t, "the second agent's look", func() bool {
		st := j.state(3, 0)
		return st.GetPark() != nil && j.state(1, 1).GetPark().GetJoining()
	})
	t.Cleanup(func() {
		_ = syscall.Kill(int(j.state(1, 1).GetPid()), syscall.SIGKILL)
	})
	order := &falconv1.RejoinCommand{
		Generation:      1,
		ResumeIteration: step,
		Moves:           moves,
		MicroBatches:    []int32{4, 4},
	}
	for r := range int32(realRanks) {
		st := j.state(r, 0)
		if r == 1 {
			st = j.state(r, 1)
		}
		order.Seats = append(order.Seats, &falconv1.RankSeat{
			Rank: r,
			Pid:  st.GetPid(),
		})
	}
	got := j.give(t, 3, &falconv1.Command{Body: &falconv1.Command_Rejoin{Rejoin: order}})
	for _, a := range got.GetRanks() {
		if a.Status != 0 ||
			a.Generation != 1 ||
			a.Iteration != step ||
			a.GroupsMs <= 0 {
			t.Errorf("acknowledgement %v", a)
		}
	}
	after := len(j.byRank()[0])
	j.until(t, "iterations after the recovery", func() bool {
		return len(j.byRank()[0]) > after+20 && len(j.byRank()[1]) > after+20
	})
	for r := range int32(realRanks) {
		if r != 1 &&
			(!j.state(r, 0).GetAlive() ||
				int(j.state(r, 0).GetPid()) != j.ranks[r].Process.Pid ||
				j.state(r, 0).GetRejoinedGeneration() != 1) {
			t.Errorf("rank %d: %v", r, j.state(r, 0))
		}
	}
}
