package train

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/adapter"
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
	"github.com/failslow/falcon/cmd/falcon-trainer/fault"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
	"github.com/failslow/falcon/cmd/falcon-trainer/snapshot"
)

// Failures of a rejoin on this rank; all ranks then hold what they held.
var (
	errNotHeld = errors.New("trainer: a rank does not hold the step that it should go on with")
	errDiffers = errors.New("trainer: replicas of a shard differ")
)

// reunion is a rejoin on its way.
type reunion struct {
	order    adapter.Rejoin
	began    time.Time
	holds    bool        // this rank held something before
	from     falcon.Rank // whose shard it goes on with
	status   int32       // with which it fails, if it fails now
	groups   time.Duration
	restore  time.Duration
	bytes    int64
	sum      string
	came     uint64 // checksum of the shard that came
	consumed int64  // micro-batches before the iteration
}

// reunite carries a rejoin out: groups, what all must agree on, the shards, and
// the proof that replicas are replicas. Each step that may fail on one rank ends
// with a vote of all, so that it fails on all.
func (w *worker) reunite(ctx context.Context, r *reunion) error {
	meet, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	r.status = adapter.FailedGroups
	err := w.meetLocked(meet, func() { w.strike(fault.Groups, r.order.Resume) })
	if err != nil {
		return err
	}
	r.groups = time.Since(r.began)
	made := time.Now()
	r.status = adapter.FailedOrder
	if err := w.vote(errors.Join(w.agree(r), w.claim())); err != nil {
		return err
	}
	r.status = adapter.FailedState
	w.shards.reserve(w)
	if r.order.Checkpoint {
		err = w.fromStorage(r)
	} else {
		err = w.fromReplicas(r)
	}
	if err == nil {
		err = w.proven(r)
	}
	if err == nil {
		w.reached.Store(r.order.Resume)
		w.describe()
		w.tellStored(r)
	}
	r.restore = time.Since(made)
	return err
}

// meet is meetLocked where the lock is not held.
func (w *worker) meet(ctx context.Context, begun func()) error {
	w.calls.Lock()
	defer w.calls.Unlock()
	return w.meetLocked(ctx, begun)
}

// meetLocked makes the groups of this rank's generation, and uses them.
func (w *worker) meetLocked(ctx context.Context, begun func()) error {
	if err := w.reconnect(ctx, w.rank, tagOf(w.generation), begun); err != nil {
		return err
	}
	g := w.next
	w.next = groups{}
	w.use(g)
	return nil
}

// vote is all without the distinction: a failure on any rank is one on all.
func (w *worker) vote(mine error) error {
	why, err := w.all(mine)
	return errors.Join(why, err)
}

// agree takes over from the order and from each other what all ranks must know
// alike: the split, and up to which order they have heard. What was voted on in
// an iteration that is run again is void; so is an end that some had heard of.
func (w *worker) agree(r *reunion) error {
	newest, err1 := w.least(^w.orders.newest)
	epoch, err2 := w.least(^w.orders.epoch)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	w.orders = ledger{newest: ^newest, epoch: ^epoch, end: EndDone}
	if next := model.Split(r.order.MicroBatches); len(next) > 0 {
		if err := w.split.Check(next, w.cfg.unit()); err != nil {
			return err
		}
		w.split = next
	}
	return nil
}

// fromReplicas brings the shards of the resumed iteration to those who lack
// them. Until all have checked what came it lies beside what they hold.
func (w *worker) fromReplicas(r *reunion) error {
	if err := w.vote(w.offer(r)); err != nil {
		return err
	}
	if err := w.vote(w.passOn(r)); err != nil {
		return err
	}
	return w.take(r)
}

// takers lists the ranks that get their shard from this one.
func (w *worker) takers(o adapter.Rejoin) []int {
	var out []int
	for rank, source := range o.Moves {
		if source == w.rank {
			out = append(out, int(rank))
		}
	}
	slices.Sort(out)
	return out
}

// offer makes sure that this rank has what it goes on with, or somebody who can
// give it, and makes ready what others get from it.
func (w *worker) offer(r *reunion) error {
	source, gets := r.order.Moves[w.rank]
	to := w.takers(r.order)
	v := w.optim.at(r.order.Resume)
	switch {
	case gets && source == falcon.FromCheckpoint && len(to) == 0:
		return w.fetchSet(r)
	case gets && (len(to) > 0 || !w.cfg.replicas(source, w.rank)):
		return fmt.Errorf("%w: rank %d can't have its shard from rank %d", adapter.ErrOrder, w.rank, source)
	case !gets && v == nil:
		return fmt.Errorf("%w: rank %d, iteration %d", errNotHeld, w.rank, r.order.Resume)
	case len(to) == 0:
		return nil
	}
	_, err := w.seal(v)
	return err
}

