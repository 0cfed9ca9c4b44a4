package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/failslow/falcon/cmd/falcon-trainer/model"
)

// The trainer's gradients and optimizer are those of the plain reference.
func TestMatchesTheReference(t *testing.T) {
	const iterations, microBatches = 12, 4
	got := local(t, nil, job(1, 1, 1, microBatches, iterations)...)
	ref := newReference(
		model.Shape{
			Hidden: 32,
			FFN:    48,
			Layers: 4,
			Batch:  4,
		},
		7,
		0.002,
		4*microBatches,
	)
	var want []float64
	for range iterations {
		want = append(want, ref.iterate())
	}
	agree(t, "tp1 dp1 pp1", got.losses, want, 1e-5)
	if last := len(want) - 1; want[last] > 0.9*want[0] {
		t.Errorf("the loss does not fall: %v", want)
	}
}

// Any layout trains the same model on the same samples.
func TestLayoutsAgree(t *testing.T) {
	const iterations, total = 12, 8
	want := local(t, nil, job(1, 1, 1, total, iterations)...)
	for _, l := range [][3]int{{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 1, 4}, {2, 2, 2}, {1, 4, 2}} {
		name := fmt.Sprintf("tp%d dp%d pp%d", l[0], l[1], l[2])
		got := local(t, nil, job(l[0], l[1], l[2], total/l[1], iterations)...)
		agree(t, name, got.losses, want.losses, 1e-4)
	}
}

// A sharded optimizer takes the same steps. The last layout needs padding: its
// parameters are no multiple of 3.
func TestShardedOptimizerAgrees(t *testing.T) {
	for _, l := range [][4]int{{1, 4, 2, 1}, {2, 2, 2, 1}, {1, 3, 1, 1}, {1, 4, 1, 2}} {
		plain := local(t, nil, job(l[0], l[1], l[2], 2, 12)...)
		args := job(
			l[0],
			l[1],
			l[2],
			2,
			12,
			"--zero=1",
			fmt.Sprintf("--zero-instances=%d", l[3]),
		)
		sharded := local(t, nil, args...)
		again := local(t, nil, args...)
		agree(
			t,
			fmt.Sprintf("tp%d dp%d pp%d", l[0], l[1], l[2]),
			sharded.losses,
			plain.losses,
			1e-5,
		)
		if sharded.weights != again.weights {
			t.Errorf("two runs gave the weights %q and %q", sharded.weights, again.weights)
		}
	}
}

func TestTwoRunsGiveTheSameWeights(t *testing.T) {
	args := job(2, 2, 2, 3, 8)
	a := local(t, nil, args...)
	b := local(t, nil, args...)
	if a.weights == "" ||
		a.weights != b.weights ||
		!slices.Equal(a.losses, b.losses) {
		t.Errorf("weights %q and %q", a.weights, b.weights)
	}
	other := local(t, nil, append(args, "--seed=8")...)
	if other.weights == a.weights {
		t.Error("another seed gave the same weights")
	}
}

// ordered runs a job whose ranks get orders, each rank at another time, and
// returns each rank's history.
func ordered(
	t *testing.T,
	orders string,
	world int,
	env []string,
	args ...string,
) (byRank []history, trace string) {
	t.Helper()
	need(t)
	dir := t.TempDir()
	trace = filepath.Join(dir, "trace")
	env = append(env, "LD_PRELOAD="+fakeJob(t), "FAKE_ORDERS="+orders, "FAKE_TRACE="+trace)
	local(t, env, append(args, "--log="+filepath.Join(dir, "log.{rank}"))...)
	for r := range world {
		b, err := os.ReadFile(filepath.Join(dir, "log."+strconv.Itoa(r)))
		if err != nil {
			t.Fatal(err)
		}
		byRank = append(byRank, parse(t, b))
	}
	return byRank, trace
}

// An uneven split takes effect at the same iteration on all ranks, and changes
// neither the samples nor the gradient's weighting.
func TestUnevenSplitTrainsAlike(t *testing.T) {
	const iterations = 16
	even := local(t, nil, job(1, 4, 2, 4, iterations)...)
	byRank, _ := ordered(
		t,
		"1 1 0 3 4 6 5 4 1 ; 2 1 0 9 4 4 4 4 4",
		8,
		nil,
		job(1, 4, 2, 4, iterations)...,
	)
	for r, h := range byRank {
		agree(t, fmt.Sprintf("rank %d", r), h.losses, even.losses, 1e-4)
		mine := []int32{6, 5, 4, 1}[r%4]
		for i, m := range h.micro {
			want := int32(4)
			if i >= 6 && i < 12 { // prepared at 3, by the latest rank at 5, voted in 5
				want = mine
			}
			if m != want {
				t.Errorf("rank %d ran %d micro-batches in iteration %d, want %d", r, m, i, want)
			}
		}
		if len(h.orders) != 2 || h.orders[0].From != 6 || h.orders[1].From != 12 {
			t.Errorf("rank %d: orders %+v", r, h.orders)
		}
	}
}

