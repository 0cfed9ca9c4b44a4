// Package feed turns the engine's Console service into immutable states for a
// console to draw.
//
// A Feed owns three goroutines: one pulls snapshots at a pace, one holds the
// Watch stream and reconnects it, one pulls recoveries while they are wanted.
// All only publish: a reader takes Latest and waits on Changed, so that a
// stalled terminal never holds the engine's client up, and a stalled engine
// never holds the terminal up. Close ends all and waits. Every string in a published state has
// been cleaned; a published state must not be modified. The feed holds no truth of its own.
package feed

import (
	"context"
	"crypto/rand"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon/backend/api/columns"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
)

// Bounds of the feed.
const (
	ActivePeriod  = 200 * time.Millisecond // between pulls while someone looks
	BlurredPeriod = time.Second            // while the terminal is out of focus
	RecoverPeriod = 2 * time.Second        // between pulls of recoveries while they are wanted
	PullTimeout   = 3 * time.Second        // one Snapshot call
	CallTimeout   = 5 * time.Second        // one Decide or SetPolicy call
	HistoryPeriod = 10 * time.Second       // between pulls of the history while it is wanted
	MaxEvents     = 512                    // lines held; the oldest go first
	sessionLen    = 12                     // characters of a session's name: 60 random bits
	minBackoff    = 250 * time.Millisecond // before the Watch stream is opened again
	maxBackoff    = 4 * time.Second
	pullShare     = 4               // a pull is followed by so many times its own time
	maxPeriod     = 5 * time.Second // whatever a pull takes
)

// WorstRank asks for the series of whichever rank is worst.
const WorstRank int32 = -1

// Conn is the state of the connection to the engine.
type Conn int

// The states of the connection.
const (
	Connecting Conn = iota // never reached yet
	Live
	Lost // reached before, not now
)

// State is one immutable picture. Snap is never nil; it is empty before the first snapshot.
type State struct {
	Snap     *falconv1.SnapshotReply
	Events   []*falconv1.EventLine // oldest first
	Conn     Conn
	Since    time.Time // when Conn was entered
	Err      string    // why it is not Live, cleaned
	Received time.Time // when Snap came; zero before the first
	Slow     bool      // pulls take longer than the pace
	Memo     *Memo     // what is derived from Snap; nil in states made by hand

	Columns *columns.Table // the ranks, which Snap lacks; nil before the first

	Recoveries    *falconv1.RecoveriesReply // newest pull of them; nil = never wanted, or refused
	RecoveriesErr string                    // why there are none, cleaned

	Validations []*falconv1.Validation // newest first, as last pulled; nil = never wanted

	History    *falconv1.HistoryReply // newest pull; nil = never wanted, or refused
	HistoryErr string                 // why there is none, cleaned

	Session   string               // of this feed, as others see it
	Operators []*falconv1.Operator // who looks now, this feed's among them
}

// Others are the operators at other screens than this one.
func (s *State) Others() []*falconv1.Operator {
	var out []*falconv1.Operator
	for _, o := range s.Operators {
		if o.GetSession() != s.Session {
			out = append(out, o)
		}
	}
	return out
}

// Age is how old the newest data is: by the client's clock since it came, by the engine's before.
func (s *State) Age(now time.Time) time.Duration {
	if s.Received.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.Received)) + time.Duration(s.Snap.GetJob().GetDataAgeMs())*time.Millisecond
}

// PictureAge is how long ago the newest picture came, whatever is measured of the job.
func (s *State) PictureAge(now time.Time) time.Duration {
	if s.Received.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.Received))
}

// EngineTime is the present by the engine's clock: that of the newest picture, and what has
// passed here since it came. The two clocks are never subtracted from each other. Before the
// first picture it is now.
func (s *State) EngineTime(now time.Time) time.Time {
	at := s.Snap.GetAtUnixNs()
	if at == 0 {
		return now
	}
	if now.IsZero() || s.Received.IsZero() {
		return time.Unix(0, at)
	}
	return time.Unix(0, at).Add(max(0, now.Sub(s.Received)))
}

// Want is what the screen needs: sent with the next pull.
type Want struct {
	Rank       int32 // WorstRank, or a rank
	Columns    int32 // iterations of series and posterior
	RunLengths int32 // rows of the posterior, 0 = none
	Recoveries bool  // older recoveries, and what could be lost now
	Tests      bool  // older validations
	History    bool  // what is known of incidents that are over
	Recent     int32 // newest iterations of every rank of a small job

	// what the operator is about to decide on, for others to see; changes nothing in the reply
	Attending string
}

