package train

import (
	"errors"
	"fmt"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
	"github.com/failslow/falcon/cmd/falcon-trainer/schedule"
)

// heldOutFirst is the first micro-batch that evaluations see, beyond all that
// training will ever reach.
const heldOutFirst = 1 << 48

// Evaluation is a step that judges the weights on a held-out batch, always the
// same one: forward passes alone, and the mean loss over the world.
type Evaluation struct {
	Every        int64 // iterations; 0 = never
	MicroBatches int   // per replica
}

func (e Evaluation) validate(unit int) error {
	if e.Every < 0 || e.Every > 0 && (e.MicroBatches < 1 || e.MicroBatches%unit != 0) {
		return fmt.Errorf("%w: an evaluation of %d micro-batches every %d iterations; give a positive multiple of %d, and at least 0",
			ErrConfig, e.MicroBatches, e.Every, unit)
	}
	return nil
}

// due says whether iteration i ends with a step that comes every so often.
func due(i, every int64) bool { return every > 0 && (i+1)%every == 0 }

// extras runs what iteration i has beyond its training step.
func (w *worker) extras(i int64) error {
	var err error
	if due(i, w.cfg.Evaluation.Every) {
		err = w.evaluate(i)
	}
	if err == nil && due(i, w.cfg.Checkpoint.Every) {
		err = w.saveDue(i)
	}
	return err
}

func (w *worker) evaluate(i int64) error {
	began := time.Now()
	micro := w.cfg.Evaluation.MicroBatches
	w.tally.begin(0)
	w.pass(falcon.NoIteration, batch{heldOutFirst + int64(w.at.DP*micro)},
		schedule.ForwardOnly(w.at.PP, w.cfg.Layout.PP, w.cfg.Shape.VirtualStages(), micro))
	w.tally.reduceLoss(w.groups.world)
	if err := w.wait(); err != nil {
		return fmt.Errorf("evaluation: %w", err)
	}
	sum, _ := w.tally.result()
	loss := sum / float64(w.cfg.Layout.DP*micro*w.cfg.Shape.Batch)
	return w.cfg.Log.line(evaluationLine{i, int(w.rank), loss, ms(time.Since(began))})
}

// errElsewhere says that what failed did so on another rank.
var errElsewhere = errors.New("it failed on another rank, whose log says why")

// all waits for all ranks as frameworks do, by a sum of one float: how many of
// them come with a failure. why is nil on all ranks or on none.
func (w *worker) all(mine error) (why, err error) {
	clear(w.word)
	if mine != nil {
		w.word[0] = 1
	}
	device.CopyIn(w.q, w.gate.Memory(), w.word)
	w.q.SumFloats(w.groups.world, w.gate)
	device.CopyOut(w.q, w.word, w.gate.Memory())
	if err := w.wait(); err != nil {
		return nil, fmt.Errorf("vote: %w", err)
	}
	if mine == nil && w.word[0] != 0 {
		mine = errElsewhere
	}
	return mine, nil
}

// least is the least of all ranks' words.
func (w *worker) least(mine uint64) (uint64, error) {
	w.tally.begin(mine)
	w.tally.reduce(w.groups.world)
	if err := w.wait(); err != nil {
		return 0, err
	}
	_, least := w.tally.result()
	return least, nil
}

// unlocked runs f while the watcher may abort the communicators.
func (w *worker) unlocked(f func() error) error {
	w.calls.Unlock()
	err := f()
	w.calls.Lock()
	if w.aborted {
		return ErrPeer
	}
	return err
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }
