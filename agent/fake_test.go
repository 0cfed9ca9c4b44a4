package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// fakeSegment is a process's shared memory that the test writes by hand.
type fakeSegment struct {
	mu      sync.Mutex
	header  ring.Header
	control ring.Control
	comms   []ring.Comm
	place   ring.Place
	records []ring.Record
	marks   []ring.Mark
	timings []ring.Timing
	newest  uint64
	orders  []falcon.Order
	window  uint32
	untilNs int64
	open    bool // profile mode
	period  uint32
	slow    bool // the hook still waits for the device
	closed  bool
	err     error

	pause    ring.Pause // as the hook of this process says it
	armErr   error
	deaf     bool // the hook does not say that it let go
	boundary int64
	cuts     []ring.Cut
	tests    []ring.Test
	result   ring.TestResult

	recovery fakeRecovery
}

func (s *fakeSegment) Pause() ring.Pause {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pause
}

func (s *fakeSegment) Arm(order uint64, untilNs, boundary int64, cuts []ring.Cut) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armErr != nil {
		return s.armErr
	}
	s.pause.Wanted = order
	s.pause.UntilNs = untilNs
	s.boundary = boundary
	s.cuts = cuts
	return nil
}

func (s *fakeSegment) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pause.Wanted == s.pause.Seen && !s.deaf && !s.pause.State.Over() {
		s.pause.State = ring.PauseReleased
		s.pause.ReleasedNs = time.Now().UnixNano()
	}
	s.pause.Wanted, s.cuts = 0, nil
}

func (s *fakeSegment) PutTest(t ring.Test) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tests) > 0 && s.tests[len(s.tests)-1].ID >= t.ID {
		return ring.ErrTest
	}
	s.tests = append(s.tests, t)
	return nil
}

func (s *fakeSegment) TestResult() (ring.TestResult, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result, s.result.ID != 0
}

// hold is what the hook does with the order in force: it comes to the state
// now, and traps its first call at reaching the cut.
func (s *fakeSegment) hold(state ring.PauseState) {
	s.set(func() {
		now := time.Now().UnixNano()
		if s.pause.Seen != s.pause.Wanted && s.pause.Wanted != 0 {
			s.pause = ring.Pause{
				Wanted:  s.pause.Wanted,
				UntilNs: s.pause.UntilNs,
				Seen:    s.pause.Wanted,
			}
		}
		s.pause.State = state
		if state >= ring.PauseReached && s.pause.TrappedNs == 0 {
			s.pause.TrappedNs = now
		}
		if state == ring.PauseQuiet {
			s.pause.QuietNs = now
		}
		if state.Over() {
			s.pause.ReleasedNs = now
		}
	})
}

func (s *fakeSegment) UnixNs(monoNs int64) int64 { return monoNs + 5e9 }
func (s *fakeSegment) Beat(keepParked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if keepParked {
		s.recovery.kept = time.Now().UnixNano()
	}
}

// keptAt is when the agent last said that the parked process is to be kept.
func (s *fakeSegment) keptAt() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recovery.kept
}

func (s *fakeSegment) Header() ring.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header
}

func (s *fakeSegment) Drain(buf []ring.Record) (int, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := copy(buf, s.records)
	s.records = s.records[n:]
	return n, 0
}

func (s *fakeSegment) Marks(next uint64, out []ring.Mark) ([]ring.Mark, uint64, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(out[:0], s.marks[next:]...), uint64(len(s.marks)), 0
}

func (s *fakeSegment) Timings(window uint32, out []ring.Timing) []ring.Timing {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.timings {
		if t.Window == window {
			out = append(out, t)
		}
	}
	return out
}

func (s *fakeSegment) Control() ring.Control {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.control
}

func (s *fakeSegment) Place() (ring.Place, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.place, true
}

func (s *fakeSegment) Comms(out []ring.Comm) []ring.Comm {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(out[:0], s.comms...)
}

func (s *fakeSegment) StartProfile(window uint32, untilNs int64, _ ring.CommMask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.window = window
	s.untilNs = untilNs
	s.open = true
}

