package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/failslow/falcon/agent/internal/ownfile"
	"github.com/failslow/falcon/agent/ring"
	"github.com/failslow/falcon/agent/table"
)

// fileKind begins the name of a file that one life of an agent leaves to the next; the
// name goes on with job and node, as several may share a folder.
type fileKind string

const (
	launchFile   fileKind = "falcon-launch"   // what this node has started last
	followedFile fileKind = "falcon-agent"    // processes followed, and ends not acknowledged
	handoverFile fileKind = "falcon-handover" // what an agent that stops hands over
	outputsFile  fileKind = "falcon-said"     // where the outputs of processes go
)

// fileKinds are all kinds: what is not here is not looked after at the start.
var fileKinds = []fileKind{launchFile, followedFile, handoverFile, outputsFile}

func (k fileKind) nameFor(job, node string) string {
	return string(k) + "." + ring.FileJob(job) + "." + ring.FileJob(node)
}

// SharedNames are the names that an agent has used in shm_dir itself, of this release and
// earlier ones.
func SharedNames(job, node string) []string {
	names := []string{ownfile.FolderName(os.Geteuid())}
	for _, k := range fileKinds {
		names = append(names,
			k.nameFor(job, node),
			k.nameFor(job, node)+ownfile.NextSuffix,
		)
	}
	return names
}

// Folder is where an agent keeps files of its own.
type Folder struct {
	shared, path string
	job, node    string
}

// OpenFolder makes the folder for an agent's own files, below shm_dir or that itself, and
// looks at the place of every file that the agent will write. What others have put there
// is removed and logged; what can't be removed is an error with a remedy: it would be
// found in the midst of a recovery.
func OpenFolder(cfg Config, log *slog.Logger) (*Folder, error) {
	f := &Folder{shared: cfg.ShmDir, job: cfg.Job, node: cfg.Node}
	removed, err := f.claim()
	for _, what := range removed {
		log.Warn("shm_dir was put right", slog.String("what", what))
	}
	if err != nil {
		return nil, fmt.Errorf("agent: shm_dir: %w", err)
	}
	for _, k := range fileKinds {
		if err := f.adoptOlder(k, log); err != nil {
			return nil, err
		}
	}
	freeUsers(cfg.ShmDir, log)
	if err := checkRankTable(cfg.RankTable); err != nil {
		return nil, fmt.Errorf("agent: rank_table: %w", err)
	}
	return f, nil
}

// freeUsers names what stands where the hooks of users would have their folders, and
// removes it where it may and no file of a hook lies there.
func freeUsers(shared string, log *slog.Logger) {
	_, taken, _ := ring.Folders(shared) // a folder that can't be listed is logged by the first scan
	for _, t := range taken {
		removed := t.Free && os.Geteuid() == 0 && ownfile.Clear(t.Path) == nil
		log.Warn(
			"shm_dir: a user's folder",
			slog.String("what", t.Text),
			slog.Bool("removed", removed),
		)
	}
}

// claim makes the folder, also after somebody has removed it, and clears the places of its files.
func (f *Folder) claim() (removed []string, err error) {
	if f.path, removed, err = ownfile.Claim(f.shared); err != nil {
		return removed, err
	}
	for _, path := range f.places() {
		what, err := ownfile.ClearPlace(path)
		if err != nil {
			return removed, err
		}
		if what != "" {
			removed = append(removed, what)
		}
	}
	return removed, nil
}

// places are the paths that the agent writes in its folder.
func (f *Folder) places() (paths []string) {
	for _, k := range fileKinds {
		paths = append(paths, f.file(k), f.file(k)+ownfile.NextSuffix)
	}
	return paths
}

func (f *Folder) file(k fileKind) string {
	return filepath.Join(f.path, k.nameFor(f.job, f.node))
}

// adoptOlder moves a file here that an agent of an earlier release has left in shm_dir itself.
// One that is not this user's alone stays there, unused.
func (f *Folder) adoptOlder(k fileKind, log *slog.Logger) error {
	old := filepath.Join(f.shared, k.nameFor(f.job, f.node))
	now := f.file(k)
	if old == now {
		return nil
	}
	_, err := ownfile.Read(old, 1<<40)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		log.Warn("left a file alone that is in no use", slog.Any("err", err))
		return nil
	}
	if _, err := os.Lstat(now); err == nil {
		return os.Remove(old) // of before this agent's own folder
	}
	if err := os.Rename(old, now); err != nil {
		return fmt.Errorf(
			"agent: what the agent before has left can't be taken into its folder: %w; move it by hand",
			err,
		)
	}
	return nil
}

// keep makes the folder again where somebody has removed it, or returns why not.
func (f *Folder) keep() (removed []string, err error) {
	if ownfile.IsOwnFolder(f.path) {
		return nil, nil
	}
	removed, err = f.claim()
	return append(removed, f.path+" was missing and was made again: what it held is lost"), err
}

// checkRankTable looks at the places of the rank table's files. They lie where the operator
// has named them: nothing is removed there.
func checkRankTable(path string) error {
	if path == "" {
		return nil
	}
	for _, p := range table.Places(path) {
		if err := ownfile.CheckPlace(p); err != nil {
			return err
		}
	}
	return nil
}
