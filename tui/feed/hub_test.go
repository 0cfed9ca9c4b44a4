package feed

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

// direct is a client in the same bubble of goroutines as the engine: each
// reply is a copy, as over a wire.
type direct struct {
	falconv1.ConsoleClient // nil: what a test does not expect panics
	engine                 *enginetest.Engine
	actor, role            string

	mu      sync.Mutex
	refuse  codes.Code // of snapshots
	whole   int        // snapshots of everything
	own     int
	decided []string
}

func (d *direct) Snapshot(
	ctx context.Context,
	r *falconv1.SnapshotRequest,
	_ ...grpc.CallOption,
) (*falconv1.SnapshotReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Own {
		d.own++
	} else {
		d.whole++
	}
	if d.refuse != codes.OK {
		return nil, status.Error(d.refuse, "not any more")
	}
	reply, err := d.engine.Snapshot(ctx, r)
	reply = proto.CloneOf(reply)
	if !reply.Unchanged {
		reply.Actor, reply.Role = d.actor, d.role
	}
	return reply, err
}

func (d *direct) Watch(
	ctx context.Context,
	_ *falconv1.WatchRequest,
	_ ...grpc.CallOption,
) (grpc.ServerStreamingClient[falconv1.Event], error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (d *direct) Decide(
	_ context.Context,
	r *falconv1.DecideRequest,
	_ ...grpc.CallOption,
) (*falconv1.DecideReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.decided = append(d.decided, r.Action)
	return &falconv1.DecideReply{}, nil
}

func (d *direct) Recoveries(
	ctx context.Context,
	r *falconv1.RecoveriesRequest,
	_ ...grpc.CallOption,
) (*falconv1.RecoveriesReply, error) {
	return d.engine.Recoveries(ctx, r)
}

func (d *direct) calls() (whole, own int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.whole, d.own
}

func (d *direct) say(c codes.Code) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuse = c
}

// inHub runs a test on a hub with a job at iteration 30, in a bubble whose
// clock moves only when all goroutines wait.
func inHub(
	t *testing.T,
	test func(
		t *testing.T,
		e *enginetest.Engine,
		shared *direct,
		h *Hub,
		client func(actor, role string) *direct,
	),
) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.New(enginetest.Options{})
		e.AdvanceTo(30)
		client := func(actor, role string) *direct {
			return &direct{engine: e, actor: actor, role: role}
		}
		shared := client("console", "viewer")
		h := NewHub(shared, nil)
		defer h.Close()
		test(t, e, shared, h, client)
	})
}

// after lets a time pass and everything in it.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestSessionsShareOnePullAndKeepTheirOwn(t *testing.T) {
	inHub(
		t,
		func(
			t *testing.T,
			e *enginetest.Engine,
			shared *direct,
			h *Hub,
			client func(string, string) *direct,
		) {
			after(time.Minute)
			if n, _ := shared.calls(); n != 0 {
				t.Errorf("%d pulls for nobody", n)
			}
			maria := client("maria", "approver")
			joe := client("joe", "viewer")
			a := h.Session(maria)
			b := h.Session(joe)
			b.Ask(Want{Rank: 5, Columns: 7, RunLengths: 9})
			after(time.Second)
			sa := a.Latest()
			sb := b.Latest()
			if sa.Snap.Actor != "maria" ||
				sa.Snap.Role != "approver" ||
				sb.Snap.Actor != "joe" ||
				sb.Snap.Role != "viewer" {
				t.Errorf("%s (%s) and %s (%s)",
					sa.Snap.Actor, sa.Snap.Role, sb.Snap.Actor, sb.Snap.Role)
			}
			if sb.Snap.Series.GetRank() != 5 ||
				len(sb.Snap.Series.Ms) != 7 ||
				len(sa.Snap.Series.GetMs()) < 20 {
				t.Errorf("series of %v and %v", sa.Snap.Series, sb.Snap.Series)
			}
			if sa.Columns != sb.Columns || sa.Memo == nil || sa.Memo != sb.Memo {
				t.Error("ranks or what is derived from them are not shared")
			}
			for range 10 {
				e.Advance(1)
				after(ActivePeriod)
				a.Latest()
				b.Latest()
			}
			after(time.Second)
			if whole, _ := shared.calls(); whole < 10 || whole > 22 {
				t.Errorf("%d shared pulls in 4 s", whole)
			}
			if whole, own := maria.calls(); whole != 0 || own < 10 || own > 18 {
				t.Errorf("maria's client: %d pulls of everything, %d of her own", whole, own)
			}
			if got := a.Latest().Snap.Job.Iteration; got != 40 {
				t.Errorf("iteration %d", got)
			}
		},
	)
}

