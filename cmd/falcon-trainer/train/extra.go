package train

import (
	"fmt"
	"time"

	"github.com/failslow/falcon"
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
		return fmt.Errorf(
			"%w: an evaluation of %d micro-batches every %d iterations; give a positive multiple of %d, and at least 0",
			ErrConfig, e.MicroBatches, e.Every, unit,
		)
	}
	return nil
}

// isDue reports whether iteration i ends with a step that comes every so often.
func isDue(i, every int64) bool {
	return every > 0 && (i+1)%every == 0
}

// runExtras runs what iteration i has beyond its training step.
func (w *worker) runExtras(i int64) error {
	var err error
	if isDue(i, w.cfg.Evaluation.Every) {
		err = w.evaluate(i)
	}
	if err == nil && isDue(i, w.cfg.Checkpoint.Every) {
		err = w.saveScheduled(i)
	}
	return err
}

func (w *worker) evaluate(i int64) error {
	began := time.Now()
	micro := w.cfg.Evaluation.MicroBatches
	w.pipe.tally.beginVote(0)
	w.pipe.runPass(
		falcon.NoIteration,
		batch{heldOutFirst + int64(w.at.DP*micro)},
		w.pipe.evaluationSteps(micro),
	)
	w.pipe.tally.reduceLoss(w.comms.groups.world)
	if err := w.comms.finishWork(); err != nil {
		return fmt.Errorf("evaluation: %w", err)
	}
	sum, _ := w.pipe.tally.lossAndVote()
	loss := sum / float64(w.cfg.Layout.DP*micro*w.cfg.Shape.Batch)
	return w.cfg.Log.writeLine(evaluationLine{i, int(w.rank), loss, milliseconds(time.Since(began))})
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }
