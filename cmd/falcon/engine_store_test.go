package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/tcpstore"
	"github.com/failslow/falcon/backend/tcpstore/storetest"
)

// storePatience is for what other processes must do; a test that fails takes as
// long.
const storePatience = 30 * time.Second

// served is `falcon serve` in a process of its own.
type served struct {
	pid     int
	address string // of its store
	log     string // its file
}

func serveWithStore(t *testing.T) served {
	t.Helper()
	dir := shortDir(t)
	address, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "falcon.yaml")
	log := filepath.Join(dir, "log")
	if err := writeYAML(config, engineConfig{
		StateDir: dir,
		Listen:   "none",
		Store:    storeConfig{Listen: address},
	}); err != nil {
		t.Fatal(err)
	}
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(bin, "serve", "--config", config)
	c.Env = append(os.Environ(), asFalcon+"=1")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c.Stderr = f
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "socket ") {
		t.Fatalf("it said %q (%v)", line, err)
	}
	return served{c.Process.Pid, address, log}
}

// store is the store's process.
func (s served) store(t *testing.T) (pid int) {
	t.Helper()
	var b []byte
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if more, err := os.ReadFile(file); err == nil {
			b = append(b, more...)
		}
	}
	for _, word := range strings.Fields(string(b)) {
		args, err := os.ReadFile("/proc/" + word + "/cmdline")
		if err == nil && bytes.Contains(args, []byte("\x00--inherited\x00")) {
			pid, err = strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return pid
}

func (s served) says(t *testing.T, what string) bool {
	t.Helper()
	b, err := os.ReadFile(s.log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(b), what)
}

// soon waits for what other processes do.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(storePatience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// memoryMiB is a line of a process's status.
func memoryMiB(t *testing.T, pid int, line string) float64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(b, []byte(line+":"))
	var kb float64
	if _, err := fmt.Sscan(string(rest), &kb); err != nil {
		t.Fatal(err)
	}
	return kb / 1024
}

// The engine outlives its store and starts it again; the store does not outlive
// the engine.
func TestStoreIsAProcessOfTheEngine(t *testing.T) {
	s := serveWithStore(t)
	soon(t, "the store runs", func() bool { return s.store(t) != 0 })
	was := s.store(t)
	if err := syscall.Kill(was, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	soon(t, "the engine says so", func() bool { return s.says(t, "store is down") })
	if _, err := storetest.Meet(s.address, storetest.Current, 8, storePatience); err != nil {
		t.Fatal(err)
	}
	soon(t, "it serves again", func() bool { return s.says(t, "serves again") })
	next := s.store(t)
	if next == was || next == 0 {
		t.Fatalf("the store's process was %d and is %d", was, next)
	}
	if err := syscall.Kill(s.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	soon(t, "the store has ended", func() bool {
		return errors.Is(syscall.Kill(next, 0), syscall.ESRCH)
	})
}

// flood is what a hostile process does to a store: connections that say nothing,
// large values, and requests that never end.
func flood(t *testing.T, address string, idle, values, unfinished int) {
	t.Helper()
	dial := func() net.Conn {
		nc, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = nc.(*net.TCPConn).SetLinger(0)
			_ = nc.Close()
		})
		return nc
	}
	length := func(n int) []byte {
		return binary.LittleEndian.AppendUint64(nil, uint64(n))
	}
	for range idle {
		dial()
	}
	big := bytes.Repeat([]byte("x"), tcpstore.MaxValue-64)
	for i := range values {
		key := fmt.Appendf(nil, "%020d", i)
		_, _ = dial().Write(bytes.Join([][]byte{{0}, length(len(key)), key, length(len(big)), big}, nil))
	}
	part := bytes.Join(
		[][]byte{{1}, length(1), []byte("k"), length(len(big)), big, length(len(big)), big[1:]},
		nil,
	)
	var done sync.WaitGroup
	for range unfinished {
		nc := dial()
		done.Go(func() { _, _ = nc.Write(part) })
	}
	done.Wait()
}

// What clients do to the store does not reach the engine, and ranks meet
// meanwhile.
func TestEngineDoesNotFeelAnAttackOnItsStore(t *testing.T) {
	if testing.Short() {
		t.Skip("gigabytes go over loopback")
	}
	s := serveWithStore(t)
	soon(t, "the store runs", func() bool { return s.store(t) != 0 })
	store := s.store(t)
	before := memoryMiB(t, s.pid, "VmRSS")
	const idle, values, unfinished = 5000, 128, 150
	flood(t, s.address, idle, values, unfinished)
	took, err := storetest.Meet(s.address, storetest.Current, 64, storePatience)
	if err != nil {
		t.Fatal(err)
	}
	peak := memoryMiB(t, store, "VmHWM")
	after := memoryMiB(t, s.pid, "VmRSS")
	t.Logf("engine %.0f MiB before and %.0f MiB after, store %.0f MiB at most; 64 ranks met in %s",
		before, after, peak, took.Round(time.Millisecond))
	if most := float64(tcpstore.DefaultBudget+tcpstore.Overhead) / (1 << 20); peak > most {
		t.Errorf("the store had %.0f MiB, wants at most %.0f", peak, most)
	}
	if after > before+32 {
		t.Errorf("the engine grew from %.0f to %.0f MiB", before, after)
	}
	if now := s.store(t); now != store {
		t.Errorf("the store's process was %d and is %d", store, now)
	}
}

// Tests of other parts may have the store in their own process.
func TestStoreInProcess(t *testing.T) {
	s, err := storeConfig{Listen: "127.0.0.1:0", inProcess: true}.openStore(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, is := s.(*tcpstore.Server); !is {
		t.Errorf("it is a %T", s)
	}
	if err := errors.Join(s.Fence(2), s.Close()); err != nil {
		t.Error(err)
	}
}

func TestStoreBudgetIsJudged(t *testing.T) {
	for mib, ok := range map[int64]bool{0: true, 16: true, 15: false, -1: false, 1 << 30: false} {
		if err := (storeConfig{BudgetMiB: mib}).validate(); (err == nil) != ok {
			t.Errorf("%d MiB: %v", mib, err)
		}
	}
}
