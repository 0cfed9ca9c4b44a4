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
	return device.AllocHost[byte](q, snapshot.HeadBytes+4*o.stateElements())
}

// stateImages is host memory for whole states, made when first needed.
type stateImages struct {
	own    snapshot.Image // this rank's
	came   snapshot.Image // another one's
	staged [2]device.Memory
}

// reserveOwn makes room for the own state.
func (s *stateImages) reserveOwn(q *device.Queue, o *optimizer) {
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

// eachPart calls f with every part and its place in the image.
func eachPart(im snapshot.Image, parts []device.Floats, f func(host []byte, part device.Memory)) {
	rest := im[snapshot.HeadBytes:]
	for _, part := range parts {
		f(rest[:4*part.Len()], part.Memory())
		rest = rest[4*part.Len():]
	}
}

// imageHead describes rank's state with which iteration next begins.
func (w *worker) imageHead(rank falcon.Rank, next int64) snapshot.Head {
	s := w.cfg.Shape
	return snapshot.Head{
		Iteration: next, Consumed: w.consumedBefore(next), Rank: rank,
		Layout: w.cfg.Layout, Virtual: s.VirtualStages(), Hidden: s.Hidden, FFN: s.FFN, Layers: s.Layers,
		Seed: w.cfg.Seed, Sharded: w.optim.isSharded(), Weights: w.optim.params, Moments: w.optim.heldElements(),
	}
}

// consumedBefore is how many micro-batches of the job's life lie before iteration next.
func (w *worker) consumedBefore(next int64) int64 {
	return w.base.consumed + (next-w.base.iteration)*int64(w.split.Total())
}

// captureState copies this rank's state into w.images.own, sealed; emulated is how long the
// copy lasted at least, as that of the emulated state.
func (w *worker) captureState(next int64) (emulated time.Duration, err error) {
	began := time.Now()
	w.images.reserveOwn(w.q, w.optim)
	eachPart(w.images.own, w.optim.wholeState(), func(host []byte, part device.Memory) { device.CopyOut(w.q, host, part) })
	// The copies run on the stream: what they bring may be read only after them.
	if err := w.comms.drainQueue(); err != nil {
		return 0, cmp.Or(w.comms.brokenReason(), err)
	}
	emulated = w.cfg.State.copyTime(len(w.images.own))
	return emulated, w.comms.runUnlocked(func() error {
		return errors.Join(w.images.own.Seal(w.imageHead(w.rank, next)), w.comms.sleepFor(emulated-time.Since(began)))
	})
}

// loadState copies im, the state of iteration next, onto the device, likewise. What
// the device held goes: it may be another rank's.
func (w *worker) loadState(im snapshot.Image, next int64) (emulated time.Duration, err error) {
	began := time.Now()
	w.optim.forgetVersions()
	eachPart(im, w.optim.wholeState(), func(host []byte, part device.Memory) { device.CopyIn(w.q, part, host) })
	if err := w.comms.drainQueue(); err != nil {
		return 0, cmp.Or(w.comms.brokenReason(), err)
	}
	w.optim.currentVersion().step = next
	emulated = w.cfg.State.copyTime(len(im))
	return emulated, w.comms.runUnlocked(func() error { return w.comms.sleepFor(emulated - time.Since(began)) })
}
