package door

import "golang.org/x/sys/unix"

// Reserved is how many descriptors the network never takes: they are for the
// owner's socket, the journal, the console over SSH and the store.
const Reserved = 256

// descriptorsMost bounds what is planned with where the limit is beyond reason.
const descriptorsMost = 1 << 20

// descriptors is how many this process may have open. The runtime has lifted
// the limit as far as the process may.
func descriptors() int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 1024
	}
	return int(min(lim.Cur, descriptorsMost))
}
