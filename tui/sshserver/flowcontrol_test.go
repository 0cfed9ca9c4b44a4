package sshserver

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon/tui/feed"
)

// held is a channel whose answers come after a while, or never.
type held struct {
	mu      sync.Mutex
	delay   time.Duration // of an answer; negative = never
	blocked bool          // a write does not return
	cut     chan struct{}
	bytes   int
}

func (h *held) Write(p []byte) (int, error) {
	h.mu.Lock()
	blocked := h.blocked
	h.bytes += len(p)
	h.mu.Unlock()
	if blocked {
		<-h.cut
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

func (h *held) SendRequest(string, bool, []byte) (bool, error) {
	h.mu.Lock()
	delay := h.delay
	h.mu.Unlock()
	if delay < 0 {
		<-h.cut
		return false, io.EOF
	}
	select {
	case <-time.After(delay):
		return false, nil
	case <-h.cut:
		return false, io.EOF
	}
}

// holding runs a link on h inside a bubble of fake time.
func holding(t *testing.T, h *held, stall time.Duration, body func(*flowControl, func() error)) {
	synctest.Test(t, func(t *testing.T) {
		h.cut = make(chan struct{})
		var mu sync.Mutex
		var why error
		var once sync.Once
		l := newFlowControl(h, stall, time.Now, func(err error) {
			once.Do(func() { close(h.cut) })
			mu.Lock()
			defer mu.Unlock()
			why = err
		})
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { l.markers(ctx) })
		wg.Go(func() { l.watchMarkers(ctx) })
		body(l, func() error {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return why
		})
		cancel()
		once.Do(func() { close(h.cut) })
		wg.Wait()
	})
}

func TestAClientThatAnswersNothingIsCut(t *testing.T) {
	holding(t, &held{delay: -1}, 30*time.Second, func(l *flowControl, cut func() error) {
		_, _ = l.Write([]byte("x"))
		time.Sleep(29 * time.Second)
		if err := cut(); err != nil {
			t.Errorf("cut after 29 s: %v", err)
		}
		time.Sleep(5 * time.Second)
		if err := cut(); !errors.Is(err, errStuck) {
			t.Errorf("after 34 s: %v", err)
		}
	})
}

func TestAWriteThatBlocksIsCut(t *testing.T) {
	holding(t, &held{blocked: true}, 30*time.Second, func(l *flowControl, cut func() error) {
		start := time.Now()
		if _, err := l.Write([]byte("x")); err == nil {
			t.Error("the write succeeded")
		}
		took := time.Since(start)
		if took < 30*time.Second ||
			took > 35*time.Second ||
			!errors.Is(cut(), errStuck) {
			t.Errorf("cut after %s: %v", took, cut())
		}
	})
}

// Also a client to which nothing is written is looked after.
func TestASilentLinkIsLookedAfter(t *testing.T) {
	h := &held{delay: 0}
	holding(t, h, 30*time.Second, func(_ *flowControl, cut func() error) {
		time.Sleep(10 * time.Minute)
		if err := cut(); err != nil {
			t.Errorf("an idle client was cut: %v", err)
		}
		h.mu.Lock()
		h.delay = -1
		h.mu.Unlock()
		time.Sleep(50 * time.Second)
		if err := cut(); !errors.Is(err, errStuck) {
			t.Errorf("a client that has gone: %v", err)
		}
	})
}

func TestASlowClientIsNotCut(t *testing.T) {
	holding(t, &held{delay: 20 * time.Second}, 30*time.Second, func(l *flowControl, cut func() error) {
		for range 20 {
			_, _ = l.Write([]byte("x"))
			time.Sleep(7 * time.Second)
		}
		if err := cut(); err != nil {
			t.Errorf("cut: %v", err)
		}
	})
}

// fakeSource has changes and nothing else.
type fakeSource struct {
	feed.Source
	changes chan struct{}
	done    chan struct{}
}

func (f *fakeSource) Changed() <-chan struct{} { return f.changes }
func (f *fakeSource) Done() <-chan struct{}    { return f.done }

func (f *fakeSource) change() {
	select {
	case f.changes <- struct{}{}:
	default:
	}
}

// A picture is drawn only when the one before has arrived, and the link rests
// as long as it was busy; changes that came meanwhile make one picture.
func TestPicturesWaitForTheLink(t *testing.T) {
	h := &held{delay: 100 * time.Millisecond}
	holding(t, h, 30*time.Second, func(l *flowControl, _ func() error) {
		src := &fakeSource{
			changes: make(chan struct{}, 1),
			done:    make(chan struct{}),
		}
		p := newPacedReader(src, l, time.Now)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			p.runPump(ctx)
			close(ended)
		}()
		_, _ = l.Write([]byte("key")) // the way there and back is learned: 100 ms
		time.Sleep(time.Second)
		h.mu.Lock()
		h.delay = 1100 * time.Millisecond // a slow picture
		h.mu.Unlock()
		_, _ = l.Write([]byte("picture"))
		start := time.Now()
		for range 10 {
			src.change()
			time.Sleep(50 * time.Millisecond)
		}
		if l.bytesInFlight() == 0 {
			t.Error("the picture has arrived already")
		}
		select {
		case <-p.Changed():
			t.Error("a picture is drawn while another is under way")
		default:
		}
		time.Sleep(1300 * time.Millisecond) // at 1.8 s: arrived at 1.1 s, rests for 1 s
		if p.Lag() < time.Second {
			t.Errorf("lag %s", p.Lag())
		}
		<-p.Changed()
		if took := time.Since(start); took != 2100*time.Millisecond {
			t.Errorf("drawn after %s", took)
		}
		if l.bytesInFlight() != 0 || p.Lag() != 0 {
			t.Errorf("%d bytes under way, lag %s", l.bytesInFlight(), p.Lag())
		}
		cancel()
		<-ended
	})
}

// bytesInFlight is how many bytes are not known to have arrived.
func (l *flowControl) bytesInFlight() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written - l.arrived
}
