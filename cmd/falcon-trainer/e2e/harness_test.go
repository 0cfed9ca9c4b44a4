package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// trainer is the binary under test, built once, and why it can't be.
var (
	scratch string
	once    sync.Once
	trainer string
	without string
)

const limit = 60 * time.Second // of any one run

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "falcon-trainer-e2e-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		scratch = dir
		return m.Run()
	}())
}

// build makes the binary under test, or says why it can't.
func build(dir string) string {
	lib, err := libraries()
	if err != nil {
		return err.Error()
	}
	for _, so := range []string{"libnccl.so.2", "libcudart.so.12", "libcublas.so.12"} {
		if _, err := os.Stat(filepath.Join(lib, so)); err != nil {
			return "the stand-in " + so + " is not built; run `make native`"
		}
	}
	// Go caches a test's result unless a test saw its inputs change: look at
	// them. That is also why this does not happen in TestMain.
	err = filepath.Walk("..", func(_ string, _ os.FileInfo, err error) error { return err })
	if err != nil {
		return err.Error()
	}
	out := filepath.Join(dir, "falcon-trainer")
	if msg, err := exec.Command("go", "build", "-o", out, "..").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("go build: %v\n%s", err, msg))
	}
	// The binary looks for its libraries beside itself.
	if err := os.Symlink(lib, filepath.Join(dir, "lib")); err != nil {
		return err.Error()
	}
	trainer = out
	return ""
}

// libraries is where the stand-ins and the hook lie: $FALCON_TEST_LIB, or where
// make puts them.
func libraries() (string, error) {
	if dir := os.Getenv("FALCON_TEST_LIB"); dir != "" {
		return dir, nil
	}
	return filepath.Abs("../../../bin/lib")
}

func need(t *testing.T) {
	t.Helper()
	if once.Do(func() { without = build(scratch) }); trainer == "" {
		t.Skip(without)
	}
}

// fakeJob builds the stand-in for the hook, once.
func fakeJob(t *testing.T) string {
	t.Helper()
	need(t)
	so, err := fake()
	if err != nil {
		t.Fatal(err)
	}
	return so
}

var fake = sync.OnceValues(func() (string, error) {
	so := filepath.Join(scratch, "libfakejob.so")
	msg, err := exec.Command(
		"gcc",
		"-shared",
		"-fPIC",
		"-I../../../native/include",
		"-o", so,
		"testdata/fakejob.c",
	).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("gcc: %w\n%s", err, msg)
	}
	return so, nil
})

// line is any line of a trainer's output.
type line struct {
	Iteration    *int64  `json:"iteration"`
	Rank         int     `json:"rank"`
	Ms           float64 `json:"ms"`
	Loss         float64 `json:"loss"`
	MicroBatches int32   `json:"micro_batches"`
	Order        uint64  `json:"order"`
	From         int64   `json:"from_iteration"`
	Status       int32   `json:"status"`
	Reason       string  `json:"reason"`
	Weights      string  `json:"weights_sha256"`
	EndUnixNs    int64   `json:"end_unix_ns"`
	Evaluation   *int64  `json:"evaluation"`
	HeldOut      float64 `json:"held_out_loss"`
	Checkpoint   *int64  `json:"checkpoint"`
	File         string  `json:"file"`
	Bytes        int     `json:"bytes"`
	Swap         uint64  `json:"swap"`
	Step         string  `json:"step"`
	State        string  `json:"state"`
	Committed    bool    `json:"committed"`
	NewRank      int     `json:"new_rank"`
	Resume       *int64  `json:"resume"`
	PID          int     `json:"pid"`
	Generation   uint64  `json:"generation"`
	End          string  `json:"end"`
	Next         int64   `json:"next_iteration"`
	DumpMs       float64 `json:"dump_ms"`
	StoreMs      float64 `json:"store_ms"`
	LoadMs       float64 `json:"load_ms"`
	RestoreMs    float64 `json:"restore_ms"`
	EmulatedMs   float64 `json:"emulated_ms"`
	FirstSample  int64   `json:"first_sample"`
	Held         []int64 `json:"held"`
	Park         int32   `json:"park"`
	Rejoin       uint64  `json:"rejoin"`
	Begins       int64   `json:"resume_iteration"`
	Source       int     `json:"from"`
	Join         bool    `json:"join"`
	Why          string  `json:"why"`
	Fault        string  `json:"fault"`

	StepMs map[string]float64 `json:"step_ms"`
}

type history struct {
	losses  []float64
	micro   []int32
	orders  []line
	weights string
	trained []line // iterations
	judged  []line // evaluations
	saved   []line // checkpoints
	swaps   []line // steps of placements
	resumed []line
	parked  []line
	rejoins []line
	struck  []string // faults that were injected
	start   line
	end     line
}

