package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/adapter"
	"github.com/failslow/falcon/cmd/falcon-trainer/fault"
)

// livesMax bounds how often one process comes back into its job.
const livesMax = 10_000

// Why a life of the training thread ends without ending the rank.
var (
	errSuspended = errors.New("trainer: the job is suspended")
	errJoining   = errors.New("trainer: this process joins a job")
)

// rejoinError is a rejoin that failed; all that was held is held still.
type rejoinError struct {
	status int32 // adapter's
	why    error
}

func (e *rejoinError) Error() string { return "rejoin: " + e.why.Error() }
func (e *rejoinError) Unwrap() error { return e.why }

// lastError ends the rank: parking again would not help.
type lastError struct{ error }

func (e lastError) Unwrap() error { return e.error }

// runLives is the whole of the training thread: one life, or where the rank can
// park, as many as it takes. opened is called when the ranks have met, or this
// one waits for the agent's order.
func (w *worker) runLives(ctx context.Context, opened func()) error {
	err := w.firstLife(ctx, opened)
	for err != nil &&
		ctx.Err() == nil &&
		w.endsLifeOnly(err) &&
		w.lives < livesMax {
		opened()
		err = w.nextLife(ctx, err)
	}
	if errors.Is(err, adapter.ErrStopped) {
		w.orders.end = EndStopped
		w.hook.Finish()
		return nil
	}
	return err
}

func (w *worker) firstLife(ctx context.Context, opened func()) error {
	ctx = w.beginLife(ctx)
	meet, cancel := context.WithTimeout(ctx, meetWithin)
	defer cancel()
	if err := w.openDevice(meet); err != nil {
		return err
	}
	if w.cfg.Join {
		return errJoining
	}
	opened()
	return w.trainOneLife(ctx)
}

// nextLife gives up what failed, waits for the agent's order, and goes on.
func (w *worker) nextLife(ctx context.Context, failed error) error {
	w.parked.Store(true)
	if err := w.dropCommunicators(); err != nil {
		return lastError{errors.Join(failed, err)}
	}
	o, err := w.parkRank(failed)
	if err != nil && !errors.Is(err, adapter.ErrOrder) {
		return lastError{err}
	}
	ctx = w.beginLife(ctx)
	w.parked.Store(false)
	if err := w.obeyRejoin(ctx, o, err); err != nil {
		return err
	}
	return w.trainOneLife(ctx)
}

// canPark reports whether a life can end without the rank.
func (w *worker) canPark() bool {
	return w.cfg.Park && w.hook.Parks()
}

// endsLifeOnly reports whether err ends a life only.
func (w *worker) endsLifeOnly(err error) bool {
	var last lastError
	if !w.canPark() || w.optim == nil || errors.As(err, &last) {
		return false // without parking, without anything to hold yet, or without hope
	}
	var failed *rejoinError
	return errors.Is(err, errJoining) ||
		errors.Is(err, errSuspended) ||
		errors.As(err, &failed) ||
		errors.Is(asPeerError(err), ErrPeer) ||
		w.hook.Suspended() != 0
}

// suspension is errSuspended where the rank must park.
func (w *worker) suspension() error {
	if w.canPark() && w.hook.Suspended() != 0 {
		return errSuspended
	}
	return nil
}

// beginLife opens a life.
func (w *worker) beginLife(ctx context.Context) context.Context {
	w.lives++
	return w.comms.beginLife(ctx, w.lives)
}

// dropCommunicators gives up all communicators and drains the device; nothing of the life
// before is left but the versions that this rank holds.
func (w *worker) dropCommunicators() error {
	w.comms.stopWatching()
	w.comms.calls.Lock()
	defer w.comms.calls.Unlock()
	w.comms.abortAndForget()
	w.decided = ""
	if err := w.q.Recover(); err != nil {
		return err
	}
	return w.endPlacement()
}