// replicas says that two ranks hold the same shard.
func (c Config) replicas(a, b falcon.Rank) bool {
	if int(a) >= c.Layout.World() || a == b {
		return false
	}
	p, q, s := c.Layout.Coord(a), c.Layout.Coord(b), c.slices()
	return p.TP == q.TP && p.PP == q.PP && s.Of(p.DP) == s.Of(q.DP)
}

// passOn sends this rank's shard to those who lack it, or receives the one that
// it lacks, and checks it.
func (w *worker) passOn(r *reunion) error {
	source, gets := r.order.Moves[w.rank]
	gets = gets && source != falcon.FromCheckpoint
	to, world := w.takers(r.order), w.groups.world
	if len(to) == 0 && !gets {
		w.strike(fault.Restore, r.order.Resume)
		return nil
	}
	w.shards.reserve(w)
	world.Emulate(w.cfg.State.bytes(4*w.optim.elements()) / float64(4*w.optim.elements()))
	device.CopyIn(w.q, w.shards.staged[0], w.shards.own)
	w.q.Group(func() {
		for _, rank := range to {
			w.q.SendBytes(world, w.shards.staged[0], rank)
		}
		if gets {
			w.q.RecvBytes(world, w.shards.staged[1], int(source))
		}
	})
	w.strike(fault.Restore, r.order.Resume)
	device.CopyOut(w.q, w.shards.came, w.shards.staged[1])
	if err := w.wait(); err != nil {
		return err
	}
	world.Emulate(1)
	if !gets {
		return nil
	}
	r.from, r.bytes = source, int64(len(w.shards.came))
	return w.unlocked(func() error { return w.expect(r, source) })
}

// expect checks the shard that came: whole, of the right rank and iteration.
func (w *worker) expect(r *reunion, source falcon.Rank) error {
	got, err := w.shards.came.Open()
	if err != nil {
		return err
	}
	want := w.shardHead(source, r.order.Resume)
	if want.SHA256 = got.SHA256; !r.holds {
		want.Consumed = got.Consumed
	}
	if got != want {
		return fmt.Errorf("%w: %+v came instead of %+v", snapshot.ErrImage, got, want)
	}
	r.consumed, r.came = got.Consumed, got.Sum()
	return nil
}

// take makes the resumed iteration's version the current one.
func (w *worker) take(r *reunion) error {
	source, gets := r.order.Moves[w.rank]
	if !gets {
		r.consumed = w.consumed(r.order.Resume)
	}
	if gets {
		w.optim.makeRoom(r.order.Resume)
		parts, im := w.optim.shard(w.optim.current()), w.shards.came
		if source == falcon.FromCheckpoint {
			parts, im = w.optim.state(), w.out
		}
		each(im, parts, func(host []byte, part device.Memory) { device.CopyIn(w.q, part, host) })
		if err := w.drain(); err != nil {
			return cmp.Or(w.broken(), err)
		}
		w.optim.current().step = r.order.Resume
	}
	w.goOn(r)
	return nil
}

// goOn makes the version of the resumed iteration the one that is trained.
func (w *worker) goOn(r *reunion) {
	w.optim.turnTo(r.order.Resume)
	w.stage.weight = w.optim.current().weight
	w.base = cursor{r.order.Resume, r.consumed}
}

// fromStorage takes all ranks back to the checkpoint of the resumed iteration,
// or to the first weights where that is 0.
func (w *worker) fromStorage(r *reunion) error {
	r.status, r.from = adapter.FailedStorage, falcon.FromCheckpoint
	var why error
	if r.order.Resume > 0 {
		why = w.fetchSet(r)
	}
	if err := w.vote(why); err != nil {
		return err
	}
	r.status = adapter.FailedState
	w.optim.makeRoom(r.order.Resume)
	if v := w.optim.current(); r.order.Resume == 0 {
		w.stage.fill(v.weight, w.cfg.Seed)
		w.q.Zero(v.moments[0].Memory())
		w.q.Zero(v.moments[1].Memory())
	} else {
		each(w.out, w.optim.state(), func(host []byte, part device.Memory) { device.CopyIn(w.q, part, host) })
	}
	if err := w.drain(); err != nil {
		return cmp.Or(w.broken(), err)
	}
	w.optim.current().step = r.order.Resume
	w.goOn(r)
	return nil
}

