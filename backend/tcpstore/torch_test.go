package tcpstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/tcpstore/storetest"
)

// systemPython is where apt-get puts PyTorch.
const systemPython = "/usr/bin/python3"

// torchLimit is for everything that a test does with PyTorch.
const torchLimit = 3 * time.Minute

// torch finds a Python that has PyTorch with Gloo, or skips.
func torch(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("PyTorch's processes are no short test")
	}
	ctx, stop := context.WithTimeout(t.Context(), torchLimit)
	defer stop()
	const ask = "import torch.distributed as d, torch; assert d.is_gloo_available(); print(torch.__version__)"
	for _, python := range []string{os.Getenv("FALCON_PYTHON"), systemPython, "python3"} {
		if python == "" {
			continue
		}
		if out, err := exec.CommandContext(ctx, python, "-c", ask).Output(); err == nil {
			t.Logf("the Python here has PyTorch %s", strings.TrimSpace(string(out)))
			return python
		}
	}
	if python := installed(ctx, t); python != "" {
		return python
	}
	t.Skip("no PyTorch with Gloo here: set FALCON_PYTHON, or run make python-torch")
	return ""
}

// installed is the Python with torch that .ci/python finds, "" for none. The test's processes get
// the environment that it needs.
func installed(ctx context.Context, t testing.TB) string {
	find := exec.CommandContext(ctx, "../../.ci/python", "run", "env")
	out, err := find.Output()
	if err != nil {
		return ""
	}
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		found[name] = value
	}
	python := found["FALCON_PYTHON"]
	if python == "" ||
		exec.CommandContext(
			ctx,
			"env",
			append(strings.Split(strings.TrimSpace(string(out)), "\n"), python, "-c", "import torch")...,
		).Run() != nil {
		return ""
	}
	for _, name := range []string{"FALCON_PYTHON", "LD_LIBRARY_PATH", "LD_PRELOAD"} {
		if value, is := found[name]; is {
			t.Setenv(name, value)
		}
	}
	return python
}

// attempt4 runs four ranks that meet in the store, and returns what each said.
func attempt4(t *testing.T, python string, s *Server, attempt int) (said []string, err error) {
	t.Helper()
	const n = 4
	ctx, stop := context.WithTimeout(t.Context(), torchLimit)
	defer stop()
	host, port, err := net.SplitHostPort(s.Addr())
	must(t, err)
	type end struct {
		said string
		err  error
	}
	ends := make(chan end, n)
	for r := range n {
		c := exec.CommandContext(ctx, python, "testdata/job.py")
		c.Env = append(os.Environ(),
			"MASTER_ADDR="+host,
			"MASTER_PORT="+port,
			fmt.Sprintf("WORLD_SIZE=%d", n),
			fmt.Sprintf("RANK=%d", r),
			"TORCHELASTIC_USE_AGENT_STORE=True",
			fmt.Sprintf("TORCHELASTIC_RESTART_COUNT=%d", attempt),
			"OMP_NUM_THREADS=1",
			"GLOO_SOCKET_IFNAME=lo",
		)
		go func() {
			out, err := c.CombinedOutput()
			ends <- end{string(out), err}
		}()
	}
	for range n {
		e := <-ends
		said, err = append(said, e.said), errors.Join(err, e.err)
	}
	return said, err
}

// unlike are the operations in which this store differs from PyTorch's, and why.
var unlike = map[string]string{
	"key of 9 KiB":           "PyTorch's newer server takes 8 KiB",
	"add to digits and more": "PyTorch adds to the digits that it finds",
	"add beyond the most":    "PyTorch wraps around",
	"add beyond the least":   "PyTorch wraps around",
}

// PyTorch's client finds here what it finds at PyTorch's own server, but for what is listed.
func TestOperationsBesidePyTorch(t *testing.T) {
	python := torch(t)
	theirs := start(t, exec.Command(python, "testdata/server.py"))
	mine := open(t, Options{})
	if layoutOf(theirs.name) == storetest.Legacy {
		t.Skipf("PyTorch %s has not all of the operations", theirs.name)
	}
	want := operations(t, python, theirs.address)
	got := operations(t, python, mine.Addr())
	same := 0
	for i, w := range want {
		name := w[0]
		switch why, differs := unlike[name]; {
		case got[i] == w && differs:
			t.Errorf("%s: both say %s, and it is listed as different: %s", name, w[1], why)
		case got[i] != w && !differs:
			t.Errorf("%s: %s, PyTorch's own server says %s", name, got[i][1], w[1])
		case got[i] == w:
			same++
		}
	}
	t.Logf("PyTorch %s: %d of %d operations are equal", theirs.name, same, len(want))
}

// operations has PyTorch's client carry out testdata/operations.py: the name and the result of each.
func operations(t *testing.T, python, address string) [][2]string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	ctx, stop := context.WithTimeout(t.Context(), torchLimit)
	defer stop()
	var errs strings.Builder
	c := exec.CommandContext(ctx, python, "testdata/operations.py", port)
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, errs.String())
	}
	var list [][2]string
	for line := range strings.Lines(string(out)) {
		var one [2]string
		must(t, json.Unmarshal([]byte(line), &one))
		list = append(list, one)
	}
	return list
}

// namesAttempts reports whether this PyTorch's keys name the attempt: later versions
// count on a store that is new, or fenced, for each.
func namesAttempts(t *testing.T, python string) bool {
	t.Helper()
	const ask = "import inspect, torch.distributed.rendezvous as r; print('/worker/attempt_' in inspect.getsource(r))"
	out, err := exec.Command(python, "-c", ask).Output()
	must(t, err)
	return strings.TrimSpace(string(out)) == "True"
}

// A real job of the installed PyTorch meets in the store, is started again by hand, and meets
// again; then its generation is over, and the same attempt is refused where its keys name it.
func TestTorchJob(t *testing.T) {
	python := torch(t)
	s := open(t, Options{})
	for attempt := range 2 {
		said, err := attempt4(t, python, s, attempt)
		if err != nil {
			t.Fatalf("attempt %d: %v\n%s", attempt, err, strings.Join(said, "\n"))
		}
		for r := range 4 {
			line := fmt.Sprintf("ok %d %d\n", r, attempt)
			if !strings.Contains(strings.Join(said, ""), line) {
				t.Errorf("attempt %d: rank %d did not end well", attempt, r)
			}
		}
	}
	want(t, "refused", s.Stats().Refused, 0)
	if !namesAttempts(t, python) {
		return
	}
	must(t, s.Fence(2))
	if said, err := attempt4(t, python, s, 1); err == nil {
		t.Fatalf("an attempt of a fenced generation met: %s", said)
	}
	want(t, "refused", s.Stats().Refused, 4)
}
