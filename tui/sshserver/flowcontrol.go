package sshserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/failslow/falcon/tui/feed"
)

// errStuck is why a link was cut.
var errStuck = errors.New("sshserver: the client stopped reading")

// markRequest is what OpenSSH's server asks, too; every client answers it, if
// only to say that it does not know it.
const markRequest = "keepalive@openssh.com"

// wire is what a way needs of an SSH channel.
type wire interface {
	io.Writer
	SendRequest(name string, wantReply bool, payload []byte) (bool, error)
}

// flowControl is the link to one client. It knows what the client has received: after
// a write it sends a mark, and the answer says that all before has arrived,
// whatever buffers lie between. It cuts the connection when a write or a mark
// has been stuck for too long.
type flowControl struct {
	to    wire
	cut   func(error) // closes the connection; may be called more than once
	stall time.Duration
	now   func() time.Time

	mu      sync.Mutex
	written uint64        // bytes handed to the channel
	arrived uint64        // of them, known to have arrived
	writing time.Time     // since when a write is under way; zero = none
	marked  time.Time     // since when a mark is unanswered; zero = none
	sent    time.Duration // how long the last mark took
	best    time.Duration // the shortest of them: the way there and back
	change  chan struct{} // closed and renewed when arrived grows
	kick    chan struct{} // capacity 1: something was written
}

func newFlowControl(to wire, stall time.Duration, now func() time.Time, cut func(error)) *flowControl {
	return &flowControl{
		to:     to,
		cut:    cut,
		stall:  stall,
		now:    now,
		change: make(chan struct{}),
		kick:   make(chan struct{}, 1),
	}
}

// Write blocks as long as the client's window is closed; the session's own
// program waits then, and no one else.
func (l *flowControl) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.writing = l.now()
	l.mu.Unlock()
	n, err := l.to.Write(p)
	l.mu.Lock()
	l.writing = time.Time{}
	l.written += uint64(max(0, n))
	l.mu.Unlock()
	feed.Signal(l.kick)
	if err != nil {
		return n, fmt.Errorf("sshserver: write: %w", err)
	}
	return n, nil
}

// markers asks after what was written until ctx ends; also when nothing was, so
// that a client that has gone away is noticed. It must run for the link's life.
func (l *flowControl) markers(ctx context.Context) {
	alive := time.NewTicker(l.stall / 2)
	defer alive.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.kick:
		case <-alive.C:
		}
		if !l.sendMarker() {
			return
		}
	}
}

// sendMarker sends one mark and waits for its answer; false once the link is down.
func (l *flowControl) sendMarker() bool {
	l.mu.Lock()
	upTo, start := l.written, l.now()
	l.marked = start
	l.mu.Unlock()
	_, err := l.to.SendRequest(markRequest, true, nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marked = time.Time{}
	if err != nil {
		return false
	}
	l.sent = l.now().Sub(start)
	if l.best == 0 || l.sent < l.best {
		l.best = l.sent
	}
	l.arrived = upTo
	close(l.change)
	l.change = make(chan struct{})
	return true
}

// watchMarkers cuts the link when it is stuck, until ctx ends.
func (l *flowControl) watchMarkers(ctx context.Context) {
	t := time.NewTicker(max(time.Millisecond, l.stall/8))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if l.isStuck() >= l.stall {
				l.cut(errStuck)
				return
			}
		}
	}
}

// isStuck is how long a write or a mark has been under way.
func (l *flowControl) isStuck() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	long := time.Duration(0)
	for _, since := range []time.Time{l.writing, l.marked} {
		if !since.IsZero() {
			long = max(long, now.Sub(since))
		}
	}
	return long
}

// settleWrites waits until all writes have arrived, and returns for how long the link
// was busy: the last mark's time less the round trip.
func (l *flowControl) settleWrites(ctx context.Context) time.Duration {
	for {
		l.mu.Lock()
		clear := l.written == l.arrived && l.writing.IsZero()
		busy := l.sent - l.best
		change := l.change
		l.mu.Unlock()
		if clear || ctx.Err() != nil {
			return busy
		}
		select {
		case <-change:
		case <-ctx.Done():
		}
	}
}
