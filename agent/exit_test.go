package agent

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/launch"
)

// child starts a real process that sleeps until it is told otherwise.
func child(t *testing.T, script string, old OldKernel) (*exec.Cmd, Exit) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	w, err := watchExit(cmd.Process.Pid, func() {}, old)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return cmd, w
}

func gone(t *testing.T, w Exit) {
	t.Helper()
	select {
	case <-w.Gone():
	case <-time.After(20 * time.Second):
		t.Fatal("the end of a process was not seen")
	}
}

func TestExitIsSeenAndExplained(t *testing.T) {
	for script, want := range map[string]string{
		"read x; exit 0":        "killed by signal 9 (SIGKILL)",
		"exit 3":                "exited with status 3",
		"exit 0":                "exited normally",
		"kill -SEGV $$; read x": "killed by signal 11 (SIGSEGV)",
	} {
		cmd, w := child(t, script, OldKernel{})
		if want == "killed by signal 9 (SIGKILL)" {
			select {
			case <-w.Gone():
				t.Fatal("gone before its end")
			default:
			}
			if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		gone(t, w)
		_ = cmd.Wait() // the parent collects it: now the kernel may tell
		how, known := w.How()
		if !known {
			t.Logf("%q: this kernel does not tell how other processes' children ended", script)
		} else if how != want {
			t.Errorf("%q: %q, want %q", script, how, want)
		}
	}
}

// Kernels that can't watch a process, or don't tell how it ended.
var oldKernels = []OldKernel{{}, {NoPidfd: true}, {NoExitInfo: true}}

func TestCloseEndsTheWatch(t *testing.T) {
	for _, old := range oldKernels {
		closeEndsTheWatch(t, old)
	}
}

func closeEndsTheWatch(t *testing.T, old OldKernel) {
	_, w := child(t, "read x", old)
	w.Close() // goleak checks the goroutine
	select {
	case <-w.Gone():
		t.Fatal("a watch that was closed says gone")
	default:
	}
}

func TestWatchingNoProcess(t *testing.T) {
	for _, old := range oldKernels {
		if _, err := watchExit(1<<22, nil, old); err == nil {
			t.Fatalf("%+v: no error for a pid beyond all pids", old)
		}
	}
}

func TestDescribeExit(t *testing.T) {
	for status, want := range map[unix.WaitStatus]string{
		0:      "exited normally",
		1 << 8: "exited with status 1",
		9:      "killed by signal 9 (SIGKILL)",
		0x86:   "killed by signal 6 (SIGABRT)", // with a core dump
	} {
		if got := launch.DescribeExit(status); got != want {
			t.Errorf("%#x: %q, want %q", uint32(status), got, want)
		}
	}
}

// Without a pidfd the end is seen all the same, while the parent has not asked
// for it and also afterwards; how it was is not known.
func TestExitOnAnOldKernel(t *testing.T) {
	for _, old := range oldKernels[1:] {
		cmd, w := child(t, "read x", old)
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		gone(t, w)
		_ = cmd.Wait()
		if how, known := w.How(); known {
			t.Errorf("%+v: %q", old, how)
		}
	}
}

// A process whose first thread has ended goes on.
func TestBorn(t *testing.T) {
	self, ok := startTicks(os.Getpid())
	again, still := startTicks(os.Getpid())
	if !ok || !still || again != self || self == 0 {
		t.Fatalf("%d and %d", self, again)
	}
	if _, ok := startTicks(1 << 22); ok {
		t.Fatal("a pid beyond all pids runs")
	}
}