// What can't be done is refused on all ranks alike; a stop ends all at once.
func TestRefusalsAndStop(t *testing.T) {
	orders := "3 1 5 2 2 3 3 ; 4 1 5 5 2 4 1 ; 5 1 4 8 2 2 4 ; 6 9 5 11 0 ; 7 4 5 14 0"
	byRank, _ := ordered(t, orders, 4, nil, job(1, 2, 2, 3, 40)...)
	want := []struct {
		id     uint64
		status int32
	}{{3, 0}, {4, 2}, {5, 1}, {6, 3}, {7, 0}}
	for r, h := range byRank {
		if len(h.losses) != 17 { // prepared at 14, latest rank at 16
			t.Errorf("rank %d ran %d iterations, want 17", r, len(h.losses))
		}
		for i, w := range want {
			if i >= len(h.orders) ||
				h.orders[i].Order != w.id ||
				h.orders[i].Status != w.status {
				t.Fatalf("rank %d: orders %+v", r, h.orders)
			}
			if (w.status == 0) != (h.orders[i].Reason == "") {
				t.Errorf("rank %d, order %d: reason %q", r, w.id, h.orders[i].Reason)
			}
		}
	}
}

// An order that one rank has lost binds nobody.
func TestALostOrderBindsNobody(t *testing.T) {
	byRank, _ := ordered(
		t,
		"1 1 0 2 2 5 1",
		2,
		[]string{"FAKE_FORGETFUL=1"},
		job(1, 2, 1, 3, 8)...,
	)
	for r, h := range byRank {
		if len(h.orders) != 1 ||
			h.orders[0].Status != 4 ||
			slices.Max(h.micro) != 3 {
			t.Errorf("rank %d: %+v, micro-batches %v", r, h.orders, h.micro)
		}
	}
}

// The calls of one iteration come in the order that falcon_job.h promises.
func TestAdapterCalls(t *testing.T) {
	_, trace := ordered(t, "9 1 0 1 2 1 3", 2, nil, job(1, 2, 1, 2, 4)...)
	want := `describe 121 2 0
begin_iteration 0 0 0
begin_optimizer 0 0 0
end_optimizer 1 0 0
begin_iteration 1 0 0
begin_optimizer 1 0 0
end_optimizer 2 0 0
begin_iteration 2 0 0
begin_optimizer 2 0 0
end_optimizer 3 0 0
describe 121 1 0
ack 9 3 0
begin_iteration 3 0 0
begin_optimizer 3 0 0
end_optimizer 4 0 0
`
	got, err := os.ReadFile(trace + ".0")
	if err != nil || string(got) != want {
		t.Errorf("rank 0 called, %v:\n%s", err, got)
	}
}

func TestMarksOffKeepsOrders(t *testing.T) {
	_, trace := ordered(
		t,
		"9 1 0 1 2 1 3",
		2,
		nil,
		job(1, 2, 1, 2, 4, "--marks=off")...,
	)
	got, err := os.ReadFile(trace + ".1")
	if err != nil || string(got) != "describe 121 2 0\ndescribe 121 3 0\nack 9 3 0\n" {
		t.Errorf("rank 1 called, %v:\n%s", err, got)
	}
}

// A peer killed in the middle ends all others by themselves, with code 3 and a
// sentence; nobody hangs.
func TestPeerDeath(t *testing.T) {
	t.Run("ends", func(t *testing.T) { peerDeath(t) })
	t.Run("parks without a hook", func(t *testing.T) { peerDeath(t, "--park") })
}

func peerDeath(t *testing.T, more ...string) {
	cmds := ranks(t, 8, job(1, 4, 2, 4, 1_000_000, more...)...)
	start(t, cmds)
	began := time.Now()
	if err := cmds[5].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for r, c := range cmds {
		hung := time.AfterFunc(limit, func() { _ = c.Process.Kill() })
		_ = c.Wait()
		hung.Stop()
		msg := c.Stderr.(*bytes.Buffer).String()
		if r != 5 && (c.ProcessState.ExitCode() != 3 || strings.Count(msg, "\n") != 1) {
			t.Errorf("rank %d ended with %v, saying %q", r, c.ProcessState, msg)
		}
	}
	t.Logf("all ended after %v", time.Since(began).Round(time.Millisecond))
}

func TestSIGTERM(t *testing.T) {
	cmds := ranks(t, 1, job(1, 1, 1, 4, 1_000_000)...)
	start(t, cmds)
	if err := cmds[0].Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmds[0].Wait()
	if code := cmds[0].ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit code %d", code)
	}
}

