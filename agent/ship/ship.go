// Package ship keeps one mutually authenticated stream to the engine and
// sends the agent's frames over it.
//
// It guarantees that a numbered frame is sent again until the engine has acknowledged it, in
// order, and that the spool that makes this possible is bounded: samples and telemetry are dropped
// oldest first and counted; results and rank states last, and never silently. Send never blocks,
// so an absent engine costs training nothing. Every stream begins with the present state of each
// process, unnumbered, since the engine may be a new one that knows nothing of the ranks whose
// samples wait in the spool. A Shipper that is closed ends a live stream with a goodbye, and what
// the engine has not acknowledged by then can be handed to the next one (Handover), which goes on
// as the same boot. One goroutine connects, one per live stream receives; both belong to the
// Shipper, and Close waits for them.
//
// It renews its own certificate after two thirds of its life, where the engine
// does that, and puts a new pair in its place so that a kill at any moment
// leaves one that fits together.
//
// It reads rank states alone, and never connects without TLS 1.3 and a
// client certificate.
package ship

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/api/remedy"
)

// Bounds of the stream.
const (
	FramesMax      = 4096     // default spool, in frames
	BytesMax       = 16 << 20 // default spool, in bytes
	BackoffMin     = 200 * time.Millisecond
	BackoffMax     = 5 * time.Second  // before jitter of ±25 %; progress starts over
	WelcomeMax     = 10 * time.Second // an engine that says nothing is left
	FlushMax       = time.Second      // Close gives a live stream this long to empty the spool
	KeepaliveEvery = 10 * time.Second // pings on a silent connection
	KeepaliveMax   = 10 * time.Second // an unanswered ping ends it
	frameBytesMax  = 16 << 20         // one message
)

// ErrCredentials is wrapped where certificate, key or CA can't be used.
var ErrCredentials = errors.New("ship: bad credentials")

// Config is where to connect, and as whom. The functions are called from the
// Shipper's goroutines and must not block.
type Config struct {
	Address    string // host:port of the engine
	ServerName string // name in its certificate; empty = host of Address
	CertFile   string
	KeyFile    string
	CAFile     string
	Hello      *falconv1.Hello
	FramesMax  int       // 0 = FramesMax
	BytesMax   int       // 0 = BytesMax
	From       *Handover // of the Shipper before, nil for none; Hello has its boot
	Log        *slog.Logger

	Welcome func(*falconv1.Welcome) // a new stream is up, or the engine goes on under a higher epoch
	// Standing is what the agent says of the orders that it has had; nil = nothing.
	Standing func() *falconv1.Standing
	// Standbys is what the agent says of the processes that wait to become ranks; nil = nothing.
	Standbys func() *falconv1.Standbys
	Command  func(*falconv1.Command)
	Ask      func(*falconv1.Ask)
	Peek     func(*falconv1.Peek)

	Now func() time.Time // nil = time.Now
	// Dial replaces the network in tests.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// Shipper owns the stream and the spool.
type Shipper struct {
	cfg    Config
	log    *slog.Logger
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu        sync.Mutex
	spool     *spool
	ranks     map[int32]*falconv1.RankState // living ones, newest state by pid
	ended     endedList                     // processes that have ended lately
	beat      *falconv1.Beat                // newest one to send, nil when sent
	connected bool
	closing   bool
	progress  bool          // the last stream had something acknowledged
	breakOff  func()        // ends the present stream; nil while there is none
	wake      chan struct{} // holds one token when there may be something to send
}

// Stats is the state of the spool.
type Stats struct {
	Frames    uint64 // waiting for an acknowledgement
	Dropped   uint64 // samples and telemetry
	Lost      uint64 // other frames that were dropped
	Connected bool
}

// Open checks the credentials and starts connecting. The engine need not be
// there.
func Open(cfg Config) (*Shipper, error) {
	if _, _, err := credentials(cfg); err != nil {
		return nil, err
	}
	s, err := newShipper(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.done.Go(func() { s.reconnectLoop(ctx) })
	return s, nil
}

func newShipper(cfg Config) (*Shipper, error) {
	if cfg.FramesMax <= 0 {
		cfg.FramesMax = FramesMax
	}
	if cfg.BytesMax <= 0 {
		cfg.BytesMax = BytesMax
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Shipper{
		cfg:   cfg,
		log:   cfg.Log,
		spool: newSpool(cfg.FramesMax, cfg.BytesMax),
		ranks: map[int32]*falconv1.RankState{},
		wake:  make(chan struct{}, 1),
	}
	if cfg.From == nil {
		return s, nil
	}
	if cfg.From.Check() != nil || cfg.From.Boot != cfg.Hello.GetBoot() {
		return nil, fmt.Errorf("%w, or another boot than the agent's", ErrHandover)
	}
	s.spool.continueFrom(*cfg.From, cfg.Now())
	return s, nil
}

// Send numbers the frame and queues it. What it says was so KeptMs ago. The caller must not touch it again.
func (s *Shipper) Send(f *falconv1.AgentFrame) {
	s.mu.Lock()
	before := s.spool.lost
	s.rememberState(f.GetRank())
	s.spool.addFrame(f, s.cfg.Now())
	lost := s.spool.lost - before
	s.mu.Unlock()
	if lost > 0 {
		s.log.Error(
			"the spool is full and let go of more than telemetry: reconnect the engine",
			slog.Uint64("frames", lost),
		)
	}
	s.notifyWriter()
}

// rememberState keeps the newest state of each living process, by its pid: a rank
// changes hands in a placement. Those that have ended lately are kept too.
func (s *Shipper) rememberState(st *falconv1.RankState) {
	switch {
	case st == nil:
	case st.Alive:
		s.ranks[st.Pid] = st
		s.ended.supersede(st)
	default:
		delete(s.ranks, st.Pid)
		s.ended.add(st)
	}
}

// Beat sends an unnumbered heartbeat with the ranks' signs of life on a live
// stream; without one it is forgotten. Spool counts are filled in here.
func (s *Shipper) Beat(now time.Time, ranks []*falconv1.RankBeat, unseen []*falconv1.UnseenRank) {
	s.mu.Lock()
	if s.connected {
		s.ended.beat()
		s.beat = &falconv1.Beat{
			AtUnixNs:      now.UnixNano(),
			SpoolFrames:   uint64(len(s.spool.frames)),
			DroppedFrames: s.spool.dropped + s.spool.lost,
			Ranks:         ranks,
			Unseen:        unseen,
			Standing:      s.presentStanding(),
		}
		if s.cfg.Standbys != nil {
			s.beat.Standbys = s.cfg.Standbys()
		}
	}
	s.mu.Unlock()
	s.notifyWriter()
}

// Ends are the ends of processes that an engine may need again: not
// acknowledged, or lately; oldest first. The caller must not change them.
func (s *Shipper) Ends() (ends []*falconv1.RankState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.ended {
		if !s.spool.holdsEnd(e.state) {
			ends = append(ends, e.state)
		}
	}
	for _, e := range s.spool.frames {
		if st := e.frame.GetRank(); st != nil && !st.Alive {
			ends = append(ends, st)
		}
	}
	return ends
}

// Stats is the state of the spool.
func (s *Shipper) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Frames:    uint64(len(s.spool.frames)),
		Dropped:   s.spool.dropped,
		Lost:      s.spool.lost,
		Connected: s.connected,
	}
}

// Hears reports whether the engine has welcomed the present stream.
func (s *Shipper) Hears() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connected
}

