package train

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/adapter"
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
	"github.com/failslow/falcon/cmd/falcon-trainer/fault"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
)

// worker is the training thread of one rank.
type worker struct {
	cfg        Config
	rank       falcon.Rank // held now; a placement changes it
	at         falcon.Coord
	hook       adapter.Hook
	breakOff   context.CancelCauseFunc // ends the run
	comms      communicators
	lives      int         // so far
	parked     atomic.Bool // or on the way from it
	generation uint64      // of the communicators in use
	shards     images      // of this rank's part of the optimizer's state
	params     []byte      // pinned: the parameters, when they are looked at
	saved      int64       // iteration of a checkpoint that the hook has not heard of, 0 = none
	q          *device.Queue
	pipe       pipeline
	faults     faultPoints
	optim      *optimizer
	split      model.Split
	base       cursor // where this run began
	orders     ledger
	clock      iterationClock
	reached    atomic.Int64 // next iteration
	votes      agreement
	images     images // of whole states
	swapping   atomic.Pointer[openSwap]
	decided    string // entry of the last placement's decision, until the next vote
}

func newWorker(c Config) *worker {
	w := &worker{
		cfg:        c,
		rank:       c.Rank,
		at:         c.Layout.Coord(c.Rank),
		orders:     ledger{end: EndDone},
		split:      c.firstSplit(),
		generation: c.Generation,
		faults:     faultPoints{points: c.Points, launched: c.Generation},
	}
	w.comms.cfg, w.comms.suspended = c, w.suspension
	return w
}

// openDevice takes the device, meets the peers and loads the first weights. Who joins
// a job meets no peer yet, and holds nothing.
func (w *worker) openDevice(ctx context.Context) (err error) {
	w.hook = adapter.None()
	if !w.cfg.NoAdapter {
		w.hook = adapter.Find(w.cfg.Marks)
	}
	if w.q, err = device.Open(w.cfg.LocalRank); err != nil {
		return err
	}
	w.comms.q = w.q
	switch {
	case w.canPark():
		w.buildModel(groups{}) // first: whoever is suspended meanwhile holds the first weights
		if w.cfg.Join || w.cfg.Checkpoint.Resume {
			w.optim.forgetVersions()
		} else {
			w.hook.EndOptimizer(0)
		}
		if !w.cfg.Join {
			err = w.meetRanks(ctx, func() {})
		}
	case w.cfg.Join:
		err = fmt.Errorf(
			"%w: this process was started to join a job, and there is no hook through which it could hear how",
			ErrConfig,
		)
	default:
		if w.comms.groups, err = connectGroups(ctx, w.cfg); err == nil {
			w.buildModel(w.comms.groups)
		}
	}
	if err != nil {
		return err
	}
	return w.q.Sync()
}

// buildModel reserves the memory.
func (w *worker) buildModel(g groups) {
	l, sh := w.cfg.Layout, model.NewShard(w.cfg.Shape, w.cfg.Layout, w.rank)
	st := newStage(w.q, g.tp, sh, w.cfg.slotsOf(w.rank, w.split), l.DP, w.cfg.Seed)
	st.extraFlops = w.cfg.extraBackwardFlops()
	w.pipe = pipeline{
		q:      w.q,
		stage:  st,
		tally:  newTally(w.q),
		layout: l,
		at:     w.at,
		feed: newFeed(
			w.q,
			sh,
			w.cfg.Seed,
			max(w.split.Total()-l.DP+1, w.cfg.Evaluation.MicroBatches),
		),
	}
	if len(w.cfg.Points) > 0 {
		w.pipe.strike = w.strikeWhenDone
	}
	w.optim = newOptimizer(
		st,
		w.cfg.optimizerSlices(),
		w.at.DP,
		model.NewAdam(w.cfg.Rate),
		w.canPark(),
	)
	w.useGroups(g)
	w.votes = newAgreement(&w.comms, w.q, w.pipe.tally)
	w.describeRank()
}

