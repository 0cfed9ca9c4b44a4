package fleet

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Errors that end a stream; the text goes to the agent.
var (
	ErrSlow       = errors.New("fleet: the agent does not read its commands")
	ErrSuperseded = errors.New("fleet: the agent has opened a newer stream")
	ErrClosed     = errors.New("fleet: the engine is stopping")
	ErrTwin       = errors.New("fleet: two agents have one node's name")
	ErrBudget     = errors.New("fleet: the agent sends frames beyond what one may hold")
)

// QueueFrames bounds what waits for one agent. Commands are rare (one order
// or window in seconds); acknowledgements are merged and need no place.
const QueueFrames = 256

// Session is one stream of one agent. All methods may be called from any
// goroutine and none blocks.
type Session struct {
	Hello *falconv1.Hello
	Host  string // address that the agent speaks from, "" = unknown
	Addr  string // Host with the port

	out    chan *falconv1.EngineFrame
	acked  atomic.Uint64 // newest frame handled; the sender's loop reads it after nudge
	nudge  chan struct{}
	prompt atomic.Uint64 // frame up to which acknowledgements do not wait; see pump
	cancel context.CancelCauseFunc
	ctx    context.Context
	held   held
}

// NewSession makes a session whose life ends with ctx or End.
func NewSession(ctx context.Context, hello *falconv1.Hello) *Session {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Session{
		Hello:  hello,
		out:    make(chan *falconv1.EngineFrame, QueueFrames),
		nudge:  make(chan struct{}, 1),
		ctx:    ctx,
		cancel: cancel,
		Host:   hostOf(ctx),
		Addr:   addressOf(ctx),
	}
}

// addressOf is where the caller of a stream speaks from, with the port.
func addressOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// hostOf is where the caller of a stream speaks from.
func hostOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return ""
	}
	return host
}

// Send queues a frame; where the queue is full the stream is ended and Send
// says false.
func (s *Session) Send(f *falconv1.EngineFrame) bool {
	select {
	case s.out <- f:
		return true
	default:
		s.End(ErrSlow)
		return false
	}
}

// Ack tells the agent that all frames up to seq are handled. Later calls
// overtake earlier ones that were not sent yet.
func (s *Session) Ack(seq uint64) {
	s.acked.Store(seq)
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// End closes the stream for the given reason; the first reason counts.
func (s *Session) End(reason error) {
	s.cancel(reason)
}

// Context ends with the session; its cause is the reason.
func (s *Session) Context() context.Context { return s.ctx }

// Next takes what is to be sent next without waiting, a queued frame before an
// acknowledgement; nil when nothing waits. It is for owners that carry the
// frames themselves, in place of Service.
func (s *Session) Next() *falconv1.EngineFrame {
	select {
	case f := <-s.out:
		return f
	default:
	}
	select {
	case <-s.nudge:
		return s.acknowledgement()
	default:
		return nil
	}
}

func (s *Session) acknowledgement() *falconv1.EngineFrame {
	return &falconv1.EngineFrame{Body: &falconv1.EngineFrame_Ack{Ack: &falconv1.Ack{Seq: s.acked.Load()}}}
}

// Frames is what waits to be sent; for tests and for the sender.
func (s *Session) Frames() <-chan *falconv1.EngineFrame { return s.out }

// Stream is the part of the gRPC stream that a session needs.
type Stream interface {
	Context() context.Context
	Send(*falconv1.EngineFrame) error
	Recv() (*falconv1.AgentFrame, error)
}

// ackEvery is how long an acknowledgement of samples and telemetry waits for later ones: an agent
// needs them to let go of what it keeps, and each costs the engine a system call.
const ackEvery = 2 * time.Second

// pump sends until the session ends or the stream breaks.
func (s *Session) pump(stream Stream) error {
	var acked uint64 // newest sent
	var at time.Time // when that was
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	waits := false
	for {
		var f *falconv1.EngineFrame
		select {
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case f = <-s.out:
		case <-s.nudge:
			if since := time.Since(at); since < ackEvery && s.prompt.Load() <= acked {
				if !waits {
					due.Reset(ackEvery - since)
				}
				waits = true
				continue
			}
			f = s.acknowledgement()
		case <-due.C:
			f = s.acknowledgement()
		}
		if ack := f.GetAck(); ack != nil {
			acked = ack.GetSeq()
			at = time.Now()
			waits = false
		}
		if err := stream.Send(f); err != nil {
			return err
		}
	}
}

// note has a frame acknowledged at once that is more than the agent's usual ones.
func (s *Session) note(f *falconv1.AgentFrame) {
	switch f.GetBody().(type) {
	case *falconv1.AgentFrame_Samples, *falconv1.AgentFrame_Telemetry, *falconv1.AgentFrame_Beat:
	default:
		if seq := f.GetSeq(); seq > s.prompt.Load() {
			s.prompt.Store(seq)
		}
	}
}

// Sink takes what agents say. Attach and Frame may block while the engine is
// busy: that is the back-pressure that agents feel.
type Sink interface {
	Attach(s *Session) error
	Frame(s *Session, f *falconv1.AgentFrame) error
	Detach(s *Session)
}

// Service runs the streams.
type Service struct {
	sink    Sink
	budgets *Budgets
	mu      sync.Mutex
	closed  bool
	live    map[*Session]struct{}
	readers sync.WaitGroup
}

// NewService makes a service that feeds sink; nil budgets mean the defaults.
func NewService(sink Sink, budgets *Budgets) *Service {
	if budgets == nil {
		budgets = NewBudgets(Limits{})
	}
	return &Service{
		sink:    sink,
		budgets: budgets,
		live:    map[*Session]struct{}{},
	}
}

// Run serves one stream whose hello has been read and whose caller has been
// identified. It returns when the stream is over.
func (v *Service) Run(stream Stream, hello *falconv1.Hello) error {
	s := NewSession(stream.Context(), hello)
	defer s.End(ErrClosed)
	if !v.add(s) {
		return ErrClosed
	}
	defer v.remove(s)
	if err := v.sink.Attach(s); err != nil {
		v.readers.Done()
		return err
	}
	defer v.sink.Detach(s)
	go func() {
		defer v.readers.Done()
		s.End(v.read(s, stream))
	}()
	return s.pump(stream)
}

// read hands frames on until the stream ends: which is at the latest when Run
// has returned, as gRPC then cancels the stream's context.
//
// It reads no faster than the agent's budget allows: the agent feels that as a
// slow connection, and nothing is lost.
func (v *Service) read(s *Session, stream Stream) error {
	pace := v.budgets.of(s.Hello.GetNode())
	for {
		f, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := pace.admit(s, f); err != nil {
			return err
		}
		s.note(f)
		if err := v.sink.Frame(s, f); err != nil {
			s.held.drop()
			return err
		}
	}
}

// add counts the reader that is about to start, unless the service has ended:
// under the same lock as End, so that Close never misses one.
func (v *Service) add(s *Session) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return false
	}
	v.live[s] = struct{}{}
	v.readers.Add(1)
	return true
}

func (v *Service) remove(s *Session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.live, s)
}

// End ends all streams and refuses new ones. It does not wait.
func (v *Service) End() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for s := range v.live {
		s.End(ErrClosed)
	}
}

// Close ends all streams and waits for their readers. Call it after the gRPC
// server has stopped: only that ends a reader that waits in Recv.
func (v *Service) Close() {
	v.End()
	v.readers.Wait()
}
