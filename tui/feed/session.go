package feed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
)

// Session is one operator's view of a Hub. It owns one goroutine, which pulls
// what is the operator's own whenever the shared picture has moved: at the
// slower pace while the last one was not taken, as behind a stalled terminal.
type Session struct {
	caller
	hub     *Hub
	latest  atomic.Pointer[State]
	want    atomic.Pointer[Want]
	pace    atomic.Int32  // a pace
	changed chan struct{} // all of these have capacity 1
	moved   chan struct{} // the shared picture
	urgent  chan struct{} // the operator waits for it
	taken   chan struct{} // Latest was called
	done    chan struct{}
	cancel  context.CancelFunc
	once    sync.Once
	wg      sync.WaitGroup

	// The goroutine's own.
	own    *falconv1.SnapshotReply // role, actor, series, operators; nil until the first, and after a refusal
	sent   Want                    // what own was pulled for
	state  State
	shared *State    // what state was made of
	last   time.Time // the last round
}

func newSession(h *Hub, client falconv1.ConsoleClient) *Session {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Session{
		hub:     h,
		cancel:  cancel,
		done:    make(chan struct{}),
		changed: make(chan struct{}, 1),
		moved:   make(chan struct{}, 1),
		urgent:  make(chan struct{}, 1),
		taken:   make(chan struct{}, 1),
	}
	s.caller = caller{
		client:    client,
		recovered: h.feed.recoverNow,
		pullNow:   h.feed.pullNow,
		seen: func() *falconv1.Policy {
			return s.latest.Load().Snap.GetPolicy()
		},
	}
	s.want.Store(&Want{Rank: WorstRank, Columns: 120})
	s.state = State{
		Snap:    &falconv1.SnapshotReply{},
		Since:   h.now(),
		Session: newSessionName(),
	}
	s.publish()
	s.wg.Go(func() { s.follow(ctx) })
	return s
}

// Close ends the session and waits.
func (s *Session) Close() {
	s.endSession()
	s.hub.removeSession(s)
}

func (s *Session) endSession() {
	s.once.Do(func() {
		s.cancel()
		s.wg.Wait()
		close(s.done)
	})
}

// Latest is the newest state.
func (s *Session) Latest() *State {
	Signal(s.taken)
	return s.latest.Load()
}

// Changed is signalled after Latest has changed; signals coalesce.
func (s *Session) Changed() <-chan struct{} { return s.changed }

// Done is closed when the session has been closed.
func (s *Session) Done() <-chan struct{} { return s.done }

// Ask says what to pull from now on; it never blocks.
func (s *Session) Ask(w Want) {
	if old := s.want.Swap(&w); *old == w {
		return
	}
	Signal(s.urgent)
	s.hub.adjustPace()
}

// Blur slows the pace down while the terminal is out of focus, or brings it back.
func (s *Session) Blur(away bool) {
	to := awake
	if away {
		to = blurred
	}
	if pace(s.pace.Swap(int32(to))) > to {
		Signal(s.urgent)
	}
	s.hub.adjustPace()
}

func (s *Session) follow(ctx context.Context) {
	again := time.NewTimer(BlurredPeriod) // others see who pulls
	defer again.Stop()
	for ctx.Err() == nil {
		s.pullRound(ctx)
		again.Reset(BlurredPeriod)
		select {
		case <-ctx.Done():
		case <-s.urgent:
		case <-again.C:
		case <-s.moved:
			s.waitForMore(ctx)
		}
	}
}

// waitForMore waits until the last picture was taken, or for the slower pace where it
// was not or the terminal is out of focus; what is urgent ends it.
func (s *Session) waitForMore(ctx context.Context) {
	if s.state.Received.IsZero() {
		return
	}
	taken := s.taken
	if pace(s.pace.Load()) != awake {
		taken = nil
	}
	timer := time.NewTimer(BlurredPeriod - s.hub.now().Sub(s.last))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.urgent:
	case <-taken:
	case <-timer.C:
	}
}

// pullRound pulls what is the operator's own and joins it with the shared picture.
func (s *Session) pullRound(ctx context.Context) {
	s.last = s.hub.now()
	shared := s.hub.feed.Latest()
	if err := s.pullOwn(ctx, *s.want.Load()); err != nil {
		if ctx.Err() == nil {
			s.failed(err)
		}
		return
	}
	s.joinShared(shared)
}

func (s *Session) pullOwn(ctx context.Context, w Want) error {
	ctx, cancel := context.WithTimeout(ctx, PullTimeout)
	defer cancel()
	q := &falconv1.SnapshotRequest{
		Own:        true,
		Rank:       w.Rank,
		Columns:    w.Columns,
		RunLengths: w.RunLengths,
		Session:    s.state.Session,
		Attending:  w.Attending,
	}
	w.Attending = ""
	if s.own != nil && w == s.sent && s.state.Conn == Live {
		q.KnownVersion = s.own.Version
	}
	reply, err := s.client.Snapshot(ctx, q)
	if err != nil {
		return err
	}
	own := &falconv1.SnapshotReply{Version: reply.GetVersion(), Operators: reply.GetOperators()}
	if reply.GetUnchanged() {
		own.Role = s.own.GetRole()
		own.Actor = s.own.GetActor()
		own.Series = s.own.GetSeries()
	} else {
		own.Role = reply.GetRole()
		own.Actor = reply.GetActor()
		own.Series = reply.GetSeries()
	}
	clean.Message(own)
	s.own, s.sent = own, w
	return nil
}

// failed keeps the last picture, unless the engine refuses it to this caller.
func (s *Session) failed(err error) {
	to := Lost
	if s.state.Received.IsZero() {
		to = Connecting
	}
	if code := status.Code(err); code == codes.PermissionDenied || code == codes.Unauthenticated {
		s.own = nil
		s.state = State{
			Snap:    &falconv1.SnapshotReply{},
			Session: s.state.Session,
			Conn:    s.state.Conn,
			Since:   s.state.Since,
			Err:     s.state.Err,
		}
		to = Lost
	}
	if s.state.enterConn(to, Reason(err), s.hub.now()) {
		s.publish()
	}
}

// joinShared publishes the shared picture with the operator's own part, if one has changed.
func (s *Session) joinShared(shared *State) {
	snap := s.state.Snap
	if shared == s.shared &&
		s.own.Series == snap.Series &&
		s.own.Role == snap.Role &&
		s.own.Actor == snap.Actor &&
		s.state.Conn == shared.Conn &&
		sameOperators(s.own.Operators, s.state.Operators) {
		return
	}
	out := *shared
	out.Session, out.Operators = s.state.Session, s.own.Operators
	out.Conn = s.state.Conn
	out.Since = s.state.Since
	out.Err = s.state.Err
	out.enterConn(shared.Conn, shared.Err, s.hub.now())
	out.Snap = Shallow(shared.Snap)
	out.Snap.Role = s.own.Role
	out.Snap.Actor = s.own.Actor
	out.Snap.Series = s.own.Series
	s.shared, s.state = shared, out
	s.publish()
}

func (s *Session) publish() {
	out := s.state
	for drained := false; !drained; { // the next picture waits until this one is taken
		select {
		case <-s.taken:
		default:
			drained = true
		}
	}
	s.latest.Store(&out)
	Signal(s.changed)
}
