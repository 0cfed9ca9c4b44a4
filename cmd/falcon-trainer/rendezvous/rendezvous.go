// Package rendezvous passes small secrets (NCCL's unique ids) between the
// ranks of one run through files in a folder.
//
// It guarantees that a reader sees a whole entry or none, that an entry is
// written once (a folder of an earlier run is refused, never half reused), and
// that waiting ends at the context's deadline. It starts no goroutines.
package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Errors of the rendezvous.
var (
	ErrUsed    = errors.New("trainer: rendezvous folder was used before")
	ErrAbsent  = errors.New("trainer: a peer did not come to the rendezvous")
	ErrCorrupt = errors.New("trainer: bad rendezvous entry")
)

// PollEvery is how often a waiting rank polls.
const PollEvery = 5 * time.Millisecond

// Folder is the meeting place of one run.
type Folder string

// Publish writes the entry called name, readable by this user alone. The
// folder is made when it is absent.
func (f Folder) Publish(name string, data []byte) error {
	if err := os.Mkdir(string(f), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("trainer: rendezvous folder: %w", err)
	}
	tmp, err := os.CreateTemp(string(f), "."+name+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("trainer: rendezvous folder can't be written: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return fmt.Errorf("trainer: rendezvous entry %s: %w", name, err)
	}
	// A link, unlike a rename, never replaces what an earlier run left.
	err = os.Link(tmp.Name(), filepath.Join(string(f), name))
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %q already holds %s; give each run an empty folder", ErrUsed, string(f), name)
	}
	return err
}

// Decide makes word the decision called name, unless there is one already; either way
// it returns the one that holds, the same for all who
// ask. So ranks agree even if some of them die between a vote and its end.
func (f Folder) Decide(name, word string) (string, error) {
	err := f.Publish(name, []byte(word))
	if !errors.Is(err, ErrUsed) {
		return word, err
	}
	stands, err := os.ReadFile(filepath.Join(string(f), name))
	if err != nil {
		return "", fmt.Errorf("trainer: rendezvous: decision %s: %w", name, err)
	}
	return string(stands), nil
}

// Withdraw removes the entry called name, once all who needed it have met.
func (f Folder) Withdraw(name string) error {
	if err := os.Remove(filepath.Join(string(f), name)); err != nil {
		return fmt.Errorf("trainer: rendezvous: %w", err)
	}
	return nil
}

// Await waits for the entry called name, which must have size bytes.
func (f Folder) Await(ctx context.Context, name string, size int) ([]byte, error) {
	tick := time.NewTicker(PollEvery)
	defer tick.Stop()
	for {
		data, err := f.Look(name, size)
		if data != nil || err != nil {
			return data, err
		}
		select {
		case <-ctx.Done():
			return nil, f.Absent(name)
		case <-tick.C:
		}
	}
}

// Look reads the entry called name, which must have size bytes, at least one;
// nil while it is not there.
func (f Folder) Look(name string, size int) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(string(f), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("trainer: rendezvous: %w", err)
	}
	return data, checkSize(f, name, len(data), size)
}

// Absent is the error of a name that did not come in time.
func (f Folder) Absent(name string) error {
	return fmt.Errorf("%w: %s never appeared in %q; check that all ranks were started with this folder",
		ErrAbsent, name, string(f))
}

func checkSize(f Folder, name string, got, want int) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("%w: %s in %q has %d bytes, not %d", ErrCorrupt, name, string(f), got, want)
}
