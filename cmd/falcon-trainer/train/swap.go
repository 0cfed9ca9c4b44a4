package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/adapter"
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
	"github.com/failslow/falcon/cmd/falcon-trainer/schedule"
)

// Bounds of a placement. A peer that dies is noticed long before.
const (
	connectWithin  = 30 * time.Second // all new communicators, all ranks
	exchangeWithin = 2 * time.Minute  // the states
	glance         = time.Millisecond // between two polls of what is on its way, at first
	glanceMax      = 5 * time.Millisecond
)

// Steps of a placement, as falcon.SwapSteps has them.
const (
	stepPause = iota
	stepDump
	stepSwap
	stepRestore
)

// Failures of a placement on this rank; all ranks then undo it.
var (
	errInjected = errors.New("a failure was injected")
	errTooLate  = errors.New("it took too long")
)

// swap is one placement on its way. Until commit nothing of the worker has
// changed but the numbers on its device, of which w.images holds a copy.
type swap struct {
	w           *worker
	order       uint64
	name        string        // of its entries at the rendezvous
	was         falcon.Rank   // held by this process
	from        int64         // first iteration that it holds for
	rank        falcon.Rank   // to be held by this process
	giver       int           // new number of the process that holds that rank's state
	moves       bool          // this process gets another rank
	overwritten bool          // the device no longer holds the old state
	side        *device.Queue // of the exchange: its failures must not stop the training
	steps       [len(falcon.SwapSteps)]time.Duration
	emulated    [len(falcon.SwapSteps)]time.Duration
	connecting  time.Duration
	bytes       int64 // received
}

// carryOutPlacement carries a placement out behind iteration i: in four steps
// (falcon.SwapSteps), each ended by a vote of all ranks in the old communicators. The
// last vote, and the decision at the rendezvous that makes it known to all or
// to none, is the commit. Before it every failure, on whatever rank, undoes all
// on all ranks, and why is the reason; behind it nothing is left that could fail. err
// ends the run.
func (w *worker) carryOutPlacement(
	ctx context.Context,
	i int64,
	o falcon.Order,
) (status int32, why, err error) {
	s := w.newPlacement(i, o)
	w.swapping.Store(&openSwap{swap: s})
	carry := [len(falcon.SwapSteps)]func(context.Context) error{
		stepPause:   s.pauseTraining,
		stepDump:    s.dumpState,
		stepSwap:    s.tradeStates,
		stepRestore: s.restoreState,
	}
	for k := range carry {
		if why, err = s.runStep(ctx, k, carry[k]); err != nil {
			return 0, nil, err
		}
		if why != nil {
			return adapter.RolledBack, why, s.rollBack(k, why)
		}
	}
	w.cfg.Faults.strikeAt(momentCommit)
	committed, err := w.cfg.settleSwap(s, true)
	switch {
	case err != nil:
		return 0, nil, err
	case !committed: // a rank ended meanwhile that had not heard of the vote
		return adapter.RolledBack, errElsewhere, s.rollBack(stepRestore, errElsewhere)
	}
	s.commitRank()
	return adapter.Applied, nil, s.logEnd(stepRestore, true, nil)
}

func (w *worker) newPlacement(i int64, o falcon.Order) *swap {
	world, blocks := w.cfg.Layout.World(), model.Blocks(o.Blocks)
	to := blocks.Rank(w.rank, world)
	return &swap{
		w:     w,
		order: o.ID,
		name:  fmt.Sprintf("%sswap-%d-%d", generationTag(w.generation), o.Epoch, o.ID),
		from:  i + 1,
		was:   w.rank,
		rank:  to,
		giver: int(blocks.Rank(to, world)),
		moves: to != w.rank,
	}
}

// runStep runs one step and waits for all ranks to have done it.
func (s *swap) runStep(ctx context.Context, k int, carry func(context.Context) error) (why, err error) {
	name := falcon.SwapSteps[k]
	began := time.Now()
	s.w.swapping.Load().step.Store(int32(k))
	line := swapLine{
		Swap:   s.order,
		Rank:   int(s.w.rank),
		Step:   name,
		State:  "begin",
		UnixNs: began.UnixNano(),
	}
	if err := s.w.cfg.Log.writeLine(line); err != nil {
		return nil, err
	}
	s.w.cfg.Faults.strikeAt(name)
	why = carry(ctx)
	if why == nil && s.w.cfg.Faults.Fail == name {
		s.w.cfg.Faults.Fail, why = "", errInjected
	}
	if k == stepRestore {
		s.w.cfg.Faults.strikeAt(momentVote)
	}
	if why, err = s.w.votes.barrier(why); err != nil {
		return nil, fmt.Errorf("placement %d, %s: %w", s.order, name, err)
	}
	s.steps[k] = time.Since(began)
	line.State = "end"
	line.UnixNs = time.Now().UnixNano()
	line.Ms = milliseconds(s.steps[k])
	line.EmulatedMs = milliseconds(s.emulated[k])
	if why != nil {
		line.State = "failed"
		line.Reason = why.Error()
	}
	if k == stepSwap {
		line.ConnectMs, line.Bytes = milliseconds(s.connecting), s.bytes
	}
	return why, s.w.cfg.Log.writeLine(line)
}

// pauseTraining is the barrier: the vote behind it is one, and training rests
// at the iteration boundary until the last vote.
func (s *swap) pauseTraining(context.Context) error { return nil }

