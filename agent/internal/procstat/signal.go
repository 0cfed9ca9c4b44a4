package procstat

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Runs reports whether the process with this number is the one that was started then, and has not ended.
func Runs(proc string, pid int, start uint64) bool {
	st, err := Read(proc, pid)
	return err == nil && st.Start == start && st.State != 'Z' && st.State != 'X'
}

// Signal sends a signal to the process with this number that was started then, and to none else: it
// is proven once a pidfd holds it. It reports whether the signal was sent, which it is to a zombie
// too: the group that it has led may live. A process that is gone is no error.
func Signal(proc string, pid int, start uint64, sig unix.Signal) (sent bool, err error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		defer unix.Close(fd)
	}
	if st, gone := Read(proc, pid); gone != nil || st.Start != start {
		return false, nil
	}
	switch {
	case err == nil:
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	case lacksPidfd(err):
		err = unix.Kill(pid, sig)
	}
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	return err == nil, err
}

// lacksPidfd reports whether the kernel has none (before Linux 5.3), or no descriptor is left for one.
func lacksPidfd(err error) bool {
	return errors.Is(err, unix.ENOSYS) ||
		errors.Is(err, unix.EMFILE) ||
		errors.Is(err, unix.ENFILE)
}
