package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// Checkpoint is a step in which every rank writes its weights and its part of
// the optimizer's state to a file of its own in Folder, over the one before,
// and waits for all others to have done so.
type Checkpoint struct {
	Every  int64 // iterations; 0 = never
	Folder string
	Least  time.Duration // emulated storage: writing lasts at least this long
}

func (c Checkpoint) validate() error {
	if c.Every < 0 || c.Least < 0 || c.Every > 0 && c.Folder == "" {
		return fmt.Errorf("%w: a checkpoint every %d iterations into the folder %q; name one, and give no negative numbers",
			ErrConfig, c.Every, c.Folder)
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
		err = w.checkpoint(i)
	}
	return err
}

func (w *worker) evaluate(i int64) error {
	began := time.Now()
	micro := w.cfg.Evaluation.MicroBatches
	w.tally.begin(0)
	w.pass(batch{heldOutFirst + int64(w.at.DP*micro)},
		schedule.ForwardOnly(w.at.PP, w.cfg.Layout.PP, w.cfg.Shape.VirtualStages(), micro))
	w.tally.reduceLoss(w.groups.world)
	if err := w.wait(); err != nil {
		return fmt.Errorf("evaluation: %w", err)
	}
	sum, _ := w.tally.result()
	loss := sum / float64(w.cfg.Layout.DP*micro*w.cfg.Shape.Batch)
	return w.cfg.Log.line(evaluationLine{i, int(w.cfg.Rank), loss, ms(time.Since(began))})
}

// checkpointHead is the first line of a checkpoint's file. Behind it come the
// weights and the two moments as they lie in memory: float32, this machine's
// byte order.
type checkpointHead struct {
	Iteration int64         `json:"iteration"` // the next one to run
	Rank      falcon.Rank   `json:"rank"`
	Layout    falcon.Layout `json:"layout"`
	Virtual   int           `json:"virtual_stages"`
	Weights   int           `json:"weights"` // elements
	Moments   int           `json:"moments"` // elements of each
}

func (w *worker) checkpoint(i int64) error {
	began := time.Now()
	state, err := w.state(i + 1)
	if err != nil {
		return err
	}
	path := filepath.Join(w.cfg.Checkpoint.Folder, fmt.Sprintf("rank-%05d.ckpt", w.cfg.Rank))
	err = w.unlocked(func() error {
		err := replaceFile(path, state)
		time.Sleep(w.cfg.Checkpoint.Least - time.Since(began)) // the emulated storage
		return err
	})
	if err != nil {
		return err
	}
	if err := w.barrier(); err != nil {
		return err
	}
	return w.cfg.Log.line(checkpointLine{i, int(w.cfg.Rank), path, len(state), ms(time.Since(began))})
}

// state is what a checkpoint holds, to go on with iteration next.
func (w *worker) state(next int64) ([]byte, error) {
	o := w.optim
	head, err := json.Marshal(checkpointHead{
		Iteration: next, Rank: w.cfg.Rank, Layout: w.cfg.Layout, Virtual: w.cfg.Shape.VirtualStages(),
		Weights: o.weight.Len(), Moments: o.moments[0].Len(),
	})
	if err != nil {
		return nil, fmt.Errorf("trainer: checkpoint: %w", err)
	}
	if w.dump == nil {
		w.dump = device.AllocHost[byte](w.q, 4*(o.weight.Len()+2*o.moments[0].Len()))
	}
	rest := w.dump
	for _, part := range []device.Floats{o.weight, o.moments[0], o.moments[1]} {
		device.CopyOut(w.q, rest[:4*part.Len()], part.Memory())
		rest = rest[4*part.Len():]
	}
	// The copies run on the stream: what they bring may be read only after them.
	if err := w.wait(); err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{head, w.dump}, []byte("\n")), nil
}

// barrier waits for all ranks as frameworks do: by a sum of one float.
func (w *worker) barrier() error {
	w.q.SumFloats(w.groups.world, w.gate)
	if err := w.wait(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
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

// replaceFile leaves the old file or the new one, whole.
func replaceFile(path string, data []byte) error {
	tmp := path + ".new"
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(tmp, data, 0o600)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("trainer: checkpoint can't be written: %w", err), os.RemoveAll(tmp))
	}
	return nil
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }
