package elastic

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// made is a process of a folder that looks as /proc does.
type made struct {
	pid, parent int
	args        string
	worker      bool
}

func fakeProc(t *testing.T, all ...made) System {
	t.Helper()
	proc := t.TempDir()
	for _, m := range all {
		dir := filepath.Join(proc, strconv.Itoa(m.pid))
		environ := "PATH=/bin\x00"
		if m.worker {
			environ += "TORCHELASTIC_RUN_ID=none\x00"
		}
		stat := strconv.Itoa(m.pid) +
			" (a) S " +
			strconv.Itoa(m.parent) +
			" 2 77 0 -1 0 0 0 0 0 0 0 0 0 20 0 5 0 " +
			strconv.Itoa(1000+m.pid) +
			" 0 0\n"
		for name, text := range map[string]string{
			"stat":    stat,
			"cmdline": strings.ReplaceAll(m.args, " ", "\x00") + "\x00",
			"environ": environ,
			"comm":    "a\n",
			"status":  "Name:\ta\nUid:\t5\t5\t5\t5\nNSpid:\t" + strconv.Itoa(m.pid) + "\n",
		} {
			if err := errors.Join(
				os.MkdirAll(dir, 0o700),
				os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600),
			); err != nil {
				t.Fatal(err)
			}
		}
	}
	return System{Proc: proc}
}

// The agent is found above the worker's own shell, and nothing else is taken for one: who ends a
// process that is none ends what it does not know.
func TestAbove(t *testing.T) {
	worker := made{40, 30, "python train.py", true}
	for name, c := range map[string]struct {
		all      []made
		parent   int
		want     int
		unproven bool
	}{
		"torchrun": {
			[]made{worker, {30, 20, "/usr/bin/python3 /usr/bin/torchrun --max-restarts 2 train.py", false}},
			30,
			30,
			false,
		},
		"its module": {
			[]made{worker, {30, 20, "python -u -m torch.distributed.run train.py", false}},
			30,
			30,
			false,
		},
		"accelerate": {
			[]made{worker, {30, 20, "python /opt/accelerate launch train.py", false}},
			30,
			30,
			false,
		},
		"above a shell": {
			[]made{worker, {30, 25, "bash -c python", true}, {25, 20, "python torchrun train.py", false}},
			30,
			25,
			false,
		},
		"a service manager": {
			[]made{worker, {30, 1, "/lib/systemd/systemd --user", false}},
			30,
			30,
			true,
		},
		"a notebook": {
			[]made{worker, {30, 1, "python -m ipykernel_launcher", false}},
			30,
			30,
			true,
		},
		"only named in a word": {
			[]made{worker, {30, 1, "python supervise.py torchrun", false}},
			30,
			30,
			true,
		},
		"ended, and adopted": {
			[]made{worker, {30, 1, "python torchrun train.py", false}},
			29,
			0,
			false,
		},
		"ended, of the first": {
			[]made{{40, 1, "python train.py", true}, {1, 0, "torchrun", false}},
			1,
			0,
			false,
		},
		"parent of another number": {
			[]made{worker, {30, 20, "python torchrun train.py", false}},
			0,
			30,
			false,
		},
	} {
		got, err := fakeProc(t, c.all...).Above(40, c.parent)
		if got.PID != c.want ||
			errors.Is(err, ErrUnproven) != c.unproven ||
			err != nil && !c.unproven {
			t.Errorf("%s: process %d, %v", name, got.PID, err)
		}
		if got.PID > 0 && got.Start != uint64(1000+got.PID) {
			t.Errorf("%s: start %d", name, got.Start)
		}
	}
}

// What this process descends from is never ended, whatever it is called.
func TestNotAboveItself(t *testing.T) {
	own := os.Getpid()
	parent := os.Getppid()
	s := fakeProc(
		t,
		made{40, parent, "python train.py", true},
		made{own, parent, "falcon-agent", false},
		made{parent, 1, "python torchrun x.py", false},
	)
	got, err := s.Above(40, parent)
	if !errors.Is(err, ErrUnproven) || got.PID != parent {
		t.Fatalf("process %d, %v", got.PID, err)
	}
}

// A signal reaches the process that was found, and not what has its number since.
func TestSignal(t *testing.T) {
	s := System{Proc: "/proc"}
	shell := exec.Command("/bin/sh", "-c", "sleep 1000 & wait")
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- shell.Wait() }()
	var below []Process
	for range 500 {
		if below = s.Below(Process{PID: shell.Process.Pid}); len(below) == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	self := s.Below(Process{PID: os.Getpid()})
	at := slices.IndexFunc(self, func(p Process) bool {
		return p.PID == shell.Process.Pid
	})
	if at < 0 || len(below) != 1 {
		t.Fatalf("below this process are %v, below the shell %v", self, below)
	}
	found := self[at]
	if err := s.Signal(Process{PID: found.PID, Start: found.Start + 1}, unix.SIGKILL); err != nil ||
		!s.Runs(found) {
		t.Fatalf("another process with its number was meant: %v", err)
	}
	for _, p := range []Process{below[0], found} {
		if err := s.Signal(p, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	<-ended
	if err := s.Signal(found, unix.SIGKILL); err != nil || s.Runs(found) {
		t.Fatalf("ended already: %v", err)
	}
}
