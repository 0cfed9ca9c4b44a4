package snapshot

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/failslow/falcon"
)

// ErrCheckpoint is wrapped by every failure to write or read a checkpoint.
var ErrCheckpoint = errors.New("trainer: checkpoint")

// setsKept is how many complete sets of files stay in the folder.
const setsKept = 2

// Set is one checkpoint: the folder of the files of all ranks.
type Set struct {
	folder     string
	Iteration  int64         `json:"iteration"`  // the next one to run
	Generation uint64        `json:"generation"` // of the processes that wrote it
	Layout     falcon.Layout `json:"layout"`
	Sharded    bool          `json:"sharded"`
	Instances  int           `json:"instances,omitempty"` // of a sharded optimizer
	FileBytes  int64         `json:"file_bytes"`          // of each
}

// manifest names the file that makes a set whole.
const manifest = "complete.json"

// In places the set under folder: no two launches of a job share one.
func (s Set) In(folder string) Set {
	s.folder = filepath.Join(folder, fmt.Sprintf("step-%012d-g%06d", s.Iteration, s.Generation))
	return s
}

// File is where rank's image lies.
func (s Set) File(r falcon.Rank) string {
	return filepath.Join(s.folder, fmt.Sprintf("rank-%05d.ckpt", r))
}

// Complete makes the set count: all its files are on disk.
func (s Set) Complete() error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	return Replace(filepath.Join(s.folder, manifest), append(b, '\n'))
}

// Replace leaves the old file or the new one, whole, and on disk.
func Replace(path string, data []byte) error {
	tmp := path + ".new"
	dir := filepath.Dir(path)
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

// Sets lists the complete sets in a folder, the newest first. What is not
// whole, or can't be read, is not a set.
func Sets(folder string) []Set {
	found, _ := os.ReadDir(folder) // what can be listed counts
	var out []Set
	for _, e := range found {
		s := Set{folder: filepath.Join(folder, e.Name())}
		b, err := os.ReadFile(filepath.Join(s.folder, manifest))
		if err == nil && json.Unmarshal(b, &s) == nil && s.allFilesPresent() {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Set) int {
		return cmp.Or(cmp.Compare(b.Iteration, a.Iteration), cmp.Compare(b.Generation, a.Generation))
	})
	return out
}

// allFilesPresent reports whether the files which the manifest speaks of are there.
func (s Set) allFilesPresent() bool {
	l := s.Layout
	if s.Iteration < 1 ||
		l.Validate() != nil ||
		max(l.TP, l.DP, l.PP) > worldMax ||
		l.World() > worldMax {
		return false
	}
	for r := range s.Layout.World() {
		info, err := os.Stat(s.File(falcon.Rank(r)))
		if err != nil || info.Size() != s.FileBytes {
			return false
		}
	}
	return true
}

// worldMax bounds what a manifest may claim.
const worldMax = 1 << 16

// Prune removes all but the newest sets. What can't be removed stays: it harms
// nobody.
func Prune(folder string) {
	for i, s := range Sets(folder) {
		if i >= setsKept {
			_ = os.Remove(filepath.Join(s.folder, manifest)) // first: half a set must not count
			_ = os.RemoveAll(s.folder)
		}
	}
}
