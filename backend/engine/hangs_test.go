package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/standstill"
)

// hangBench is a bench whose job stands still: rank 2 has come to one call less.
type hangBench struct {
	*bench
	asked []uint64
}

// beat sends a sign of life of every rank.
func (b *hangBench) beat(calls map[int32]uint64) {
	for _, a := range b.job.agents {
		beat := &falconv1.Beat{AtUnixNs: time.Now().UnixNano()}
		for _, r := range a.ranks {
			n, said := calls[r]
			if !said {
				n = 41
			}
			beat.Ranks = append(beat.Ranks, &falconv1.RankBeat{
				Rank:      r,
				Pid:       b.job.pidOf(a.node, r),
				Iteration: b.job.iteration,
				Calls:     n,
			})
		}
		a.stream.in <- &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Beat{Beat: beat}}
	}
}

// take has the agents take what the engine sends, and returns the newest ask.
func (b *hangBench) take() uint64 {
	newest := uint64(0)
	for _, a := range b.job.agents {
		for len(a.stream.out) > 0 {
			if e := <-a.stream.out; e.GetAsk() != nil {
				newest = max(newest, e.GetAsk().GetId())
			} else {
				a.handle(e, b.job)
			}
		}
	}
	return newest
}

// answer is what a node says of its ranks.
func (b *hangBench) answer(ask uint64, a *fakeAgent) {
	out := &falconv1.Calls{Ask: ask}
	for _, r := range a.ranks {
		n := uint64(41)
		waits := 4000.0
		if r == 2 {
			n, waits = 40, 0
		}
		c := &falconv1.RankCalls{
			Rank:         r,
			Pid:          b.job.pidOf(a.node, r),
			Total:        n,
			WaitingKnown: true,
			WaitingMs:    waits,
			Comms:        []*falconv1.CommCalls{{Comm: 77, Collectives: n, Known: true}},
		}
		for k := n - 5; k <= n; k++ {
			c.Calls = append(c.Calls, &falconv1.Call{
				Number: k,
				Op:     1,
				Count:  8,
				Dtype:  7,
				Peer:   -1,
				Stream: 1,
			})
		}
		out.Ranks = append(out.Ranks, c)
	}
	a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Calls{Calls: out}})
}

// stand lets the job stand still for some seconds.
func (b *hangBench) stand(seconds int, answers func(ask uint64)) {
	for range 4 * seconds {
		b.beat(map[int32]uint64{2: 40})
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		if ask := b.take(); ask != 0 {
			b.asked = append(b.asked, ask)
			answers(ask)
		}
	}
}

func (b *hangBench) hang() *falconv1.Hang {
	b.t.Helper()
	s, err := b.engine.Latest(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	return s.For(tester, nil).GetHang()
}

func startHang(t *testing.T) *hangBench {
	b := &hangBench{bench: newBench(t)}
	b.start()
	b.until(5)
	return b
}

// A standstill is judged from the agents' answers within ten seconds, logged in one line
// that is durable, and over with the next call.
func TestAStandstillIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startHang(t)
		b.stand(7, func(ask uint64) {
			for _, a := range b.job.agents {
				b.answer(ask, a)
			}
		})
		h := b.hang()
		if len(h.GetCulprits()) != 1 ||
			fmt.Sprint(h.GetCulprits()[0].GetRanks()) != "[2]" ||
			len(b.asked) != 1 {
			t.Fatalf("asked %v: %v", b.asked, h)
		}
		text := h.GetCulprits()[0].GetText()
		if !strings.HasPrefix(text, "Rank 2 (n1.g0, process ") ||
			!strings.Contains(
				text,
				"has not called collective 41, allreduce of 8 float32, of communicator dp (ranks 0-3), in which ranks 0-1, 3 wait",
			) {
			t.Error(text)
		}
		b.beat(map[int32]uint64{2: 42})
		time.Sleep(time.Second)
		synctest.Wait()
		if h := b.hang(); h != nil {
			t.Errorf("it goes on: %v", h)
		}
		var lines []string
		for _, e := range b.engine.state.events {
			if e.GetKind() == "hang" {
				lines = append(lines, e.GetAbout()+"|"+e.GetText())
			}
		}
		if len(lines) != 2 ||
			!strings.HasPrefix(lines[0], "rank 2|the job stands still: rank 2 (n1.g0") ||
			!strings.HasPrefix(lines[1], "|the job goes on after it stood still for ") {
			t.Errorf("%q", lines)
		}
	})
}

// Agents of the revision before do not answer: no rank is named, and the reason is logged.
func TestAgentsThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startHang(t)
		b.stand(9, func(ask uint64) { b.answer(ask, b.job.agents[0]) })
		h := b.hang()
		if len(h.GetCulprits()) != 0 ||
			len(h.GetCandidates()) != 1 ||
			!strings.Contains(fmt.Sprint(h.GetDoubts()), "The agents of n1 did not answer") {
			t.Errorf("%v", h)
		}
	})
}