// endPlacement ends a placement that was under way as the ranks decide on it: all
// that are left come to the same rank and state that way, without a vote.
func (w *worker) endPlacement() error {
	open := w.swapping.Load()
	if open == nil {
		return nil
	}
	s, step := open.swap, int(open.step.Load())
	committed, err := w.cfg.settleSwap(s, false)
	if err != nil {
		return err
	}
	if !committed {
		if err := s.restoreDevice(); err != nil {
			return err
		}
		return s.logEnd(step, false, errElsewhere)
	}
	s.changeRank()
	_ = s.side.Close() // a stream that can't be given back does no harm
	return s.logEnd(step, true, nil)
}

// parkRank reports what this rank holds and blocks until the agent's order.
func (w *worker) parkRank(failed error) (adapter.Rejoin, error) {
	var status int32
	var undone *rejoinError
	switch {
	case errors.Is(failed, errJoining):
		status = adapter.ParkJoin
	case errors.As(failed, &undone):
		status = undone.status
	}
	w.comms.calls.Lock()
	hold, err := w.heldVersions()
	w.comms.calls.Unlock()
	if err != nil {
		return adapter.Rejoin{}, err
	}
	line := parkLine{
		Park:   status,
		Rank:   int(w.rank),
		Next:   w.reached.Load(),
		Held:   hold.Steps[:],
		Why:    failed.Error(),
		UnixNs: time.Now().UnixNano(),
	}
	for _, s := range hold.Sums {
		line.Sums = append(line.Sums, fmt.Sprintf("%016x", s))
	}
	if err := w.cfg.Log.writeLine(line); err != nil {
		return adapter.Rejoin{}, err
	}
	w.strikeFault(fault.Park, w.reached.Load())
	o, err := w.hook.Park(status, hold)
	if errors.Is(err, adapter.ErrNobody) {
		err = fmt.Errorf("%w: %w; before: %w", ErrPeer, err, failed)
	}
	return o, err
}

// heldVersions lists the versions of this rank's shard, each with its checksum.
func (w *worker) heldVersions() (h falcon.RankHold, err error) {
	for i, v := range w.optim.versions {
		if h.Steps[i] = v.step; v.step < 0 {
			continue
		}
		head, err := w.sealShard(v)
		if err != nil {
			return h, err
		}
		h.Sums[i] = head.Sum()
	}
	return h, nil
}

// obeyRejoin makes the groups of the order's generation and the state of its
// iteration. Before all ranks have checked theirs nothing is given up. bad is
// what is wrong with the order itself.
func (w *worker) obeyRejoin(ctx context.Context, o adapter.Rejoin, bad error) error {
	w.comms.calls.Lock()
	defer w.comms.calls.Unlock()
	w.generation = o.Generation
	r := rejoin{
		w:     w,
		order: o,
		began: time.Now(),
		from:  w.rank,
		holds: w.optim.currentVersion().step >= 0 || w.optim.otherVersion().step >= 0,
	}
	err := bad
	if err == nil {
		err = r.carryOut(ctx)
	}
	line := rejoinLine{
		Rejoin:    o.Generation,
		Rank:      int(w.rank),
		Begins:    o.Resume,
		From:      r.from,
		Replaced:  !r.holds,
		Bytes:     r.bytes,
		GroupsMs:  milliseconds(r.groups),
		RestoreMs: milliseconds(r.restore),
		Sum:       r.sum,
		UnixNs:    time.Now().UnixNano(),
	}
	if err == nil {
		w.hook.Rejoined(
			o.Generation,
			o.Resume,
			adapter.Rejoins,
			r.groups,
			r.restore,
			r.bytes,
		)
		return w.cfg.Log.writeLine(line)
	}
	undone := &rejoinError{cmp.Or(r.status, adapter.FailedOrder), err}
	if errors.Is(asPeerError(err), ErrPeer) || errors.Is(err, errSuspended) {
		undone.status = adapter.FailedGroups // whatever it was doing
	}
	line.Status, line.Why = undone.status, err.Error()
	w.hook.Rejoined(
		o.Generation,
		o.Resume,
		undone.status,
		r.groups,
		r.restore,
		r.bytes,
	)
	return errors.Join(undone, w.cfg.Log.writeLine(line))
}
