package train

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
	"github.com/failslow/falcon/cmd/falcon-trainer/rendezvous"
)

// communicators are the groups that a rank works over, and the lock on their use. The
// training thread holds it while work is enqueued and frees it while it waits for the
// device, so that the watcher can abort them, but not during a call.
type communicators struct {
	cfg       Config       // whose seats they fill
	suspended func() error // why the rank must park, nil while it need not
	q         *device.Queue

	calls   sync.Mutex // guards what follows
	aborted bool
	cut     <-chan struct{} // closed when the life ends
	groups  groups
	next    groups // of a placement that is not final yet
	old     groups // of the one before, until the next vote
	life    int    // that they belong to, 0 = none

	watched struct {
		sync.Mutex
		groups groups // whose failure ends the run, or the life
		life   int    // in which a suspension counts, 0 = none
		end    context.CancelCauseFunc
	}
}

// beginLife makes the context of a life, which ends when its communicators are given up.
func (c *communicators) beginLife(ctx context.Context, life int) context.Context {
	ctx, end := context.WithCancelCause(ctx)
	c.calls.Lock()
	c.life, c.cut, c.aborted = life, ctx.Done(), false
	c.calls.Unlock()
	c.watched.Lock()
	c.watched.life, c.watched.end = life, end
	c.watched.Unlock()
	return ctx
}

// stopWatching ends the life for the watcher.
func (c *communicators) stopWatching() {
	c.watched.Lock()
	c.watched.groups = groups{}
	c.watched.life = 0
	c.watched.end(errSuspended)
	c.watched.Unlock()
}

// abortAndForget aborts all communicators and forgets them.
func (c *communicators) abortAndForget() {
	c.life, c.cut = 0, nil
	if !c.aborted {
		c.abortAll()
	}
	c.groups = groups{}
	c.next = groups{}
	c.old = groups{}
	c.aborted = false
}

// useGroups makes g the groups that the work goes over.
func (c *communicators) useGroups(g groups) {
	c.groups = g
	c.watchGroups(g)
}

// takeNext hands over the groups that connectNext has made.
func (c *communicators) takeNext() groups {
	g := c.next
	c.next = groups{}
	return g
}

// dropNext gives up the groups that connectNext has made.
func (c *communicators) dropNext() {
	c.next.abortGroups()
	c.next = groups{}
}

// adoptNext makes the next groups the ones in use, and keeps the old ones.
func (c *communicators) adoptNext() groups {
	c.old = c.groups
	g := c.takeNext()
	c.useGroups(g)
	return g
}

// closeOld closes what replace has kept.
func (c *communicators) closeOld() error {
	old := c.old
	c.old = groups{}
	return old.closeGroups()
}

// watchGroups makes g the groups whose failure ends the run. They must be so before others
// are closed, which the watcher would take for broken.
func (c *communicators) watchGroups(g groups) {
	c.watched.Lock()
	c.watched.groups = g
	c.watched.Unlock()
}

// failure is what is wrong with the communicators in use, and in which life.
func (c *communicators) failure() (life int, err error) {
	c.watched.Lock()
	defer c.watched.Unlock()
	if err = c.watched.groups.asyncError(); err == nil && c.watched.life > 0 {
		err = c.suspended()
	}
	return c.watched.life, err
}

// interrupt ends a life from outside the training thread, which finds out by
// itself. Where the thread is inside a call, the watcher tries again.
func (c *communicators) interrupt(life int, why error) {
	c.watched.Lock()
	end := c.watched.end
	c.watched.Unlock()
	end(why)
	if !c.calls.TryLock() {
		return
	}
	defer c.calls.Unlock()
	if c.life != life || c.aborted {
		return
	}
	c.watchGroups(groups{}) // aborted ones must not be asked
	c.aborted = true
	c.abortAll()
}

// abortWithin aborts all communication, and is false where the training thread stays
// inside a call for so long.
func (c *communicators) abortWithin(wait time.Duration) bool {
	for give := time.Now().Add(wait); !c.calls.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(give) {
			return false
		}
	}
	defer c.calls.Unlock()
	c.aborted = true
	c.abortAll()
	return true
}

