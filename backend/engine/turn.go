package engine

import "time"

// Turn does one turn of the loop at once, for an owner that schedules the
// engine by itself in place of Run, as a simulation does. It takes everything
// that waits, ticks where tick says so, and settles. The error is Run's: the
// engine must not be used after it but for Halt.
func (e *Engine) Turn(tick bool) error {
	now := e.cfg.Now()
	for more := true; more; {
		select {
		case f := <-e.requests:
			f()
		case a := <-e.heard():
			e.handleArrival(a, now)
		default:
			more = false
		}
	}
	if tick {
		if err := e.retry(now); err != nil {
			return err
		}
		e.onTick(now)
	}
	return e.finish(now)
}

// finish ends a turn of the loop: what was taken in is settled, and shown.
func (e *Engine) finish(now time.Time) error {
	if e.job.dirty && !e.learner.learning() && e.writer.held.round == nil {
		e.describe(now)
	}
	if err := e.settleMachines(now); err != nil {
		return err
	}
	e.writer.compact(now, e.cfg.Retention.snapshotBytes())
	e.views.refresh(now)
	return e.learner.ends
}

// Halt ends an engine that Turn has driven, as the end of Run does: callers get
// ErrStopped.
func (e *Engine) Halt() {
	close(e.done)
	e.hub.close()
}
