package engine

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/recovery"
)

// A disk that is full, read-only or failing does not end the engine. The batch
// that it did not take waits, as one piece, with all that was to follow it;
// until it is durable nothing else is decided: no frame is taken (agents spool),
// no order is sent, and decisions of operators are refused. What is asked is
// answered, and the picture says what is wrong.

// Bounds of trying again.
const (
	retryFirst = 500 * time.Millisecond
	retryMost  = 15 * time.Second
)

// heldRound is a batch that the disk did not take.
type heldRound struct {
	round *decidedRound // nil = none
	err   error
	since time.Time
	next  time.Time // when it is tried again
	pause time.Duration
}

// text is the state for people.
func (w *heldRound) text(now time.Time) string {
	return fmt.Sprintf("the journal can't be written since %s: nothing is decided or sent; %s",
		now.Sub(w.since).Round(time.Second), clean(w.err.Error()))
}

// holdRound keeps a batch, and answers those who wait for it: what they asked for is
// in it.
func (e *Engine) holdRound(now time.Time, r *decidedRound, err error) {
	e.writer.held = heldRound{
		round: r,
		err:   err,
		since: now,
		next:  now.Add(retryFirst),
		pause: retryFirst,
	}
	e.log.Error(
		"the journal can't be written; the engine reads and shows, and tries again",
		slog.Any("err", err),
		slog.Int("records", len(r.records)),
	)
	e.writer.publishUnrecorded(now, 3, fmt.Sprintf(
		"the journal can't be written: nothing is decided or sent until it can; %s",
		err,
	))
	e.batch.settled(fmt.Errorf(
		"%w: not stored yet: what you asked for waits, and is carried out once it can be: look again before you repeat it; %w",
		ErrDisk, err,
	))
	e.views.dirty = true
}

// heard is where frames arrive; while a batch waits they back up.
func (e *Engine) heard() <-chan arrival {
	if e.writer.held.round != nil {
		return nil
	}
	return e.arrivals
}

// serve carries a request out, or refuses it, in the loop.
func (e *Engine) serve(f func(), decides bool, ready chan<- error) {
	if e.writer.held.round == nil {
		f()
		e.batch.whenDurableDo(func(err error) {
			if !decides {
				err = nil
			}
			ready <- err
		})
		return
	}
	if decides {
		ready <- fmt.Errorf("%w: nothing can be decided until it can; %w", ErrDisk, e.writer.held.err)
		return
	}
	f()
	ready <- nil
}

// retry writes the waiting batch again when it is time: the same records, with
// the same ids.
func (e *Engine) retry(now time.Time) error {
	w := &e.writer.held
	if w.round == nil || now.Before(w.next) {
		return nil
	}
	e.views.dirty = true
	err := e.writer.persist(w.round.records)
	if journal.Transient(err) {
		w.pause = min(2*w.pause, retryMost)
		w.err = err
		w.next = now.Add(w.pause)
		return nil
	}
	if err != nil {
		return err
	}
	return e.continueHeld(now)
}

// continueHeld continues where the engine stopped. The nodes were not listened to
// meanwhile: their silence says nothing.
func (e *Engine) continueHeld(now time.Time) error {
	w := e.writer.held
	e.writer.held = heldRound{}
	e.rec.Step(now, recovery.Late{})
	e.log.Info("the journal is written again", slog.Duration("after", now.Sub(w.since)))
	if err := e.carryOut(*w.round); err != nil {
		return err
	}
	e.oplog.append(e.det.Steady().Iteration, "journal", 2, "",
		"the journal could not be written for %s (%s); %d records waited and are stored now",
		now.Sub(w.since).Round(time.Second), w.err, len(w.round.records))
	for range arrivalsMax / batchMax {
		e.drain()
	}
	return nil
}
