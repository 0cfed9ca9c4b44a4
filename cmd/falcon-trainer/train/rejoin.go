package train

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/adapter"
	"github.com/failslow/falcon/cmd/falcon-trainer/fault"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
	"github.com/failslow/falcon/cmd/falcon-trainer/snapshot"
)

// Failures of a rejoin on this rank; all ranks then hold what they held.
var (
	errNotHeld = errors.New("trainer: a rank does not hold the step that it should go on with")
	errDiffers = errors.New("trainer: replicas of a shard differ")
)

// rejoin is a rejoin on its way.
type rejoin struct {
	w        *worker
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

// carryOut carries a rejoin out: groups, what all must agree on, the shards, and
// the proof that replicas are replicas. Each step that may fail on one rank ends
// with a vote of all, so that it fails on all.
func (r *rejoin) carryOut(ctx context.Context) error {
	meet, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	r.status = adapter.FailedGroups
	err := r.w.meetLocked(meet, func() {
		r.w.strikeFault(fault.Groups, r.order.Resume)
	})
	if err != nil {
		return err
	}
	r.groups = time.Since(r.began)
	made := time.Now()
	r.status = adapter.FailedOrder
	if err := r.w.votes.voteOn(errors.Join(r.agreeOnOrders(), r.w.claimCheckpoints())); err != nil {
		return err
	}
	r.status = adapter.FailedState
	r.w.reserveShards()
	if r.order.Checkpoint {
		err = r.fromStorage()
	} else {
		err = r.fromReplicas()
	}
	if err == nil {
		err = r.verify()
	}
	if err == nil {
		r.w.reached.Store(r.order.Resume)
		r.w.describeRank()
		r.reportCheckpoint()
	}
	r.restore = time.Since(made)
	return err
}

// meetRanks is meetLocked where the lock is not held.
func (w *worker) meetRanks(ctx context.Context, begun func()) error {
	w.comms.calls.Lock()
	defer w.comms.calls.Unlock()
	return w.meetLocked(ctx, begun)
}

// meetLocked makes the groups of this rank's generation, and uses them.
func (w *worker) meetLocked(ctx context.Context, begun func()) error {
	if err := w.comms.connectNext(ctx, w.rank, generationTag(w.generation), begun); err != nil {
		return err
	}
	w.useGroups(w.comms.takeNext())
	return nil
}

// agreeOnOrders takes over from the order and from each other what all ranks must know
// alike: the split, and up to which order they have heard. What was voted on in
// an iteration that is run again is void; so is an end that some had heard of.
func (r *rejoin) agreeOnOrders() error {
	newest, err1 := r.w.votes.leastValue(^r.w.orders.newest)
	epoch, err2 := r.w.votes.leastValue(^r.w.orders.epoch)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	r.w.orders = ledger{newest: ^newest, epoch: ^epoch, end: EndDone}
	if next := model.Split(r.order.MicroBatches); len(next) > 0 {
		if err := r.w.split.Check(next, r.w.cfg.splitUnit()); err != nil {
			return err
		}
		r.w.split = next
	}
	return nil
}

// fromReplicas brings the shards of the resumed iteration to those who lack
// them. Until all have checked what came it lies beside what they hold.
func (r *rejoin) fromReplicas() error {
	if err := r.w.votes.voteOn(r.prepareShard()); err != nil {
		return err
	}
	if err := r.w.votes.voteOn(r.exchangeShards()); err != nil {
		return err
	}
	return r.loadShard()
}

// receivingRanks lists the ranks that get their shard from this one.
func (r *rejoin) receivingRanks() []int {
	var out []int
	for rank, source := range r.order.Moves {
		if source == r.w.rank {
			out = append(out, int(rank))
		}
	}
	slices.Sort(out)
	return out
}

// prepareShard makes sure that this rank has what it goes on with, or a rank that can
// give it, and makes ready what others get from it.
func (r *rejoin) prepareShard() error {
	source, gets := r.order.Moves[r.w.rank]
	to := r.receivingRanks()
	v := r.w.optim.versionAt(r.order.Resume)
	switch {
	case gets && source == falcon.FromCheckpoint && len(to) == 0:
		return r.readCheckpoint()
	case gets && (len(to) > 0 || !r.w.cfg.sameShard(source, r.w.rank)):
		return fmt.Errorf("%w: rank %d can't have its shard from rank %d", adapter.ErrOrder, r.w.rank, source)
	case !gets && v == nil:
		return fmt.Errorf("%w: rank %d, iteration %d", errNotHeld, r.w.rank, r.order.Resume)
	case len(to) == 0:
		return nil
	}
	_, err := r.w.sealShard(v)
	return err
}

// sameShard reports whether two ranks hold the same shard.
func (c Config) sameShard(a, b falcon.Rank) bool {
	if int(a) >= c.Layout.World() || a == b {
		return false
	}
	p := c.Layout.Coord(a)
	q := c.Layout.Coord(b)
	s := c.optimizerSlices()
	return p.TP == q.TP && p.PP == q.PP && s.Of(p.DP) == s.Of(q.DP)
}

// exchangeShards sends this rank's shard to those who lack it, or receives the one that
// it lacks, and checks it.
func (r *rejoin) exchangeShards() error {
	source, gets := r.order.Moves[r.w.rank]
	if gets = gets && source != falcon.FromCheckpoint; !gets {
		source = -1
	}
	to, world := r.receivingRanks(), r.w.comms.groups.world
	if len(to) == 0 && !gets {
		r.w.strikeFault(fault.Restore, r.order.Resume)
		return nil
	}
	world.Emulate(
		r.w.cfg.State.emulatedBytes(4*r.w.optim.stateElements()) / float64(4*r.w.optim.stateElements()),
	)
	r.w.shards.exchange(r.w.q, world, to, int(source))
	r.w.strikeFault(fault.Restore, r.order.Resume)
	if err := r.w.comms.finishWork(); err != nil {
		return err
	}
	world.Emulate(1)
	if !gets {
		return nil
	}
	r.from, r.bytes = source, int64(len(r.w.shards.came))
	return r.w.comms.runUnlocked(func() error { return r.checkShard(source) })
}

// checkShard checks the shard that came: whole, of the right rank and iteration.
func (r *rejoin) checkShard(source falcon.Rank) error {
	got, err := r.w.shards.came.Open()
	if err != nil {
		return err
	}
	want := r.w.shardHead(source, r.order.Resume)
	if want.SHA256 = got.SHA256; !r.holds {
		want.Consumed = got.Consumed
	}
	if got != want {
		return fmt.Errorf("%w: %+v came instead of %+v", snapshot.ErrImage, got, want)
	}
	r.consumed, r.came = got.Consumed, got.Sum()
	return nil
}

// loadShard makes the resumed iteration's version the current one.
func (r *rejoin) loadShard() error {
	if source, gets := r.order.Moves[r.w.rank]; gets {
		return r.fillVersion(source)
	}
	r.consumed = r.w.consumedBefore(r.order.Resume)
	r.switchVersion()
	return nil
}

// fillVersion puts what came from source, or the first weights where the job starts
// over, where a version can be spared, and makes that the one that is trained.
func (r *rejoin) fillVersion(source falcon.Rank) (err error) {
	r.w.optim.makeRoom(r.order.Resume)
	v := r.w.optim.currentVersion()
	switch {
	case source != falcon.FromCheckpoint:
		err = r.w.comms.copyIn(r.w.optim.shardOf(v), r.w.shards.came)
	case r.order.Resume > 0:
		err = r.w.comms.copyIn(r.w.optim.wholeState(), r.w.images.own)
	default:
		r.w.pipe.stage.fillWeights(v.weight, r.w.cfg.Seed)
		r.w.q.Zero(v.moments[0].Memory())
		r.w.q.Zero(v.moments[1].Memory())
		err = r.w.comms.drainQueue()
	}
	if err != nil {
		return err
	}
	v.step = r.order.Resume
	r.switchVersion()
	return nil
}

// switchVersion makes the version of the resumed iteration the one that is trained.
func (r *rejoin) switchVersion() {
	r.w.optim.switchTo(r.order.Resume)
	r.w.pipe.stage.weight = r.w.optim.currentVersion().weight
	r.w.base = cursor{r.order.Resume, r.consumed}
}

// fromStorage takes all ranks back to the checkpoint of the resumed iteration,
// or to the first weights where that is 0.
func (r *rejoin) fromStorage() error {
	r.status = adapter.FailedStorage
	r.from = falcon.FromCheckpoint
	var why error
	if r.order.Resume > 0 {
		why = r.readCheckpoint()
	}
	if err := r.w.votes.voteOn(why); err != nil {
		return err
	}
	r.status = adapter.FailedState
	return r.fillVersion(falcon.FromCheckpoint)
}

// readCheckpoint reads this rank's part of the checkpoint of the resumed iteration
// into w.images.own.
func (r *rejoin) readCheckpoint() error {
	r.status = adapter.FailedStorage
	have := snapshot.Sets(r.w.cfg.Checkpoint.Folder)
	k := slices.IndexFunc(have, func(s snapshot.Set) bool {
		return s.Iteration == r.order.Resume && s.Layout == r.w.cfg.Layout
	})
	if k < 0 || r.w.cfg.Checkpoint.Folder == "" {
		return fmt.Errorf("%w: none of iteration %d in %q",
			snapshot.ErrCheckpoint, r.order.Resume, r.w.cfg.Checkpoint.Folder)
	}
	if err := r.w.cfg.resumable(have[k]); err != nil {
		return err
	}
	r.w.images.reserveOwn(r.w.q, r.w.optim.stateElements())
	began := time.Now()
	return r.w.comms.runUnlocked(func() error {
		h, err := r.w.readImage(r.w.images.own, have[k], r.w.rank)
		r.consumed, r.bytes, r.from = h.Consumed, int64(len(r.w.images.own)), falcon.FromCheckpoint
		return errors.Join(
			err,
			r.w.comms.sleepFor(r.w.cfg.State.storeTime(len(r.w.images.own))-time.Since(began)),
		)
	})
}

// reportCheckpoint declares to the hook of a replacement process what storage holds: that of
// the one before is gone.
func (r *rejoin) reportCheckpoint() {
	if r.holds || r.w.cfg.Checkpoint.Folder == "" {
		return
	}
	for _, s := range snapshot.Sets(r.w.cfg.Checkpoint.Folder) {
		if s.Layout == r.w.cfg.Layout && s.Iteration <= r.order.Resume {
			r.w.hook.Checkpoint(s.Iteration)
			return
		}
	}
}

// verify gathers the parameters from the owners of their slices, and makes sure
// that the device holds what came, that all replicas of a shard hold the same,
// and that all data-parallel ranks train the same parameters.
func (r *rejoin) verify() error {
	r.w.optim.gatherSlices()
	h, err := r.w.sealShard(r.w.optim.currentVersion())
	if err != nil {
		return err
	}
	if r.sum = fmt.Sprintf("%016x", h.Sum()); r.came != 0 && r.came != h.Sum() {
		err = fmt.Errorf("%w: the device of rank %d does not hold what came", errDiffers, r.w.rank)
	}
	params, readErr := r.w.copyWeights()
	if readErr != nil {
		return readErr
	}
	full := sha256.Sum256(params)
	mine := binary.BigEndian.AppendUint64(slices.Clone(full[:proofBytes-8]), h.Sum())
	list, gatherErr := r.w.votes.gatherEntries(mine)
	if gatherErr != nil {
		return gatherErr
	}
	if err == nil {
		err = r.compareProofs(list)
	}
	return r.w.votes.voteOn(err)
}

// proofBytes is what each rank gives of its state: the parameters' checksum, 8
// bytes, and the shard's.
const proofBytes = 16

// compareProofs looks for a rank whose proof should equal this one's and does not.
func (r *rejoin) compareProofs(list []byte) error {
	at := func(rank falcon.Rank) []byte {
		return list[int(rank)*proofBytes:][:proofBytes]
	}
	if r.w.comms.groups.world == nil {
		return nil
	}
	mine := at(r.w.rank)
	for _, q := range r.w.cfg.Layout.Peers(r.w.rank, falcon.DimDP) {
		other := at(q)
		if !slices.Equal(other[:8], mine[:8]) ||
			r.w.cfg.sameShard(q, r.w.rank) && !slices.Equal(other[8:], mine[8:]) {
			return fmt.Errorf("%w: ranks %d and %d", errDiffers, r.w.rank, q)
		}
	}
	return nil
}

// reserveShards makes room for a shard on its way: the own one, and one that came.
func (w *worker) reserveShards() {
	w.shards.reserveOwn(w.q, 3*w.optim.heldElements())
	w.shards.reserveExchange(w.q)
}

// shardHead describes rank's shard.
func (w *worker) shardHead(rank falcon.Rank, step int64) snapshot.Head {
	h := w.imageHead(rank, step)
	h.Weights = w.optim.heldElements()
	return h
}

// sealShard copies a version's shard into w.shards.own.
func (w *worker) sealShard(v *version) (snapshot.Head, error) {
	w.reserveShards()
	im := w.shards.own
	if err := w.comms.copyOut(im, w.optim.shardOf(v)); err != nil {
		return snapshot.Head{}, err
	}
	if err := im.Seal(w.shardHead(w.rank, v.step)); err != nil {
		return snapshot.Head{}, err
	}
	return im.Open()
}
