package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/failslow/falcon/cmd/falcon-trainer/device"
)

// Bounds of waiting.
const (
	meetWithin  = 60 * time.Second       // for all ranks to connect
	watchEvery  = 100 * time.Millisecond // between checks of the communicators' health
	abortWithin = 2 * time.Second        // for the training thread to let go
)

// How a run ended, in the log's last line.
const (
	EndDone         = "done"         // all iterations
	EndStopped      = "stopped"      // by an order
	EndCheckpointed = "checkpointed" // by an order, to be resumed
	EndPeer         = "peer"         // a peer died
	EndError        = "error"
)

// Run trains as one rank until the iterations are done, an order ends the
// job, a peer dies (ErrPeer) or ctx ends (its cause). Where the training
// thread does not let go within two seconds of an abort, Run returns without
// it; the process should then exit.
func Run(ctx context.Context, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := c.Log.writeLine(startLine{
		Rank:       int(c.Rank),
		PID:        os.Getpid(),
		Generation: c.Generation,
		Join:       c.Join,
	}); err != nil {
		return err
	}
	w := newWorker(c)
	err := w.runAndWatch(ctx)
	return errors.Join(err, w.lastWords(err))
}

func (w *worker) runAndWatch(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.breakOff = cancel
	done := make(chan error, 1)
	opened := make(chan struct{})
	go func() {
		runtime.LockOSThread() // NCCL's group state is per thread
		done <- w.runLives(ctx, sync.OnceFunc(func() { close(opened) }))
	}()
	select {
	case err := <-done:
		return asPeerError(err)
	case <-opened:
		return w.watchCommunicators(ctx, done)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(meetWithin + abortWithin):
		return fmt.Errorf("%w within %v; check that all %d were started",
			ErrLate, meetWithin, w.cfg.Layout.World())
	}
}

// trainOneLife is the training thread between two meetings of the ranks: to the end of
// the job, or to a failure.
func (w *worker) trainOneLife(ctx context.Context) error {
	if err := w.trainIterations(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return w.closeTogether()
}

// watchCommunicators polls the communicators while the training thread works.
func (w *worker) watchCommunicators(ctx context.Context, done <-chan error) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return asPeerError(err)
		case <-ctx.Done():
			w.abortTraining(done)
			return context.Cause(ctx)
		case <-tick.C:
			life, err := w.comms.failure()
			if err == nil {
				continue
			}
			if w.canPark() {
				w.comms.interrupt(life, err)
				continue
			}
			w.breakOff(ErrPeer)
			w.abortTraining(done)
			return fmt.Errorf("%w: %w", ErrPeer, err)
		}
	}
}

// abortTraining breaks off all communication and gives the training thread a moment
// to come back; one that is parked has none, and would not.
func (w *worker) abortTraining(done <-chan error) {
	if w.parked.Load() {
		return
	}
	if !w.comms.abortWithin(abortWithin) {
		return
	}
	select {
	case <-done:
	case <-time.After(abortWithin):
	}
}

// asPeerError turns a failed communication into a peer's death: nothing else makes
// the calls of a healthy rank fail.
func asPeerError(err error) error {
	if errors.Is(err, device.ErrComm) && !errors.Is(err, ErrPeer) {
		return fmt.Errorf("%w: %w", ErrPeer, err)
	}
	return err
}
