package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of what is read of /proc.
const (
	pidMax        = 1 << 22 // the kernel's PID_MAX_LIMIT
	environMax    = 2 << 20
	processesMax  = 1 << 16
	statBytesMax  = 4096
	statSession   = 3  // fields behind the name: state, ppid, pgrp, session
	statStartTime = 19 // clock ticks since boot
)

// Spec is one process to be started.
type Spec struct {
	Argv, Env []string
	Dir       string
	Log       string // file that output and errors are appended to
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
	log, err := os.OpenFile(s.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return Proc{}, fmt.Errorf("%w (launch.log_dir must exist)", err)
	}
	defer log.Close()
	started, err := os.StartProcess(s.Argv[0], s.Argv, &os.ProcAttr{
		Dir: s.Dir, Env: s.Env, Files: []*os.File{null, log, log}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return Proc{}, err
	}
	p := Proc{PID: started.Pid}
	_ = started.Release() // collected by number: an earlier agent's processes are no children of this one
	st, err := m.readStat(p.PID)
	if err != nil {
		_ = unix.Kill(-p.PID, unix.SIGKILL)
		return Proc{}, fmt.Errorf("process %d can't be looked at: %w", p.PID, err)
	}
	p.Start = st.start
	return p, nil
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
	return "", !m.isRunning(p) // no child of this agent
}

func (m machine) isRunning(p Proc) bool {
	st, err := m.readStat(p.PID)
	return err == nil && st.start == p.Start && st.state != 'Z'
}

func (m machine) Kill(p Proc) {
	if st, err := m.readStat(p.PID); err == nil && st.start == p.Start {
		_ = unix.Kill(-p.PID, unix.SIGKILL) // the group that it leads; gone already is as good
	}
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
		st, err := m.readStat(pid)
		if err != nil || st.session != pid || st.state == 'Z' || !m.hasVariable(pid, assignment) {
			continue
		}
		if found.PID == 0 || st.start < found.Start { // the eldest: its children inherit the mark
			found = Proc{PID: pid, Start: st.start}
		}
	}
	return found, found.PID != 0
}

func (m machine) hasVariable(pid int, assignment string) bool {
	env := m.readProcFile(pid, "environ", environMax)
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if string(kv) == assignment {
			return true
		}
	}
	return false
}

type stat struct {
	state   byte
	session int
	start   uint64
}

var errStat = errors.New("launch: /proc/PID/stat does not look as documented")

func (m machine) readStat(pid int) (stat, error) {
	text := m.readProcFile(pid, "stat", statBytesMax)
	i := bytes.LastIndexByte(text, ')')
	fields := bytes.Fields(text[i+1:])
	if i < 0 || len(fields) <= statStartTime || len(fields[0]) != 1 {
		return stat{}, errStat
	}
	session, err := strconv.Atoi(string(fields[statSession]))
	start, err2 := strconv.ParseUint(string(fields[statStartTime]), 10, 64)
	if errors.Join(err, err2) != nil {
		return stat{}, errStat
	}
	return stat{state: fields[0][0], session: session, start: start}, nil
}

// readProcFile is the head of one process's file, nil where there is none.
func (m machine) readProcFile(pid int, file string, most int64) []byte {
	f, err := os.Open(filepath.Join(m.proc, strconv.Itoa(pid), file))
	if err != nil {
		return nil
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, most))
	return text
}

// DescribeExit describes how a process ended, for people.
func DescribeExit(s unix.WaitStatus) string {
	switch {
	case s.Signaled():
		return fmt.Sprintf("killed by signal %d (%s)", s.Signal(), unix.SignalName(s.Signal()))
	case s.Exited() && s.ExitStatus() == 0:
		return falconv1.ExitedNormally
	case s.Exited():
		return fmt.Sprintf("exited with status %d", s.ExitStatus())
	}
	return fmt.Sprintf("ended with wait status %#x", uint32(s))
}
