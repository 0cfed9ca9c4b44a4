package agent

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

const (
	accepted = falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED
	done     = falconv1.CommandStatus_COMMAND_STATUS_DONE
	refused  = falconv1.CommandStatus_COMMAND_STATUS_REFUSED
	expired  = falconv1.CommandStatus_COMMAND_STATUS_EXPIRED
)

func profileCommand(id uint64, iterations int32, ranks ...int32) *falconv1.Command {
	return &falconv1.Command{
		Epoch:          1,
		Id:             id,
		DeadlineUnixNs: time.Now().Add(20 * time.Second).UnixNano(),
		Body: &falconv1.Command_Profile{Profile: &falconv1.ProfileCommand{
			Window:     id,
			Iterations: iterations,
			Ranks:      ranks,
		}},
	}
}

func orderCommand(id, order uint64, within time.Duration) *falconv1.Command {
	return &falconv1.Command{
		Epoch:          1,
		Id:             id,
		DeadlineUnixNs: time.Now().Add(within).UnixNano(),
		Body: &falconv1.Command_Order{Order: &falconv1.OrderCommand{
			Order:        order,
			Kind:         "microbatches",
			MicroBatches: []int32{7, 9},
			JobEpoch:     1,
		}},
	}
}

func (n *node) expect(t *testing.T, want ...falconv1.CommandStatus) []*falconv1.CommandResult {
	t.Helper()
	got := n.ship.results()
	if len(got) != len(want) {
		t.Fatalf("%d results %v, want %v", len(got), got, want)
	}
	for i, w := range want {
		if got[i].Status != w {
			t.Fatalf("result %d is %v, want %v", i, got[i], w)
		}
	}
	return got
}

// run trains a middle pipeline stage by hand: iteration i begins at its mark,
// and for every micro-batch the stage receives (with a bubble inside), computes
// for comp ms and sends; then come gradients, a vote, an optimizer of opt ms,
// and a second vote. Timings appear while the window is open.
func run(s *fakeSegment, first, iterations int64, micro int, comp, bubble, opt float64) {
	at := 1000 + 1000*float64(first)
	zero := 1000 * 1e6 // the window's base event on the monotonic clock, ns
	ordinals := map[uint32]uint64{
		0: uint64(first) * 3,
		1: uint64(first) * 2 * uint64(micro),
	}
	for i := first; i < first+iterations; i++ {
		s.mark(i, at)
		at += 40 // data
		call := func(op falcon.Op, comm uint32, bytes uint64, ms float64) {
			s.set(func() {
				r := ring.Record{
					EnterNs: int64((at - 3) * 1e6),
					Op:      op,
					Comm:    comm,
					Count:   bytes / 4,
					Dtype:   7,
					Ordinal: ordinals[comm],
					Step:    uint32(i),
					Flags:   ring.FlagTimed,
				}
				s.records = append(s.records, r)
				if s.open {
					s.control.TimingsWritten++
					s.timings = append(s.timings, ring.Timing{
						Window:     s.window,
						Comm:       comm,
						Ordinal:    r.Ordinal,
						Op:         op,
						Bytes:      bytes,
						Peer:       -1,
						StartNs:    int64(at*1e6 - zero),
						DurationNs: int64(ms * 1e6),
						QueueNs:    3e6,
					})
				}
			})
			ordinals[comm]++
			at += ms
		}
		for range micro {
			call(falcon.OpRecv, 1, 1<<20, 2+bubble)
			at += comp
			call(falcon.OpSend, 1, 1<<20, 1)
		}
		call(falcon.OpAllReduce, 0, 8<<20, 5)
		call(falcon.OpAllReduce, 0, 8, 0.1)
		at += opt
		call(falcon.OpAllReduce, 0, 8, 0.1)
		wait(100 * time.Millisecond)
	}
}