func TestWrongUse(t *testing.T) {
	for _, c := range []struct {
		args []string
		env  []string
		says string
	}{
		{[]string{"--tp=0"}, nil, "must each be at least 1"},
		{[]string{"--tp=2", "--ffn=7"}, nil, "can't be split over tp 2"},
		{[]string{"--pp=2", "--layers=3"}, nil, "can't be split over pp 2"},
		{[]string{"--dp=2"}, []string{"WORLD_SIZE=3"}, "WORLD_SIZE is 3"},
		{[]string{"--dp=2"}, []string{"WORLD_SIZE=2"}, "need --rendezvous"},
		{[]string{"--dp=2", "--rendezvous=x"}, []string{"WORLD_SIZE=2", "RANK=2"}, "outside the 2 ranks"},
		{nil, []string{"RANK=x"}, `RANK is "x"`},
		{[]string{"--bwd-ms=5"}, nil, "give at least 10"},
		{[]string{"--virtual-stages=2"}, nil, "at least 2 stages"},
		{[]string{"--virtual-stages=0"}, nil, "give at least 1"},
		{
			[]string{"--pp=2", "--virtual-stages=2", "--layers=6", "--micro-batches=4"},
			nil,
			"choose a multiple of 4",
		},
		{[]string{"--pp=2", "--virtual-stages=2", "--micro-batches=3"}, nil, "give a multiple of 2"},
		{
			[]string{"--pp=2", "--virtual-stages=2", "--eval-every=2", "--eval-micro-batches=3"},
			nil,
			"give a positive multiple of 2",
		},
		{[]string{"--eval-every=-1"}, nil, "every -1 iterations"},
		{[]string{"--checkpoint-every=2"}, nil, "name one"},
		{[]string{"--resume"}, nil, "name one"},
		{[]string{"--state-mb=-1"}, nil, "no negative numbers"},
		{[]string{"--fail-step=swop"}, nil, "give one of [pause dump swap restore]"},
		{[]string{"--die-step=swop"}, nil, "vote commit]"},
		{nil, []string{"FALCON_GENERATION=one"}, `FALCON_GENERATION is "one"`},
		{[]string{"--zero=2"}, nil, "give 0 or 1"},
		{[]string{"--marks=maybe"}, nil, "give on or off"},
		{[]string{"--nonsense"}, nil, "see --help"},
		{[]string{"--fault=sideways@1:2"}, nil, "write POINT@ITERATION:RANK"},
		{[]string{"--zero-instances=2"}, nil, "only with --zero 1"},
		{[]string{"--dp=4", "--zero=1", "--zero-instances=3"}, nil, "give a divisor of 4"},
		{[]string{"--park", "--marks=off"}, nil, "give --marks on"},
		{nil, []string{"FALCON_JOIN=1"}, "give it --park"},
		{[]string{"--park"}, []string{"FALCON_JOIN=1"}, "there is no hook"},
		{[]string{"local", "--gpus-per-node=0"}, nil, "at least 1"},
	} {
		_, msg, code := execute(t, c.env, c.args...)
		if code != 2 ||
			!strings.Contains(string(msg), c.says) ||
			strings.Count(string(msg), "\n") != 1 {
			t.Errorf("%v %v: exit code %d, %q", c.args, c.env, code, msg)
		}
	}
}

func TestDivergenceIsSaid(t *testing.T) {
	_, msg, code := execute(t, nil, job(1, 1, 1, 2, 100, "--rate=1e9")...)
	if code != 1 || !strings.Contains(string(msg), "lower --rate") {
		t.Errorf("exit code %d, %q", code, msg)
	}
}

func TestUsedRendezvous(t *testing.T) {
	need(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "world-0"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, msg, code := execute(t, []string{"WORLD_SIZE=2"}, "--dp=2", "--rendezvous="+dir)
	if code != 1 || !strings.Contains(string(msg), "give each run an empty folder") {
		t.Errorf("exit code %d, %q", code, msg)
	}
}

// The modelled peak is that of the products of one stage, in --fwd-ms.
func TestPrintPeak(t *testing.T) {
	out, _, code := execute(
		t,
		nil,
		"--hidden=64",
		"--ffn=128",
		"--layers=4",
		"--batch=8",
		"--tp=2",
		"--pp=2",
		"--fwd-ms=4",
		"--print-peak",
	)
	const want = 2 * 2 * 2 * 8 * 64 * 64 / 0.004 // layers × products × 2·batch·hidden·width
	got, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if code != 0 || err != nil || got != want {
		t.Errorf("exit code %d, %q, want %v", code, out, want)
	}
}
