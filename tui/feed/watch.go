package feed

import (
	"context"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
)

// watchLoop holds the event stream open. What it brings also comes with the next
// snapshot; the stream makes it come at once, and completely.
func (f *Feed) watchLoop(ctx context.Context) {
	defer f.wg.Done()
	backoff := minBackoff
	for ctx.Err() == nil {
		if f.readStream(ctx) {
			backoff = minBackoff
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// readStream reads one stream to its end and reports whether it brought anything.
func (f *Feed) readStream(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := f.client.Watch(ctx, &falconv1.WatchRequest{AfterSeq: f.lastSeq()})
	if err != nil {
		return false
	}
	got := false
	for {
		e, err := s.Recv()
		if err != nil {
			return got
		}
		got = true
		if line := e.GetLine(); line != nil {
			clean.Message(line)
			f.addEvent(line)
		}
		f.pullNow()
	}
}

func (f *Feed) lastSeq() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.state.Events); n > 0 {
		return f.state.Events[n-1].Seq
	}
	return 0
}

func (f *Feed) addEvent(line *falconv1.EventLine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Events = mergeEvents(f.state.Events, []*falconv1.EventLine{line})
	f.publish()
}