// Renew ends the present stream, so that another begins. What the engine has sent on
// the old one and the agent has not taken is lost: the engine says again what still
// holds.
func (s *Shipper) Renew() {
	s.mu.Lock()
	f := s.breakOff
	s.mu.Unlock()
	if f != nil {
		f()
	}
}

func (s *Shipper) setBreakOff(f func()) {
	s.mu.Lock()
	s.breakOff = f
	s.mu.Unlock()
}

// Close sends what a live stream takes within FlushMax, and behind it a goodbye,
// then ends.
func (s *Shipper) Close() {
	s.mu.Lock()
	s.closing = true
	live := s.connected
	s.mu.Unlock()
	s.notifyWriter()
	if live {
		timer := time.AfterFunc(FlushMax, s.cancel)
		defer timer.Stop()
	} else {
		s.cancel()
	}
	s.done.Wait()
	s.cancel()
}

func (s *Shipper) notifyWriter() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// reconnectLoop connects again and again until Close.
func (s *Shipper) reconnectLoop(ctx context.Context) {
	backoff := BackoffMin
	for ctx.Err() == nil && !s.streamEnded() {
		err := s.runStream(ctx)
		if ctx.Err() != nil || s.streamEnded() {
			return
		}
		if s.progressed() {
			backoff = BackoffMin
		}
		wait := withJitter(backoff)
		s.log.Warn(
			"no stream to the engine",
			slog.String("address", s.cfg.Address),
			slog.Any("err", err),
			slog.String("what_to_do", hintOf(err)),
			slog.Duration("retry_in", wait),
		)
		if !sleepContext(ctx, wait) {
			return
		}
		backoff = min(backoff*2, BackoffMax)
	}
}

func hintOf(err error) string {
	if err == nil {
		return ""
	}
	return remedy.Of(err.Error())
}

func (s *Shipper) streamEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

func (s *Shipper) progressed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.progress
	s.progress = false
	return was
}

// withJitter spreads d by ±25 %, so that a fleet does not come back as one.
func withJitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.75 + 0.5*rand.Float64()))
}

func sleepContext(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// helloFrame is the first frame of every stream.
func (s *Shipper) helloFrame() *falconv1.AgentFrame {
	h := proto.CloneOf(s.cfg.Hello)
	s.mu.Lock()
	h.Living = int32(len(s.ranks))
	s.mu.Unlock()
	h.Standing = s.presentStanding()
	return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Hello{Hello: h}}
}

func (s *Shipper) presentStanding() *falconv1.Standing {
	if s.cfg.Standing == nil {
		return nil
	}
	return s.cfg.Standing()
}

func errWelcome(got *falconv1.EngineFrame) error {
	return fmt.Errorf("ship: the engine's first frame was %T, not a welcome", got.GetBody())
}