func parse(t *testing.T, out []byte) history {
	t.Helper()
	var h history
	for row := range strings.Lines(string(out)) {
		var l line
		if err := json.Unmarshal([]byte(row), &l); err != nil {
			t.Fatalf("line %q: %v", row, err)
		}
		switch {
		case l.Held != nil:
			h.parked = append(h.parked, l)
		case l.Fault != "":
			h.struck = append(h.struck, l.Fault)
		case l.Rejoin != 0:
			h.rejoin(l)
		case l.Iteration != nil:
			if n := len(h.trained); n > 0 &&
				*l.Iteration != *h.trained[n-1].Iteration+1 &&
				*l.Iteration != h.begins() {
				t.Fatalf("iteration %d follows %d", *l.Iteration, *h.trained[n-1].Iteration)
			}
			h.losses = append(h.losses, l.Loss)
			h.micro = append(h.micro, l.MicroBatches)
			h.trained = append(h.trained, l)
		case l.Evaluation != nil:
			h.judged = append(h.judged, l)
		case l.Checkpoint != nil:
			h.saved = append(h.saved, l)
		case l.Weights != "":
			h.weights = l.Weights
		case l.Swap != 0:
			h.swaps = append(h.swaps, l)
		case l.Resume != nil:
			h.resumed = append(h.resumed, l)
		case l.PID != 0:
			h.start = l
		case l.End != "":
			h.end = l
		default:
			h.orders = append(h.orders, l)
		}
	}
	return h
}

// rejoin makes the iterations void that are run again.
func (h *history) rejoin(l line) {
	h.rejoins = append(h.rejoins, l)
	for n := len(h.trained); l.Status == 0 &&
		n > 0 &&
		*h.trained[n-1].Iteration >= l.Begins; n-- {
		h.trained, h.losses, h.micro = h.trained[:n-1], h.losses[:n-1], h.micro[:n-1]
	}
}

// begins is where the newest rejoin went on: this rank may have got there by
// what another one held.
func (h *history) begins() int64 {
	if n := len(h.rejoins); n > 0 && h.rejoins[n-1].Status == 0 {
		return h.rejoins[n-1].Begins
	}
	return -1
}

// job is the arguments that most tests share: a model small enough for
// seconds, and a layout.
func job(tp, dp, pp, microBatches, iterations int, more ...string) []string {
	args := []string{
		"--hidden=32", "--ffn=48", "--layers=4", "--batch=4", "--seed=7", "--rate=0.002",
		fmt.Sprintf("--tp=%d", tp), fmt.Sprintf("--dp=%d", dp), fmt.Sprintf("--pp=%d", pp),
		fmt.Sprintf("--micro-batches=%d", microBatches), fmt.Sprintf("--iterations=%d", iterations),
	}
	return append(args, more...)
}

// local runs all ranks of a job and returns what rank 0 printed.
func local(t *testing.T, env []string, args ...string) history {
	t.Helper()
	out, msg, code := execute(t, env, append([]string{"local"}, args...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, msg)
	}
	return parse(t, out)
}

func execute(t *testing.T, env []string, args ...string) (out, msg []byte, code int) {
	t.Helper()
	need(t)
	cmd := exec.CommandContext(t.Context(), trainer, args...)
	cmd.Env = append(clean(os.Environ()), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	stop := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return stdout.Bytes(), stderr.Bytes(), cmd.ProcessState.ExitCode()
}

// clean drops what a lab or a launcher around the tests may have set.
func clean(env []string) []string {
	var out []string
	for _, e := range env {
		switch name, _, _ := strings.Cut(e, "="); name {
		case "RANK", "WORLD_SIZE", "LOCAL_RANK", "FALCON_LAB_STATE", "FALCON_LAB_NODE",
			"FALCON_GENERATION", "FALCON_JOIN", "LD_PRELOAD":
		default:
			out = append(out, e)
		}
	}
	return out
}

// agree compares two series of losses, relative.
func agree(t *testing.T, what string, got, want []float64, within float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d losses, want %d", what, len(got), len(want))
	}
	worst := 0.0
	for i := range want {
		d := math.Abs(got[i]-want[i]) / want[i]
		if !(d <= within) {
			t.Fatalf("%s: loss %v at iteration %d, want %v", what, got[i], i, want[i])
		}
		worst = max(worst, d)
	}
	t.Logf("%s: losses differ by at most %.1e", what, worst)
}

// ranks starts one process per rank, as a launcher would.
func ranks(t *testing.T, world int, args ...string) []*exec.Cmd {
	t.Helper()
	need(t)
	meet := t.TempDir()
	var out []*exec.Cmd
	for r := range world {
		cmd := exec.CommandContext(t.Context(), trainer, append(args, "--rendezvous="+meet)...)
		cmd.Env = append(clean(os.Environ()),
			"RANK="+strconv.Itoa(r),
			"WORLD_SIZE="+strconv.Itoa(world),
			"LOCAL_RANK="+strconv.Itoa(r%8),
		)
		cmd.Stderr = new(bytes.Buffer)
		out = append(out, cmd)
	}
	return out
}

// start runs the ranks until the first has finished an iteration.
func start(t *testing.T, cmds []*exec.Cmd) {
	t.Helper()
	first, err := cmds[0].StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cmds {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill() })
	}
	for seen, b := "", make([]byte, 4096); !strings.Contains(seen, `"iteration"`); {
		n, err := first.Read(b)
		if err != nil {
			t.Fatalf("no first iteration: %v", err)
		}
		seen += string(b[:n])
	}
	go func() { // until rank 0 ends, which the caller waits for
		for b := make([]byte, 4096); err == nil; {
			_, err = first.Read(b)
		}
	}()
}
