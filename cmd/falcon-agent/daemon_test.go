package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/lab"
	"github.com/failslow/falcon/agent/ship/shiptest"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// asAgent makes the test binary the agent's binary.
const asAgent = "FALCON_AGENT_UNDER_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		main()
	}
	os.Exit(m.Run())
}

// atExit spares a daemon under the race detector the second that it sleeps before
// it ends: six upgrades would outlive the job.
const atExit = "GORACE=atexit_sleep_ms=0"

const (
	jobRanks      = 2   // DP 2
	jobIterations = 600 // of a job that ends by itself: 3 s
	endless       = 1_000_000
)

// jobModel is small, and each iteration takes 5 ms on emulated GPUs, most of which
// a rank sleeps.
var jobModel = []string{"--dp", strconv.Itoa(jobRanks), "--hidden", "16", "--batch", "1", "--fwd-ms", "0.2"}

// start runs the agent's binary as a process of its own.
func start(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asAgent+"=1", atExit), env...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// node is one machine with a real job, a real daemon and an engine.
type node struct {
	dir    string
	config string
	engine *shiptest.Engine
	job    []string // command of each rank
	ranks  []*exec.Cmd
}

// newNode has a running engine and no other process so far.
func newNode(t *testing.T, iterations int, args ...string) *node {
	t.Helper()
	bin := os.Getenv("FALCON_TEST_BIN") // of another build
	if bin == "" {
		bin = "../../bin"
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	trainer := filepath.Join(bin, "falcon-trainer")
	hook := filepath.Join(bin, "lib", hookName)
	for _, need := range []string{trainer, hook, filepath.Join(bin, "lib", "libnccl.so.2")} {
		if _, err := os.Stat(need); err != nil {
			t.Skipf("%s is not built: run make build first", need)
		}
	}
	n := &node{dir: t.TempDir(), engine: shiptest.NewEngine(t)}
	n.config = filepath.Join(n.dir, "agent.yaml")
	f := n.engine.Agent()
	text := fmt.Sprintf(
		"node: n1\njob: live\nengine: %s\ncert: %s\nkey: %s\nca: %s\nshm_dir: %s\nnvml: {enabled: false}\nlog_level: error\n",
		n.engine.Address(), f.Cert, f.Key, f.CA, n.dir,
	)
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	rendezvous := filepath.Join(n.dir, "rendezvous")
	if err := os.Mkdir(rendezvous, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(trainer, append(jobModel, "--print-peak")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	peak, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err == nil {
		err = lab.CreateState(n.state(), 1, jobRanks, peak, 1e9)
	}
	if err != nil {
		t.Fatal(err)
	}
	n.job = append([]string{"run", "--job", "live", "--hook", hook, "--", trainer}, jobModel...)
	n.job = append(
		append(n.job, "--iterations", strconv.Itoa(iterations), "--rendezvous", rendezvous),
		args...,
	)
	n.engine.Start()
	return n
}

func (n *node) state() string {
	return filepath.Join(n.dir, "state")
}

// begin starts a daemon, then the job, and returns once the engine has seen the
// first iterations.
func (n *node) begin(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	daemon := start(t, env, "--config", n.config)
	shiptest.Until(t, "the daemon", func() bool {
		return len(n.engine.Hellos()) > 0
	})
	for r := range jobRanks {
		n.ranks = append(n.ranks, start(t, []string{
			"RANK=" + strconv.Itoa(r),
			"LOCAL_RANK=" + strconv.Itoa(r),
			"WORLD_SIZE=" + strconv.Itoa(jobRanks),
			"FALCON_SHM_DIR=" + n.dir,
			"FALCON_TEST_MB=64",
			"FALCON_LAB_STATE=" + n.state(),
			"FALCON_LAB_NODE=0",
		}, n.job...))
	}
	shiptest.Until(t, "the first iterations", n.beyond(10))
	return daemon
}

// finish orders the job to stop, waits for the ranks' ends and checks that the last
// iterations and the ends are reported.
func (n *node) finish(t *testing.T, order uint64) {
	t.Helper()
	n.order(
		&falconv1.Command{Body: &falconv1.Command_Order{Order: &falconv1.OrderCommand{
			Order:    order,
			Kind:     "stop",
			JobEpoch: 1,
		}}},
		order,
	)
	for r, cmd := range n.ranks {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	shiptest.Until(t, "the stop", func() bool {
		_, done := n.acks(order)
		return done > 0
	})
	acks, _ := n.acks(order)
	shiptest.Until(t, "the last iterations", n.beyond(acks[0].Iteration-2))
	shiptest.Until(t, "the ends", n.ended)
}

// newest is the newest iteration of each rank that the engine has.
func (n *node) newest() map[int32]int64 {
	out := map[int32]int64{}
	for _, f := range n.engine.Frames() {
		for _, s := range f.GetSamples().GetSamples() {
			out[s.Rank] = max(out[s.Rank], s.Iteration)
		}
	}
	return out
}

func (n *node) beyond(iteration int64) func() bool {
	return func() bool {
		got := n.newest()
		for r := range int32(jobRanks) {
			if got[r] < iteration {
				return false
			}
		}
		return true
	}
}

// acks are the acknowledgements of an order, and how often it was reported as
// done.
func (n *node) acks(order uint64) (acks []*falconv1.RankAck, done int) {
	for _, f := range n.engine.Frames() {
		r := f.GetResult()
		if r.GetStatus() == falconv1.CommandStatus_COMMAND_STATUS_DONE &&
			len(r.GetRanks()) == jobRanks &&
			r.GetRanks()[0].GetOrder() == order {
			acks = append(acks, r.GetRanks()...)
			done++
		}
	}
	return acks, done
}

// The daemon is killed with -9 and started again while a real job trains: the
// job goes on, an order that the engine repeats to the new daemon holds once,
// and what the engine's absence delayed arrives.
func TestKilledDaemonComesBackToALiveJob(t *testing.T) {
	n := newNode(t, endless)
	first := n.begin(t)
	n.engine.Command(&falconv1.Command{
		Epoch:          1,
		Id:             1,
		DeadlineUnixNs: time.Now().Add(time.Minute).UnixNano(),
		Body: &falconv1.Command_Order{Order: &falconv1.OrderCommand{
			Order:        1,
			Kind:         "microbatches",
			MicroBatches: []int32{7, 9},
			JobEpoch:     1,
		}},
	})
	shiptest.Until(t, "the order", func() bool {
		_, done := n.acks(1)
		return done >= 1
	})
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	n.engine.Stop()
	second := start(t, nil, "--config", n.config) // finds the job, not the engine
	n.engine.Start()
	at := n.newest()[0]
	shiptest.Until(t, "iterations by the second daemon", n.beyond(at+50))
	shiptest.Until(t, "the order's repeat", func() bool {
		_, done := n.acks(1)
		return done >= 2
	})
	acks, _ := n.acks(1)
	for _, a := range acks {
		if a.Iteration != acks[0].Iteration || a.Status != 0 {
			t.Fatalf("the order did not hold once for all: %v", acks)
		}
	}
	hellos := n.engine.Hellos()
	if len(hellos) < 2 ||
		hellos[0].Boot == hellos[len(hellos)-1].Boot ||
		hellos[0].Node != "n1" {
		t.Fatalf("hellos %v", hellos)
	}
	n.finish(t, 2)
	_ = second.Process.Signal(os.Interrupt)
	if err := second.Wait(); err != nil {
		t.Fatalf("the daemon did not end well on SIGINT: %v", err)
	}
}

// The daemon is killed with -9 once it has delivered a placement, and once more
// when it has told of it: whatever step the ranks are at then, they swap, and the
// next daemon tells who held which rank before and who holds it now.
func TestKilledDaemonTellsOfTheSwap(t *testing.T) {
	n := newNode(t, endless)
	daemon := n.begin(t)
	n.engine.Command(&falconv1.Command{
		Epoch:          1,
		Id:             1,
		DeadlineUnixNs: time.Now().Add(time.Minute).UnixNano(),
		Body: &falconv1.Command_Order{Order: &falconv1.OrderCommand{
			Order:    1,
			Kind:     "placement",
			Blocks:   []int32{1, 0},
			JobEpoch: 1,
		}},
	})
	shiptest.Until(t, "the delivery", func() bool {
		return len(n.results()) > 0
	})
	for again := 1; again <= 2; again++ {
		if err := daemon.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = daemon.Wait()
		_, before := n.acks(1)
		daemon = start(t, nil, "--config", n.config)
		shiptest.Until(t, "the acknowledgements of the next daemon", func() bool {
			_, done := n.acks(1)
			return done > before
		})
		acks, _ := n.acks(1)
		for _, a := range acks[len(acks)-jobRanks:] {
			if a.Rank+a.NowRank != 1 ||
				a.Iteration != acks[0].Iteration ||
				a.Status != 0 ||
				len(a.StepMs) != 4 {
				t.Fatalf("ack %v", a)
			}
		}
	}
	at := n.newest()[0]
	shiptest.Until(t, "iterations after the swap", n.beyond(at+20))
	held := n.held()
	if held[0] != n.pid(1) || held[1] != n.pid(0) {
		t.Fatalf("ranks are held by %v", held)
	}
}

func (n *node) pid(rank int) int32 {
	return int32(n.ranks[rank].Process.Pid)
}

func (n *node) results() []*falconv1.CommandResult {
	var out []*falconv1.CommandResult
	for _, f := range n.engine.Frames() {
		if r := f.GetResult(); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// held is the process of each rank by the newest states.
func (n *node) held() map[int32]int32 {
	rank := map[int32]int32{}
	out := map[int32]int32{}
	for _, f := range n.engine.Frames() {
		if st := f.GetRank(); st != nil {
			rank[st.Pid] = st.Rank
		}
	}
	for pid, r := range rank {
		out[r] = pid
	}
	return out
}

// ended reports whether every rank's end is known and its file is gone.
func (n *node) ended() bool {
	dead := map[int32]bool{}
	for _, f := range n.engine.Frames() {
		if st := f.GetRank(); st != nil && !st.Alive {
			dead[st.Rank] = true
		}
	}
	left, _ := filepath.Glob(filepath.Join(n.dir, "falcon.live.*"))
	return len(dead) == jobRanks && len(left) == 0
}
