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
	glance         = time.Millisecond // between two looks at what is on its way, at first
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

// swap is one placement on its way. Until takeOver nothing of the worker has
// changed but the numbers on its device, of which w.out holds a copy.
type swap struct {
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

// place carries a placement out behind iteration i: in the four steps of
// FALCON §5.3, each ended by a vote of all ranks in the old communicators. The
// last vote, and the decision at the rendezvous that makes it known to all or
// to none, is the commit. Before it every failure, on whatever rank, undoes all
// on all ranks, and why says so; behind it nothing is left that could fail. err
// ends the run.
func (w *worker) place(ctx context.Context, i int64, o falcon.Order) (status int32, why, err error) {
	s := w.newSwap(i, o)
	w.swapping.Store(&openSwap{swap: s})
	carry := [len(falcon.SwapSteps)]func(context.Context, *swap) error{
		stepPause: w.pause, stepDump: w.dump, stepSwap: w.trade, stepRestore: w.restore,
	}
	for k := range carry {
		if why, err = w.swapStep(ctx, s, k, carry[k]); err != nil {
			return 0, nil, err
		}
		if why != nil {
			return adapter.RolledBack, why, w.undo(s, k, why)
		}
	}
	w.cfg.Faults.strike(momentCommit)
	committed, err := w.cfg.settle(s, true)
	switch {
	case err != nil:
		return 0, nil, err
	case !committed: // a rank ended meanwhile that had not heard of the vote
		return adapter.RolledBack, errElsewhere, w.undo(s, stepRestore, errElsewhere)
	}
	w.takeOver(s)
	return adapter.Applied, nil, w.swapOver(s, stepRestore, true, nil)
}

func (w *worker) newSwap(i int64, o falcon.Order) *swap {
	world, blocks := w.cfg.Layout.World(), model.Blocks(o.Blocks)
	to := blocks.Rank(w.rank, world)
	return &swap{
		order: o.ID, name: fmt.Sprintf("%sswap-%d-%d", tagOf(w.generation), o.Epoch, o.ID), from: i + 1,
		was: w.rank, rank: to, giver: int(blocks.Rank(to, world)), moves: to != w.rank,
	}
}

// swapStep runs one step and waits for all ranks to have done it.
func (w *worker) swapStep(ctx context.Context, s *swap, k int, carry func(context.Context, *swap) error) (why, err error) {
	name, began := falcon.SwapSteps[k], time.Now()
	w.swapping.Load().step.Store(int32(k))
	line := swapLine{Swap: s.order, Rank: int(w.rank), Step: name, State: "begin", UnixNs: began.UnixNano()}
	if err := w.cfg.Log.line(line); err != nil {
		return nil, err
	}
	w.cfg.Faults.strike(name)
	why = carry(ctx, s)
	if why == nil && w.cfg.Faults.Fail == name {
		w.cfg.Faults.Fail, why = "", errInjected
	}
	if k == stepRestore {
		w.cfg.Faults.strike(momentVote)
	}
	if why, err = w.all(why); err != nil {
		return nil, fmt.Errorf("placement %d, %s: %w", s.order, name, err)
	}
	s.steps[k] = time.Since(began)
	line.State, line.UnixNs, line.Ms, line.EmulatedMs = "end", time.Now().UnixNano(), ms(s.steps[k]), ms(s.emulated[k])
	if why != nil {
		line.State, line.Reason = "failed", why.Error()
	}
	if k == stepSwap {
		line.ConnectMs, line.Bytes = ms(s.connecting), s.bytes
	}
	return why, w.cfg.Log.line(line)
}

// pause is the barrier: the vote behind it is one, and training stands still
// at the iteration boundary until the last vote.
func (w *worker) pause(context.Context, *swap) error { return nil }

// dump copies the state of a rank that goes elsewhere to the host.
func (w *worker) dump(_ context.Context, s *swap) (err error) {
	if s.moves {
		s.emulated[stepDump], err = w.capture(s.from)
	}
	return err
}

// trade makes the new communicators, and takes over the state of the rank to
// be, beside the own one.
func (w *worker) trade(ctx context.Context, s *swap) error {
	began := time.Now()
	s.side = w.q.Fork()
	meet, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	if err := w.reconnect(meet, s.rank, s.name+"-", func() {}); err != nil {
		return err
	}
	s.connecting = time.Since(began)
	w.stage.reserve(s.side, w.slotsOf(s.rank))
	if s.moves {
		w.enqueueTrade(s)
	}
	sent := time.Now()
	if err := w.await(s.side, exchangeWithin); err != nil || !s.moves {
		return err
	}
	s.emulated[stepSwap] = time.Since(sent)
	if !device.Paced() {
		s.emulated[stepSwap] = 0
	}
	return w.unlocked(func() error { return w.received(s) })
}

// enqueueTrade sends the own state to the process that takes this rank over,
// and receives that of the rank to be, over the new communicator of all ranks:
// where that breaks, the old ones have not been touched.
func (w *worker) enqueueTrade(s *swap) {
	if w.in == nil {
		w.in = newImage(s.side, w.optim)
		w.staged = [2]device.Memory{s.side.Alloc(len(w.in)), s.side.Alloc(len(w.in))}
	}
	world := w.next.world
	world.Emulate(w.cfg.State.bytes(len(w.out)) / float64(len(w.out)))
	device.CopyIn(s.side, w.staged[0], w.out)
	s.side.Group(func() {
		s.side.SendBytes(world, w.staged[0], int(w.rank))
		s.side.RecvBytes(world, w.staged[1], s.giver)
	})
	device.CopyOut(s.side, w.in, w.staged[1])
}

// received checks what came: whole, of the right rank, at the same iteration.
func (w *worker) received(s *swap) error {
	s.bytes = int64(len(w.in))
	return w.in.Expect(w.head(s.rank, s.from))
}

// restore copies the new state onto the device, over the old one.
func (w *worker) restore(_ context.Context, s *swap) (err error) {
	if s.moves {
		w.next.world.Emulate(1)
		s.overwritten = true
		s.emulated[stepRestore], err = w.load(w.in, s.from)
	}
	return err
}

// undo lets go of all that is new, and goes on as before.
func (w *worker) undo(s *swap, k int, why error) error {
	w.next.abort()
	w.next = groups{}
	if err := w.putBack(s); err != nil {
		return err
	}
	return w.swapOver(s, k, false, why)
}

// putBack makes the device what it was before the placement.
func (w *worker) putBack(s *swap) (err error) {
	if s.side != nil {
		err = s.side.Close()
	}
	if s.overwritten && err == nil {
		_, err = w.load(w.out, s.from)
	}
	if err != nil {
		return fmt.Errorf("placement %d could not be undone: %w", s.order, err)
	}
	return nil
}

// takeOver makes this process the rank to be. The old communicators live until
// the next vote, in the new ones, has succeeded.
func (w *worker) takeOver(s *swap) {
	old := w.groups
	w.become(s)
	w.use(w.next)
	w.old, w.next = old, groups{}
	w.decided = s.name
	w.hook.Describe(w.cfg.Layout, int(w.split[w.at.DP]))
	_ = s.side.Close() // a stream that can't be given back harms nobody
}

// become is what changes with the rank.
func (w *worker) become(s *swap) {
	w.rank, w.at = s.rank, w.cfg.Layout.Coord(s.rank)
	w.stage.shard = model.NewShard(w.cfg.Shape, w.cfg.Layout, s.rank)
	w.optim.slice = w.cfg.slices().Of(w.at.DP)
	w.hook.Place(s.order, s.from, s.rank, s.steps, s.bytes)
}

// release closes what a placement left behind, once a vote in the new
// communicators has succeeded: then all ranks have taken over.
func (w *worker) release() error {
	old, decided := w.old, w.decided
	w.old, w.decided = groups{}, ""
	err := old.close()
	if decided != "" && w.rank == 0 {
		err = errors.Join(err, w.cfg.Rendezvous.Withdraw(decided))
	}
	return err
}

// swapOver ends the placement in the log.
func (w *worker) swapOver(s *swap, k int, committed bool, why error) error {
	w.swapping.Store(nil)
	line := s.over(k, committed)
	line.Bytes, line.StepMs = s.bytes, map[string]float64{}
	for i, name := range falcon.SwapSteps[:k+1] {
		line.StepMs[name] = ms(s.steps[i])
		line.EmulatedMs += ms(s.emulated[i])
	}
	if why != nil {
		line.Reason = why.Error()
	}
	return w.cfg.Log.line(line)
}

// slotsOf is how many micro-batches rank has in flight at most, per chunk.
func (w *worker) slotsOf(rank falcon.Rank) int {
	l := w.cfg.Layout
	steps := schedule.Iteration(l.Coord(rank).PP, l.PP, w.cfg.Shape.VirtualStages(), w.split.Total())
	return schedule.Slots(steps, w.cfg.Shape.VirtualStages())
}

// await waits for what is enqueued on a forked queue, for so long at most.
func (w *worker) await(q *device.Queue, within time.Duration) error {
	q.Mark()
	for began := time.Now(); ; {
		done, err := q.Done()
		if done || err != nil {
			return err
		}
		spent := time.Since(began)
		if spent > within {
			return fmt.Errorf("%w: the exchange of states, more than %v", errTooLate, within)
		}
		// What takes long is looked at less often.
		if err := w.unlocked(func() error { return w.nap(max(glance, min(spent/50, glanceMax))) }); err != nil {
			return err
		}
	}
}