func TestProfileOfAPipelineStage(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 2, "n1.g0")
		s.set(func() { s.control.MicroBatches = 4 })
		run(s, 0, 3, 4, 15, 30, 60)
		n.Command(profileCommand(11, 3))
		wait(200 * time.Millisecond)
		if !s.open || s.window != 11 {
			t.Fatal("the window was not opened")
		}
		run(s, 3, 6, 4, 15, 30, 60)
		wait(time.Second)
		n.expect(t, accepted, done)
		p := n.ship.profiles()
		if s.open || len(p) != 1 || p[0].Window != 11 || len(p[0].Ranks) != 1 {
			t.Fatalf("open %v, profiles %v", s.open, p)
		}
		got := p[0].Ranks[0]
		if got.Rank != 2 ||
			math.Abs(got.SelfMs-15) > 1e-6 ||
			got.QueueMs != 3 ||
			got.MicroBatches != 4 ||
			got.Iterations < 3 ||
			got.Dropped != 0 {
			t.Fatalf("self %v, queue %v, %d iterations, %d dropped",
				got.SelfMs, got.QueueMs, got.Iterations, got.Dropped)
		}
		if c := got.Calls[0]; c.Comm != 88 || c.DurationMs != 32 {
			t.Fatalf("first call %v", c)
		}
	})
}

// The engine that asks for columns gets the same calls in columns, and no messages beside them.
func TestProfileInColumns(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 2, "n1.g0")
		s.set(func() { s.control.MicroBatches = 4 })
		run(s, 0, 3, 4, 15, 30, 60)
		ask := profileCommand(11, 3)
		ask.GetProfile().Columns = true
		n.Command(ask)
		wait(200 * time.Millisecond)
		run(s, 3, 6, 4, 15, 30, 60)
		wait(time.Second)
		n.expect(t, accepted, done)
		p := n.ship.profiles()[0].Ranks[0]
		got := convert.ProfileFromProto(11, p)
		if len(p.Calls) > 0 ||
			len(got.Calls) < 3*9 ||
			got.Calls[0].Comm != 88 ||
			got.Calls[0].DurationMs != 32 ||
			got.SelfMs != p.SelfMs {
			t.Fatalf("%d messages, calls %+v", len(p.Calls), got.Calls)
		}
	})
}

// Data-parallel only: what counts is the time from the step mark to the
// gradients.
func TestProfileWithoutPipeline(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 0, "n1.g0")
		s.set(func() { s.control.MicroBatches = 8 })
		run(s, 0, 2, 0, 0, 0, 60)
		n.Command(profileCommand(1, 2))
		wait(200 * time.Millisecond)
		run(s, 2, 5, 0, 0, 0, 60)
		wait(time.Second)
		n.expect(t, accepted, done)
		got := n.ship.profiles()[0].Ranks[0].SelfMs
		if math.Abs(got-40.0/8) > 1e-6 {
			t.Fatalf("self %v, want the 40 ms before the gradients over 8", got)
		}
	})
}

func TestProfileWithoutMarks(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 0, "n1.g0")
		s.set(func() { s.control.MicroBatches = 4 })
		feed(s, 0, 40, 4, func(int) float64 { return 90 })
		wait(time.Second)
		n.Command(profileCommand(1, 3))
		wait(200 * time.Millisecond)
		feed(s, 40, 48, 4, func(int) float64 { return 90 }) // calls 10 ms apart
		s.set(func() {
			for i := 40; i < 48; i++ {
				for c := range 9 {
					tm := ring.Timing{
						Window:     1,
						Comm:       1,
						Ordinal:    uint64(8*i + c),
						Op:         falcon.OpSend,
						StartNs:    int64(i*90+c*10) * 1e6,
						DurationNs: 4e6,
					}
					if c == 8 {
						tm.Comm = 0
						tm.Ordinal = uint64(i)
						tm.Op = falcon.OpAllReduce
						tm.Bytes = 1 << 20
					}
					s.timings = append(s.timings, tm)
				}
			}
		})
		wait(2 * time.Second)
		n.expect(t, accepted, done)
		got := n.ship.profiles()[0].Ranks[0]
		// Nine gaps: all but what follows the anchor, which counts as the next one.
		if math.Abs(got.SelfMs-9*6.0/4) > 1e-6 || got.Iterations < 3 {
			t.Fatalf("self %v over %d iterations", got.SelfMs, got.Iterations)
		}
		if len(got.Calls) != 9*int(got.Iterations) {
			t.Fatalf("%d calls in %d iterations of 9", len(got.Calls), got.Iterations)
		}
	})
}

