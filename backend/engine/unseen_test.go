package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// A rank that its agent finds without a file of the hook is named where the job
// lacks that rank, and never where it is seen.
func TestUnseenRanksAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.turn()
		alarm := func(list ...*falconv1.UnseenRank) string {
			b.job.agents[1].send(&falconv1.AgentFrame{
				Body: &falconv1.AgentFrame_Beat{Beat: &falconv1.Beat{AtUnixNs: 1, Unseen: list}},
			})
			b.rankWith(func(s *falconv1.RankState) { s.Period++ }) // something to show
			time.Sleep(time.Second)
			s, err := b.engine.Latest(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			return s.Reply.GetJob().GetAlarm()
		}
		three := &falconv1.UnseenRank{Rank: 3, Pid: 99}
		if got := alarm(three, &falconv1.UnseenRank{Rank: 9}, &falconv1.UnseenRank{Rank: -1}); got != "" {
			t.Errorf("all ranks are seen, and yet: %s", got)
		}
		b.job.agents[1].send(killed(b.job.rankState("n1", 2)))
		want := "rank 2 on n1 (process 77) has loaded the hook, and no NCCL call has come to it: it has made no communicator yet, or its NCCL can't be hooked"
		if got := alarm(three, &falconv1.UnseenRank{Rank: 2, Pid: 77, Hooked: true}); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		want = "rank 2 on n1 (process 77) has a hook of format 6, and this agent reads format 5: install hook and agent of one release, the agent first"
		if got := alarm(&falconv1.UnseenRank{
			Rank:        2,
			Pid:         77,
			Reason:      uint32(falcon.UnprovenVersion),
			HookFormat:  6,
			AgentFormat: 5,
		}); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if got := alarm(&falconv1.UnseenRank{
			Rank:   -1,
			Reason: uint32(falcon.UnprovenHidden),
		}); !strings.Contains(got, "--pid=host") ||
			!strings.Contains(got, "n1") {
			t.Errorf("a process that can't be seen: %q", got)
		}
		b.job.agents[1].send(killed(b.job.rankState("n1", 3)))
		list := []*falconv1.UnseenRank{three, {Rank: 2, Pid: 77, Hooked: true}}
		b.job.agents[1].send(&falconv1.AgentFrame{
			Body: &falconv1.AgentFrame_Beat{Beat: &falconv1.Beat{AtUnixNs: 1, Unseen: list}},
		})
		time.Sleep(time.Second)
		synctest.Wait()
		s, err := b.engine.Latest(context.Background())
		if err != nil ||
			!strings.HasPrefix(s.Reply.GetJob().GetAlarm(),
				"2 ranks are not seen, the first: rank 3 on n1 (process 99) runs without the hook") {
			t.Errorf("%q, %v", s.Reply.GetJob().GetAlarm(), err)
		}
	})
}

func killed(f *falconv1.AgentFrame) *falconv1.AgentFrame {
	f.GetRank().Alive, f.GetRank().Exit = false, "killed"
	return f
}

// What a communicator carries without calls makes the picture doubtful.
func TestUnseenTrafficIsADoubt(t *testing.T) {
	j := &job{
		claimed: 1,
		ranks: map[falcon.Rank]*process{
			0: {state: &falconv1.RankState{
				Alive: true,
				Comms: []*falconv1.Comm{{Id: 7, Unseen: 2}},
			}},
		},
	}
	if got := j.unseenTraffic(); got != "" {
		t.Error("windows alone:", got)
	}
	for unseen, comm := range map[uint32]*falconv1.Comm{
		1: {Id: 7, Name: "ep\x1b", Unseen: 1},
		4: {Id: 0xab, Unseen: 4},
	} {
		j.ranks[0].state.Comms = []*falconv1.Comm{comm}
		got := j.unseenTraffic()
		if !strings.Contains(got, commText(comm)) ||
			!strings.Contains(got, "not seen") ||
			strings.Contains(got, "\x1b") {
			t.Errorf("%d: %q", unseen, got)
		}
	}
	j.ranks[0].state.Alive = false
	if got := j.unseenTraffic(); got != "" {
		t.Error("of a rank that is gone:", got)
	}
}
