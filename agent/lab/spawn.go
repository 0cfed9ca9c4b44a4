package lab

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// labNice is the niceness of a lab's processes; without the right to it they
// stay ordinary.
const labNice = -10

// spawner starts processes from one OS thread that lives as long as the lab:
// the kernel's parent-death signal is tied to the thread that forked, so that
// a killed lab takes all its processes with it.
type spawner struct {
	work chan func()
	done chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), done: make(chan struct{})}
	go s.runThread()
	return s
}

func (s *spawner) runThread() {
	runtime.LockOSThread() // never unlocked: the thread must outlive its children
	// Children inherit the thread's niceness. Where permitted, a lab goes before
	// ordinary work on the machine, so that a build beside it is no slow node.
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), labNice)
	defer close(s.done)
	for f := range s.work {
		f()
	}
}

// startCommand runs cmd.Start on the spawning thread. pgid 0 makes a new process
// group, a positive one joins it, a negative one leaves the group alone.
func (s *spawner) startCommand(cmd *exec.Cmd, pgid int) error {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if pgid >= 0 {
		attr.Setpgid, attr.Pgid = true, pgid
	}
	cmd.SysProcAttr = attr
	result := make(chan error, 1)
	s.work <- func() { result <- cmd.Start() }
	return <-result
}

// stopThread ends the thread; only after all children have been waited for.
func (s *spawner) stopThread() {
	close(s.work)
	<-s.done
}
