package sshserver

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/failslow/falcon/tui/feed"
)

// Bounds of a session's pace.
const (
	restMax = 2 * time.Second // between two pictures of a slow link
	lagSaid = time.Second     // a lag below this is no news
)

// pacedReader is a source whose changes wait for the link: a picture is drawn only
// when the one before has arrived, and the link then rests for as long as it
// was busy, so that a key finds it free. States that came meanwhile are passed
// over; the newest is drawn.
type pacedReader struct {
	feed.Source
	link    *flowControl
	now     func() time.Time
	changed chan struct{}
	held    atomic.Pointer[time.Time] // since when a change waits, nil = none does
}

func newPacedReader(src feed.Source, l *flowControl, now func() time.Time) *pacedReader {
	return &pacedReader{
		Source:  src,
		link:    l,
		now:     now,
		changed: make(chan struct{}, 1),
	}
}

// Changed is signalled when there is something new and the link is free.
func (p *pacedReader) Changed() <-chan struct{} { return p.changed }

// Lag is how far behind the link keeps the picture; 0 where it does not.
func (p *pacedReader) Lag() time.Duration {
	since := p.held.Load()
	if since == nil {
		return 0
	}
	if lag := p.now().Sub(*since); lag >= lagSaid {
		return lag
	}
	return 0
}

// runPump passes changes on until ctx or the source ends.
func (p *pacedReader) runPump(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.Done():
			return
		case <-p.Source.Changed():
		}
		since := p.now()
		p.held.Store(&since)
		pauseFor(ctx, min(restMax, p.link.settleWrites(ctx)))
		p.held.Store(nil)
		feed.Signal(p.changed)
	}
}

func pauseFor(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
