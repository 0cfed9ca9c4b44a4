package keeper

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/backend/tcpstore"
	"github.com/failslow/falcon/backend/tcpstore/storetest"
)

// patience is for what must come; a test that fails takes as long.
const patience = 20 * time.Second

// asPart makes this test binary a store's process, or a process with a keeper.
const asPart = "FALCON_TEST_KEEPER_PART"

func TestMain(m *testing.M) {
	switch os.Getenv(asPart) {
	case "store":
		os.Exit(storePart(os.Args[2:]))
	case "keeper":
		keeperPart()
	}
	goleak.VerifyTestMain(m)
}

func storePart(args []string) int {
	var o tcpstore.Options
	f := flag.NewFlagSet("store", flag.ExitOnError)
	f.Bool("inherited", false, "")
	f.Uint64Var(&o.Generation, "generation", 0, "")
	f.Int64Var(&o.Budget, "budget", 0, "")
	_ = f.Parse(args)
	if err := Serve(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// keeperPart keeps a store until it is killed.
func keeperPart() {
	k, err := Open(Options{Address: "127.0.0.1:0", Command: command})
	if err != nil {
		os.Exit(1)
	}
	for k.Trouble() != "" {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(k.Pid())
	select {}
}

func command(args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asPart+"=store")
	return c
}

func open(t *testing.T, o Options) *Keeper {
	t.Helper()
	o.Address = "127.0.0.1:0"
	if o.Command == nil {
		o.Command = command
	}
	k, err := Open(o)
	must(t, err)
	t.Cleanup(func() { must(t, k.Close()) })
	return k
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits for what other processes do.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// record is a log that many write.
type record struct {
	mu sync.Mutex
	b  strings.Builder
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(b)
}

func (r *record) has(s string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(r.b.String(), s)
}

func serves(k *Keeper) func() bool {
	return func() bool { return k.Trouble() == "" }
}

func gone(pid int) func() bool {
	return func() bool {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
}

// freeze stops a child of ours. The signal alone takes effect later: a thread on
// another core may still answer.
func freeze(t *testing.T, pid int) {
	t.Helper()
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	must(t, unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil))
}

func dial(t *testing.T, k *Keeper) *storetest.Client {
	t.Helper()
	c, err := storetest.Dial(k.Addr(), storetest.Current, patience)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// A fence of the keeper is one of the store.
func TestFence(t *testing.T) {
	k := open(t, Options{Generation: 3})
	old := dial(t, k)
	if _, err := old.Add("n", 1); err != nil {
		t.Fatal(err)
	}
	must(t, k.Fence(4))
	if _, err := old.Add("n", 1); err == nil {
		t.Error("a client of the old generation was answered")
	}
	if n, err := dial(t, k).NumKeys(); err != nil || n != 0 {
		t.Errorf("%d keys (%v)", n, err)
	}
	must(t, k.Fence(4))
	if err := k.Fence(3); !errors.Is(err, tcpstore.ErrFenced) {
		t.Errorf("an older generation: %v", err)
	}
}

// A store that dies is started again, at the same address and in the newest
// generation; whoever connects meanwhile is served then.
func TestStoreDies(t *testing.T) {
	var log record
	k := open(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	until(t, "it serves", serves(k))
	must(t, k.Fence(7))
	old := dial(t, k)
	_, err := old.Add("n", 1)
	must(t, err)
	was := k.Pid()
	must(t, syscall.Kill(was, syscall.SIGKILL))
	until(t, "the log says why", func() bool {
		return log.has("is down") && log.has("killed")
	})
	if _, err := old.NumKeys(); err == nil {
		t.Error("a client of the dead store was answered")
	}
	c := dial(t, k)
	if n, err := c.NumKeys(); err != nil || n != 0 {
		t.Errorf("the next store has %d keys (%v)", n, err)
	}
	if _, err := c.Check("/worker/attempt_6/x"); err == nil {
		t.Error("the next store knows no generation")
	}
	until(t, "it serves again", serves(k))
	if n := k.News(); len(n) != 1 || !strings.Contains(n[0], "is down") || !strings.Contains(n[0], "killed") {
		t.Errorf("the news are %q", n)
	}
	if n := k.News(); len(n) != 0 {
		t.Errorf("again: %q", n)
	}
	until(t, "it is said to serve again", func() bool {
		n := k.News()
		return len(n) == 1 && strings.Contains(n[0], "serves again")
	})
	if k.Pid() == was || !gone(was)() {
		t.Error("the dead process is still there")
	}
}

// A fence while no store runs holds for the next one.
func TestFenceWhileDown(t *testing.T) {
	bad := true
	k := open(t, Options{Command: func(args ...string) *exec.Cmd {
		if bad {
			bad = false // the keeper's one goroutine starts them
			return exec.Command("/nonexistent/falcon")
		}
		return command(args...)
	}})
	must(t, k.Fence(5))
	until(t, "it serves", serves(k))
	if _, err := dial(t, k).Check("/worker/attempt_4/x"); err == nil {
		t.Error("an older attempt was served")
	}
}

// A store that can't be started is tried again, and said to be down.
func TestStoreCannotStart(t *testing.T) {
	k := open(t, Options{Command: func(...string) *exec.Cmd {
		return exec.Command("/nonexistent/falcon")
	}})
	until(t, "the keeper says why", func() bool {
		return strings.Contains(k.Trouble(), "can't be started")
	})
	must(t, k.Fence(1))
}

// A program that is no store is ended.
func TestProgramIsNoStore(t *testing.T) {
	k := open(t, Options{Command: func(...string) *exec.Cmd {
		return exec.Command("/bin/sh", "-c", "echo hello >&4; exec sleep 1000")
	}})
	until(t, "it was ended", func() bool {
		return strings.Contains(k.Trouble(), "killed")
	})
}

// A store that does not answer is killed, and nothing of it is served any more.
func TestStoreHangs(t *testing.T) {
	k := open(t, Options{})
	until(t, "it serves", serves(k))
	was := k.Pid()
	freeze(t, was)
	must(t, k.Fence(9))
	if !gone(was)() {
		t.Error("the fence returned while the old store was there")
	}
	if _, err := dial(t, k).Check("/worker/attempt_8/x"); err == nil {
		t.Error("an older attempt was served")
	}
}

// The store ends with its keeper's process, however that ends.
func TestKeeperIsKilled(t *testing.T) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), asPart+"=keeper")
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() { _ = c.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	must(t, err)
	must(t, c.Process.Kill())
	until(t, "the store is gone", gone(pid))
}

// The end of the socket pair alone ends the store, in order.
func TestStoreEndsWithThePair(t *testing.T) {
	k, err := Open(Options{Address: "127.0.0.1:0", Command: command})
	must(t, err)
	until(t, "it serves", serves(k))
	k.mu.Lock()
	c := k.child
	k.mu.Unlock()
	must(t, k.Close())
	if !c.cmd.ProcessState.Success() {
		t.Errorf("it ended with %s", c.cmd.ProcessState)
	}
	if _, err := storetest.Dial(k.Addr(), storetest.Current, patience); err == nil {
		t.Error("its address is served after its end")
	}
}

func TestAddressIsRefused(t *testing.T) {
	if _, err := Open(Options{Address: "0.0.0.0:0"}); !errors.Is(err, tcpstore.ErrExposed) {
		t.Errorf("%v", err)
	}
}

func TestServeNeedsAKeeper(t *testing.T) {
	c := command("store", "--inherited")
	out, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "inherited") {
		t.Errorf("%v: %s", err, out)
	}
}

// Lines of any bytes: what is understood is the same when it is written again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"ready", "fence 7", "fenced 18446744073709551615", "refused 3 a newer one is in force",
		"fence x", "", "ready 1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		m, ok := parse(line)
		if !ok {
			return
		}
		again, ok := parse(strings.TrimSuffix(m.String(), "\n"))
		if !ok || again.word != m.word || again.generation != m.generation {
			t.Fatalf("%q became %+v, then %+v", line, m, again)
		}
	})
}
