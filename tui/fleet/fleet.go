// Package fleet watches many engines, one per job, and puts what they say into one table.
//
// A Fleet owns two goroutines at most per engine and one that looks for engines on this
// machine. Each engine has its own connection, time limit and backoff: one that hangs, is away,
// is older or sends what can't be read shows as such and slows or hides no other. What is pulled
// is a brief picture, some KB whatever the job's size; the text of it is cleaned and its amounts
// are bounded again here. Published jobs are immutable. A job is known by the name that this
// console gave its engine, which no engine can choose or forge.
//
// Rows, their order, their filter and their picture are pure functions of the jobs and the time.
// The package decides nothing and sends no decision.
package fleet

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

// Bounds of the watch.
const (
	ActivePeriod   = 2 * time.Second  // between pulls of one engine while someone looks
	BlurredPeriod  = 10 * time.Second // while the terminal is out of focus
	OlderPeriod    = 15 * time.Second // of an engine that sends whole pictures
	PullTimeout    = 3 * time.Second  // of one pull
	DiscoverPeriod = 5 * time.Second  // between looks for engines on this machine
	EnginesMost    = 256

	minBackoff = time.Second // after a pull that failed; doubled each time
	maxBackoff = 30 * time.Second
	backoffs   = 10      // doublings at most
	messageMax = 8 << 20 // bytes of one answer; older engines send whole pictures
)

// pace are the periods of a watch.
type pace struct{ active, blurred, older, pull, discover, backoff time.Duration }

var usual = pace{ActivePeriod, BlurredPeriod, OlderPeriod, PullTimeout, DiscoverPeriod, minBackoff}

// Target is an engine to watch.
type Target struct {
	Name    string // what this console calls the job
	Address string // for people
	Found   bool   // on this machine, not in the operator's contexts

	Dial func() (*grpc.ClientConn, error) // called once; again after it has failed
}

// Job is what is known of one engine's job. It is immutable.
type Job struct {
	Name    string
	Address string
	Found   bool

	State    *feed.State // its Snap is a brief picture; never nil
	Revision int         // of the engine's contract with consoles; 0 = older than brief pictures
	Tries    int         // failed in a row
	Retry    time.Time   // when the next try is due, where the last one failed
}

// Fleet watches engines until Close.
type Fleet struct {
	now      func() time.Time
	discover func() []Target
	pace     pace
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	changed  chan struct{} // capacity 1
	done     chan struct{}
	closing  sync.Once

	mu      sync.Mutex
	watches []*watch // in the order in which they were added
	blurred bool
}

// New watches the targets, and what discover finds besides; it may be nil, and so may now for
// the real clock. Names that are taken get a number.
func New(targets []Target, discover func() []Target, now func() time.Time) *Fleet {
	return newFleet(targets, discover, now, usual)
}

func newFleet(targets []Target, discover func() []Target, now func() time.Time, p pace) *Fleet {
	if now == nil {
		now = time.Now
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Fleet{
		now:      now,
		discover: discover,
		pace:     p,
		ctx:      ctx,
		cancel:   cancel,
		changed:  make(chan struct{}, 1),
		done:     make(chan struct{}),
	}
	for _, t := range targets {
		f.add(t)
	}
	if discover != nil {
		f.look()
		f.wg.Go(f.lookOn)
	}
	return f
}

// Close ends the watch and waits.
func (f *Fleet) Close() {
	f.cancel()
	f.wg.Wait()
	f.closing.Do(func() { close(f.done) })
}

// Done is closed when the fleet has been closed.
func (f *Fleet) Done() <-chan struct{} { return f.done }

// Changed is signalled after Jobs has changed; signals coalesce.
func (f *Fleet) Changed() <-chan struct{} { return f.changed }

// Jobs are the jobs now.
func (f *Fleet) Jobs() []*Job {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*Job, len(f.watches))
	for i, w := range f.watches {
		out[i] = w.job.Load()
	}
	return out
}

// Client is a client of a job's engine, on the connection that is watched: it stays the fleet's.
// Nil where the engine could not be dialled, or there is no such job.
func (f *Fleet) Client(name string) falconv1.ConsoleClient {
	if w := f.watchOf(name); w != nil {
		if cc := w.conn.Load(); cc != nil {
			return falconv1.NewConsoleClient(cc)
		}
	}
	return nil
}

// Blur slows the pulls down while the terminal is out of focus, or brings them back.
func (f *Fleet) Blur(away bool) {
	f.mu.Lock()
	was := f.blurred
	f.blurred = away
	list := slices.Clone(f.watches)
	f.mu.Unlock()
	for _, w := range list {
		if was && !away {
			feed.Signal(w.kick)
		}
	}
}

// Pull pulls a job now, whatever its backoff.
func (f *Fleet) Pull(name string) {
	if w := f.watchOf(name); w != nil {
		feed.Signal(w.kick)
	}
}

func (f *Fleet) watchOf(name string) *watch {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.watches, func(w *watch) bool {
		return w.target.Name == name
	})
	if i >= 0 {
		return f.watches[i]
	}
	return nil
}

func (f *Fleet) isBlurred() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.blurred
}

// add begins to watch an engine, unless there are too many.
func (f *Fleet) add(t Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.watches) == EnginesMost {
		return
	}
	t.Name = f.freeName(t.Name)
	w := newWatch(f, t, len(f.watches))
	f.watches = append(f.watches, w)
	f.wg.Go(w.run)
}

// freeName is the name, with a number where it is taken; the caller holds mu.
func (f *Fleet) freeName(name string) string {
	free := name
	for n := 2; slices.ContainsFunc(f.watches, func(w *watch) bool {
		return w.target.Name == free
	}); n++ {
		free = name + "-" + strconv.Itoa(n)
	}
	return free
}

func (f *Fleet) lookOn() {
	ticks := time.NewTicker(f.pace.discover)
	defer ticks.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-ticks.C:
			f.look()
		}
	}
}

// look adds engines that run on this machine and are not watched yet, and drops those that were
// found here, are gone and no longer answer.
func (f *Fleet) look() {
	found := f.discover()
	for _, t := range found {
		if !f.watchesAddress(t.Address) {
			t.Found = true
			f.add(t)
		}
	}
	f.mu.Lock()
	f.watches = slices.DeleteFunc(f.watches, func(w *watch) bool {
		gone := w.target.Found && w.job.Load().State.Conn != feed.Live &&
			!slices.ContainsFunc(found, func(t Target) bool {
				return t.Address == w.target.Address
			})
		if gone {
			w.stop()
		}
		return gone
	})
	f.mu.Unlock()
	feed.Signal(f.changed)
}

func (f *Fleet) watchesAddress(address string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.watches, func(w *watch) bool {
		return w.target.Address == address
	})
}

// Open is a console's own feed of a job, on the connection that is watched; closeIt ends it.
func (f *Fleet) Open(name string) (src feed.Source, closeIt func(), err error) {
	client := f.Client(name)
	if client == nil {
		return nil, nil, fmt.Errorf("its engine is not connected yet")
	}
	own := feed.New(client, f.now)
	return own, own.Close, nil
}
