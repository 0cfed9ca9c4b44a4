package train

import (
	"errors"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
	"github.com/failslow/falcon/cmd/falcon-trainer/snapshot"
)

// images is pinned memory for the state of two ranks, made when first needed.
type images struct {
	own    snapshot.Image // this rank's
	came   snapshot.Image // another one's
	staged [2]device.Memory
}

// reserveOwn makes room for the own state of so many elements.
func (m *images) reserveOwn(q *device.Queue, elements int) {
	if m.own == nil {
		m.own = device.AllocHost[byte](q, snapshot.HeadBytes+4*elements)
	}
}

// reserveExchange makes room for another rank's state, and for both on the device.
func (m *images) reserveExchange(q *device.Queue) {
	if n := len(m.own); m.came == nil {
		m.came, m.staged = device.AllocHost[byte](q, n), [2]device.Memory{q.Alloc(n), q.Alloc(n)}
	}
}

// exchange enqueues the own state's way to the ranks to, and that of the rank from
// into m.came; none comes where from < 0.
func (m *images) exchange(q *device.Queue, world *device.Comm, to []int, from int) {
	device.CopyIn(q, m.staged[0], m.own)
	q.Group(func() {
		for _, rank := range to {
			q.SendBytes(world, m.staged[0], rank)
		}
		if from >= 0 {
			q.RecvBytes(world, m.staged[1], from)
		}
	})
	device.CopyOut(q, m.came, m.staged[1])
}

// copyOut copies parts of the device's memory into im, copyIn the other way.
func (c *communicators) copyOut(im snapshot.Image, parts []device.Floats) error {
	eachPart(im, parts, func(host []byte, part device.Memory) {
		device.CopyOut(c.q, host, part)
	})
	return c.drainQueue()
}

func (c *communicators) copyIn(parts []device.Floats, im snapshot.Image) error {
	eachPart(im, parts, func(host []byte, part device.Memory) {
		device.CopyIn(c.q, part, host)
	})
	return c.drainQueue()
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
		Iteration: next,
		Consumed:  w.consumedBefore(next),
		Rank:      rank,
		Layout:    w.cfg.Layout,
		Virtual:   s.VirtualStages(),
		Hidden:    s.Hidden,
		FFN:       s.FFN,
		Layers:    s.Layers,
		Seed:      w.cfg.Seed,
		Sharded:   w.optim.isSharded(),
		Weights:   w.optim.params,
		Moments:   w.optim.heldElements(),
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
	w.images.reserveOwn(w.q, w.optim.stateElements())
	if err := w.comms.copyOut(w.images.own, w.optim.wholeState()); err != nil {
		return 0, err
	}
	emulated = w.cfg.State.copyTime(len(w.images.own))
	return emulated, w.comms.runUnlocked(func() error {
		return errors.Join(
			w.images.own.Seal(w.imageHead(w.rank, next)),
			w.comms.sleepFor(emulated-time.Since(began)),
		)
	})
}

// loadState copies im, the state of iteration next, onto the device, likewise. What
// the device held goes: it may be another rank's.
func (w *worker) loadState(im snapshot.Image, next int64) (emulated time.Duration, err error) {
	began := time.Now()
	w.optim.forgetVersions()
	if err := w.comms.copyIn(w.optim.wholeState(), im); err != nil {
		return 0, err
	}
	w.optim.currentVersion().step = next
	emulated = w.cfg.State.copyTime(len(im))
	return emulated, w.comms.runUnlocked(func() error {
		return w.comms.sleepFor(emulated - time.Since(began))
	})
}