// describeRank declares to the hook what this rank is.
func (w *worker) describeRank() {
	w.hook.Describe(w.cfg.Layout, int(w.split[w.at.DP]))
	var zero falcon.ZeRO
	if w.cfg.Instances > 0 {
		zero = falcon.ZeRO{Stage: 1, Instances: w.cfg.Instances}
	}
	unit := w.cfg.splitUnit()
	w.hook.State(
		zero,
		w.cfg.State.emulatedBytes(4*w.optim.stateElements()),
		w.cfg.State.Copy,
		unit,
		0,
		unit,
	)
	w.hook.Can(w.cfg.can(w.canPark()))
}

// can is what a rank declares that it can do.
func (c Config) can(park bool) falcon.Can {
	can := falcon.Can{
		Declared:   true,
		Park:       park,
		Split:      true,
		Place:      true,
		Checkpoint: c.Checkpoint.Folder != "",
		Versions:   1,
	}
	if park {
		can.Versions = 2 // the one before is kept until all ranks have the next
	}
	return can
}

// trainIterations runs the iterations. It holds w.calls but while it waits.
func (w *worker) trainIterations(ctx context.Context) error {
	w.comms.calls.Lock()
	defer w.comms.calls.Unlock()
	if w.lives == 1 { // who comes back has done both
		if err := w.claimCheckpoints(); err != nil {
			return err
		}
		if w.cfg.Checkpoint.Resume {
			if err := w.resumeFromCheckpoint(); err != nil {
				return err
			}
		}
	}
	w.clock.ended = time.Now()
	for i := w.base.iteration; i < w.cfg.Iterations && w.orders.end == EndDone; i++ {
		w.reached.Store(i)
		if err := w.runIteration(ctx, i); err != nil {
			return fmt.Errorf("iteration %d: %w", i, err)
		}
		w.reached.Store(i + 1)
	}
	if w.orders.end == EndCheckpointed {
		return nil // the weights are not final
	}
	return w.reportWeights()
}

// runIteration runs one iteration. The host runs ahead of the device and waits
// twice: for the world's loss and vote, and for the update.
func (w *worker) runIteration(ctx context.Context, i int64) error {
	w.hook.BeginIteration(i)
	if err := w.comms.sleepFor(fault.Stalled(
		os.Getenv("FALCON_LAB_DIR"),
		i,
		w.rank,
		time.Now(),
	)); err != nil {
		return err
	}
	late, spread := fault.OwnWork(os.Getenv("FALCON_LAB_DIR"), i, w.rank)
	if err := w.comms.sleepFor(late); err != nil {
		return err
	}
	w.pipe.spread = spread
	w.q.Zero(w.pipe.stage.grad.Memory())
	w.pipe.tally.beginVote(w.hook.Poll(i))
	micro := int(w.split[w.at.DP])
	w.pipe.runPass(i, w.trainingBatch(i), w.pipe.trainingSteps(micro))
	w.optim.reduceGradients()
	w.strikeWhenDone(fault.Barrier, i)
	w.pipe.tally.reduceOver(w.comms.groups.world)
	if err := w.comms.finishWork(); err != nil {
		return err
	}
	w.reportSaved()
	if err := w.closeReplaced(); err != nil {
		return err
	}
	samples := float64(w.split.Total() * w.cfg.Shape.Batch)
	sum, vote := w.pipe.tally.lossAndVote()
	loss := sum / samples
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return fmt.Errorf("%w: it is %g; lower --rate", ErrDiverged, loss)
	}
	err := w.updateWeights(i, 1/samples)
	if err == nil {
		err = w.runExtras(i)
	}
	if err == nil || w.canPark() && w.optim.versionAt(i+1) != nil { // it may not be run again
		err = cmp.Or(err, w.logIteration(i, loss, micro))
	}
	if err != nil {
		return err
	}
	return w.commitVote(ctx, i, vote)
}

func (w *worker) logIteration(i int64, loss float64, micro int) error {
	line := iterationLine{
		Iteration:    i,
		Rank:         int(w.rank),
		Loss:         loss,
		MicroBatches: int32(micro),
		FirstSample:  w.trainingBatch(i).first * int64(w.cfg.Shape.Batch),
		CPUMs:        cpuMs(),
	}
	w.clock.fillTimes(&line, time.Now(), w.hook.Paused())
	return w.cfg.Log.writeLine(line)
}