// fetchSet reads this rank's part of the checkpoint of the resumed iteration
// into w.out.
func (w *worker) fetchSet(r *reunion) error {
	r.status = adapter.FailedStorage
	have := snapshot.Sets(w.cfg.Checkpoint.Folder)
	k := slices.IndexFunc(have, func(s snapshot.Set) bool { return s.Iteration == r.order.Resume && s.Layout == w.cfg.Layout })
	if k < 0 || w.cfg.Checkpoint.Folder == "" {
		return fmt.Errorf("%w: none of iteration %d in %q", snapshot.ErrCheckpoint, r.order.Resume, w.cfg.Checkpoint.Folder)
	}
	if err := w.cfg.resumable(have[k]); err != nil {
		return err
	}
	if w.out == nil {
		w.out = newImage(w.q, w.optim)
	}
	began := time.Now()
	return w.unlocked(func() error {
		h, err := w.readImage(w.out, have[k], w.rank)
		r.consumed, r.bytes, r.from = h.Consumed, int64(len(w.out)), falcon.FromCheckpoint
		return errors.Join(err, w.nap(w.cfg.State.storing(len(w.out))-time.Since(began)))
	})
}

// tellStored tells the hook of a rank made anew what storage holds: that of the
// one before is gone.
func (w *worker) tellStored(r *reunion) {
	if r.holds || w.cfg.Checkpoint.Folder == "" {
		return
	}
	for _, s := range snapshot.Sets(w.cfg.Checkpoint.Folder) {
		if s.Layout == w.cfg.Layout && s.Iteration <= r.order.Resume {
			w.hook.Checkpoint(s.Iteration)
			return
		}
	}
}

// proven gathers the parameters from the owners of their slices, and makes sure
// that the device holds what came, that all replicas of a shard hold the same,
// and that all data-parallel ranks train the same parameters.
func (w *worker) proven(r *reunion) error {
	w.optim.gather()
	h, err := w.seal(w.optim.current())
	if err != nil {
		return err
	}
	if r.sum = fmt.Sprintf("%016x", h.Sum()); r.came != 0 && r.came != h.Sum() {
		err = fmt.Errorf("%w: the device of rank %d does not hold what came", errDiffers, w.rank)
	}
	params, readErr := w.weights()
	if readErr != nil {
		return readErr
	}
	full := sha256.Sum256(params)
	mine := binary.BigEndian.AppendUint64(slices.Clone(full[:proofBytes-8]), h.Sum())
	list, gatherErr := w.gather(mine)
	if gatherErr != nil {
		return gatherErr
	}
	if err == nil {
		err = w.compare(list)
	}
	return w.vote(err)
}

// proofBytes is what each rank says of its state: the parameters' checksum, 8
// bytes, and the shard's.
const proofBytes = 16

// compare looks for a rank that should have said what this one did.
func (w *worker) compare(list []byte) error {
	at := func(r falcon.Rank) []byte { return list[int(r)*proofBytes:][:proofBytes] }
	if w.groups.world == nil {
		return nil
	}
	mine := at(w.rank)
	for _, q := range w.cfg.Layout.Peers(w.rank, falcon.DimDP) {
		other := at(q)
		if !slices.Equal(other[:8], mine[:8]) || w.cfg.replicas(q, w.rank) && !slices.Equal(other[8:], mine[8:]) {
			return fmt.Errorf("%w: ranks %d and %d", errDiffers, w.rank, q)
		}
	}
	return nil
}

// shards is memory for a shard on its way: the own one, and one that came.
type shards struct {
	own, came snapshot.Image
	staged    [2]device.Memory
}

func (s *shards) reserve(w *worker) {
	if s.own != nil {
		return
	}
	n := snapshot.HeadBytes + 3*4*w.optim.held()
	s.own, s.came = device.AllocHost[byte](w.q, n), device.AllocHost[byte](w.q, n)
	s.staged = [2]device.Memory{w.q.Alloc(n), w.q.Alloc(n)}
}

// shardHead describes rank's shard.
func (w *worker) shardHead(rank falcon.Rank, step int64) snapshot.Head {
	h := w.head(rank, step)
	h.Weights = w.optim.held()
	return h
}

// seal copies a version's shard into w.shards.own.
func (w *worker) seal(v *version) (snapshot.Head, error) {
	w.shards.reserve(w)
	im := w.shards.own
	each(im, w.optim.shard(v), func(host []byte, part device.Memory) { device.CopyOut(w.q, host, part) })
	if err := w.drain(); err != nil {
		return snapshot.Head{}, cmp.Or(w.broken(), err)
	}
	if err := im.Seal(w.shardHead(w.rank, v.step)); err != nil {
		return snapshot.Head{}, err
	}
	return im.Open()
}
