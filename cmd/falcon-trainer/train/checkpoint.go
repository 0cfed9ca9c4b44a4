package train

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/adapter"
	"github.com/failslow/falcon/cmd/falcon-trainer/snapshot"
)

// Checkpoint is where every rank writes its weights and its part of the
// optimizer's state: a folder for each set, a file for each rank in it, and a
// manifest once all are on disk. Only a set with a manifest is ever read.
type Checkpoint struct {
	Every  int64 // iterations; 0 = only when ordered
	Folder string
	Least  time.Duration // emulated storage: writing lasts at least this long
	Resume bool          // begin with the newest complete set
}

func (c Checkpoint) validate() error {
	if c.Every < 0 || c.Least < 0 || (c.Every > 0 || c.Resume) && c.Folder == "" {
		return fmt.Errorf(
			"%w: a checkpoint every %d iterations, or to resume from, in the folder %q; name one, and give no negative numbers",
			ErrConfig, c.Every, c.Folder,
		)
	}
	return nil
}

// checkpointSet is the set that this job would write at the boundary before iteration
// next.
func (w *worker) checkpointSet(next int64) snapshot.Set {
	s := snapshot.Set{
		Iteration:  next,
		Generation: w.generation,
		Layout:     w.cfg.Layout,
	}
	if w.optim.isSharded() {
		s.Sharded = true
		s.Instances = w.cfg.Instances
	}
	return s.In(w.cfg.Checkpoint.Folder)
}

// saveScheduled is the checkpoint at the end of iteration i that the configuration asks for.
func (w *worker) saveScheduled(i int64) error {
	why, err := w.saveCheckpoint(i, 0)
	return errors.Join(err, why)
}

// saveCheckpoint writes a checkpoint behind iteration i, for an order or for none (0).
// why is that some rank could not write its part: then the set does not
// count, on all ranks alike. err ends the run.
func (w *worker) saveCheckpoint(i int64, order uint64) (why, err error) {
	began := time.Now()
	s := w.checkpointSet(i + 1)
	if why = w.comms.runUnlocked(func() error {
		return snapshot.Claim(w.cfg.Checkpoint.Folder, w.generation)
	}); why == nil {
		_, why = w.captureState(s.Iteration)
	}
	dumped := time.Now()
	if why == nil {
		why = w.comms.runUnlocked(func() error {
			return w.writeImage(s.File(w.rank), began, dumped)
		})
	}
	s.FileBytes = int64(len(w.images.own))
	if why, err = w.votes.barrier(why); err != nil || why != nil {
		return why, err
	}
	if w.rank == 0 {
		why = w.comms.runUnlocked(func() error {
			return snapshot.Guarded(w.cfg.Checkpoint.Folder, w.generation, s.Complete)
		})
	}
	if order != 0 { // the others know of it before they acknowledge it
		why, err = w.votes.barrier(why)
	}
	if err != nil || why != nil {
		return why, err
	}
	if w.saved = s.Iteration; w.rank == 0 {
		snapshot.Prune(w.cfg.Checkpoint.Folder)
	}
	if w.rank == 0 || order != 0 {
		w.reportSaved()
	}
	return nil, w.cfg.Log.writeLine(checkpointLine{
		Checkpoint: i,
		Rank:       int(w.rank),
		Order:      order,
		Resume:     s.Iteration,
		File:       s.File(w.rank),
		Bytes:      len(w.images.own),
		Ms:         milliseconds(time.Since(began)),
		DumpMs:     milliseconds(dumped.Sub(began)),
		StoreMs:    milliseconds(time.Since(dumped)),
	})
}

// claimCheckpoints keeps processes of older generations, which may be alive somewhere, from
// writing checkpoints. Storage that fails otherwise is reported when one is due.
func (w *worker) claimCheckpoints() error {
	if w.rank != 0 || w.cfg.Checkpoint.Folder == "" || w.generation == 0 {
		return nil
	}
	err := w.comms.runUnlocked(func() error {
		return snapshot.Claim(w.cfg.Checkpoint.Folder, w.generation)
	})
	if errors.Is(err, snapshot.ErrFenced) || errors.Is(err, ErrPeer) {
		return err
	}
	return nil
}

// reportSaved declares the newest checkpoint to the hook, once. All ranks may do so
// behind the next meeting of the world: rank 0 came to it, so the set counts.
func (w *worker) reportSaved() {
	if w.saved > 0 {
		w.hook.Checkpoint(w.saved)
		w.saved = 0
	}
}