func TestDecisionsAreTheSessionsOwn(t *testing.T) {
	inHub(
		t,
		func(
			t *testing.T,
			_ *enginetest.Engine,
			shared *direct,
			h *Hub,
			client func(string, string) *direct,
		) {
			maria := client("maria", "approver")
			joe := client("joe", "approver")
			s := h.Session(maria)
			h.Session(joe)
			if _, err := s.Decide(t.Context(), &falconv1.DecideRequest{Action: "INC-0001/S2/1"}); err != nil {
				t.Fatal(err)
			}
			if len(maria.decided) != 1 ||
				len(joe.decided) != 0 ||
				len(shared.decided) != 0 {
				t.Errorf("decided by %v, %v and %v", maria.decided, joe.decided, shared.decided)
			}
		},
	)
}

// What the engine refuses to one operator is not shown from what the others
// see, and comes back with the right.
func TestARefusedSessionSeesNothing(t *testing.T) {
	inHub(
		t,
		func(t *testing.T, e *enginetest.Engine, _ *direct, h *Hub, client func(string, string) *direct) {
			maria := client("maria", "viewer")
			eve := client("eve", "")
			eve.say(codes.PermissionDenied)
			a := h.Session(maria)
			b := h.Session(eve)
			after(time.Second)
			if s := b.Latest(); s.Snap.Job != nil ||
				len(s.Events) > 0 ||
				s.Conn == Live ||
				!strings.Contains(s.Err, "not any more") {
				t.Errorf("eve sees %v", s)
			}
			eve.say(codes.OK)
			after(2 * time.Second)
			if s := b.Latest(); s.Snap.Job == nil || s.Conn != Live {
				t.Errorf("eve was let in and sees %v", s)
			}
			eve.say(codes.PermissionDenied)
			e.Advance(1)
			after(2 * time.Second)
			b.Latest()
			after(2 * time.Second)
			if s := b.Latest(); s.Snap.Job != nil ||
				s.Recoveries != nil ||
				len(s.Events) > 0 ||
				s.Conn != Lost {
				t.Errorf("eve was shut out and sees %v", s)
			}
			if s := a.Latest(); s.Conn != Live {
				t.Errorf("maria sees %v", s)
			}
		},
	)
}

func TestALostEngineKeepsTheLastPicture(t *testing.T) {
	inHub(
		t,
		func(
			t *testing.T,
			e *enginetest.Engine,
			shared *direct,
			h *Hub,
			client func(string, string) *direct,
		) {
			maria := client("maria", "viewer")
			s := h.Session(maria)
			after(time.Second)
			s.Latest()
			shared.say(codes.Unavailable)
			maria.say(codes.Unavailable)
			after(2 * time.Second)
			if got := s.Latest(); got.Conn != Lost ||
				got.Snap.Job.GetIteration() != 30 ||
				got.Snap.Actor != "maria" {
				t.Errorf("lost: %v", got)
			}
			shared.say(codes.OK)
			maria.say(codes.OK)
			e.Advance(1)
			after(2 * time.Second)
			s.Latest()
			after(time.Second)
			if got := s.Latest(); got.Conn != Live || got.Snap.Job.GetIteration() != 31 {
				t.Errorf("healed: %v", got)
			}
		},
	)
}

