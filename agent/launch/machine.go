package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/internal/procstat"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of what is read of /proc.
const (
	pidMax       = 1 << 22 // the kernel's PID_MAX_LIMIT
	environMax   = 2 << 20
	processesMax = 1 << 16
)

// Spec is one process to be started.
type Spec struct {
	Argv, Env []string
	Dir       string
	Log       string   // file that output and errors are appended to
	Line      *os.File // the next open file of the process, nil = none
}

// System is what a Launcher asks of the machine.
type System interface {
	// Start starts a process that leads a session of its own.
	Start(s Spec) (Proc, error)
	// Ended collects a process that has ended; how is empty where the kernel
	// does not report it, as of one that an earlier agent started.
	Ended(p Proc) (how string, ended bool)
	// Kill ends a process and its group.
	Kill(p Proc)
	// Place names where the numbers of processes count: the machine's boot and the PID
	// namespace.
	Place() string
	// Find looks for a session's leader with this assignment in its environment.
	Find(assignment string) (Proc, bool)
}

// machine is the real System.
type machine struct{ proc string }

func (m machine) Start(s Spec) (Proc, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return Proc{}, err
	}
	defer null.Close()
	log, err := openLog(s.Log)
	if err != nil { // what it prints is lost, and the job goes on
		log, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	if err != nil {
		return Proc{}, err
	}
	defer log.Close()
	files := []*os.File{null, log, log}
	if s.Line != nil {
		files = append(files, s.Line)
	}
	started, err := os.StartProcess(s.Argv[0], s.Argv, &os.ProcAttr{
		Dir:   s.Dir,
		Env:   s.Env,
		Files: files,
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return Proc{}, err
	}
	p := Proc{PID: started.Pid}
	_ = started.Release() // collected by number: an earlier agent's processes are no children of this one
	st, err := procstat.Read(m.proc, p.PID)
	if err != nil {
		_ = unix.Kill(-p.PID, unix.SIGKILL)
		return Proc{}, fmt.Errorf("process %d can't be looked at: %w", p.PID, err)
	}
	p.Start = st.Start
	return p, nil
}

// openLog opens what a process prints into: a regular file, or none at all. It waits for nobody.
func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(
		path,
		os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK,
		0o600,
	)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() && path != os.DevNull {
		f.Close()
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	return f, nil
}

func (m machine) Ended(p Proc) (string, bool) {
	var status unix.WaitStatus
	got, err := unix.Wait4(p.PID, &status, unix.WNOHANG, nil)
	switch {
	case err == nil && got == p.PID:
		return DescribeExit(status), true
	case err == nil || errors.Is(err, unix.EINTR):
		return "", false
	}
	return "", !procstat.Runs(m.proc, p.PID, p.Start) // no child of this agent
}

// Kill ends this very process, and then its group, which keeps the number while any of its members lives.
func (m machine) Kill(p Proc) {
	if sent, _ := procstat.Signal(m.proc, p.PID, p.Start, unix.SIGKILL); sent {
		_ = unix.Kill(-p.PID, unix.SIGKILL) // gone already is as good
	}
}

func (m machine) Place() string {
	boot, _ := os.ReadFile(filepath.Join(m.proc, "sys/kernel/random/boot_id"))
	namespace, _ := os.Readlink(filepath.Join(m.proc, "self/ns/pid"))
	return strings.TrimSpace(string(boot)) + " " + namespace
}

func (m machine) Find(assignment string) (Proc, bool) {
	dir, err := os.Open(m.proc)
	if err != nil {
		return Proc{}, false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(processesMax)
	var found Proc
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		st, err := procstat.Read(m.proc, pid)
		if err != nil ||
			st.Session != pid ||
			st.State == 'Z' ||
			!m.hasVariable(pid, assignment) {
			continue
		}
		if found.PID == 0 || st.Start < found.Start { // the eldest: its children inherit the mark
			found = Proc{PID: pid, Start: st.Start}
		}
	}
	return found, found.PID != 0
}

func (m machine) hasVariable(pid int, assignment string) bool {
	f, err := os.Open(filepath.Join(m.proc, strconv.Itoa(pid), "environ"))
	if err != nil {
		return false
	}
	defer f.Close()
	env, _ := io.ReadAll(io.LimitReader(f, environMax))
	return slices.Contains(strings.Split(string(env), "\x00"), assignment)
}

// DescribeExit describes how a process ended, for people.
func DescribeExit(s unix.WaitStatus) string {
	switch {
	case s.Signaled():
		return falconv1.ExitSignal(int(s.Signal()), unix.SignalName(s.Signal()))
	case s.Exited():
		return falconv1.ExitStatus(s.ExitStatus())
	}
	return fmt.Sprintf("ended with wait status %#x", uint32(s))
}
