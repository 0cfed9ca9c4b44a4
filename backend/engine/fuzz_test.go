package engine

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/backend/validate"
)

// Whatever an agent sends, the engine with its real machines neither panics
// nor stops, and still draws its picture.
func FuzzAgentFrame(f *testing.F) {
	j := newFakeJob(nil)
	seeds := []*falconv1.AgentFrame{
		j.rankState("n0", 1), hello("n0"),
		{
			Seq: 4,
			Body: &falconv1.AgentFrame_Samples{
				Samples: &falconv1.Samples{Samples: []*falconv1.Sample{{
					Rank:      1,
					Iteration: 3,
					Ms:        7,
				}}},
			},
		},
		{
			Seq: 5,
			Body: &falconv1.AgentFrame_Telemetry{
				Telemetry: &falconv1.Telemetry{
					Gpus: []*falconv1.Gpu{{Device: "n0.g0"}},
					Host: &falconv1.Host{StealShare: 0.5},
				},
			},
		},
		{
			Seq: 6,
			Body: &falconv1.AgentFrame_Profile{
				Profile: &falconv1.Profile{
					Window: 1,
					Ranks: []*falconv1.RankProfile{{
						Rank:  1,
						Calls: []*falconv1.CallTiming{{Op: 1}},
					}},
				},
			},
		},
		{
			Seq: 6,
			Body: &falconv1.AgentFrame_Profile{Profile: &falconv1.Profile{
				Window: 1,
				Ranks: []*falconv1.RankProfile{{
					Rank: 1,
					Columns: &falconv1.CallColumns{
						Classes:    []*falconv1.CallClass{{Comm: 1}},
						Class:      []uint32{0},
						Ordinal:    []int64{1},
						StartNs:    []int64{1},
						DurationNs: []int64{1},
						QueueNs:    []int64{1},
					},
				}},
			}},
		},
		{
			Seq: 7,
			Body: &falconv1.AgentFrame_Result{Result: &falconv1.CommandResult{
				Epoch: 1,
				Id:    1,
				Ranks: []*falconv1.RankAck{{Rank: 1, Order: 1}},
			}},
		},
	}
	seeds = append(seeds, strange(j)...)
	for _, s := range seeds {
		b, err := proto.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var in falconv1.AgentFrame
		if proto.Unmarshal(b, &in) != nil {
			return
		}
		log, err := journal.Open(filepath.Join(t.TempDir(), "j.db")) // its own, so that a finding repeats
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		e, err := New(Config{Journal: log, Now: func() time.Time { return t0 }})
		if err != nil {
			t.Fatal(err)
		}
		s := fleet.NewSession(context.Background(), hello("n0").GetHello())
		e.handleArrival(arrival{session: s, what: arriveAttach}, t0)
		for _, first := range []*falconv1.AgentFrame{
			j.rankState("n0", 0),
			&in,
			j.rankState("n0", 2),
			j.rankState("n0", 3),
			&in,
		} {
			first.Seq = 0
			e.handleArrival(arrival{session: s, what: arriveFrame, frame: first}, t0)
			if e.job.dirty {
				e.describe(t0)
			}
			e.onTick(t0.Add(time.Minute))
			if err := e.settleMachines(t0); err != nil {
				t.Fatal(err)
			}
		}
		e.views.build(t0)
		s.End(fleet.ErrClosed)
	})
}

// Whatever a node answers to a survey, the boundary is found or refused: the
// cuts that come of it are ahead of the counts and within what a gate can distinguish.
func FuzzSurveyAnswer(f *testing.F) {
	good := &falconv1.RankPause{
		Rank:        0,
		State:       falconv1.PauseState_PAUSE_STATE_RUNNING,
		Newest:      9,
		Boundary:    9,
		Exact:       true,
		IterationMs: 5,
		Counts: []*falconv1.CommCount{{
			Comm:                    77,
			Calls:                   9,
			PerIteration:            1,
			Steady:                  true,
			CollectivesPerIteration: 1,
			Collectives:             9,
			Whole:                   true,
		}},
	}
	b, err := proto.Marshal(&falconv1.CommandResult{
		Status: falconv1.CommandStatus_COMMAND_STATUS_DONE,
		Pauses: []*falconv1.RankPause{good},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var in falconv1.CommandResult
		if proto.Unmarshal(b, &in) != nil {
			return
		}
		id := uint64(0)
		m := validate.New(validate.Config{}, func() uint64 {
			id++
			return id
		})
		m.Step(t0, validate.Begin{
			ID:  "VAL-0001",
			Ask: *gemmAsk(),
			Members: []validate.Member{
				{Device: "n0.g0", Comms: []falcon.Comm{{ID: 77, Size: 1}}},
			},
		})
		in.Id = m.Ready().Commands[0].ID
		m.Advance()
		counts := map[uint64]uint64{}
		for i, p := range in.GetPauses() {
			in.Pauses[i] = cleanPause(p)
			for _, c := range in.GetPauses()[i].GetCounts() {
				counts[c.GetComm()] = c.GetCalls()
			}
		}
		m.Step(t0, validate.Answer{Node: "n0", Result: &in})
		for _, c := range m.Ready().Commands {
			for _, cut := range c.Pause.GetCuts() {
				for _, l := range cut.GetLimits() {
					if ahead := l.GetCalls() - counts[l.GetComm()]; ahead >= 1<<23 {
						t.Errorf("a cut is %d calls ahead of its count", ahead)
					}
				}
			}
		}
		m.Tick(t0.Add(time.Hour))
	})
}

func hello(node string) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{
		Body: &falconv1.AgentFrame_Hello{Hello: &falconv1.Hello{
			Agent: node,
			Node:  node,
			Boot:  "1",
		}},
	}
}