// A console that does not read, as behind a stalled terminal, makes little work
// and holds nobody up; what it takes at last is followed by the present.
func TestAStalledSessionMakesLittleWork(t *testing.T) {
	inHub(
		t,
		func(t *testing.T, e *enginetest.Engine, _ *direct, h *Hub, client func(string, string) *direct) {
			slow := client("slow", "viewer")
			quick := client("quick", "viewer")
			a := h.Session(slow)
			b := h.Session(quick)
			after(time.Second)
			a.Latest()
			after(time.Second)
			_, before := slow.calls()
			for range 50 {
				e.Advance(1)
				after(ActivePeriod)
				b.Latest()
			}
			if _, own := slow.calls(); own > before+12 {
				t.Errorf("%d pulls for a session that does not read", own-before)
			}
			if got := b.Latest().Snap.Job.Iteration; got < 79 {
				t.Errorf("the other one is at iteration %d", got)
			}
			a.Latest()
			after(ActivePeriod)
			if got := a.Latest().Snap.Job.Iteration; got != 80 {
				t.Errorf("it goes on at iteration %d", got)
			}
		},
	)
}

func TestPaceIsTheKeenestSessions(t *testing.T) {
	inHub(
		t,
		func(
			t *testing.T,
			e *enginetest.Engine,
			shared *direct,
			h *Hub,
			client func(string, string) *direct,
		) {
			pulls := func(d time.Duration) int {
				before, _ := shared.calls()
				after(d)
				now, _ := shared.calls()
				return now - before
			}
			a := h.Session(client("a", "viewer"))
			b := h.Session(client("b", "viewer"))
			if n := pulls(10 * time.Second); n < 45 || n > 55 {
				t.Errorf("%d pulls in 10 s", n)
			}
			a.Blur(true)
			if n := pulls(10 * time.Second); n < 45 {
				t.Errorf("%d pulls in 10 s while one looks", n)
			}
			b.Blur(true)
			if n := pulls(10 * time.Second); n < 8 || n > 12 {
				t.Errorf("%d pulls in 10 s while nobody looks", n)
			}
			a.Close()
			b.Close()
			if n := pulls(time.Minute); n > 1 || h.Sessions() != 0 {
				t.Errorf("%d pulls for %d sessions", n, h.Sessions())
			}
			e.Advance(3)
			c := h.Session(client("c", "viewer"))
			after(time.Second)
			if got := c.Latest().Snap.Job.GetIteration(); got != 33 {
				t.Errorf("woken at iteration %d", got)
			}
		},
	)
}

func TestClosing(t *testing.T) {
	inHub(
		t,
		func(t *testing.T, _ *enginetest.Engine, _ *direct, h *Hub, client func(string, string) *direct) {
			s := h.Session(client("a", "viewer"))
			s.Close()
			s.Close()
			<-s.Done()
			other := h.Session(client("b", "viewer"))
			h.Close()
			<-other.Done()
			late := h.Session(client("c", "viewer"))
			<-late.Done()
			late.Close()
		},
	)
}

// Columns are asked for, and what comes is what an engine without them sends.
func TestColumnsShowWhatRanksDo(t *testing.T) {
	e := enginetest.New(enginetest.Options{
		TP:      2,
		DP:      16,
		PP:      4,
		Flicker: 3,
	})
	e.Hostile("\x1b[2J")
	f := start(t, e)
	for _, iter := range []int64{30, 31, enginetest.Located, enginetest.End} {
		e.AdvanceTo(iter)
		s := until(t, f, "the iteration", func(s *State) bool {
			return s.Snap.GetJob().GetIteration() == iter
		})
		want, err := e.Snapshot(t.Context(), &falconv1.SnapshotRequest{Rank: WorstRank})
		if err != nil {
			t.Fatal(err)
		}
		if s.Columns.World() != len(want.Ranks) {
			t.Fatalf("%d ranks", s.Columns.World())
		}
		for i, w := range want.Ranks {
			g := s.Columns.Views()[i]
			if g.Health != w.Health ||
				g.Level != w.Level ||
				g.Device+"\x1b[2J" != w.Device ||
				g.Iteration != w.Iteration ||
				g.Ms > w.Ms ||
				w.Ms-g.Ms > 0.011 ||
				w.SelfRatio-g.SelfRatio > 2e-4 {
				t.Fatalf("iteration %d: %v, want %v", iter, g, w)
			}
		}
	}
}
