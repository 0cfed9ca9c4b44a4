package record

import (
	"sync"
	"sync/atomic"

	"github.com/failslow/falcon/tui/feed"
)

// wide is the least that is asked for while recording, so that a recording can
// show more than its operator looked at.
var wide = feed.Want{
	Rank:       feed.WorstRank,
	Columns:    240,
	RunLengths: 128,
	Recoveries: true,
	Tests:      true,
}

// Tap hands a feed's pictures on to a console and to a Writer. It asks for
// more than the console does, and shows it what it asked for.
type Tap struct {
	feed.Source
	writer  *Writer
	want    atomic.Pointer[feed.Want]
	changed chan struct{}
	quit    chan struct{}
	once    sync.Once
	wg      sync.WaitGroup
}

// NewTap starts to record a source; the caller closes source and writer.
func NewTap(src feed.Source, w *Writer) *Tap {
	t := &Tap{
		Source:  src,
		writer:  w,
		changed: make(chan struct{}, 1),
		quit:    make(chan struct{}),
	}
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
		feed.Signal(t.changed)
	}
}

// Stopped is why the writer records nothing more; "" while it does.
func (t *Tap) Stopped() string { return t.writer.Stopped() }

// Latest is the newest picture, cut to what the console asked for.
func (t *Tap) Latest() *feed.State {
	return fitState(t.Source.Latest(), *t.want.Load())
}

// Changed is signalled after Latest has changed; signals coalesce.
func (t *Tap) Changed() <-chan struct{} { return t.changed }

// Ask says what the console needs; it never blocks.
func (t *Tap) Ask(w feed.Want) {
	t.want.Store(&w)
	w.Columns = max(w.Columns, wide.Columns)
	w.RunLengths = max(w.RunLengths, wide.RunLengths)
	w.Recoveries = true
	w.Tests = true
	t.Source.Ask(w)
}
