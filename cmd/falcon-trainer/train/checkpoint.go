package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/adapter"
)

// ErrCheckpoint is wrapped by every failure to write or read a checkpoint.
var ErrCheckpoint = errors.New("trainer: checkpoint")

// setsKept is how many complete sets of files stay in the folder.
const setsKept = 2

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

// set is one checkpoint: the folder of the files of all ranks.
type set struct {
	folder     string
	Iteration  int64         `json:"iteration"`  // the next one to run
	Generation uint64        `json:"generation"` // of the processes that wrote it
	Layout     falcon.Layout `json:"layout"`
	Sharded    bool          `json:"sharded"`
	FileBytes  int64         `json:"file_bytes"` // of each
}

// manifest names the file that makes a set whole.
const manifest = "complete.json"

func (s set) file(r falcon.Rank) string {
	return filepath.Join(s.folder, fmt.Sprintf("rank-%05d.ckpt", r))
}

// setFor is the set that this job would write at the boundary before iteration
// next. No two launches of a job share one.
func (w *worker) setFor(next int64) set {
	return set{
		folder:    filepath.Join(w.cfg.Checkpoint.Folder, fmt.Sprintf("step-%012d-g%06d", next, w.cfg.Generation)),
		Iteration: next, Generation: w.cfg.Generation, Layout: w.cfg.Layout, Sharded: w.optim.sharded,
	}
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
	_, why = w.capture(&w.out, s.Iteration)
	dumped := time.Now()
	if why == nil {
		why = w.unlocked(func() error { return w.write(s.file(w.rank), began, dumped) })
	}
	s.FileBytes = int64(len(w.out))
	if why, err = w.all(why); err != nil || why != nil {
		return why, err
	}
	if w.rank == 0 {
		why = w.unlocked(s.complete)
	}
	if order != 0 { // the others know of it before they say so
		why, err = w.all(why)
	}
	if err != nil || why != nil {
		return why, err
	}
	if w.rank == 0 {
		prune(w.cfg.Checkpoint.Folder)
	}
	return nil, w.cfg.Log.line(checkpointLine{
		Checkpoint: i, Rank: int(w.rank), Order: order, Resume: s.Iteration, File: s.file(w.rank), Bytes: len(w.out),
		Ms: ms(time.Since(began)), DumpMs: ms(dumped.Sub(began)), StoreMs: ms(time.Since(dumped)),
	})
}

// write puts the captured state on disk, no faster than the emulated storage.
func (w *worker) write(path string, began, dumped time.Time) error {
	err := replaceFile(path, w.out)
	return errors.Join(err, w.nap(w.cfg.State.storing(len(w.out))-time.Since(dumped)), w.nap(w.cfg.Checkpoint.Least-time.Since(began)))
}

// complete makes the set count: all its files are on disk.
func (s set) complete() error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	return replaceFile(filepath.Join(s.folder, manifest), append(b, '\n'))
}

// replaceFile leaves the old file or the new one, whole, and on disk.
func replaceFile(path string, data []byte) error {
	tmp, dir := path+".new", filepath.Dir(path)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = writeSynced(tmp, data)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		err = errors.Join(syncFolder(dir), syncFolder(filepath.Dir(dir)))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w can't be written: %w", ErrCheckpoint, err), os.RemoveAll(tmp))
	}
	return nil
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncFolder makes the names in a folder last, as fsync of a file does not.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// sets lists the complete sets in a folder, the newest first. What is not
// whole, or can't be read, is not a set.
func sets(folder string) []set {
	found, _ := filepath.Glob(filepath.Join(folder, "step-*", manifest)) // fails for a bad pattern only
	var out []set
	for _, path := range found {
		s := set{folder: filepath.Dir(path)}
		b, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(b, &s) == nil && s.whole() {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b set) int {
		if a.Iteration != b.Iteration {
			return int(max(-1, min(1, b.Iteration-a.Iteration)))
		}
		return int(int64(b.Generation) - int64(a.Generation))
	})
	return out
}

