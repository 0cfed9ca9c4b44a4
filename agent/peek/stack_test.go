package peek

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/proof"
)

// Where the threads of a real process stand: this one's own.
func TestThreads(t *testing.T) {
	part := Threads("/proc", os.Getpid(), time.Now)
	if len(part.Lines) == 0 ||
		!strings.HasPrefix(part.Lines[0], "main thread ") ||
		!strings.Contains(part.Lines[0], "(") {
		t.Errorf("%q %s", part.Lines, part.Note)
	}
	for _, l := range part.Lines {
		if !plainText(l) || len(l) > lineBytesMost+64 {
			t.Errorf("%q", l)
		}
	}
	got := Threads("/proc", 1<<22+1, time.Now)
	if got.Note != "the process has just ended" || len(got.Lines) > 0 {
		t.Errorf("%v", got)
	}
}

// Threads that stand alike are counted; the main thread comes first; what may not be read is
// said; a slow file system ends the look.
func TestThreadsFromFiles(t *testing.T) {
	proc := t.TempDir()
	put := func(tid, name, state, wchan, stack string) {
		dir := filepath.Join(proc, "7", "task", tid)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{
			"status": "Name:\t" + name + "\nState:\t" + state + "\n",
			"wchan":  wchan,
			"stack":  stack,
		} {
			write(t, filepath.Join(dir, file), []byte(text))
		}
	}
	put("7", "python", "D (disk sleep)", "nv_wait",
		"[<0>] nv_wait+0x1/0x2 [nvidia]\n[<0>] do_syscall_64+0x3/0x4\n")
	put("9", "pt_nccl\x1b[2Jw", "S (sleeping)", "futex_do_wait", "")
	put("10", "pt_nccl\x1b[2Jw", "S (sleeping)", "futex_do_wait", "")
	put("11", "falcon-hook", "R (running)", "0", "")
	got := Threads(proc, 7, time.Now)
	want := []string{
		"main thread 7 python: D (disk sleep), waits in nv_wait", "    nv_wait < do_syscall_64",
		"2 threads pt_ncclw: S (sleeping), waits in futex_do_wait", "thread 11 falcon-hook: R (running)",
	}
	if strings.Join(got.Lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got.Lines, "\n"))
	}
	at := time.Unix(0, 0)
	slow := Threads(proc, 7, func() time.Time {
		at = at.Add(stackWithin)
		return at
	})
	if !strings.Contains(slow.Note, "the first 1 of 4 threads") {
		t.Errorf("%v", slow)
	}
}

// pythonHangs runs a process with falcon_torch's thread that hangs in a call of the C
// library, with the interpreter's lock or without.
func pythonHangs(t *testing.T, library string) (dir string, pid int) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	dir = t.TempDir()
	module, err := filepath.Abs(filepath.Join("..", "..", "native", "python", "falcon_torch", "_stack.py"))
	if err != nil {
		t.Fatal(err)
	}
	script := `
import ctypes, importlib.util, sys
spec = importlib.util.spec_from_file_location("_stack", sys.argv[1])
m = importlib.util.module_from_spec(spec); spec.loader.exec_module(m)
m.start(sys.argv[2])
def all_reduce_that_hangs():
    print("ready", flush=True)
    ctypes.` + library + `(None).sleep(60)
all_reduce_that_hangs()
`
	cmd := exec.Command(python, "-c", script, module, dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	buf := make([]byte, 6)
	if _, err := out.Read(buf); err != nil {
		t.Fatal(err)
	}
	return dir, cmd.Process.Pid
}

// A main thread that hangs in a call which has let the interpreter's lock go is seen; the
// process goes on, and nothing is left behind.
func TestPythonStack(t *testing.T) {
	dir, pid := pythonHangs(t, "CDLL")
	for range 2 { // and again
		got := Python(dir, nameOf(pid), os.Geteuid())
		if !strings.Contains(strings.Join(got.Lines, "\n"), "all_reduce_that_hangs") {
			t.Fatalf("%q %s", got.Lines, got.Note)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// One that holds the lock gives no stack, in time and with the reason.
func TestPythonStackWithLockHeld(t *testing.T) {
	dir, pid := pythonHangs(t, "PyDLL")
	began := time.Now()
	got := Python(dir, nameOf(pid), os.Geteuid())
	if len(got.Lines) > 0 ||
		!strings.Contains(got.Note, "GIL") ||
		time.Since(began) > pythonWithin+time.Second {
		t.Errorf("%q %s after %s", got.Lines, got.Note, time.Since(began))
	}
}

// What another user has put in the place of the answer is not read.
func TestPythonStackOfAnother(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/etc/passwd", askName(dir, "7")); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(100 * time.Millisecond)
		_ = os.Symlink("/etc/passwd", stackName(dir, "7"))
	}()
	got := Python(dir, "7", os.Geteuid())
	if len(got.Lines) > 0 || !strings.Contains(got.Note, "symbolic link") {
		t.Errorf("%v", got)
	}
}

// nameOf is a process of this namespace by its own name.
func nameOf(pid int) string {
	return proof.Claim{PID: pid, PIDNs: proof.NewProver("/proc").PIDNs()}.Name()
}
