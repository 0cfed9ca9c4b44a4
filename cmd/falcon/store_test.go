package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/tcpstore/storetest"
)

// The store says where it listens, serves both kinds of clients and ends with
// success when it is told to.
func TestStoreCommand(t *testing.T) {
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(bin, "store", "--listen", "127.0.0.1:0", "--generation", "7")
	c.Env = append(os.Environ(), asFalcon+"=1")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("it said %q (%v)", line, err)
	}
	for i, l := range []storetest.Layout{storetest.Legacy, storetest.Current} {
		cl, err := storetest.Dial(address, l, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := cl.Add("//worker/attempt_7/n", 1); err != nil || n != int64(i+1) {
			t.Errorf("%s: %d (%v), wants %d", l, n, err, i+1)
		}
		if _, err := cl.Add("//worker/attempt_6/n", 1); err == nil {
			t.Errorf("%s: an older attempt was served", l)
		}
		cl.Close()
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestStoreSaysWhatIsWrong(t *testing.T) {
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, says string }{
		{"--listen 0.0.0.0:0", "--insecure-listen"},
		{"--listen nonsense", "HOST:PORT"},
		{"--budget 5", "--budget"},
		{"--max-clients -1", "--max-clients"},
		{"more", "store"},
	} {
		e := exec.Command(bin, append([]string{"store"}, strings.Fields(c.args)...)...)
		e.Env = append(os.Environ(), asFalcon+"=1")
		out, err := e.CombinedOutput()
		code := e.ProcessState.ExitCode()
		if err == nil ||
			code != 2 ||
			!strings.Contains(string(out), c.says) ||
			strings.Count(string(out), "\n") != 1 {
			t.Errorf("store %s: code %d, said %q, wants %q", c.args, code, out, c.says)
		}
	}
}
