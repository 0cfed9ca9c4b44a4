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

// stateImages is host memory for whole states, made when first needed.
type stateImages struct {
	own    snapshot.Image // this rank's
	came   snapshot.Image // another one's
	staged [2]device.Memory
}

// reserve makes room for the own state.
func (s *stateImages) reserve(q *device.Queue, o *optimizer) {
	if s.own == nil {
		s.own = newImage(q, o)
	}
}

// reserveExchange makes room for another rank's state, and for both on the device.
func (s *stateImages) reserveExchange(q *device.Queue, o *optimizer) {
	if s.came == nil {
		s.came = newImage(q, o)
		s.staged = [2]device.Memory{q.Alloc(len(s.came)), q.Alloc(len(s.came))}
	}
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

// capture copies this rank's state into w.images.own, sealed; emulated is how long the
// copy lasted at least, as that of the emulated state.
func (w *worker) capture(next int64) (emulated time.Duration, err error) {
	began := time.Now()
	w.images.reserve(w.q, w.optim)
	each(w.images.own, w.optim.state(), func(host []byte, part device.Memory) { device.CopyOut(w.q, host, part) })
	// The copies run on the stream: what they bring may be read only after them.
	if err := w.comms.drain(); err != nil {
		return 0, cmp.Or(w.comms.broken(), err)
	}
	emulated = w.cfg.State.copying(len(w.images.own))
	return emulated, w.comms.unlocked(func() error {
		return errors.Join(w.images.own.Seal(w.head(w.rank, next)), w.comms.sleep(emulated-time.Since(began)))
	})
}

// load copies im, the state of iteration next, onto the device, likewise. What
// the device held goes: it may be another rank's.
func (w *worker) load(im snapshot.Image, next int64) (emulated time.Duration, err error) {
	began := time.Now()
	w.optim.forget()
	each(im, w.optim.state(), func(host []byte, part device.Memory) { device.CopyIn(w.q, part, host) })
	if err := w.comms.drain(); err != nil {
		return 0, cmp.Or(w.comms.broken(), err)
	}
	w.optim.current().step = next
	emulated = w.cfg.State.copying(len(im))
	return emulated, w.comms.unlocked(func() error { return w.comms.sleep(emulated - time.Since(began)) })
}
