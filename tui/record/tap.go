package record

import (
	"context"
	"sync"
	"sync/atomic"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

// Source is what a tap needs of a feed; it is what a console needs.
type Source interface {
	Latest() *feed.State
	Changed() <-chan struct{}
	Done() <-chan struct{}
	Ask(feed.Want)
	Blur(bool)
	Decide(context.Context, *falconv1.DecideRequest) (*falconv1.Action, error)
	Validate(context.Context, *falconv1.ValidateRequest) (*falconv1.Validation, error)
	SetPolicy(context.Context, *falconv1.Policy) (*falconv1.Policy, error)
	Freeze(context.Context) (*falconv1.Policy, error)
	Recover(context.Context, *falconv1.RecoverRequest) (*falconv1.Recovery, error)
	Incidents(ctx context.Context, id string) (*falconv1.IncidentsReply, error)
}

// wide is the least that is asked for while recording, so that a recording can
// show more than its operator looked at.
var wide = feed.Want{Rank: feed.WorstRank, Columns: 240, RunLengths: 128, Recoveries: true, Tests: true}

// Tap hands a feed's pictures on to a console and to a Writer. It asks for
// more than the console does, and shows it what it asked for.
type Tap struct {
	Source
	writer  *Writer
	want    atomic.Pointer[feed.Want]
	changed chan struct{}
	quit    chan struct{}
	once    sync.Once
	wg      sync.WaitGroup
}

// NewTap starts to record a source, which stays the caller's to close, as
// does the writer.
func NewTap(src Source, w *Writer) *Tap {
	t := &Tap{Source: src, writer: w, changed: make(chan struct{}, 1), quit: make(chan struct{})}
	t.Ask(feed.Want{Rank: feed.WorstRank, Columns: wide.Columns})
	t.wg.Add(1)
	go t.forwardLoop()
	return t
}

// Close stops recording and waits.
func (t *Tap) Close() {
	t.once.Do(func() { close(t.quit) })
	t.wg.Wait()
}

func (t *Tap) forwardLoop() {
	defer t.wg.Done()
	last := t.Source.Latest()
	t.writer.Take(last)
	for {
		select {
		case <-t.Source.Changed():
		case <-t.Source.Done():
			return
		case <-t.quit:
			return
		}
		if s := t.Source.Latest(); s != last {
			last = s
			t.writer.Take(s)
		}
		select {
		case t.changed <- struct{}{}:
		default:
		}
	}
}

// Stopped is why the writer records nothing more; "" while it does.
func (t *Tap) Stopped() string { return t.writer.Stopped() }

// Latest is the newest picture, cut to what the console asked for.
func (t *Tap) Latest() *feed.State { return fitState(t.Source.Latest(), *t.want.Load()) }

// Changed is signalled after Latest has changed; signals coalesce.
func (t *Tap) Changed() <-chan struct{} { return t.changed }

// Ask says what the console needs; it never blocks.
func (t *Tap) Ask(w feed.Want) {
	t.want.Store(&w)
	w.Columns, w.RunLengths, w.Recoveries, w.Tests = max(w.Columns, wide.Columns), max(w.RunLengths, wide.RunLengths), true, true
	t.Source.Ask(w)
}