// A node speaks for its own ranks, and wild numbers do no harm.
func TestAnswersOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startHang(t)
		b.stand(9, func(ask uint64) {
			wild := &falconv1.RankCalls{
				Rank:      2,
				Pid:       b.job.pidOf("n1", 2),
				HookAgeMs: -1e300,
				WaitingMs: 1e300,
				Comms: []*falconv1.CommCalls{
					{Comm: 77, Collectives: 1 << 63, Known: true, Inside: 1 << 31},
					{Comm: 5},
				},
				Calls: []*falconv1.Call{{Comm: 9}, {Number: 1 << 63, Op: 200}, {Op: 9, Peer: -7, Number: 1}, {
					Comm:   1,
					Number: 4,
					Stream: 1 << 31,
					Group:  1 << 31,
				}},
			}
			b.job.agents[0].send(&falconv1.AgentFrame{
				Body: &falconv1.AgentFrame_Calls{
					Calls: &falconv1.Calls{
						Ask:   ask,
						Ranks: []*falconv1.RankCalls{wild, {Rank: -1}, {Rank: 1 << 30}},
					},
				},
			})
			b.answer(ask, b.job.agents[1])
		})
		if h := b.hang(); len(h.GetCulprits()) != 0 {
			t.Errorf("%v", h)
		}
	})
}

// Groups bear the names of their dimensions; one that is mostly unknown hides its ranks.
func TestGroupsOfAStandstill(t *testing.T) {
	groups := groupTable{at: map[uint64]int{}}
	for r := range falcon.Rank(4) {
		groups.enter(r, &falconv1.Comm{Id: 1, Size: 4, Rank: int32(3 - r)})
		groups.enter(r, &falconv1.Comm{
			Id:   10 + uint64(r/2),
			Size: 2,
			Rank: int32(r % 2),
			Name: "a\x1bb",
		})
	}
	groups.enter(3, &falconv1.Comm{Id: 99, Size: 1 << 30, Rank: 1 << 29})
	groups.enter(0, &falconv1.Comm{Id: 98, Size: -1, Rank: -1})
	out := standstill.Job{Seats: make([]standstill.Seat, 4)}
	groups.into(&out, falcon.Layout{TP: 2, DP: 2, PP: 1})
	got := ""
	for _, g := range out.Groups {
		got += fmt.Sprintf("%s/%s %v; ", g.Name, g.Kind, g.Places)
	}
	want := "world/world#1 [3 2 1 0]; ab/tp#1 [0 1]; ab/tp#1 [2 3]; "
	if got != want || !out.Seats[3].Hidden || out.Seats[1].Hidden {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// What a picture holds goes to every caller.
func TestPicturesAreWhole(t *testing.T) {
	reply := (&falconv1.SnapshotReply{}).ProtoReflect()
	own := map[string]bool{
		"unchanged":  true,
		"role":       true,
		"actor":      true,
		"ranks":      true,
		"series":     true,
		"operators":  true,
		"columns":    true,
		"brief":      true,
		"recent":     true,
		"listening":  true,
		"statements": true,
	}
	fields := reply.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case own[string(f.Name())]:
		case f.IsList() && f.Message() == nil:
			reply.Mutable(f).List().Append(protoreflect.ValueOfString("x"))
		case f.IsList():
			reply.Mutable(f).List().AppendMutable()
		case f.Message() != nil:
			reply.Mutable(f)
		case f.Kind() == protoreflect.StringKind:
			reply.Set(f, protoreflect.ValueOfString("x"))
		case f.Kind() == protoreflect.Uint64Kind:
			reply.Set(f, protoreflect.ValueOfUint64(1))
		case f.Kind() == protoreflect.Int64Kind:
			reply.Set(f, protoreflect.ValueOfInt64(1))
		}
	}
	got := (&State{Reply: reply.Interface().(*falconv1.SnapshotReply)}).For(tester, nil).ProtoReflect()
	reply.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !got.Has(f) {
			t.Errorf("%s is left out", f.Name())
		}
		return true
	})
}

// Ranks that no layout has yet are a group of no dimension: a job may stand still before it
// is described.
func TestDimensionWithoutALayout(t *testing.T) {
	if got := dimensionOf(falcon.Layout{}, []falcon.Rank{0, 1}); got != "" {
		t.Errorf("ranks of no layout are a group of %s", got)
	}
	if got := dimensionOf(falcon.Layout{TP: 1, DP: 2, PP: 1}, []falcon.Rank{1, 2}); got != "" {
		t.Errorf("a rank beyond the layout is in a group of %s", got)
	}
}
