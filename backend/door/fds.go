package door

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Reserved is how many descriptors the network never takes: they are for the
// owner's socket, the journal, the console over SSH and the store.
const Reserved = 256

// RaiseDescriptors lifts the limit of open descriptors as far as this process
// may, and returns it.
func RaiseDescriptors() (int, error) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 0, fmt.Errorf("door: read the limit of open descriptors: %w", err)
	}
	if lim.Cur < lim.Max {
		raised := unix.Rlimit{Cur: lim.Max, Max: lim.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &raised); err == nil {
			lim = raised
		}
	}
	return int(min(lim.Cur, 1<<20)), nil
}

// descriptors is the present limit.
func descriptors() int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 1024
	}
	return int(min(lim.Cur, 1<<20))
}
