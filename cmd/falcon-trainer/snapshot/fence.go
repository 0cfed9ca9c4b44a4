package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrFenced is returned where processes of a newer generation own the folder: this one
// was left behind, and must not write to it any more.
var ErrFenced = errors.New("trainer: the checkpoint folder belongs to a newer generation")

// generationFile, in a checkpoint folder, holds the generation that owns it.
const generationFile = "generation"

// Claim makes the folder that of generation, and keeps all older ones from
// writing to it. The folder is made when it is absent.
func Claim(folder string, generation uint64) error {
	return Guarded(folder, generation, func() error { return nil })
}

// Guarded runs write unless the folder belongs to a newer generation; a claim
// waits until it is done. What was claimed by an older one is claimed again.
func Guarded(folder string, generation uint64, write func() error) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	lock, err := os.Open(folder)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	defer func() { _ = lock.Close() }() // and with it the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("%w folder can't be locked: %w", ErrCheckpoint, err)
	}
	owner, err := Owner(folder)
	switch {
	case err != nil:
		return err
	case owner > generation:
		return fmt.Errorf(
			"%w: %d, and this process is of %d; where no other job writes, start it with FALCON_GENERATION=%d",
			ErrFenced, owner, generation, owner,
		)
	case owner < generation:
		err = Replace(filepath.Join(folder, generationFile), []byte(strconv.FormatUint(generation, 10)+"\n"))
	}
	if err != nil {
		return err
	}
	return write()
}

// Owner is the generation that the folder belongs to; 0 when it is not claimed.
func Owner(folder string) (uint64, error) {
	b, err := os.ReadFile(filepath.Join(folder, generationFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	g, err := strconv.ParseUint(strings.TrimSuffix(string(b), "\n"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %s does not hold a generation; remove it if no job writes here",
			ErrCheckpoint, filepath.Join(folder, generationFile))
	}
	return g, nil
}