// With one call an iteration, its computation is known by the call before it, in the
// iteration before: one before which no call was timed does not count.
func TestProfileOfOneCallAnIteration(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 0, "n1.g0")
		one := func(from, to int, flags uint8) {
			for i := from; i < to; i++ {
				s.set(func() {
					s.records = append(s.records, ring.Record{
						EnterNs: int64(i) * 300e6,
						Op:      falcon.OpAllReduce,
						Count:   1 << 18,
						Dtype:   7,
						Ordinal: uint64(i),
						Flags:   flags,
					})
					if s.open {
						s.control.TimingsWritten++
						s.timings = append(s.timings, ring.Timing{
							Window:     s.window,
							Ordinal:    uint64(i),
							Op:         falcon.OpAllReduce,
							Bytes:      1 << 20,
							StartNs:    int64(i) * 300e6,
							DurationNs: 20e6,
						})
					}
				})
				wait(300 * time.Millisecond)
			}
		}
		one(0, 100, 0)
		n.Command(profileCommand(1, 2))
		wait(200 * time.Millisecond)
		one(100, 106, ring.FlagTimed)
		wait(2 * time.Second)
		n.expect(t, accepted, done)
		got := n.ship.profiles()[0].Ranks[0]
		if math.Abs(got.SelfMs-280) > 1e-6 ||
			got.Iterations != 2 ||
			len(got.Calls) != 2 {
			t.Fatalf("self %v, %d calls over %d iterations", got.SelfMs, len(got.Calls), got.Iterations)
		}
	})
}

// A killed predecessor may have finished the window that is asked for again,
// and a small buffer may have lost timings: neither passes unnoticed.
func TestProfileAskedForAgain(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 0, "n1.g0")
		s.set(func() {
			s.control.MicroBatches = 4
			s.control.ProfileDone = 7
			s.control.TimingsWritten = 100
		})
		run(s, 0, 2, 4, 15, 0, 1)
		n.Command(profileCommand(7, 2))
		wait(200 * time.Millisecond)
		if s.window == 7 || s.window == 0 || !s.open {
			t.Fatalf("window %d", s.window)
		}
		// five were overwritten
		s.set(func() {
			s.control.TimingsWritten += 5
			s.control.TimingsLost = 2
		})
		run(s, 2, 5, 4, 15, 0, 1)
		wait(time.Second)
		n.expect(t, accepted, done)
		p := n.ship.profiles()[0]
		if p.Window != 7 ||
			p.Ranks[0].Dropped != 7 ||
			math.Abs(p.Ranks[0].SelfMs-15) > 1e-6 {
			t.Fatalf("window %d, %d dropped, self %v",
				p.Window, p.Ranks[0].Dropped, p.Ranks[0].SelfMs)
		}
	})
}

func TestProfileRefusals(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.Command(profileCommand(1, 3))
		wait(time.Second)
		n.expect(t, refused)
		if p := n.ship.profiles(); len(p) != 1 || p[0].Refused == "" {
			t.Fatalf("profiles %v", p)
		}
		s := n.dir.add(100, 0, "n1.g0")
		wait(time.Second)
		n.Command(profileCommand(2, 3, 7)) // a rank of another node
		n.Command(profileCommand(3, 3))    // no iteration will come
		wait(100 * time.Millisecond)
		n.Command(profileCommand(4, 3)) // while one is open
		wait(30 * time.Second)
		n.expect(t, refused, refused, accepted, refused, refused)
		last := n.ship.profiles()[3]
		if last.Window != 3 || !strings.Contains(last.Refused, "no whole iteration") || s.open {
			t.Fatalf("profile %v, still open %v", last, s.open)
		}
	})
}

func TestProfileSurvivesADyingRank(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.dir.add(100, 0, "n1.g0")
		s := n.dir.add(101, 1, "n1.g1")
		run(s, 0, 2, 2, 10, 0, 10)
		n.Command(profileCommand(1, 2))
		wait(200 * time.Millisecond)
		n.dir.exits[100].die("exited with status 1")
		run(s, 2, 5, 2, 10, 0, 10)
		wait(time.Second)
		n.expect(t, accepted, done)
		if p := n.ship.profiles()[0]; len(p.Ranks) != 1 || p.Ranks[0].Rank != 1 {
			t.Fatalf("profile %v", p)
		}
	})
}

func commit(s *fakeSegment, order uint64, iteration int64, status int32) {
	s.set(func() {
		s.control.CommittedOrder = order
		s.control.CommittedIteration = iteration
		s.control.CommittedStatus = status
	})
}

