package train

import (
	"errors"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
	"github.com/failslow/falcon/cmd/falcon-trainer/snapshot"
)

// newImage is pinned memory for a rank's state.
func newImage(q *device.Queue, o *optimizer) snapshot.Image {
	n := snapshot.HeadBytes
	for _, part := range o.state() {
		n += 4 * part.Len()
	}
	return device.AllocHost[byte](q, n)
}

// each calls f with every part of the state and its place in the image.
func each(im snapshot.Image, o *optimizer, f func(host []byte, part device.Memory)) {
	rest := im[snapshot.HeadBytes:]
	for _, part := range o.state() {
		f(rest[:4*part.Len()], part.Memory())
		rest = rest[4*part.Len():]
	}
}

// head describes rank's state with which iteration next begins.
func (w *worker) head(rank falcon.Rank, next int64) snapshot.Head {
	parts, s := w.optim.state(), w.cfg.Shape
	return snapshot.Head{
		Iteration: next, Consumed: w.trainingBatch(next).first - int64(w.split.First(w.at.DP)), Rank: rank,
		Layout: w.cfg.Layout, Virtual: s.VirtualStages(), Hidden: s.Hidden, FFN: s.FFN, Layers: s.Layers,
		Seed: w.cfg.Seed, Sharded: w.optim.sharded, Weights: parts[0].Len(), Moments: parts[1].Len(),
	}
}

// capture copies this rank's state into w.out, sealed; emulated is how long the
// copy lasted at least, as that of the emulated state.
func (w *worker) capture(next int64) (emulated time.Duration, err error) {
	began := time.Now()
	if w.out == nil {
		w.out = newImage(w.q, w.optim)
	}
	each(w.out, w.optim, func(host []byte, part device.Memory) { device.CopyOut(w.q, host, part) })
	// The copies run on the stream: what they bring may be read only after them.
	if err := w.wait(); err != nil {
		return 0, err
	}
	emulated = w.cfg.State.copying(len(w.out))
	return emulated, w.unlocked(func() error {
		return errors.Join(w.out.Seal(w.head(w.rank, next)), w.nap(emulated-time.Since(began)))
	})
}

// load copies im onto the device, likewise.
func (w *worker) load(im snapshot.Image) (emulated time.Duration, err error) {
	began := time.Now()
	each(im, w.optim, func(host []byte, part device.Memory) { device.CopyIn(w.q, part, host) })
	if err := w.wait(); err != nil {
		return 0, err
	}
	emulated = w.cfg.State.copying(len(im))
	return emulated, w.unlocked(func() error { return w.nap(emulated - time.Since(began)) })
}