// writeImage puts the captured state on disk, no faster than the emulated storage.
func (w *worker) writeImage(path string, began, dumped time.Time) error {
	err := snapshot.Replace(path, w.images.own)
	return errors.Join(
		err,
		w.comms.sleepFor(w.cfg.State.storeTime(len(w.images.own))-time.Since(dumped)),
		w.comms.sleepFor(w.cfg.Checkpoint.Least-time.Since(began)),
	)
}

// resumeFromCheckpoint goes on from the newest complete set. Any process may hold any rank.
// The replicas of plain data parallelism hold the same state, so their number
// may have changed; all else must be as it was.
func (w *worker) resumeFromCheckpoint() error {
	began := time.Now()
	have := snapshot.Sets(w.cfg.Checkpoint.Folder)
	if len(have) == 0 {
		return fmt.Errorf("%w: no complete one in %q; start without --resume",
			snapshot.ErrCheckpoint, w.cfg.Checkpoint.Folder)
	}
	s := have[0]
	if err := w.cfg.resumable(s); err != nil {
		return err
	}
	at := w.at
	at.DP %= s.Layout.DP
	source := s.Layout.RankOf(at)
	w.images.reserveOwn(w.q, w.optim.stateElements())
	im := w.images.own
	h := snapshot.Head{}
	err := w.comms.runUnlocked(func() (err error) {
		h, err = w.readImage(im, s, source)
		return errors.Join(err, w.comms.sleepFor(w.cfg.State.storeTime(len(im))-time.Since(began)))
	})
	loaded := time.Now()
	if err == nil {
		_, err = w.loadState(im, s.Iteration)
	}
	if err == nil {
		err = w.agreeOnSet(s)
	}
	if err != nil {
		return err
	}
	w.base = cursor{s.Iteration, h.Consumed}
	w.hook.Checkpoint(s.Iteration)
	return w.cfg.Log.writeLine(resumeLine{
		Resume:    s.Iteration,
		Rank:      int(w.rank),
		File:      s.File(source),
		Bytes:     len(im),
		LoadMs:    milliseconds(loaded.Sub(began)),
		RestoreMs: milliseconds(time.Since(loaded)),
	})
}

// resumable reports why this job can't go on from s.
func (c Config) resumable(s snapshot.Set) error {
	a, b := s.Layout, c.Layout
	if a.TP != b.TP ||
		a.PP != b.PP ||
		s.Sharded != c.optimizerSlices().Sharded() ||
		s.Sharded && (a.DP != b.DP || s.Instances > 0 && s.Instances != c.Instances) {
		return fmt.Errorf(
			"%w: the newest one was written by %v, which can't be split over %v; only the replicas of plain data parallelism can change in number",
			snapshot.ErrCheckpoint, a, b,
		)
	}
	return nil
}

// readImage reads into im, and checks, the state that rank had when it wrote s.
func (w *worker) readImage(im snapshot.Image, s snapshot.Set, rank falcon.Rank) (snapshot.Head, error) {
	path := s.File(rank)
	b, err := os.ReadFile(path)
	if err == nil && len(b) != len(im) {
		err = fmt.Errorf("%w: %d bytes, this model has %d", snapshot.ErrImage, len(b), len(im))
	}
	if err != nil {
		return snapshot.Head{}, fmt.Errorf("%w %s can't be read: %w", snapshot.ErrCheckpoint, path, err)
	}
	copy(im, b)
	h, err := im.Open()
	want := w.imageHead(rank, s.Iteration)
	want.Layout = s.Layout
	want.Consumed = h.Consumed
	want.SHA256 = h.SHA256
	if err == nil && h != want {
		err = fmt.Errorf("%w: it is of another job: %+v", snapshot.ErrImage, h)
	}
	if err != nil {
		return h, fmt.Errorf("%w %s: %w", snapshot.ErrCheckpoint, path, err)
	}
	return h, nil
}

// agreeOnSet makes sure that no rank goes on from another iteration than the
// others: the folder may differ on another node.
func (w *worker) agreeOnSet(s snapshot.Set) error {
	for _, word := range []uint64{uint64(s.Iteration), ^uint64(s.Iteration)} { // the least, and the largest
		least, err := w.votes.leastValue(word)
		if err != nil {
			return err
		}
		if least != word {
			return fmt.Errorf(
				"%w: ranks see different ones, this one that of iteration %d; give all nodes the same folder",
				snapshot.ErrCheckpoint, s.Iteration,
			)
		}
	}
	return nil
}

// saveOnOrder carries out a checkpoint order behind iteration i.
func (w *worker) saveOnOrder(i int64, o falcon.Order) (status int32, why, err error) {
	why, err = w.saveCheckpoint(i, o.ID)
	if err != nil || why != nil {
		return adapter.NotWritten, why, err
	}
	if o.Leave {
		w.orders.end = EndCheckpointed
	}
	return adapter.Applied, nil, nil
}