func TestOrderIsWatchedUntilAllCommitted(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a := n.dir.add(100, 0, "n1.g0")
		b := n.dir.add(101, 1, "n1.g1")
		wait(time.Second)
		c := orderCommand(5, 3, 10*time.Second)
		n.Command(c)
		wait(time.Second)
		n.Command(c) // sent again: answered, not executed
		wait(time.Second)
		commit(a, 3, 41, 0)
		wait(time.Second)
		commit(b, 3, 41, 0)
		wait(time.Second)
		got := n.expect(t, accepted, accepted, accepted, done)
		r := got[3].Ranks
		if len(r) != 2 ||
			r[1].Rank != 1 ||
			r[1].Order != 3 ||
			r[1].Iteration != 41 ||
			len(got[2].Ranks) != 1 {
			t.Fatalf("results %v", got)
		}
		want := falcon.Order{
			Epoch:        1,
			ID:           3,
			Kind:         "microbatches",
			MicroBatches: []int32{7, 9},
		}
		for _, s := range []*fakeSegment{a, b} {
			if len(s.orders) != 1 ||
				s.orders[0].ID != want.ID ||
				s.orders[0].MicroBatches[1] != 9 ||
				s.orders[0].Kind != want.Kind ||
				s.orders[0].Epoch != 1 {
				t.Fatalf("orders %v", s.orders)
			}
		}
		n.Command(c)
		wait(time.Second)
		n.expect(t, accepted, accepted, accepted, done, done)
	})
}

func TestOrderExpires(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a := n.dir.add(100, 0, "n1.g0")
		n.dir.add(101, 1, "n1.g1")
		wait(time.Second)
		n.Command(orderCommand(1, 3, 2*time.Second))
		wait(time.Second)
		commit(a, 3, 7, 0)
		wait(5 * time.Second)
		n.expect(t, accepted, accepted) // delivered in time: the vote may still come
		wait(voteWait)
		got := n.expect(t, accepted, accepted, expired)
		if len(got[2].Ranks) != 1 || !strings.Contains(got[2].Detail, "1 of 2 ranks") {
			t.Fatalf("result %v", got[2])
		}
		wait(2 * lateWait)
		n.expect(t, accepted, accepted, expired)
	})
}

// The vote is the commit: it counts whenever it comes.
func TestLateCommitsAreReported(t *testing.T) {
	for _, after := range []time.Duration{5 * time.Second, voteWait + 5*time.Second} {
		onNode(t, func(t *testing.T, n *node) {
			a := n.dir.add(100, 0, "n1.g0")
			b := n.dir.add(101, 1, "n1.g1")
			wait(time.Second)
			n.Command(orderCommand(1, 3, 2*time.Second))
			wait(2*time.Second + after)
			before := len(n.ship.results())
			commit(a, 3, 7, 0)
			wait(time.Second)
			commit(b, 3, 7, 0)
			wait(time.Second)
			got := n.ship.results()
			if len(got) != before+2 ||
				len(got[before].Ranks) != 1 ||
				len(got[before+1].Ranks) != 2 ||
				got[before+1].Status != done {
				t.Fatalf("%v after the deadline: results %v", after, got)
			}
		})
	}
}

func TestOrderRefusedByTheRanks(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a := n.dir.add(100, 0, "n1.g0")
		wait(time.Second)
		n.Command(orderCommand(1, 3, 5*time.Second))
		wait(time.Second)
		commit(a, 3, 7, 2)
		wait(time.Second)
		got := n.expect(t, accepted, refused)
		if got[1].Ranks[0].Status != 2 || !strings.Contains(got[1].Detail, "status 2") {
			t.Fatalf("result %v", got[1])
		}
	})
}

// After a restart of the agent the order is already in the mailbox.
func TestOrderOfAnEarlierLifeIsNotPutAgain(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.dir.add(100, 0, "n1.g0")
		s.set(func() { s.newest = 3 })
		commit(s, 3, 9, 0)
		wait(time.Second)
		n.Command(orderCommand(1, 3, 5*time.Second))
		wait(time.Second)
		got := n.expect(t, accepted, done)
		if len(s.orders) != 0 || got[1].Ranks[0].Iteration != 9 {
			t.Fatalf("orders %v, result %v", s.orders, got[1])
		}
	})
}

func TestUnknownCommandIsRefused(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.Command(&falconv1.Command{Epoch: 1, Id: 1})
		wait(time.Second)
		n.expect(t, refused)
	})
}
