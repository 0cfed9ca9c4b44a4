// Package elastic finds the elastic agent above a training process: torchrun and its kin, which start their
// workers again when one has ended.
//
// It guarantees that what it returns is an elastic agent of the worker's user and no process that this one
// descends from, and that a signal reaches that process or none. It holds no state, and must not decide
// whether, or when, one is ended.
package elastic

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/internal/procstat"
)

// ErrUnproven is wrapped where it is not proven which process would start a worker again.
var ErrUnproven = errors.New("not known to be an elastic agent")

// Bounds of what is read of /proc.
const (
	fileMost      = 2 << 20
	ancestorsMost = 64
	processesMost = 1 << 16
)

// workerVariable is in the environment of every worker, and of what a worker has started.
const workerVariable = "TORCHELASTIC_RUN_ID="

// programs and modules are elastic agents.
var (
	programs = []string{"torchrun", "accelerate", "accelerate-launch"}
	modules  = []string{"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}
)

// Process is a process for certain: numbers are used again, but not at one start.
type Process struct {
	PID   int
	Start uint64 // clock ticks since boot
}

// System looks at processes below a mount of /proc.
type System struct{ Proc string }

// Above is the elastic agent above a worker; PID 0 where it has ended. parent is the worker's
// parent when it began, by the number in its own namespace, 0 = not known. Where the error is
// ErrUnproven the process is the one in doubt.
func (s System) Above(worker, parent int) (Process, error) {
	at, err := procstat.Read(s.Proc, worker)
	if err != nil {
		return Process{}, fmt.Errorf("elastic: process %d: %w", worker, err)
	}
	if parent > 0 && !s.hasNumber(at.Parent, parent) {
		return Process{}, nil // it was given to another parent
	}
	for pid, up := at.Parent, 0; pid > 1 && up < ancestorsMost; up++ {
		st, err := procstat.Read(s.Proc, pid)
		if err != nil {
			return Process{}, nil
		}
		found := Process{PID: pid, Start: st.Start}
		if s.isAgent(pid) {
			return found, s.check(found, worker)
		}
		if !s.isWorker(pid) {
			return found, fmt.Errorf("%w: process %d (%s)", ErrUnproven, pid, s.nameOf(pid))
		}
		pid = st.Parent
	}
	return Process{}, nil
}

// check is why an elastic agent is not to be ended.
func (s System) check(found Process, worker int) error {
	theirs, err1 := s.userOf(worker)
	its, err2 := s.userOf(found.PID)
	if err := errors.Join(err1, err2); err != nil || theirs != its {
		return fmt.Errorf("%w of the user of process %d: process %d", ErrUnproven, worker, found.PID)
	}
	for pid, up := os.Getpid(), 0; pid > 1 && up < ancestorsMost; up++ {
		if pid == found.PID {
			return fmt.Errorf("%w of its own: falcon-agent runs below process %d", ErrUnproven, pid)
		}
		st, err := procstat.Read(s.Proc, pid)
		if err != nil {
			break
		}
		pid = st.Parent
	}
	return nil
}

// Runs reports whether it has not ended.
func (s System) Runs(p Process) bool {
	return procstat.Runs(s.Proc, p.PID, p.Start)
}

// Signal reaches this very process; one that has ended is no error.
func (s System) Signal(p Process, sig unix.Signal) error {
	if _, err := procstat.Signal(s.Proc, p.PID, p.Start, sig); err != nil {
		return fmt.Errorf("elastic: process %d can't be ended: %w; run falcon-agent as the job's user",
			p.PID, err)
	}
	return nil
}

// Below is what a process has started, and what that has, parents first.
func (s System) Below(p Process) []Process {
	dir, err := os.Open(s.Proc)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(processesMost)
	children := map[int][]Process{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if st, err := procstat.Read(s.Proc, pid); err == nil {
			children[st.Parent] = append(children[st.Parent], Process{
				PID:   pid,
				Start: st.Start,
			})
		}
	}
	var out []Process
	for next := children[p.PID]; len(next) > 0; {
		var below []Process
		for _, c := range next {
			out = append(out, c)
			below = append(below, children[c.PID]...)
		}
		next = below
	}
	return out
}

// isAgent reports whether a process runs one of the programs, or an interpreter runs one of
// them or of the modules.
func (s System) isAgent(pid int) bool {
	args := strings.Split(string(s.read(pid, "cmdline")), "\x00")
	for i, arg := range args {
		switch {
		case i > 0 && arg == "-m" && i+1 < len(args):
			return slices.Contains(modules, args[i+1])
		case i > 0 && strings.HasPrefix(arg, "-"):
			continue
		case slices.Contains(programs, filepath.Base(arg)):
			return true
		case i > 0:
			return false
		}
	}
	return false
}

// isWorker reports whether a process stands between a worker and its agent, as a shell that starts it does.
func (s System) isWorker(pid int) bool {
	return slices.ContainsFunc(bytes.Split(s.read(pid, "environ"), []byte{0}), func(v []byte) bool {
		return bytes.HasPrefix(v, []byte(workerVariable))
	})
}

// hasNumber reports whether a process is the one with a number in its own namespace.
func (s System) hasNumber(pid, number int) bool {
	st, err := procstat.ReadStatus(s.Proc, pid)
	return err == nil && slices.Contains(st.Numbers, number)
}

// userOf is the real user of a process.
func (s System) userOf(pid int) (uint32, error) {
	st, err := procstat.ReadStatus(s.Proc, pid)
	if err != nil {
		return 0, err
	}
	return st.Users[0], nil
}

func (s System) nameOf(pid int) string {
	return strings.TrimSpace(string(s.read(pid, "comm")))
}

// read is a file of a process, empty where it can't be read.
func (s System) read(pid int, name string) []byte {
	f, err := os.Open(filepath.Join(s.Proc, strconv.Itoa(pid), name))
	if err != nil {
		return nil
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, fileMost))
	return text
}