// iterationClock times one iteration after the other.
type iterationClock struct {
	ended   time.Time     // the last one
	paused  time.Duration // up to then
	ordered time.Duration // what the order behind the last one took
}

func (c *iterationClock) fillTimes(line *iterationLine, now time.Time, paused time.Duration) {
	line.Ms = milliseconds(now.Sub(c.ended))
	line.PausedMs = milliseconds(paused - c.paused)
	line.OrderMs = milliseconds(c.ordered)
	line.EndUnixNs = now.UnixNano()
	c.ended = now
	c.paused = paused
	c.ordered = 0
}

// updateWeights applies the summed gradients of iteration i, scaled to a mean. All
// ranks have finished them: the host has read the world's reduction, so that
// from here to the next one no rank can be more than this one step ahead of
// another. Slices of the weights are gathered behind the mark: a rank that dies
// meanwhile has finished its update.
func (w *worker) updateWeights(i int64, scale float64) error {
	w.hook.BeginOptimizer(i)
	w.optim.beginUpdate()
	from := 0
	n := w.optim.heldElements()
	if w.armedFault(fault.Update, i) >= 0 {
		from = n / 2
		w.optim.enqueueUpdate(i+1, scale, 0, from)
		w.strikeWhenDone(fault.Update, i)
	}
	w.optim.enqueueUpdate(i+1, scale, from, n-from)
	if err := w.comms.drainQueue(); err != nil {
		return err
	}
	w.optim.finishUpdate(i + 1)
	w.pipe.stage.weight = w.optim.currentVersion().weight
	w.hook.EndOptimizer(i + 1)
	w.strikeFault(fault.Updated, i)
	if err := w.comms.brokenReason(); err != nil {
		return err
	}
	w.optim.gatherSlices()
	w.strikeFault(fault.Gather, i)
	return nil
}

// useGroups makes g the groups that the work goes over.
func (w *worker) useGroups(g groups) {
	w.comms.useGroups(g)
	w.bindGroups(g)
}

// bindGroups gives stage and optimizer their groups.
func (w *worker) bindGroups(g groups) {
	if g.instance == nil {
		g.instance = g.dp
	}
	w.pipe.stage.tp = g.tp
	w.pipe.pp = g.pp
	w.optim.dp = g.dp
	w.optim.instance = g.instance
}

// reportWeights has rank 0 write the hash of all ranks' weights in logical order: the
// SHA-256 of the list of their SHA-256s.
func (w *worker) reportWeights() error {
	weights, err := w.copyWeights()
	if err != nil {
		return err
	}
	own := sha256.Sum256(weights)
	list, err := w.votes.gatherEntries(own[:])
	if err != nil || w.rank != 0 {
		return err
	}
	sum := sha256.Sum256(list)
	return w.cfg.Log.writeLine(weightsLine{hex.EncodeToString(sum[:])})
}

// copyWeights copies the parameters to the host.
func (w *worker) copyWeights() ([]byte, error) {
	params := w.optim.currentVersion().weight.At(0, w.optim.params)
	if w.params == nil {
		w.params = device.AllocHost[byte](w.q, params.Len()*4)
	}
	device.CopyOut(w.q, w.params, params.Memory())
	return w.params, w.comms.finishWork()
}

// closeTogether closes the communicators once all ranks have stopped watching theirs,
// so that an early leaver is not taken for a dead one.
func (w *worker) closeTogether() error {
	w.comms.calls.Lock()
	defer w.comms.calls.Unlock()
	w.comms.watchGroups(groups{})
	w.pipe.tally.beginVote(0)
	w.pipe.tally.reduceOver(w.comms.groups.world)
	if err := w.comms.drainQueue(); err != nil {
		return err
	}
	open := w.comms.groups
	w.comms.groups = groups{}
	if err := errors.Join(w.closeReplaced(), open.closeGroups()); err != nil {
		return err
	}
	w.hook.Finish()
	return nil
}
