package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var at = time.Unix(1_700_000_000, 0)

func session(node, boot string) *Session {
	return NewSession(context.Background(), &falconv1.Hello{
		Agent: "a-" + node,
		Node:  node,
		Boot:  boot,
	})
}

func TestFramesCountOnceOverReconnects(t *testing.T) {
	r := NewRegistry()
	first := session("n1", "b1")
	if _, acked, err := r.Attach(first, at); err != nil || acked != 0 {
		t.Fatalf("first attach: %d, %v", acked, err)
	}
	take := func(s *Session, seq uint64) bool {
		_, ok := r.Take(s, seq, at)
		return ok
	}
	if !take(first, 1) ||
		!take(first, 2) ||
		take(first, 2) ||
		!take(first, 5) ||
		!take(first, 0) {
		t.Fatal("frames 1, 2, 5 and unnumbered ones count, 2 again does not")
	}
	early := session("n1", "b1")
	if _, acked, _ := r.Attach(early, at); acked != 0 {
		t.Fatalf("acked %d before anything was durable", acked)
	}
	if take(early, 5) {
		t.Error("a frame that was taken but not yet acknowledged counted twice")
	}
	r.Acknowledge()
	second := session("n1", "b1")
	if _, acked, _ := r.Attach(second, at); acked != 5 {
		t.Fatalf("same boot: acked %d, want 5", acked)
	}
	if !errors.Is(context.Cause(first.Context()), ErrSuperseded) {
		t.Error("the older stream was not ended")
	}
	if take(first, 6) || take(second, 4) || !take(second, 6) {
		t.Error("the older stream counts no more; 4 was taken; 6 was not")
	}
	if r.Detach(first) != nil || !r.Node("n1").Connected() {
		t.Error("the end of the older stream detached the newer one")
	}
	if r.Detach(second) == nil || r.Node("n1").Connected() {
		t.Error("the end of the newer stream did not detach the node")
	}
	third := session("n1", "b2")
	if _, acked, _ := r.Attach(third, at); acked != 0 || !take(third, 1) {
		t.Errorf("new boot: acked %d, want 0 and frame 1 taken", acked)
	}
}

func TestAcknowledgeMergesAndSkipsTheGone(t *testing.T) {
	r := NewRegistry()
	a := session("a", "1")
	b := session("b", "1")
	for _, s := range []*Session{a, b} {
		if _, _, err := r.Attach(s, at); err != nil {
			t.Fatal(err)
		}
		for seq := uint64(1); seq <= 9; seq++ {
			r.Take(s, seq, at)
		}
	}
	r.Detach(b)
	r.Acknowledge()
	if a.acked.Load() != 9 || len(a.nudge) != 1 || len(b.nudge) != 0 {
		t.Errorf("acked %d, nudges %d and %d", a.acked.Load(), len(a.nudge), len(b.nudge))
	}
	r.Take(a, 9, at) // sent again: it has missed our acknowledgement
	<-a.nudge
	r.Acknowledge()
	if len(a.nudge) != 1 {
		t.Error("a frame that came again was not acknowledged again")
	}
}

func TestSlowAgentIsEndedNotWaitedFor(t *testing.T) {
	s := session("n1", "1")
	for i := range QueueFrames {
		if !s.Send(&falconv1.EngineFrame{}) {
			t.Fatalf("frame %d was refused", i)
		}
	}
	if s.Send(&falconv1.EngineFrame{}) || !errors.Is(context.Cause(s.Context()), ErrSlow) {
		t.Error("a full queue did not end the stream")
	}
}

func TestRegistryIsBounded(t *testing.T) {
	r := NewRegistry()
	for i := range NodesMax {
		if _, _, err := r.Attach(session(fmt.Sprint("n", i), "1"), at); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := r.Attach(session("one-more", "1"), at); !errors.Is(err, ErrFull) {
		t.Errorf("node beyond the bound: %v", err)
	}
	if len(r.Nodes()) != NodesMax {
		t.Errorf("%d nodes", len(r.Nodes()))
	}
}

// fakeStream is a stream whose two directions are channels.
type fakeStream struct {
	ctx context.Context
	in  chan *falconv1.AgentFrame
	out chan *falconv1.EngineFrame
}

func (f *fakeStream) Context() context.Context { return f.ctx }
func (f *fakeStream) Send(e *falconv1.EngineFrame) error {
	select {
	case f.out <- e:
		return nil
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
}

func (f *fakeStream) Recv() (*falconv1.AgentFrame, error) {
	select {
	case a, ok := <-f.in:
		if !ok {
			return nil, io.EOF
		}
		return a, nil
	case <-f.ctx.Done():
		return nil, f.ctx.Err()
	}
}

type recorder struct {
	attached, detached chan *Session
	frames             chan uint64
}

func (r *recorder) Attach(s *Session) error {
	r.attached <- s
	return nil
}

func (r *recorder) Detach(s *Session) {
	r.detached <- s
}

func (r *recorder) Frame(_ *Session, f *falconv1.AgentFrame) error {
	r.frames <- f.GetSeq()
	return nil
}

func TestServiceRunsAStreamToItsEnd(t *testing.T) {
	rec := &recorder{make(chan *Session, 1), make(chan *Session, 1), make(chan uint64, 9)}
	v := NewService(rec, nil)
	ctx, cancel := context.WithCancel(context.Background())
	st := &fakeStream{
		ctx: ctx,
		in:  make(chan *falconv1.AgentFrame, 3),
		out: make(chan *falconv1.EngineFrame, 3),
	}
	done := make(chan error, 1)
	go func() { done <- v.Run(st, &falconv1.Hello{Node: "n1"}) }()
	s := <-rec.attached
	st.in <- &falconv1.AgentFrame{Seq: 4}
	if got := <-rec.frames; got != 4 {
		t.Fatalf("frame %d", got)
	}
	s.Ack(4)
	if e := <-st.out; e.GetAck().GetSeq() != 4 {
		t.Fatalf("sent %v", e)
	}
	v.End()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Fatalf("Run = %v", err)
	}
	if <-rec.detached != s {
		t.Fatal("another session was detached")
	}
	cancel() // what gRPC does once the handler has returned
	v.Close()
	if err := v.Run(st, &falconv1.Hello{}); !errors.Is(err, ErrClosed) {
		t.Fatalf("Run after Close = %v", err)
	}
}