func (c *communicators) abortAll() {
	for _, g := range []groups{c.groups, c.next, c.old} {
		g.abortGroups()
	}
}

// brokenReason is why nothing can be expected of the communicators any more.
func (c *communicators) brokenReason() error {
	if c.aborted {
		return ErrPeer
	}
	if peer := c.groups.asyncError(); peer != nil {
		return fmt.Errorf("%w: %w", ErrPeer, peer)
	}
	return c.suspended()
}

// drainQueue lets the device finish, whatever has become of the peers. A peer's death
// is distinguished from a failing device by asking the communicators first.
func (c *communicators) drainQueue() error {
	c.calls.Unlock()
	err := c.q.Sync()
	c.calls.Lock()
	if err != nil {
		return cmp.Or(c.brokenReason(), err)
	}
	return nil
}

// finishWork is drainQueue for what is worth nothing where a peer has died.
func (c *communicators) finishWork() error {
	return cmp.Or(c.drainQueue(), c.brokenReason())
}

// runUnlocked runs f while the watcher may abort the communicators.
func (c *communicators) runUnlocked(f func() error) error {
	c.calls.Unlock()
	err := f()
	c.calls.Lock()
	if c.aborted {
		return ErrPeer
	}
	return err
}

// sleepFor waits for d, or until the watcher ends the life.
func (c *communicators) sleepFor(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.cut:
		return ErrPeer
	}
}

// connectNext joins the groups of rank, called by tag, beside those in use, without a
// blocking call: a member that never comes must not hold the others for longer than
// ctx. They are in c.next from the start, where the watcher can abort them. begun is
// called when the first has begun.
func (c *communicators) connectNext(ctx context.Context, rank falcon.Rank, tag string, begun func()) error {
	seats := c.cfg.groupSeats(rank, tag)
	ids := make([][]byte, len(seats))
	for i, seat := range seats {
		var err error
		if ids[i], err = c.cfg.publishID(seat); err != nil {
			return err
		}
	}
	for i, seat := range seats {
		if err := c.awaitID(ctx, seat, &ids[i]); err != nil {
			return err
		}
		comm, err := device.Begin(
			string(seat.dimension),
			ids[i],
			seat.size,
			seat.me,
		)
		if err != nil {
			return err
		}
		*c.next.commOf(seat.dimension) = comm
		if i == 0 {
			begun()
		}
	}
	if err := c.awaitMembers(ctx); err != nil {
		return err
	}
	for _, seat := range seats {
		if err := c.cfg.withdrawID(seat); err != nil {
			return err
		}
	}
	return nil
}

// awaitID waits for a group's id, unless this rank made it.
func (c *communicators) awaitID(ctx context.Context, s seat, id *[]byte) error {
	for *id == nil {
		if err := c.suspended(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return c.cfg.Rendezvous.Absent(s.entry)
		}
		err := c.runUnlocked(func() (err error) {
			*id, err = c.cfg.Rendezvous.Look(s.entry, device.UniqueIDBytes)
			if err == nil && *id == nil {
				err = c.sleepFor(rendezvous.PollEvery)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitMembers waits for all members of the next groups.
func (c *communicators) awaitMembers(ctx context.Context) error {
	for _, comm := range c.next.existing() {
		for {
			done, err := comm.Ready()
			if err != nil {
				return err
			}
			if done {
				break
			}
			if err := c.suspended(); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%w: the new communicators, more than %v", errTooLate, connectWithin)
			}
			if err := c.runUnlocked(func() error {
				return c.sleepFor(glance)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitQueue waits for what is enqueued on a forked queue, for so long at most.
func (c *communicators) awaitQueue(q *device.Queue, within time.Duration) error {
	q.Mark()
	for began := time.Now(); ; {
		done, err := q.Done()
		if done || err != nil {
			return err
		}
		spent := time.Since(began)
		if spent > within {
			return fmt.Errorf("%w: the exchange of states, more than %v", errTooLate, within)
		}
		// What takes long is polled less often.
		if err := c.runUnlocked(func() error {
			return c.sleepFor(max(glance, min(spent/50, glanceMax)))
		}); err != nil {
			return err
		}
	}
}
