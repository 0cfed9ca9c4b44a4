package agent

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/launch"
)

// exitWatch waits for one process's end by its pidfd. Its goroutine sleeps in
// the runtime's poller; Close ends it and waits.
type exitWatch struct {
	fd   *os.File
	gone chan struct{}
	done sync.WaitGroup
	mute bool // as a kernel that does not report how processes ended
}

// OldKernel has the agent do without what newer kernels have, in tests and labs.
type OldKernel struct {
	NoPidfd    bool // 5.3
	NoExitInfo bool // 6.15: how processes ended that are not the agent's own
}

// watchExit begins to watch, and calls ended at the end; the error is ESRCH
// where there is no such process. Kernels before 5.3 have no pidfd: there the
// process is looked at again and again.
func watchExit(pid int, ended func(), old OldKernel) (Exit, error) {
	fd := -1
	err := error(unix.ENOSYS)
	if !old.NoPidfd {
		fd, err = unix.PidfdOpen(pid, 0) // its own flag for not blocking is of 5.10
	}
	if errors.Is(err, unix.ENOSYS) {
		return newPolledExit(pid, ended)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, fmt.Errorf("agent: can't watch process %d: %w", pid, err)
	}
	w := &exitWatch{
		fd:   os.NewFile(uintptr(fd), "pidfd"),
		gone: make(chan struct{}),
		mute: old.NoExitInfo,
	}
	w.done.Go(func() { w.waitForExit(ended) })
	return w, nil
}

func (w *exitWatch) waitForExit(ended func()) {
	raw, err := w.fd.SyscallConn()
	if err != nil {
		return
	}
	err = raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		return err == nil && n == 1
	})
	if err == nil {
		close(w.gone)
		ended()
	}
}

func (w *exitWatch) Gone() <-chan struct{} { return w.gone }

func (w *exitWatch) Close() {
	_ = w.fd.Close()
	w.done.Wait()
}

// Signal reaches this very process, whatever has its number now.
func (w *exitWatch) Signal(sig unix.Signal) error {
	raw, err := w.fd.SyscallConn()
	if err != nil {
		return os.ErrProcessDone // closed
	}
	if failed := raw.Control(func(fd uintptr) {
		err = unix.PidfdSendSignal(int(fd), sig, nil, 0)
	}); failed != nil {
		return os.ErrProcessDone
	}
	return signalError(err)
}

func signalError(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// pidfdInfo is struct pidfd_info of linux/pidfd.h, first version (64 bytes).
type pidfdInfo struct {
	mask, cgroup             uint64
	pid, tgid, ppid          uint32
	ruid, rgid, euid, egid   uint32
	suid, sgid, fsuid, fsgid uint32
	exitCode                 int32
}

const (
	pidfdGetInfo  = 0xC040FF0B // _IOWR(0xFF, 11, struct pidfd_info)
	pidfdInfoExit = 1 << 3
)

// How asks the kernel (6.15 and later) how a process ended that is not the
// agent's child; it knows once the parent has collected it.
func (w *exitWatch) How() (string, bool) {
	if w.mute {
		return "", false
	}
	raw, err := w.fd.SyscallConn()
	if err != nil {
		return "", false
	}
	info := pidfdInfo{mask: pidfdInfoExit}
	var errno unix.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall(
			unix.SYS_IOCTL,
			fd,
			pidfdGetInfo,
			uintptr(unsafe.Pointer(&info)),
		)
	})
	if err != nil || errno != 0 || info.mask&pidfdInfoExit == 0 {
		return "", false
	}
	return launch.DescribeExit(unix.WaitStatus(info.exitCode)), true
}