// whole says that the files which the manifest speaks of are there.
func (s set) whole() bool {
	if l := s.Layout; l.Validate() != nil || max(l.TP, l.DP, l.PP) > worldMax || l.World() > worldMax {
		return false
	}
	for r := range s.Layout.World() {
		if info, err := os.Stat(s.file(falcon.Rank(r))); err != nil || info.Size() != s.FileBytes {
			return false
		}
	}
	return true
}

// worldMax bounds what a manifest may claim.
const worldMax = 1 << 16

// prune removes all but the newest sets. What can't be removed stays: it harms
// nobody.
func prune(folder string) {
	for i, s := range sets(folder) {
		if i >= setsKept {
			_ = os.Remove(filepath.Join(s.folder, manifest)) // first: half a set must not count
			_ = os.RemoveAll(s.folder)
		}
	}
}

// resume goes on from the newest complete set. Any process may hold any rank.
// The replicas of plain data parallelism hold the same state, so their number
// may have changed; all else must be as it was.
func (w *worker) resume() error {
	began := time.Now()
	have := sets(w.cfg.Checkpoint.Folder)
	if len(have) == 0 {
		return fmt.Errorf("%w: no complete one in %q; start without --resume", ErrCheckpoint, w.cfg.Checkpoint.Folder)
	}
	s := have[0]
	if err := w.cfg.resumable(s); err != nil {
		return err
	}
	at := w.at
	at.DP %= s.Layout.DP
	source := s.Layout.RankOf(at)
	im, h := newImage(w.q, w.optim), imageHead{}
	err := w.unlocked(func() (err error) {
		h, err = w.readImage(im, s, source)
		return errors.Join(err, w.nap(w.cfg.State.storing(len(im))-time.Since(began)))
	})
	loaded := time.Now()
	if err == nil {
		_, err = w.load(im)
	}
	if err == nil {
		err = w.sameSet(s)
	}
	if err != nil {
		return err
	}
	w.base = cursor{s.Iteration, h.Consumed}
	return w.cfg.Log.line(resumeLine{
		Resume: s.Iteration, Rank: int(w.rank), File: s.file(source), Bytes: len(im),
		LoadMs: ms(loaded.Sub(began)), RestoreMs: ms(time.Since(loaded)),
	})
}

// resumable reports why this job can't go on from s.
func (c Config) resumable(s set) error {
	a, b := s.Layout, c.Layout
	if a.TP != b.TP || a.PP != b.PP || s.Sharded != (c.Sharded && b.DP > 1) || s.Sharded && a.DP != b.DP {
		return fmt.Errorf("%w: the newest one was written by %v, which can't be split over %v; only the replicas of plain data parallelism can change in number",
			ErrCheckpoint, a, b)
	}
	return nil
}

// readImage reads into im, and checks, the state that rank had when it wrote s.
func (w *worker) readImage(im image, s set, rank falcon.Rank) (imageHead, error) {
	path := s.file(rank)
	b, err := os.ReadFile(path)
	if err == nil && len(b) != len(im) {
		err = fmt.Errorf("%w: %d bytes, this model has %d", errImage, len(b), len(im))
	}
	if err != nil {
		return imageHead{}, fmt.Errorf("%w %s can't be read: %w", ErrCheckpoint, path, err)
	}
	copy(im, b)
	h, err := im.open()
	want := w.head(rank, s.Iteration)
	want.Layout, want.Consumed, want.SHA256 = s.Layout, h.Consumed, h.SHA256
	if err == nil && h != want {
		err = fmt.Errorf("%w: it is of another job: %+v", errImage, h)
	}
	if err != nil {
		return h, fmt.Errorf("%w %s: %w", ErrCheckpoint, path, err)
	}
	return h, nil
}

// sameSet makes sure that no rank goes on from another iteration than the
// others: the folder may look different from another node.
func (w *worker) sameSet(s set) error {
	for _, word := range []uint64{uint64(s.Iteration), ^uint64(s.Iteration)} { // the least, and the largest
		least, err := w.least(word)
		if err != nil {
			return err
		}
		if least != word {
			return fmt.Errorf("%w: ranks see different ones, this one that of iteration %d; give all nodes the same folder", ErrCheckpoint, s.Iteration)
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
