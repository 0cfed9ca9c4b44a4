package train

import (
	"cmp"
	"errors"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
	"github.com/failslow/falcon/cmd/falcon-trainer/snapshot"
)

// newImage is pinned memory for a rank's state.
func newImage(q *device.Queue, o *optimizer) snapshot.Image {
	return device.AllocHost[byte](q, snapshot.HeadBytes+4*o.elements())
}

// each calls f with every part and its place in the image.
func each(im snapshot.Image, parts []device.Floats, f func(host []byte, part device.Memory)) {
	rest := im[snapshot.HeadBytes:]
	for _, part := range parts {
		f(rest[:4*part.Len()], part.Memory())
		rest = rest[4*part.Len():]
	}
}

// head describes rank's state with which iteration next begins.
func (w *worker) head(rank falcon.Rank, next int64) snapshot.Head {
	s := w.cfg.Shape
	return snapshot.Head{
		Iteration: next, Consumed: w.consumed(next), Rank: rank,
		Layout: w.cfg.Layout, Virtual: s.VirtualStages(), Hidden: s.Hidden, FFN: s.FFN, Layers: s.Layers,
		Seed: w.cfg.Seed, Sharded: w.optim.sharded(), Weights: w.optim.params, Moments: w.optim.held(),
	}
}

// consumed is how many micro-batches of the job's life lie before iteration next.
func (w *worker) consumed(next int64) int64 {
	return w.base.consumed + (next-w.base.iteration)*int64(w.split.Total())
}

// capture copies this rank's state into w.out, sealed; emulated is how long the
// copy lasted at least, as that of the emulated state.
func (w *worker) capture(next int64) (emulated time.Duration, err error) {
	began := time.Now()
	if w.out == nil {
		w.out = newImage(w.q, w.optim)
	}
	each(w.out, w.optim.state(), func(host []byte, part device.Memory) { device.CopyOut(w.q, host, part) })
	// The copies run on the stream: what they bring may be read only after them.
	if err := w.drain(); err != nil {
		return 0, cmp.Or(w.broken(), err)
	}
	emulated = w.cfg.State.copying(len(w.out))
	return emulated, w.unlocked(func() error {
		return errors.Join(w.out.Seal(w.head(w.rank, next)), w.nap(emulated-time.Since(began)))
	})
}

// load copies im, the state of iteration next, onto the device, likewise. What
// the device held goes: it may be another rank's.
func (w *worker) load(im snapshot.Image, next int64) (emulated time.Duration, err error) {
	began := time.Now()
	w.optim.forget()
	each(im, w.optim.state(), func(host []byte, part device.Memory) { device.CopyIn(w.q, part, host) })
	if err := w.drain(); err != nil {
		return 0, cmp.Or(w.broken(), err)
	}
	w.optim.current().step = next
	emulated = w.cfg.State.copying(len(im))
	return emulated, w.unlocked(func() error { return w.nap(emulated - time.Since(began)) })
}
