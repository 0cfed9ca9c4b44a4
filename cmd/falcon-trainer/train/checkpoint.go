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
		return fmt.Errorf("%w: a checkpoint every %d iterations, or to resume from, in the folder %q; name one, and give no negative numbers",
			ErrConfig, c.Every, c.Folder)
	}
	return nil
}

// setFor is the set that this job would write at the boundary before iteration
// next.
func (w *worker) setFor(next int64) snapshot.Set {
	s := snapshot.Set{Iteration: next, Generation: w.generation, Layout: w.cfg.Layout}
	if w.optim.sharded() {
		s.Sharded, s.Instances = true, w.cfg.Instances
	}
	return s.In(w.cfg.Checkpoint.Folder)
}

// saveDue is the checkpoint at the end of iteration i that the configuration asks for.
func (w *worker) saveDue(i int64) error {
	why, err := w.save(i, 0)
	return errors.Join(err, why)
}

// save writes a checkpoint behind iteration i, for an order or for none (0).
// why says that some rank could not write its part: then the set does not
// count, on all ranks alike. err ends the run.
func (w *worker) save(i int64, order uint64) (why, err error) {
	began := time.Now()
	s := w.setFor(i + 1)
	if why = w.comms.unlocked(func() error { return snapshot.Claim(w.cfg.Checkpoint.Folder, w.generation) }); why == nil {
		_, why = w.capture(s.Iteration)
	}
	dumped := time.Now()
	if why == nil {
		why = w.comms.unlocked(func() error { return w.write(s.File(w.rank), began, dumped) })
	}
	s.FileBytes = int64(len(w.images.own))
	if why, err = w.votes.barrier(why); err != nil || why != nil {
		return why, err
	}
	if w.rank == 0 {
		why = w.comms.unlocked(func() error { return snapshot.Guarded(w.cfg.Checkpoint.Folder, w.generation, s.Complete) })
	}
	if order != 0 { // the others know of it before they say so
		why, err = w.votes.barrier(why)
	}
	if err != nil || why != nil {
		return why, err
	}
	if w.saved = s.Iteration; w.rank == 0 {
		snapshot.Prune(w.cfg.Checkpoint.Folder)
	}
	if w.rank == 0 || order != 0 {
		w.tellSaved()
	}
	return nil, w.cfg.Log.line(checkpointLine{
		Checkpoint: i, Rank: int(w.rank), Order: order, Resume: s.Iteration, File: s.File(w.rank), Bytes: len(w.images.own),
		Ms: ms(time.Since(began)), DumpMs: ms(dumped.Sub(began)), StoreMs: ms(time.Since(dumped)),
	})
}

// claim keeps processes of older generations, which may be alive somewhere, from
// writing checkpoints. Storage that fails otherwise is told when one is due.
func (w *worker) claim() error {
	if w.rank != 0 || w.cfg.Checkpoint.Folder == "" || w.generation == 0 {
		return nil
	}
	err := w.comms.unlocked(func() error { return snapshot.Claim(w.cfg.Checkpoint.Folder, w.generation) })
	if errors.Is(err, snapshot.ErrFenced) || errors.Is(err, ErrPeer) {
		return err
	}
	return nil
}

// tellSaved tells the hook of the newest checkpoint, once. All ranks may do so
// behind the next meeting of the world: rank 0 came to it, so the set counts.
func (w *worker) tellSaved() {
	if w.saved > 0 {
		w.hook.Checkpoint(w.saved)
		w.saved = 0
	}
}

// write puts the captured state on disk, no faster than the emulated storage.
func (w *worker) write(path string, began, dumped time.Time) error {
	err := snapshot.Replace(path, w.images.own)
	return errors.Join(err, w.comms.sleep(w.cfg.State.storing(len(w.images.own))-time.Since(dumped)), w.comms.sleep(w.cfg.Checkpoint.Least-time.Since(began)))
}

// resume goes on from the newest complete set. Any process may hold any rank.
// The replicas of plain data parallelism hold the same state, so their number
// may have changed; all else must be as it was.
func (w *worker) resume() error {
	began := time.Now()
	have := snapshot.Sets(w.cfg.Checkpoint.Folder)
	if len(have) == 0 {
		return fmt.Errorf("%w: no complete one in %q; start without --resume", snapshot.ErrCheckpoint, w.cfg.Checkpoint.Folder)
	}
	s := have[0]
	if err := w.cfg.resumable(s); err != nil {
		return err
	}
	at := w.at
	at.DP %= s.Layout.DP
	source := s.Layout.RankOf(at)
	w.images.reserve(w.q, w.optim)
	im, h := w.images.own, snapshot.Head{}
	err := w.comms.unlocked(func() (err error) {
		h, err = w.readImage(im, s, source)
		return errors.Join(err, w.comms.sleep(w.cfg.State.storing(len(im))-time.Since(began)))
	})
	loaded := time.Now()
	if err == nil {
		_, err = w.load(im, s.Iteration)
	}
	if err == nil {
		err = w.sameSet(s)
	}
	if err != nil {
		return err
	}
	w.base = cursor{s.Iteration, h.Consumed}
	w.hook.Checkpoint(s.Iteration)
	return w.cfg.Log.line(resumeLine{
		Resume: s.Iteration, Rank: int(w.rank), File: s.File(source), Bytes: len(im),
		LoadMs: ms(loaded.Sub(began)), RestoreMs: ms(time.Since(loaded)),
	})
}

// resumable reports why this job can't go on from s.
func (c Config) resumable(s snapshot.Set) error {
	a, b := s.Layout, c.Layout
	if a.TP != b.TP || a.PP != b.PP || s.Sharded != c.slices().Sharded() || s.Sharded && (a.DP != b.DP || s.Instances > 0 && s.Instances != c.Instances) {
		return fmt.Errorf("%w: the newest one was written by %v, which can't be split over %v; only the replicas of plain data parallelism can change in number",
			snapshot.ErrCheckpoint, a, b)
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
	want := w.head(rank, s.Iteration)
	want.Layout, want.Consumed, want.SHA256 = s.Layout, h.Consumed, h.SHA256
	if err == nil && h != want {
		err = fmt.Errorf("%w: it is of another job: %+v", snapshot.ErrImage, h)
	}
	if err != nil {
		return h, fmt.Errorf("%w %s: %w", snapshot.ErrCheckpoint, path, err)
	}
	return h, nil
}

// sameSet makes sure that no rank goes on from another iteration than the
// others: the folder may look different from another node.
func (w *worker) sameSet(s snapshot.Set) error {
	for _, word := range []uint64{uint64(s.Iteration), ^uint64(s.Iteration)} { // the least, and the largest
		least, err := w.votes.least(word)
		if err != nil {
			return err
		}
		if least != word {
			return fmt.Errorf("%w: ranks see different ones, this one that of iteration %d; give all nodes the same folder", snapshot.ErrCheckpoint, s.Iteration)
		}
	}
	return nil
}

// obey carries out a checkpoint order behind iteration i.
func (w *worker) obey(i int64, o falcon.Order) (status int32, why, err error) {
	why, err = w.save(i, o.ID)
	if err != nil || why != nil {
		return adapter.NotWritten, why, err
	}
	if o.Leave {
		w.orders.end = EndCheckpointed
	}
	return adapter.Applied, nil, nil
}