func (s *fakeSegment) StopProfile() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open = false; !s.slow {
		s.control.ProfileDone = s.window
	}
}

func (s *fakeSegment) PutOrder(o falcon.Order) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = o.ID
	s.orders = append(s.orders, o)
	return nil
}

func (s *fakeSegment) NewestOrder() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

func (s *fakeSegment) SetPeriod(calls, _ uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.period = calls
}

func (s *fakeSegment) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *fakeSegment) Close() error {
	s.closed = true
	return nil
}

func (s *fakeSegment) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// mark begins iteration i at ms on the monotonic clock.
func (s *fakeSegment) mark(i int64, ms float64) {
	s.set(func() {
		s.marks = append(s.marks, ring.Mark{Iteration: i, StartNs: int64(ms * 1e6)})
		s.control.Iteration = i
		s.declare()
	})
}

// fakeExit is an exit that the test decides.
type fakeExit struct {
	gone  chan struct{}
	mu    sync.Mutex
	how   string
	ended func()

	refuses error
	signals []unix.Signal
}

func (e *fakeExit) Gone() <-chan struct{} { return e.gone }
func (e *fakeExit) Close()                {}
func (e *fakeExit) Signal(sig unix.Signal) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refuses != nil {
		return e.refuses
	}
	e.signals = append(e.signals, sig)
	return nil
}

func (e *fakeExit) received() []unix.Signal {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.signals)
}

func (e *fakeExit) How() (string, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.how, e.how != ""
}

func (e *fakeExit) die(how string) {
	e.mu.Lock()
	e.how = how
	e.mu.Unlock()
	select {
	case <-e.gone:
	default:
		close(e.gone)
		if e.ended != nil {
			e.ended()
		}
	}
}

// fakeDir is a node with the processes that the test puts there.
type fakeDir struct {
	t        *testing.T
	path     string
	mu       sync.Mutex
	segs     map[string]*fakeSegment
	exits    map[int]*fakeExit
	stale    []ring.Entry
	unproven []ring.Entry
	words    []ring.Ended // end records whose files are there

	hidden []int // pids that Discover does not list as live
}

func newFakeDir(t *testing.T) *fakeDir {
	return &fakeDir{
		t:     t,
		path:  t.TempDir(),
		segs:  map[string]*fakeSegment{},
		exits: map[int]*fakeExit{},
	}
}

// add puts a process there, with a file that the agent may remove.
func (d *fakeDir) add(pid, rank int, device string) *fakeSegment {
	s := &fakeSegment{
		header: ring.Header{
			PID:       pid,
			Rank:      rank,
			World:     4,
			LocalRank: 0,
			Job:       "j",
			Device:    device,
		},
		control: ring.Control{Iteration: -1},
		comms: []ring.Comm{{Slot: 0, ID: 77, State: ring.CommLive, Size: 4, Rank: rank}, {
			Slot:  1,
			ID:    88,
			State: ring.CommLive,
			Size:  2,
			Rank:  rank % 2,
		}},
	}
	e := d.entry(pid)
	if err := os.WriteFile(e.Path, nil, 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.segs[e.Path] = s
	d.exits[pid] = &fakeExit{gone: make(chan struct{})}
	return s
}

func (d *fakeDir) entry(pid int) ring.Entry {
	return ring.Entry{
		Path: filepath.Join(d.path, "falcon.j."+strconv.Itoa(pid)),
		Job:  "j",
		PID:  pid,
	}
}

func (d *fakeDir) exists(pid int) bool {
	_, err := os.Stat(d.entry(pid).Path)
	return err == nil
}

func (d *fakeDir) Discover() (ring.Listing, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := ring.Listing{Stale: d.stale, Unproven: d.unproven}
	for path, s := range d.segs {
		pid := s.Header().PID
		if d.exists(pid) && !slices.Contains(d.hidden, pid) {
			out.Live = append(out.Live, ring.Entry{
				Path:        path,
				Job:         "j",
				PID:         pid,
				StartMonoNs: s.Header().StartMonoNs,
				UID:         os.Geteuid(),
			})
		}
	}
	return out, nil
}

func (d *fakeDir) Open(path string) (Segment, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.segs[path]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("%w: test", ring.ErrCorrupt)
}

func (d *fakeDir) Exit(pid int, _ ring.Header, ended func()) (Exit, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.exits[pid].ended = ended
	return d.exits[pid], nil
}

func (d *fakeDir) Born(pid int) (uint64, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.exits[pid]
	if e == nil {
		return 0, false
	}
	select {
	case <-e.gone:
		return 0, false
	default:
		return uint64(pid), true
	}
}

func (d *fakeDir) Ends(made ring.Header) (gone, known bool) {
	_, runs := d.Born(made.PID)
	return !runs, true
}

func (d *fakeDir) Namespace() uint64 { return 0 }

func (d *fakeDir) Owner(string) (int, error) { return os.Geteuid(), nil }

func (d *fakeDir) Ended() (found []ring.Ended, bad map[string]error, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.words {
		if _, err := os.Stat(w.Path); err == nil {
			found = append(found, w)
		}
	}
	return found, nil, nil
}

func (d *fakeDir) MonoNs() int64 { return time.Now().UnixNano() }

// fakeShip keeps what the agent sends.
type fakeShip struct {
	mu      sync.Mutex
	frames  []*falconv1.AgentFrame
	beats   int
	alone   bool                  // no engine has welcomed it
	renewed int                   // streams that the agent asked for
	ranks   []*falconv1.RankBeat  // of the newest beat
	kept    []*falconv1.RankState // ends that were sent and not acknowledged
}

func (s *fakeShip) Send(f *falconv1.AgentFrame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames = append(s.frames, f)
	if st := f.GetRank(); st != nil && !st.Alive {
		s.kept = append(s.kept, st)
	}
}

func (s *fakeShip) Hears() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.alone
}