// dumpState copies the state of a rank that goes elsewhere to the host.
func (s *swap) dumpState(context.Context) (err error) {
	if s.moves {
		s.emulated[stepDump], err = s.w.captureState(s.from)
	}
	return err
}

// tradeStates makes the new communicators, and takes over the state of the rank to
// be, beside the own one.
func (s *swap) tradeStates(ctx context.Context) error {
	began := time.Now()
	s.side = s.w.q.Fork()
	meet, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	if err := s.w.comms.connectNext(meet, s.rank, s.name+"-", func() {}); err != nil {
		return err
	}
	s.connecting = time.Since(began)
	s.w.pipe.stage.reserveSlots(s.side, s.w.cfg.slotsOf(s.rank, s.w.split))
	if s.moves {
		s.enqueueTrade()
	}
	sent := time.Now()
	if err := s.w.comms.awaitQueue(s.side, exchangeWithin); err != nil || !s.moves {
		return err
	}
	s.emulated[stepSwap] = time.Since(sent)
	if !device.Paced() {
		s.emulated[stepSwap] = 0
	}
	return s.w.comms.runUnlocked(func() error { return s.checkReceived() })
}

// enqueueTrade sends the own state to the process that takes this rank over,
// and receives that of the rank to be, over the new communicator of all ranks:
// where that breaks, the old ones have not been touched.
func (s *swap) enqueueTrade() {
	s.w.images.reserveExchange(s.side)
	world := s.w.comms.next.world
	world.Emulate(s.w.cfg.State.emulatedBytes(len(s.w.images.own)) / float64(len(s.w.images.own)))
	s.w.images.exchange(s.side, world, []int{int(s.w.rank)}, s.giver)
}

// checkReceived checks what came: whole, of the right rank, at the same iteration.
func (s *swap) checkReceived() error {
	s.bytes = int64(len(s.w.images.came))
	return s.w.images.came.Expect(s.w.imageHead(s.rank, s.from))
}

// restoreState copies the new state onto the device, over the old one.
func (s *swap) restoreState(context.Context) (err error) {
	if s.moves {
		s.w.comms.next.world.Emulate(1)
		s.overwritten = true
		s.emulated[stepRestore], err = s.w.loadState(s.w.images.came, s.from)
	}
	return err
}

// rollBack drops all that is new, and goes on as before.
func (s *swap) rollBack(k int, why error) error {
	s.w.comms.dropNext()
	if err := s.restoreDevice(); err != nil {
		return err
	}
	return s.logEnd(k, false, why)
}

// restoreDevice makes the device what it was before the placement.
func (s *swap) restoreDevice() (err error) {
	if s.side != nil {
		err = s.side.Close()
	}
	if s.overwritten && err == nil {
		_, err = s.w.loadState(s.w.images.own, s.from)
	}
	if err != nil {
		return fmt.Errorf("placement %d could not be undone: %w", s.order, err)
	}
	return nil
}

// commitRank makes this process the rank to be. The old communicators live until
// the next vote, in the new ones, has succeeded.
func (s *swap) commitRank() {
	s.changeRank()
	s.w.bindGroups(s.w.comms.adoptNext())
	s.w.decided = s.name
	s.w.hook.Describe(s.w.cfg.Layout, int(s.w.split[s.w.at.DP]))
	_ = s.side.Close() // a stream that can't be given back does no harm
}

// changeRank is what changes with the rank.
func (s *swap) changeRank() {
	s.w.rank, s.w.at = s.rank, s.w.cfg.Layout.Coord(s.rank)
	s.w.pipe.at = s.w.at
	s.w.pipe.stage.shard = model.NewShard(s.w.cfg.Shape, s.w.cfg.Layout, s.rank)
	s.w.optim.slice = s.w.cfg.optimizerSlices().Of(s.w.at.DP)
	s.w.hook.Place(s.order, s.from, s.rank, s.steps, s.bytes)
}

// logEnd ends the placement in the log.
func (s *swap) logEnd(k int, committed bool, why error) error {
	s.w.swapping.Store(nil)
	line := s.endLine(k, committed)
	line.Bytes = s.bytes
	line.StepMs = map[string]float64{}
	for i, name := range falcon.SwapSteps[:k+1] {
		line.StepMs[name] = milliseconds(s.steps[i])
		line.EmulatedMs += milliseconds(s.emulated[i])
	}
	if why != nil {
		line.Reason = why.Error()
	}
	return s.w.cfg.Log.writeLine(line)
}

// closeReplaced closes what a placement left behind, once a vote in the new
// communicators has succeeded: then all ranks have taken over.
func (w *worker) closeReplaced() error {
	decided := w.decided
	w.decided = ""
	err := w.comms.closeOld()
	if decided != "" && w.rank == 0 {
		err = errors.Join(err, w.cfg.Rendezvous.Withdraw(decided))
	}
	return err
}

// slotsOf is how many micro-batches rank has in flight at most, per chunk.
func (c Config) slotsOf(rank falcon.Rank, split model.Split) int {
	steps := schedule.Iteration(
		c.Layout.Coord(rank).PP,
		c.Layout.PP,
		c.Shape.VirtualStages(),
		split.Total(),
	)
	return schedule.Slots(steps, c.Shape.VirtualStages())
}