// Feed is one console's connection.
type Feed struct {
	caller
	now     func() time.Time
	latest  atomic.Pointer[State]
	want    atomic.Pointer[Want]
	pace    atomic.Int32  // a pace
	changed chan struct{} // capacity 1: a pending signal covers all later ones
	kick    chan struct{} // capacity 1: pull now
	again   chan struct{} // capacity 1: pull recoveries now
	cost    atomic.Int64  // of the last pull, ns
	packed  unpacker      // the pulling goroutine's own
	done    chan struct{}
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	closing sync.Once

	mu     sync.Mutex // guards what follows; both goroutines publish
	state  State
	sent   Want // what Snap was pulled for
	engine string
}

// New starts a feed. Now may be nil for the real clock.
func New(client falconv1.ConsoleClient, now func() time.Time) *Feed {
	return openFeed(client, now, Want{Rank: WorstRank, Columns: 120}, awake, newSessionName())
}

// newSessionName is the name of this screen for other operators.
func newSessionName() string { return rand.Text()[:sessionLen] }

// openFeed starts a feed; one without a session's name is not seen by others.
func openFeed(client falconv1.ConsoleClient, now func() time.Time, w Want, p pace, session string) *Feed {
	if now == nil {
		now = time.Now
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Feed{
		now:     now,
		cancel:  cancel,
		changed: make(chan struct{}, 1),
		kick:    make(chan struct{}, 1),
		again:   make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
	f.caller = caller{
		client:    client,
		pullNow:   f.pullNow,
		recovered: f.recoverNow,
		seen:      func() *falconv1.Policy { return f.Latest().Snap.GetPolicy() },
	}
	f.state = State{
		Snap:    &falconv1.SnapshotReply{},
		Since:   now(),
		Session: session,
	}
	f.want.Store(&w)
	f.pace.Store(int32(p))
	f.publish()
	f.wg.Add(3)
	go f.pullLoop(ctx)
	go f.watchLoop(ctx)
	go f.recoveriesLoop(ctx)
	return f
}

// Close ends the goroutines and waits for them; a second time is no harm.
func (f *Feed) Close() {
	f.cancel()
	f.wg.Wait()
	f.closing.Do(func() { close(f.done) })
}

// Latest is the newest state.
func (f *Feed) Latest() *State { return f.latest.Load() }

// Changed is signalled after Latest has changed; signals coalesce.
func (f *Feed) Changed() <-chan struct{} { return f.changed }

// Done is closed when the feed has been closed.
func (f *Feed) Done() <-chan struct{} { return f.done }

// Ask says what to pull from now on; it never blocks.
func (f *Feed) Ask(w Want) {
	if old := f.want.Load(); *old == w {
		return
	}
	f.want.Store(&w)
	f.pullNow()
	f.recoverNow()
}

// pace is how often states are wanted.
type pace int32

const (
	awake   pace = iota
	blurred      // the terminal is out of focus
	asleep       // no session: nothing is pulled until there is one
)

func (p pace) period() time.Duration {
	switch p {
	case awake:
		return ActivePeriod
	case blurred:
		return BlurredPeriod
	case asleep:
	}
	return math.MaxInt64
}

// Blur slows the pace down while the terminal is out of focus, or brings it back.
func (f *Feed) Blur(away bool) {
	if away {
		f.setPace(blurred)
	} else {
		f.setPace(awake)
	}
}

func (f *Feed) setPace(p pace) {
	if was := f.pace.Swap(int32(p)); p < pace(was) {
		f.pullNow()
	}
}

func (f *Feed) pullNow() {
	Signal(f.kick)
}

// Signal signals on a channel of capacity 1; a pending signal covers later ones.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// period lets pulls take a share of the time at most: on a slow link, or of a
// very large job, pictures come less often, and never one after the other.
func (f *Feed) period() time.Duration {
	cost := time.Duration(f.cost.Load())
	return max(pace(f.pace.Load()).period(), min(pullShare*cost, maxPeriod))
}

func (f *Feed) pullLoop(ctx context.Context) {
	defer f.wg.Done()
	for ctx.Err() == nil {
		if pace(f.pace.Load()) != asleep {
			f.pullOnce(ctx)
		}
		timer := time.NewTimer(f.period())
		select {
		case <-ctx.Done():
		case <-f.kick:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (f *Feed) pullOnce(ctx context.Context) {
	want := *f.want.Load()
	start := f.now()
	callCtx, cancel := context.WithTimeout(ctx, PullTimeout)
	defer cancel()
	request := f.request(want)
	reply, err := f.client.Snapshot(callCtx, request)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		clean.Message(reply)
	}
	if err == nil && !reply.Unchanged {
		var again bool
		if again, err = f.packed.unpack(reply); again && request.ColumnsVersion != 0 {
			f.pullNow() // whole
			return
		}
	}
	cost := f.now().Sub(start)
	f.cost.Store(int64(cost))
	if err != nil {
		f.connLost(err)
		return
	}
	f.takeReply(reply, f.packed.table, want, cost > pace(f.pace.Load()).period())
}

func (f *Feed) request(w Want) *falconv1.SnapshotRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &falconv1.SnapshotRequest{
		Rank:           w.Rank,
		Columns:        w.Columns,
		RunLengths:     w.RunLengths,
		Session:        f.state.Session,
		Attending:      w.Attending,
		Packed:         true,
		ColumnsVersion: f.packed.heldVersion(),
		Recent:         w.Recent,
	}
	w.Attending = ""
	if w == f.sent && f.state.Conn == Live {
		r.KnownVersion = f.state.Snap.Version
	}
	return r
}

// takeReply takes over a reply whose ranks came as t; nil where there were none.
func (f *Feed) takeReply(r *falconv1.SnapshotReply, t *columns.Table, w Want, slow bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Attending = ""
	others := sameOperators(f.state.Operators, r.Operators)
	if r.Unchanged && f.state.Conn == Live && f.state.Slow == slow && others {
		return
	}
	f.state.enterConn(Live, "", f.now())
	f.state.Slow = slow
	if !others {
		f.state.Operators = r.Operators
	}
	if !r.Unchanged {
		if f.engine != r.EngineId { // another engine numbers its events from 1
			f.engine = r.EngineId
			f.state.Events = nil
		}
		if Recovering(f.state.Snap.GetRecovery()) != Recovering(r.GetRecovery()) {
			f.recoverNow() // what a loss would cost is known again, or no longer
		}
		f.state.Snap, f.state.Columns, f.state.Received, f.sent = r, t, f.now(), w
		f.state.Memo = &Memo{}
		f.state.Events = mergeEvents(f.state.Events, r.Events)
	}
	f.publish()
}

// SameOperators reports whether the same people look at the same.
func SameOperators(a, b *State) bool {
	return sameOperators(a.Operators, b.Operators)
}

// sameOperators reports whether two lists are equal.
func sameOperators(a, b []*falconv1.Operator) bool {
	return slices.EqualFunc(a, b, func(x, y *falconv1.Operator) bool {
		return proto.Equal(x, y)
	})
}

func (f *Feed) connLost(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	to := Lost
	if f.state.Received.IsZero() {
		to = Connecting
	}
	if f.state.enterConn(to, Reason(err), f.now()) {
		f.publish()
	}
}

// enterConn changes the connection's state and reports whether anything changed.
func (s *State) enterConn(c Conn, why string, now time.Time) bool {
	if s.Conn == c && s.Err == why {
		return false
	}
	if s.Conn != c {
		s.Since = now
	}
	s.Conn, s.Err = c, why
	return true
}

// publish copies the state; the caller holds mu, or is New.
func (f *Feed) publish() {
	s := f.state
	f.latest.Store(&s)
	Signal(f.changed)
}

// mergeEvents joins two lists by sequence number into a new one of bounded length.
func mergeEvents(old, fresh []*falconv1.EventLine) []*falconv1.EventLine {
	last := uint64(0)
	if len(old) > 0 {
		last = old[len(old)-1].Seq
	}
	if !slices.ContainsFunc(fresh, func(e *falconv1.EventLine) bool { return e.Seq > last }) {
		return old
	}
	out := slices.Clone(old)
	for _, e := range fresh {
		if e.Seq > last {
			out = append(out, e)
			last = e.Seq
		}
	}
	return out[max(0, len(out)-MaxEvents):]
}