func (s *fakeShip) Renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed++
}

func (s *fakeShip) Ends() []*falconv1.RankState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept)
}

func (s *fakeShip) Beat(_ time.Time, ranks []*falconv1.RankBeat, _ []*falconv1.UnseenRank) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beats++
	s.ranks = ranks
}

func sent[T any](s *fakeShip, pick func(*falconv1.AgentFrame) T, is func(T) bool) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []T
	for _, f := range s.frames {
		if v := pick(f); is(v) {
			out = append(out, v)
		}
	}
	return out
}

func (s *fakeShip) samples() []*falconv1.Sample {
	var out []*falconv1.Sample
	for _, b := range sent(s, (*falconv1.AgentFrame).GetSamples, func(b *falconv1.Samples) bool {
		return b != nil
	}) {
		out = append(out, b.Samples...)
	}
	return out
}

func (s *fakeShip) states() []*falconv1.RankState {
	return sent(s, (*falconv1.AgentFrame).GetRank, func(r *falconv1.RankState) bool { return r != nil })
}

func (s *fakeShip) results() []*falconv1.CommandResult {
	return sent(s, (*falconv1.AgentFrame).GetResult, func(r *falconv1.CommandResult) bool { return r != nil })
}

func (s *fakeShip) profiles() []*falconv1.Profile {
	return sent(s, (*falconv1.AgentFrame).GetProfile, func(p *falconv1.Profile) bool { return p != nil })
}

// node is an agent over fakes, running in a synctest bubble.
type node struct {
	*Agent
	dir  *fakeDir
	ship *fakeShip
}

// onNode runs test against a running agent, in virtual time.
func onNode(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	onNodeWith(t, Defaults(), Options{Now: time.Now}, test)
}

func onNodeWith(t *testing.T, cfg Config, opt Options, test func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.Node = "n1"
		n := &node{dir: newFakeDir(t), ship: &fakeShip{}}
		cfg.ShmDir, opt.Directory = n.dir.path, n.dir
		n.Agent = New(cfg, withTime(opt))
		n.Bind(n.ship)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		synctest.Wait() // it has looked at the empty node and sleeps until the test does
		test(t, n)
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// wait lets the agent take several looks.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// withTime has an agent live in a test's time.
func withTime(opt Options) Options {
	opt.Now = time.Now
	return opt
}
